"""Drawing to SVG that follows the page: same bytes every time, colours from CSS variables.

Colours are drawn as placeholders and replaced by ``var(--name, fallback)``, so that
one drawing is right on a light page, a dark page and paper.  Text stays text: it
can be selected and searched, and takes the page's typeface.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from text import clean_line, clean_lines

# A second to import, for what only a page has: it is imported where something is drawn.
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

# Placeholder, CSS variable, and the light page's colour for an SVG that stands alone.
# Base and patched are blue and vermilion of Okabe and Ito, "Color Universal Design" (2008).
INK, MUTED, RULE = "#010101", "#020202", "#030303"
BASE, PATCHED, BAND, PAPER = "#040404", "#050505", "#060606", "#070707"
GOOD, BAD = "#080808", "#090909"
# The base once more, in wall mode: reddish purple of the same palette, darkened for paper.
AGAIN = "#0a0a0a"
COLOURS = (
    (INK, "--ink", "#1d2226"),
    (MUTED, "--muted", "#5b646c"),
    (RULE, "--rule", "#d9dde0"),
    (BASE, "--base", "#0072b2"),
    (PATCHED, "--patched", "#d55e00"),
    (BAND, "--band", "#e9ecee"),
    (PAPER, "--paper", "#ffffff"),
    (GOOD, "--good", "#00694e"),
    (BAD, "--bad", "#a8201a"),
    (AGAIN, "--again", "#96507a"),
)
# How something is drawn, as keywords of matplotlib.
Keywords = dict[str, Any]
WIDTH_IN = 5.0
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    # Titles and labels come from experiment files and guests; "$" must stay a dollar sign.
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "axes.labelsize": 10,
    "axes.formatter.useoffset": False,
    "legend.frameon": False,
    **dict.fromkeys(("font.size", "legend.fontsize"), 10.5),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.grid"), False),
    **dict.fromkeys(("text.color", "legend.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor"), MUTED),
    **dict.fromkeys(("xtick.color", "ytick.color", "xtick.labelcolor", "ytick.labelcolor"), MUTED),
    "grid.color": RULE,
    **dict.fromkeys(("axes.linewidth", "grid.linewidth"), 0.7),
    **dict.fromkeys(("xtick.major.width", "ytick.major.width"), 0.7),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 3),
}
# For what draws one chart of many from records: a session writes its report two or three times
# (a verdict, what explains it, the checks), and most of its charts stay as they are.
drawn_once = lru_cache(maxsize=1024)


@dataclass(frozen=True)
class Chart:
    """One drawing: ``svg`` is an element to put into a page, ``alt`` says what it shows."""

    name: str
    kind: str
    title: str
    caption: str
    alt: str
    svg: str


@contextmanager
def figure(height_in: float, width_in: float = WIDTH_IN) -> Iterator[Figure]:
    """A transparent figure in the report's style."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        fig = Figure(figsize=(width_in, height_in), layout="constrained")
        fig.patch.set_alpha(0)
        yield fig


def drawn(
    paint: Callable[[Figure, Axes], None],
    kind: str,
    names: tuple[str, ...],
    title: str,
    caption: str,
    alt: str,
    height_in: float,
    grid: Literal["x", "y"] = "y",
) -> Chart:
    """A chart with one pair of axes, which ``paint`` fills; ``names`` make its name."""
    name = identifier(*names)
    with figure(height_in) as fig:
        axes = fig.subplots()
        clear(axes, grid)
        paint(fig, axes)
        svg = to_svg(fig, name, alt)
    return Chart(name, kind, title, caption, alt, svg)


def clear(axes: Axes, grid: Literal["x", "y"] = "y") -> None:
    """Give the axes a quiet grid in one direction, behind everything, on no background."""
    axes.patch.set_alpha(0)
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis=grid)


def rectangle(corner: tuple[float, float], width: float, height: float, **style: Any) -> Rectangle:
    """A rectangle to be added to axes, in their units."""
    from matplotlib.patches import Rectangle

    return Rectangle(corner, width, height, **style)


def cut(text: str, most: int, *, end: bool = False) -> str:
    """A name as far as there is room; of some the end counts more."""
    if len(text) <= most:
        return text
    return f"…{text[1 - most :]}" if end else f"{text[: most - 1]}…"


def legend(fig: Figure, *entries: tuple[str, Keywords]) -> None:
    """Name what is drawn, in one row above the axes."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], linestyle="", label=name, **style) for name, style in entries]
    room: Keywords = {"borderpad": 0.1, "handletextpad": 0.3, "columnspacing": 1.2}
    room |= {"loc": "outside upper left", "ncols": len(handles), "handlelength": 1.2}
    fig.legend(handles=handles, **room)


def to_svg(fig: Figure, name: str, alt: str) -> str:
    """The figure as an ``<svg>`` element without prologue, its ids prefixed with ``name``."""
    import matplotlib as mpl
    from matplotlib.text import Text

    for text in fig.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(clean_lines(text.get_text()))
    sink = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # The page's typeface draws the text; that ours lacks a glyph costs only its width.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        fig.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    svg = sink.getvalue()
    svg = svg[svg.index("<svg") :].rstrip()
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Its one style rule would apply to the whole page; the page's own sheet has it.
    svg = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\b(id|xlink:href|href)="(#?)([^"]+)"', rf'\1="\2{name}-\3"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    svg = re.sub(r'(font-family: )[^;"]*', r"\1var(--sans, system-ui, sans-serif)", svg)
    for placeholder, variable, fallback in COLOURS:
        svg = svg.replace(placeholder, f"var({variable}, {fallback})")
    box = re.search(r'viewBox="[^"]+"', svg)
    assert box is not None
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{box.group()} role="img" aria-labelledby="{name}-alt">'
        f'<title id="{name}-alt">{escape(clean_line(alt))}</title>'
    )
    return re.sub(r"^<svg[^>]*>", lambda _: opening, svg, count=1)


def identifier(*words: str) -> str:
    """Words as one id: letters, digits and dashes only, whatever a guest put into them."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-") or "chart"


def within(chart: Chart, prefix: str) -> Chart:
    """The chart under another name, so that two pairs' drawings can share a page."""
    name = f"{prefix}-{chart.name}"
    pattern = re.compile(rf'(\bid="|href="#|url\(#|aria-labelledby="){re.escape(chart.name)}-')
    return replace(chart, name=name, svg=pattern.sub(rf"\g<1>{name}-", chart.svg))
