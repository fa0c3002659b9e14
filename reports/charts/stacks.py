"""Call paths of a phase, and on which of them instructions changed.

A differential flame graph upside down (B. Gregg, "The flame graph", ACM Queue 14(2), 2016; and
"Differential flame graphs", 2014), with widths of exact counts.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from analysis.explain.stacks import StackComparison, StackRow
from analysis.model import Comparison
from reports import wording
from reports.charts import canvas
from reports.charts.canvas import BAD, BAND, GOOD, PAPER, Chart
from text import clean_line

WIDTH_IN, ROW_IN, EDGES_IN = 10.0, 0.17, 0.45
# What is narrower than this part of the whole is not drawn, unless it changed; and never this.
LEAST, NEVER = 1 / 150, 1 / 2000
# A letter of a name is hardly ever wider.
LETTER_IN, FONT = 0.064, 7.5
# Colour is for the eye, the number for reading: never so deep that ink is lost on it.
FAINTEST, DEEPEST = 0.16, 0.55


class PathBar(NamedTuple):
    """One path: its depth, from ``start`` to ``end`` of the whole, and its numbers."""

    depth: int
    start: float
    end: float
    row: StackRow

    @property
    def changed(self) -> bool:
        """Whether the function's own instructions changed on this path."""
        return self.row.instructions.is_significant


def _size(row: StackRow) -> float:
    # The mean of both arms: parts add up to the whole, and what one arm alone executes is seen.
    return (row.total.base + row.total.patched) / 2


def bars(stacks: StackComparison) -> list[PathBar]:
    """The paths that are wide enough to be seen, callers before what they called."""
    whole = (stacks.total.base + stacks.total.patched) / 2
    if not whole:
        return []
    drawn: list[PathBar] = []
    # Where the next path of each depth begins.
    starts = [0.0]
    for row in stacks.rows:
        depth = len(row.callers)
        start = starts[depth]
        end = start + _size(row) / whole
        starts[depth:] = [end, start]
        bar = PathBar(depth, start, end, row)
        if end - start >= (NEVER if bar.changed else LEAST):
            drawn.append(bar)
    return drawn


def _words(bar: PathBar, unit: str) -> str:
    own, total = bar.row.instructions, bar.row.total
    return (
        f"{bar.row.function}: {wording.few(own)} virtual ns per {unit} itself "
        f"({wording.signed(own.difference)}), {wording.few(total)} with what it called "
        f"({wording.signed(total.difference)}); calls {wording.few(bar.row.calls)}"
    )


def name(stacks: StackComparison) -> str:
    """Name of the chart of a phase's stacks."""
    return canvas.identifier("stacks", stacks.case, stacks.phase)


def draw(comparison: Comparison, stacks: StackComparison) -> list[Chart]:
    """The chart of one phase; none where no path is wide enough."""
    everything = bars(stacks)
    if not everything:
        return []
    changed = [bar for bar in everything if bar.changed]
    largest = max((abs(bar.row.instructions.difference) for bar in changed), default=0.0)
    depth = 1 + max(bar.depth for bar in everything)
    first = sorted(changed, key=lambda bar: -abs(bar.row.instructions.difference))[:5]
    named = "; ".join(
        f"{bar.row.function} {wording.signed(bar.row.instructions.difference)}"
        + (f" in {bar.row.callers[-1]}" if bar.row.callers else "")
        for bar in first
    )
    alt = (
        f"Virtual instructions per {stacks.unit_title} in {stacks.case}, phase {stacks.phase}, by "
        "call path. " + (f"Changed most: {named}." if named else "No path changed.")
    )
    with canvas.figure(depth * ROW_IN + EDGES_IN, WIDTH_IN) as fig:
        axes = fig.subplots()
        axes.patch.set_alpha(0)
        for number, bar in enumerate(everything):
            share = abs(bar.row.instructions.difference) / largest if bar.changed else 0.0
            fewer = bar.row.instructions.difference < 0
            colour = to_rgba(GOOD if fewer else BAD, FAINTEST + (DEEPEST - FAINTEST) * share)
            axes.add_patch(Rectangle(
                (bar.start, bar.depth), bar.end - bar.start, 1, edgecolor=PAPER, linewidth=0.5,
                facecolor=colour if bar.changed else BAND, gid=f"path{number}",
            ))  # fmt: skip
            letters = int((bar.end - bar.start) * WIDTH_IN / LETTER_IN) - 1
            if letters >= 3:
                label = bar.row.function
                label = label if len(label) <= letters else f"{label[: letters - 1]}…"
                axes.text(bar.start + 0.002, bar.depth + 0.5, label, va="center_baseline",
                          fontsize=FONT)  # fmt: skip
        axes.set_xlim(0, 1)
        axes.set_ylim(depth, 0)
        axes.set_axis_off()
        canvas.legend_of_changes(fig, DEEPEST)
        svg = canvas.to_svg(fig, name(stacks), alt)
    for number, bar in enumerate(everything):
        # Who points at a path reads its numbers.
        group = f'<g id="{name(stacks)}-path{number}">'
        words = escape(clean_line(_words(bar, stacks.unit_title)))
        svg = svg.replace(group, f"{group}<title>{words}</title>", 1)
    return [Chart(
        name=name(stacks),
        kind="stacks",
        title=f"Call paths, per {stacks.unit_title}",
        caption="Callers are above what they called. Widths are the mean of both arms with all "
        f"that was called; colour is what {comparison.manifest.patched} adds or saves in the "
        "function itself on this path. Point at a path to read its numbers.",
        alt=alt,
        svg=svg,
    )]  # fmt: skip
