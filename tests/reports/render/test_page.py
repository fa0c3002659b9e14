"""The page: self-contained, escaped, complete."""

import re
from html.parser import HTMLParser

import pytest

from analysis.model import Comparison
from reports.sections.subject import wrapped_command
from tests.analysis.factory import ExactSession
from tests.analysis.measured import render
from tests.values import but

VOID = {"meta", "br", "link", "img", "path", "use", "wbr"}


class ParsedPage(HTMLParser):
    """Collects tags, attributes and text; notices tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def page(normal: Comparison) -> str:
    return render(normal, "html")


def test_nests_and_loads_nothing(page: str) -> None:
    parsed = ParsedPage(page)
    assert parsed.open == []
    names = {tag for tag, _ in parsed.tags}
    assert not names & {"link", "img", "iframe", "object"}
    assert [tag for tag, _ in parsed.tags].count("script") == 1
    outside = [
        (name, value)
        for _, attributes in parsed.tags
        for name, value in attributes.items()
        if name in {"src", "href", "xlink:href"} and not str(value).startswith("#")
    ]
    assert outside == [("href", "report.md"), ("href", "samples.csv")]
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_no_measured_cost_or_date_of_the_run(page: str, normal: Comparison) -> None:
    dates = re.findall(r"20\d\d-\d\d-\d\dT[\d:]+Z?", page)
    assert set(dates) <= {normal.manifest.created, "2026-01-01T00:00:00"}


def test_no_rule_is_wider_than_a_phone(page: str) -> None:
    # Tables, and nothing else, are wider than 375 px; each sits in a box of its own that scrolls.
    parsed = ParsedPage(page)
    tables = [tag for tag, _ in parsed.tags if tag == "table"]
    boxes = [a for tag, a in parsed.tags if tag == "div" and "scroll" in str(a.get("class"))]
    assert len(tables) == len(boxes) > 3
    assert all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)
    assert ".scroll { overflow-x: auto;" in page


def test_qemu_command_is_quoted_for_a_shell() -> None:
    assert wrapped_command(("qemu", "-m", "2G", "-append", "a b")) == (
        "qemu \\\n  -m 2G \\\n  -append 'a b'"
    )


def test_what_guests_ran_is_named_where_it_is_not_the_hosts_own() -> None:
    session, digest = ExactSession(), "ab" * 32
    provenance = but(session.manifest().provenance, qemu_sha256=digest)
    assert digest in render(session.compared(provenance=provenance), "html")
    assert digest not in render(session.compared(), "html")
