"""Locks of a twin, base against patched: hold time, contention, or waits by caller."""

from __future__ import annotations

from typing import NamedTuple

from matplotlib.axes import Axes

from reports import wording
from reports.charts import canvas
from reports.charts.canvas import BASE, INK, MUTED, PATCHED, RULE, Chart
from reports.lock_model import LockComparison
from reports.model import Comparison
from reports.paired import Paired

ROW_IN = 0.56
EDGES_IN = 1.0
MOST_ROWS = 6


class Drawing(NamedTuple):
    """What one chart shows: rows of a label and a quantity on both arms."""

    kind: str
    title: str
    label: str
    rows: list[tuple[str, Paired]]


def drawings(locks: LockComparison) -> list[Drawing]:
    """The charts that a twin's numbers allow; quantities that are zero throughout are left out."""
    per = f"per {locks.unit_title}"
    per_many = f"per 1,000 {wording.plural(locks.unit_title)}"
    hold = [(row.label, row.hold) for row in locks.rows if row.hold and row.instances != "none"]
    contended = [(row.label, row.contentions) for row in locks.rows if row.contentions]
    waits = [(f"{row.caller} ({row.flags})", row.count) for row in locks.waits]
    pictures = [
        Drawing("hold", "Hold time", f"{locks.ns} held {per}", hold),
        Drawing("contentions", "Contention", f"contentions {per_many}", contended),
        Drawing("callers", "Waits by caller", f"waits {per_many}", waits),
    ]
    return [
        drawing._replace(rows=rows[:MOST_ROWS])
        for drawing in pictures
        if (rows := [row for row in drawing.rows if row[1].base or row[1].patched])
    ]


def kind(locks: LockComparison) -> str:
    """Kind of the charts of one twin, case and phase."""
    return canvas.identifier("locks", locks.twin, locks.case, locks.phase)


def _row(axes: Axes, position: int, label: str, pair: Paired) -> None:
    across = axes.get_yaxis_transform()
    text = wording.typeset(f"{wording.few(pair)}  {wording.moved(pair)}")
    axes.text(0, position - 0.38, label, transform=across, va="center", fontsize=9.5)
    axes.text(1, position - 0.38, text, transform=across, va="center", ha="right", fontsize=9.5,
              color=MUTED)  # fmt: skip
    axes.axhline(position, color=RULE, linewidth=0.7, zorder=0.6)
    axes.plot([pair.base, pair.patched], [position, position], color=INK, linewidth=1.4, alpha=0.5)
    for value, ends, colour, shift in (
        (pair.base, pair.base_range, BASE, -0.06),
        (pair.patched, pair.patched_range, PATCHED, 0.06),
    ):
        axes.hlines(position + shift, *ends, color=colour, linewidth=3.4, alpha=0.35)
        axes.plot(value, position + shift, "o", color=colour, markersize=6.5)


def _draw_one(comparison: Comparison, locks: LockComparison, drawing: Drawing) -> Chart:
    name = f"{kind(locks)}-{drawing.kind}"
    many = "blocks" if locks.in_wall else "seeds"
    arms = (comparison.manifest.base, comparison.manifest.patched)
    alt = f"{drawing.title}, {drawing.label}, {arms[0]} then {arms[1]}: " + "; ".join(
        f"{label} {wording.short(pair.base)} then {wording.short(pair.patched)}"
        for label, pair in drawing.rows
    )
    with canvas.figure(EDGES_IN + ROW_IN * len(drawing.rows)) as fig:
        axes = fig.subplots()
        canvas.clear(axes, grid="x")
        for position, (label, pair) in enumerate(drawing.rows):
            _row(axes, position, label, pair)
        most = max(end for _, pair in drawing.rows
                   for end in (pair.base_range[1], pair.patched_range[1]))  # fmt: skip
        axes.set_xlim(-0.02 * most, 1.05 * most)
        axes.set_ylim(len(drawing.rows) - 0.6, -0.68)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(drawing.label)
        canvas.legend(fig, arms=arms)
        svg = canvas.to_svg(fig, name, alt)
    return Chart(
        name=name,
        kind=kind(locks),
        title=drawing.title,
        caption=f"Dots are means over the {many}, the bars behind them their range; fewer is "
        "better.",
        alt=alt,
        svg=svg,
    )


def draw(comparison: Comparison) -> list[Chart]:
    """The charts of every twin, case and phase, in the order of the record."""
    return [
        _draw_one(comparison, locks, drawing)
        for locks in comparison.locks
        for drawing in drawings(locks)
    ]
