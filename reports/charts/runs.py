"""Every run behind a change, by seed or block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.model import (
    Comparison,
    MetricComparison,
)
from reports import wording
from reports.charts import canvas
from reports.charts.canvas import AGAIN, BASE, INK, MUTED, PATCHED, Chart

HEIGHT_IN = 2.9

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
