"""Every run behind a change, by seed or block, and the change patch by patch."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.many import MetricRow, SessionComparison, Step
from analysis.model import (
    Comparison,
    MetricComparison,
)
from analysis.verdict import CALLED
from reports import wording
from reports.charts import canvas
from reports.charts.canvas import AGAIN, BASE, INK, MUTED, PATCHED, Chart, Keywords

HEIGHT_IN = 2.9

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Beyond these a chart is a wall; the tables have all.
MOST_CHARTS = 8
LONGEST = 34
DASHED = (0, (3, 3))
# Beside the samples of an arm stand its mean and the interval of its change.
BESIDE = 0.3


def charted_metrics(comparison: Comparison) -> list[MetricComparison]:
    """What a case is shown by: of each phase what is judged first, else its bandwidth.

    In wall mode everything that is judged, and the bandwidth of every phase.
    """
    wall = comparison.wall is not None
    metrics: dict[tuple[str, str], MetricComparison] = {}
    for case in comparison.cases:
        chosen: list[MetricComparison | None] = [*case.primary] if wall else []
        for phase in case.phases:
            judged = (metric for metric in case.primary if metric.phase == phase.name and not wall)
            chosen.append(next(judged, case.metric(f"{phase.name}.bw")))
        for each in chosen:
            if each and each.pairs and each.base and each.patched:
                metrics[each.case, each.name] = each
    return list(metrics.values())


def samples(comparison: Comparison) -> list[Chart]:
    """One chart for each of :func:`charted_metrics`: a dot a run, a line a seed or block."""
    arms = tuple(arm.name for arm in comparison.manifest.arms)
    return [_samples(arms, metric) for metric in charted_metrics(comparison)]


def name_of(metric: MetricComparison) -> str:
    """Name of the chart of a metric's samples."""
    return canvas.identifier("samples", metric.case, metric.name)


@canvas.drawn_once
def _samples(arms: tuple[str, ...], metric: MetricComparison) -> Chart:
    assert metric.base
    assert metric.patched
    mean, many = metric.base.mean, "block" if len(arms) > 2 else "seed"
    # The base stands in the middle where A/A is on its left.
    change = (1, PATCHED, metric.patched.mean, metric.judgement.change)
    again = (-1, AGAIN, metric.again_values.mean if metric.again_values else mean, metric.again)
    others = [change, *([again] if len(arms) > 2 else [])]
    columns = {0: (arms[0], BASE), 1: (arms[1], PATCHED)}
    columns |= {-1: (arms[2], AGAIN)} if len(arms) > 2 else {}

    def paint(_: Figure, axes: Axes) -> None:
        for pair in metric.pairs:
            values = {-1: pair.again, 0: pair.base, 1: pair.patched}
            points = {x: y for x in sorted(columns) if (y := values[x]) is not None}
            axes.plot(list(points), list(points.values()), color=MUTED, linewidth=0.8, alpha=0.45)
            for x, y in points.items():
                marker = "s" if x < 0 else "o"
                axes.plot(x, y, marker, color=columns[x][1], markersize=4.5, alpha=0.75)
        axes.axhline(mean, color=INK, linewidth=0.7, linestyle=DASHED, alpha=0.6)
        for x, colour, value, judged in others:
            beside = x + BESIDE * x
            axes.plot(beside, value, "D", color=colour, markersize=5.5)
            if judged and judged.low is not None and judged.high is not None:
                ends = mean * (1 + judged.low), mean * (1 + judged.high)
                axes.vlines(beside, *ends, color=colour, linewidth=2)
        axes.set_xticks(list(columns), [name for name, _ in columns.values()])
        axes.tick_params(axis="x", length=0)
        axes.set_xlim(min(columns) - 0.55, 1.55)
        axes.margins(y=0.08)
        axes.set_ylabel(metric.unit)

    values = f"{arms[0]} {wording.figure(mean)}, {arms[1]} {wording.figure(metric.patched.mean)}"
    alt = (
        f"{metric.case}, {metric.title}: {values} {metric.unit}, change {wording.change(metric)} "
        f"{wording.interval(metric)}, {len(metric.pairs)} {many}s"
    )
    caption = (
        f"A line joins the runs of one {many}. Diamonds are means; bars are the intervals of the "
        "changes, from the dashed base mean. The axis does not begin at zero."
    )
    title = f"{metric.case}, {metric.name}"
    names = ("samples", metric.case, metric.name)
    return canvas.drawn(paint, "samples", names, title, caption, alt, HEIGHT_IN)


