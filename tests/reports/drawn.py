"""The charts of a page, as a browser gets them: made once a session, because they take seconds."""

import html
import re
from dataclasses import dataclass

from analysis.many import SessionComparison
from analysis.model import Comparison
from reports import charts
from tests.analysis.measured import render

SVG = re.compile(r"<figure.*?(<svg.*?</svg>).*?</figure>", re.DOTALL)
NAME = re.compile(r'aria-labelledby="((?:pair\d+-)?([a-z]+)(?:-[a-z0-9-]*)?)-alt"')
_pages: dict[int, tuple[object, str]] = {}


@dataclass(frozen=True)
class OnPage:
    """A drawing on a page: the kind is the first word of its name."""

    name: str
    kind: str
    alt: str
    caption: str
    svg: str


def page_of(session: Comparison | SessionComparison) -> str:
    """The page with its charts."""
    if id(session) not in _pages:
        _pages[id(session)] = session, render(session, "html", drawn=True)
    return _pages[id(session)][1]


def charts_on(page: str) -> tuple[OnPage, ...]:
    """Every drawing of a page in order, with the words around it."""
    drawings = []
    for match in SVG.finditer(page):
        name = NAME.search(match[1])
        alt = re.search(r'<title id="[^"]+">(.*?)</title>', match[1], re.DOTALL)
        assert name
        assert alt
        words = re.sub(r"<svg.*?</svg>|<[^>]+>", " ", match[0], flags=re.DOTALL)
        caption = html.unescape(" ".join(words.split()))
        drawings.append(OnPage(name[1], name[2], html.unescape(alt[1]), caption, match[1]))
    return tuple(drawings)


def draw_all(session: Comparison | SessionComparison) -> tuple[OnPage, ...]:
    """The drawings of a session's page."""
    return charts_on(page_of(session))


def draw_anew() -> None:
    """Forget every chart that is kept for a second report."""
    charts._samples.cache_clear()
    _pages.clear()
