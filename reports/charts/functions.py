"""Instructions of a phase: what each function added or took away, and on which call paths.

A waterfall from base to patched; a differential flame graph of call paths, upside down: B. Gregg,
"The flame graph", ACM Queue 14(2), 2016, and "Differential flame graphs", 2014, with areas of exact
counts.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from analysis.explain.functions import Attribution
from analysis.explain.stacks import StackComparison, StackRow
from analysis.model import Comparison
from reports import wording
from reports.charts import canvas
from reports.charts.canvas import BAD, GOOD, INK, MUTED, PAPER, Chart, Keywords
from text import clean_line, typeset

STEP_IN, EDGES_IN = 0.43, 0.8

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BARS = 8
FAINT = 0.35
FONT = 7.5
PATHS_IN, PATH_IN, PATH_EDGES_IN, PATH_LETTER_IN = 10.0, 0.17, 0.45, 0.064
# What is narrower than this part of the whole is not drawn, unless it changed; and never this.
LEAST_PATH, NEVER = 1 / 150, 1 / 2000
MOST_NAMED = 5


class Bar(NamedTuple):
    """One step from ``start`` to ``end``, both relative to base."""

    label: str
    start: float
    end: float
    faint: bool


def bars(attribution: Attribution) -> list[Bar]:
    """The steps in order: listed functions, everything else, and the whole change.

    Those that are not significant are drawn only where hardly anything is.
    """
    clear = [row for row in attribution.rows if not row.instructions.within_scatter]
    rows = (clear or list(attribution.rows))[:MOST_BARS]
    steps, reached = [], 0.0
    for row in rows:
        end = reached + row.instructions.difference
        steps.append(Bar(row.shown_name, reached, end, row.instructions.within_scatter))
        reached = end
    rest = len(attribution.functions) - len(rows)
    whole = attribution.total.difference
    if rest:
        faint = attribution.others is not None and attribution.others.within_scatter
        faint = faint or len(rows) == len(clear) < attribution.listed
        steps.append(Bar(f"{rest} other functions", reached, whole, faint))
    return [*steps, Bar("all", 0.0, whole, faint=False)]


def _draw_bar(axes: Axes, position: int, bar: Bar, last: bool) -> None:
    change = bar.end - bar.start
    colour = MUTED if last else GOOD if change < 0 else BAD
    style: Keywords = {"color": colour, "alpha": FAINT if bar.faint else 0.9, "linewidth": 0}
    axes.barh(position, change, left=bar.start, height=0.34, **style)
    # In pieces: one line over the whole height would run through the names.
    axes.vlines(0, position - 0.2, position + 0.2, color=INK, linewidth=0.9)
    if not change:
        axes.plot(bar.start, position, "|", color=MUTED, markersize=8)
    if not last:
        down: Keywords = {"color": MUTED, "linewidth": 0.6, "alpha": 0.5}
        axes.vlines(bar.end, position - 0.17, position + 1.17, **down)
    weight = "bold" if last else "normal"
    words: Keywords = {"va": "center", "fontsize": 9.5, "fontweight": weight}
    words["transform"] = axes.get_yaxis_transform()
    axes.text(0, position - 0.36, bar.label, **words)
    axes.text(1, position - 0.36, typeset(wording.signed(change)), ha="right", **words)


def name_of(kind: str, counted: Attribution | StackComparison) -> str:
    """Name of the chart of a phase: a ``waterfall``, an ``icicle`` or ``stacks``."""
    return canvas.identifier(kind, counted.case, counted.phase)


def waterfall(comparison: Comparison, attribution: Attribution) -> list[Chart]:
    """The chart of a phase; none where all its functions stayed the same."""
    if attribution.identical or not attribution.listed:
        return []
    steps = bars(attribution)
    base, patched = comparison.manifest.base, comparison.manifest.patched
    unit = attribution.unit_title

    def paint(_: Figure, axes: Axes) -> None:
        for position, bar in enumerate(steps):
            _draw_bar(axes, position, bar, last=position == len(steps) - 1)
        ends = [end for bar in steps for end in (bar.start, bar.end)]
        room = 0.04 * (max(ends) - min(ends))
        axes.set_xlim(min(ends) - room, max(ends) + room)
        axes.set_ylim(len(steps) - 0.65, -0.65)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(f"instructions per {unit}, {patched} minus {base}")

    changes = "; ".join(f"{bar.label} {wording.signed(bar.end - bar.start)}" for bar in steps)
    before, after = (
        wording.amount(each) for each in (attribution.total.base, attribution.total.patched)
    )
    where = f"{attribution.case}, phase {attribution.phase}"
    executed = f"from {base} {before} to {patched} {after}"
    alt = f"Instructions per {unit} in {where}, {executed}: {changes}"
    caption = (
        "Each step begins where the one above it ended; the last is the whole change. Faint steps "
        f"are not significant. The axis shows the change alone: {base} is {before} instructions."
    )
    names = ("waterfall", attribution.case, attribution.phase)
    height = EDGES_IN + STEP_IN * len(steps)
    title = f"{where}: per {unit}"
    return [canvas.drawn(paint, "waterfall", names, title, caption, alt, height, "x")]


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


def paths(stacks: StackComparison) -> list[PathBar]:
    """The paths that are wide enough to be seen, callers before what they called.

    Widths are means of both arms: parts add up to the whole, and what one alone executes is seen.
    """
    whole = (stacks.total.base + stacks.total.patched) / 2
    if not whole:
        return []
    drawn: list[PathBar] = []
    # Where the next path of each depth begins.
    starts = [0.0]
    for row in stacks.rows:
        depth = len(row.callers)
        start = starts[depth]
        end = start + (row.total.base + row.total.patched) / 2 / whole
        starts[depth:] = [end, start]
        bar = PathBar(depth, start, end, row)
        if end - start >= (NEVER if bar.changed else LEAST_PATH):
            drawn.append(bar)
    return drawn


def stacks(comparison: Comparison, followed: StackComparison) -> list[Chart]:
    """The call paths of one phase; none where no path is wide enough."""
    everything = paths(followed)
    if not everything:
        return []
    name, unit = name_of("stacks", followed), followed.unit_title
    changed = [bar.row for bar in everything if bar.changed]
    changed.sort(key=lambda row: -abs(row.instructions.difference))
    largest = max((abs(row.instructions.difference) for row in changed), default=0.0)
    depth = 1 + max(bar.depth for bar in everything)
    named = "; ".join(
        f"{row.function} {wording.signed(row.instructions.difference)}"
        + (f" in {row.callers[-1]}" if row.callers else "")
        for row in changed[:MOST_NAMED]
    )
    alt = (
        f"Virtual instructions per {unit} in {followed.case}, phase {followed.phase}, by call "
        "path. " + (f"Changed most: {named}." if named else "No path changed.")
    )
    with canvas.figure(depth * PATH_IN + PATH_EDGES_IN, PATHS_IN) as fig:
        axes = fig.subplots()
        axes.patch.set_alpha(0)
        for number, bar in enumerate(everything):
            colour = canvas.area(bar.row.instructions.difference, largest, sure=bar.changed)
            style: Keywords = {"edgecolor": PAPER, "linewidth": 0.5, "facecolor": colour}
            size = bar.end - bar.start, 1
            axes.add_patch(
                canvas.rectangle((bar.start, bar.depth), *size, gid=f"path{number}", **style)
            )
            letters = int((bar.end - bar.start) * PATHS_IN / PATH_LETTER_IN) - 1
            if letters >= 3:
                label = canvas.cut(bar.row.function, letters)
                inside: Keywords = {"va": "center_baseline", "fontsize": FONT}
                axes.text(bar.start + 0.002, bar.depth + 0.5, label, **inside)
        axes.set_xlim(0, 1)
        axes.set_ylim(depth, 0)
        axes.set_axis_off()
        canvas.legend_of_areas(fig)
        svg = canvas.to_svg(fig, name, alt)
    for number, bar in enumerate(everything):
        # Who points at a path reads its numbers.
        own, total = bar.row.instructions, bar.row.total
        words = (
            f"{bar.row.function}: {wording.few(own)} instructions per {unit} itself "
            f"({wording.signed(own.difference)}), {wording.few(total)} with what it called "
            f"({wording.signed(total.difference)}); calls {wording.few(bar.row.calls)}"
        )
        group = f'<g id="{name}-path{number}">'
        svg = svg.replace(group, f"{group}<title>{escape(clean_line(words))}</title>", 1)
    caption = (
        "Callers are above what they called. Widths are the mean of both arms with all that was "
        f"called; colour is what {comparison.manifest.patched} adds or saves in the function "
        "itself on this path. Point at a path to read its numbers."
    )
    return [Chart(name, "stacks", f"Call paths, per {unit}", caption, alt, svg)]