def by_patch(session: SessionComparison) -> list[Chart]:
    """Patch by patch, a chart a metric: what each step adds, and the change up to it."""
    judged = [row for row in session.rows if row.primary and row.measured]
    shown = most_changed(session, judged) if session.is_by_steps else []
    rest = ""
    if shown and len(shown) < len(judged):
        rest = f" Of {len(judged)} judged metrics the {len(shown)} that changed most have a chart."
    return [_by_patch(row, session.course(row), rest) for row in shown]


def most_changed(session: SessionComparison, rows: list[MetricRow]) -> list[MetricRow]:
    """The metrics that have a chart, in order: all, or those with a step that is called first."""

    def importance(number: int) -> tuple[bool, float]:
        judged = [step.own.judgement for step in session.course(rows[number])]
        sizes = (abs(each.change.estimate) for each in judged if each.change)
        return any(each.verdict in CALLED for each in judged), max(sizes, default=0.0)

    chosen = heapq.nlargest(MOST_CHARTS, range(len(rows)), key=importance)
    return [rows[number] for number in sorted(chosen)]


def _by_patch(row: MetricRow, course: Sequence[Step], rest: str) -> Chart:
    at = list(range(1, len(course) + 1))
    own = [step.own.judgement.change for step in course]
    so_far = [step.cell.change for step in course]

    def paint(fig: Figure, axes: Axes) -> None:
        totals = [100 * change.estimate if change else 0.0 for change in so_far]
        steps = [100 * change.estimate if change else 0.0 for change in own]
        beside = [x + 0.32 for x in at]
        axes.bar(at, steps, width=0.5, color=BASE, alpha=0.55)
        line: Keywords = {"color": PATCHED, "linewidth": 1.4, "markersize": 5}
        axes.plot([0.32, *beside], [0.0, *totals], "-o", **line)
        for places, intervals, colour in ((at, own, BASE), (beside, so_far, PATCHED)):
            for x, change in zip(places, intervals, strict=True):
                if change and change.low is not None and change.high is not None:
                    axes.vlines(x, 100 * change.low, 100 * change.high, color=colour, linewidth=2)
        axes.axhline(0, color=INK, linewidth=0.8)
        labels = [
            f"{x}  {canvas.cut(step.title, LONGEST)}" for x, step in zip(at, course, strict=True)
        ]
        axes.set_xticks(at, labels, rotation=24, ha="right", rotation_mode="anchor")
        axes.tick_params(axis="x", length=0, labelcolor=INK, labelsize=9)
        axes.set_xlim(0.1, len(at) + 0.65)
        axes.set_ylabel("change, % of base")
        canvas.legend(
            fig,
            ("all up to here", {"marker": "o", "color": PATCHED, "markersize": 5}),
            ("this step", {"marker": "s", "color": BASE, "markersize": 7, "alpha": 0.6}),
        )

    alt = f"{row.case}, {row.name}, change by step: " + "; ".join(
        f"{step.title}: {wording.change(step.own)} {wording.bounds(step.own)}, in all "
        f"{wording.cell_change(row, step.cell)}"
        for step in course
    )
    title = f"{row.case}, {row.name}: patch by patch"
    caption = (
        "Bars are what each step adds to the one before, the line is the change from the first "
        f"arm; vertical lines are intervals. Steps are judged, sums in between are not.{rest}"
    )
    height = HEIGHT_IN + 0.2 + 0.12 * len(course)
    names = ("patches", row.case, row.name)
    return canvas.drawn(paint, "patches", names, title, caption, alt, height)
