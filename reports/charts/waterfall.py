"""From base to patched: what each function added to the instructions per unit, or took away."""

from __future__ import annotations

from typing import NamedTuple

from matplotlib.axes import Axes

from reports import wording
from reports.charts import canvas
from reports.charts.canvas import BAD, GOOD, INK, MUTED, Chart
from reports.explain.functions import Attribution
from reports.model import Comparison
from text import typeset

ROW_IN = 0.43
EDGES_IN = 0.80
MOST_BARS = 8
FAINT = 0.35


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


def name(attribution: Attribution) -> str:
    """Name of the chart of an attribution."""
    return canvas.identifier("waterfall", attribution.case, attribution.phase)


def _draw_one(comparison: Comparison, attribution: Attribution) -> Chart:
    steps = bars(attribution)
    arms = (comparison.manifest.base, comparison.manifest.patched)
    alt = (
        f"Instructions per {attribution.unit_title} in {attribution.case}, "
        f"phase {attribution.phase}, from "
        f"{arms[0]} {wording.amount(attribution.total.base)} to {arms[1]} "
        f"{wording.amount(attribution.total.patched)}: "
        + "; ".join(f"{bar.label} {wording.signed(bar.end - bar.start)}" for bar in steps)
    )
    with canvas.figure(EDGES_IN + ROW_IN * len(steps)) as fig:
        axes = fig.subplots()
        canvas.clear(axes, grid="x")
        for position, bar in enumerate(steps):
            _draw_bar(axes, position, bar, last=position == len(steps) - 1)
        ends = [end for bar in steps for end in (bar.start, bar.end)]
        room = 0.04 * (max(ends) - min(ends))
        axes.set_xlim(min(ends) - room, max(ends) + room)
        axes.set_ylim(len(steps) - 0.65, -0.65)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(f"instructions per {attribution.unit_title}, {arms[1]} minus {arms[0]}")
        svg = canvas.to_svg(fig, name(attribution), alt)
    return Chart(
        name=name(attribution),
        kind="waterfall",
        title=f"{attribution.case}, phase {attribution.phase}: per {attribution.unit_title}",
        caption="Each step begins where the one above it ended; the last is the whole change. "
        "Faint steps are not significant. The axis shows the change alone: "
        f"{arms[0]} is {wording.amount(attribution.total.base)} instructions.",
        alt=alt,
        svg=svg,
    )


def draw(comparison: Comparison) -> list[Chart]:
    """One chart a phase whose functions were counted and did not all stay the same."""
    return [
        _draw_one(comparison, attribution)
        for attribution in comparison.headlines
        if not attribution.identical and attribution.listed
    ]
