"""Instructions of a phase: what each function added to them or took away, and where they all are.

A waterfall from base to patched, and a differential icicle: B. Gregg, "The flame graph", ACM Queue
14(2), 2016, with areas of exact counts.  It lies on its side, so that names are read without
turning the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.counts import Paired
from analysis.explain.functions import Attribution
from analysis.model import Comparison
from reports import wording
from reports.charts import canvas
from reports.charts.canvas import BAD, BAND, GOOD, INK, MUTED, PAPER, Chart
from text import typeset

STEP_IN, EDGES_IN = 0.43, 0.8
MOST_BARS = 8
FAINT = 0.35
HEIGHT_IN = 4.4
KINDS = ("parts", "files", "functions")
# Where the columns of these begin and end, in parts of the width.
COLUMNS = ((0.0, 0.29), (0.29, 0.58), (0.58, 1.0))
# What is less than this part of the whole is one area with others like it.
LEAST = 1 / 250
# A name needs this much height; a letter of it is hardly ever wider.
LINE_IN, LETTER_IN = 0.106, 0.066
FONT = 7.5
# Colour is for the eye, the number for reading: never so deep that ink is lost on it.
FAINTEST, DEEPEST = 0.16, 0.55
NO_FILE = "file not known"
NAMED = 6


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
    across = axes.get_yaxis_transform()
    change = bar.end - bar.start
    colour = MUTED if last else GOOD if change < 0 else BAD
    axes.barh(position, change, left=bar.start, height=0.34, color=colour,
              alpha=FAINT if bar.faint else 0.9, linewidth=0)  # fmt: skip
    # In pieces: one line over the whole height would run through the names.
    axes.vlines(0, position - 0.2, position + 0.2, color=INK, linewidth=0.9)
    if not change:
        axes.plot(bar.start, position, "|", color=MUTED, markersize=8)
    if not last:
        axes.vlines(bar.end, position - 0.17, position + 1.17, color=MUTED, linewidth=0.6,
                    alpha=0.5)  # fmt: skip
    weight = "bold" if last else "normal"
    axes.text(0, position - 0.36, bar.label, transform=across, va="center", fontsize=9.5,
              fontweight=weight)  # fmt: skip
    text = typeset(wording.signed(change))
    axes.text(1, position - 0.36, text, transform=across, va="center", ha="right", fontsize=9.5,
              fontweight=weight)  # fmt: skip


class Area(NamedTuple):
    """One rectangle: its column, from ``start`` to ``end`` of the whole, and what changed there."""

    column: int
    start: float
    end: float
    label: str
    difference: float
    is_significant: bool


class _Node(NamedTuple):
    """A part of the kernel, a file or a function, with what is in it."""

    label: str
    size: float
    difference: float
    is_significant: bool
    members: tuple[_Node, ...] = ()


def _size(pair: Paired) -> float:
    """Instructions of the arm that executed more: what one arm alone executes is seen, too."""
    return max(pair.base, pair.patched)


def _tree(attribution: Attribution) -> list[_Node]:
    """Parts of the kernel, with their files, with their functions."""
    parts = []
    for group in attribution.groups:
        pairs = {row.file: row.instructions for row in group.files}
        files: dict[str, list[_Node]] = {}
        for row in attribution.functions:
            file = row.name if row.user else row.file
            if file in pairs and (row.user or row.subsystem == group.title):
                pair = row.instructions
                files.setdefault(file, []).append(
                    _Node(row.name, _size(pair), pair.difference, pair.is_significant)
                )
        nodes = [
            _Node(file or NO_FILE, sum(leaf.size for leaf in leaves), pairs[file].difference,
                  pairs[file].is_significant, tuple(leaves))
            for file, leaves in files.items()
        ]  # fmt: skip
        pair = group.instructions
        parts.append(
            _Node(group.title, sum(node.size for node in nodes), pair.difference,
                  pair.is_significant, tuple(nodes))
        )  # fmt: skip
    return parts


def _with_small_together(nodes: Sequence[_Node], least: float, what: str) -> list[_Node]:
    """The largest first; those below ``least`` are one, significant where each of them is."""
    ordered = sorted(nodes, key=lambda node: (-node.size, node.label))
    small = [node for node in ordered if node.size < least]
    if len(small) < 2:
        return ordered
    together = _Node(
        f"{len(small)} small {what}", sum(node.size for node in small),
        sum(node.difference for node in small), all(node.is_significant for node in small),
    )  # fmt: skip
    return [*ordered[: len(ordered) - len(small)], together]


def areas(attribution: Attribution) -> list[Area]:
    """The rectangles from the top down: parts of the kernel, their files, their functions."""
    parts = _tree(attribution)
    whole = sum(part.size for part in parts)
    return list(_areas(parts, 0, 0.0, whole)) if whole else []


def _areas(nodes: Sequence[_Node], column: int, start: float, whole: float) -> Iterator[Area]:
    for node in _with_small_together(nodes, LEAST * whole, KINDS[column]):
        end = start + node.size / whole
        yield Area(column, start, end, node.label, node.difference, node.is_significant)
        if node.members:
            yield from _areas(node.members, column + 1, start, whole)
        start = end


def _draw_area(axes: Axes, area: Area, largest: float) -> None:
    left, right = COLUMNS[area.column]
    height = area.end - area.start
    depth = FAINTEST + (DEEPEST - FAINTEST) * min(1.0, abs(area.difference) / largest)
    coloured = area.is_significant and area.difference != 0
    colour = (GOOD if area.difference < 0 else BAD) if coloured else BAND
    axes.add_patch(Rectangle((left, area.start), right - left, height, edgecolor=PAPER,
                             facecolor=to_rgba(colour, depth if coloured else 1.0),
                             linewidth=0.5, clip_on=False))  # fmt: skip
    if height * HEIGHT_IN < LINE_IN:
        return
    letters = int((right - left) * canvas.WIDTH_IN / LETTER_IN)
    number = typeset(wording.signed(area.difference)) if coloured else ""
    middle = area.start + height / 2
    # From the end of a path the file's own name is what tells it.
    room = letters - len(number) - 1
    label = area.label if area.column != 1 else area.label.rpartition("/")[2]
    label = label if len(label) <= room else f"{label[: max(room - 1, 1)]}…"
    axes.text(left + 0.008, middle, label, va="center_baseline", fontsize=FONT)
    if number:
        axes.text(right - 0.008, middle, number, va="center_baseline", ha="right", fontsize=FONT)


def name_of(kind: str, attribution: Attribution) -> str:
    """Name of the chart of an attribution, a ``waterfall`` or an ``icicle``."""
    return canvas.identifier(kind, attribution.case, attribution.phase)


def waterfalls(comparison: Comparison) -> list[Chart]:
    """One chart a phase whose functions were counted and did not all stay the same."""
    return [
        _waterfall(comparison, attribution)
        for attribution in comparison.headlines
        if not attribution.identical and attribution.listed
    ]


def _waterfall(comparison: Comparison, attribution: Attribution) -> Chart:
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
    before = wording.amount(attribution.total.base)
    alt = (
        f"Instructions per {unit} in {attribution.case}, phase {attribution.phase}, from {base} "
        f"{before} to {patched} {wording.amount(attribution.total.patched)}: {changes}"
    )
    caption = (
        "Each step begins where the one above it ended; the last is the whole change. Faint steps "
        f"are not significant. The axis shows the change alone: {base} is {before} instructions."
    )
    title = f"{attribution.case}, phase {attribution.phase}: per {unit}"
    names = ("waterfall", attribution.case, attribution.phase)
    height = EDGES_IN + STEP_IN * len(steps)
    return canvas.drawn(paint, "waterfall", names, title, caption, alt, height, "x")


def icicles(comparison: Comparison) -> list[Chart]:
    """One chart a phase whose functions were counted and of which any changed."""
    return [
        chart
        for attribution in comparison.headlines
        if not attribution.identical
        for chart in _icicle(comparison, attribution)
    ]


def _icicle(comparison: Comparison, attribution: Attribution) -> list[Chart]:
    everything = areas(attribution)
    largest = max(
        (abs(a.difference) for a in everything if a.column == 2 and a.is_significant), default=0
    )
    if not largest:
        return []

    def paint(fig: Figure, axes: Axes) -> None:
        for area in everything:
            _draw_area(axes, area, largest)
        for (left, _), head in zip(COLUMNS, ("part", "file", "function"), strict=True):
            axes.text(left, -0.012, head, va="bottom", fontsize=FONT, color=MUTED)
        axes.set_xlim(0, 1)
        axes.set_ylim(1, 0)
        axes.set_axis_off()
        canvas.legend_of_changes(fig, DEEPEST)

    changed = sorted(
        (group for group in attribution.groups if group.instructions.is_significant),
        key=lambda group: -abs(group.instructions.difference),
    )
    parts = "; ".join(
        f"{group.title} {wording.signed(group.instructions.difference)} of "
        f"{wording.amount(group.instructions.base)}"
        for group in changed[:NAMED]
    )
    alt = (
        f"Instructions per {attribution.unit_title} in {attribution.case}, phase "
        f"{attribution.phase}, by part of the kernel, file and function. "
        + (f"Parts that changed: {parts}." if parts else "No part changed as a whole.")
    )
    caption = (
        "Heights are instructions of the arm that executed more; colour and number are what "
        f"{comparison.manifest.patched} adds or saves. The tables in the fold below have all of it "
        "in numbers."
    )
    title = f"All instructions, per {attribution.unit_title}"
    names = ("icicle", attribution.case, attribution.phase)
    return [canvas.drawn(paint, "icicle", names, title, caption, alt, HEIGHT_IN + 0.75)]
