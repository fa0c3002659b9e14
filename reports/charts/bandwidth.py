"""What is judged of each phase, else its bandwidth: every seed, and the interval of the change."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from reports import wording
from reports.charts import canvas
from reports.charts.canvas import BASE, INK, MUTED, PATCHED, Chart
from reports.model import CaseComparison, Comparison, MetricComparison

HEIGHT_IN = 2.9
COLUMNS = (0.0, 1.0)
WAY_OUT = 0.30


def _seeds(axes: Axes, metric: MetricComparison, arms: Sequence[str]) -> None:
    assert metric.base is not None
    assert metric.patched is not None
    for pair in metric.pairs:
        axes.plot(COLUMNS, [pair.base, pair.patched], color=MUTED, linewidth=0.8, alpha=0.45)
    for column, colour, values in (
        (COLUMNS[0], BASE, [pair.base for pair in metric.pairs]),
        (COLUMNS[1], PATCHED, [pair.patched for pair in metric.pairs]),
    ):
        axes.plot([column] * len(values), values, "o", color=colour, markersize=4.5, alpha=0.75)
    change = metric.judgement.change
    mean = metric.base.mean
    axes.plot(-WAY_OUT, mean, marker="D", color=BASE, markersize=5.5)
    axes.plot(1 + WAY_OUT, metric.patched.mean, marker="D", color=PATCHED, markersize=5.5)
    if change is not None and change.low is not None and change.high is not None:
        axes.vlines(
            1 + WAY_OUT, mean * (1 + change.low), mean * (1 + change.high), color=PATCHED,
            linewidth=2,
        )  # fmt: skip
    axes.axhline(mean, color=INK, linewidth=0.7, linestyle=(0, (3, 3)), alpha=0.6)
    axes.set_xticks(COLUMNS, arms)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.55, 1.55)
    axes.margins(y=0.08)
    canvas.clear(axes)


def name_of(metric: MetricComparison) -> str:
    """Name of the chart of a metric's phase."""
    return canvas.identifier("bandwidth", metric.case, metric.phase)


@canvas.drawn_once
def _draw_one(arms: tuple[str, str], metric: MetricComparison) -> Chart:
    assert metric.base is not None
    assert metric.patched is not None
    name = name_of(metric)
    alt = (
        f"{metric.case}, {metric.title}: {arms[0]} "
        f"{wording.figure(metric.base.mean)}, {arms[1]} {wording.figure(metric.patched.mean)} "
        f"{metric.unit}, change {wording.change(metric)} {wording.interval(metric)}, "
        f"{wording.samples(metric)}."
    )
    with canvas.figure(HEIGHT_IN) as fig:
        axes = fig.subplots()
        _seeds(axes, metric, arms)
        axes.set_ylabel(metric.unit)
        svg = canvas.to_svg(fig, name, alt)
    return Chart(
        name=name,
        kind="bandwidth",
        title=f"{metric.case}, {metric.name}",
        caption="A line joins the two runs of one seed. Diamonds are means; the bar on the patched "
        "one is the interval of the change, from the dashed base mean. The axis does not begin at "
        "zero.",
        alt=alt,
        svg=svg,
    )


def charted_metric(case: CaseComparison, phase: str) -> MetricComparison | None:
    """The metric by which a phase is shown: the first that is judged, else bandwidth."""
    judged = (metric for metric in case.primary if metric.phase == phase)
    return next(judged, case.metric(f"{phase}.bw"))


def draw(comparison: Comparison) -> list[Chart]:
    """One chart a phase that has values of its first primary metric, else of ``bw``.

    Wall mode has a chart with its A/A arm instead (``strip``).
    """
    if comparison.wall is not None:
        return []
    manifest = comparison.manifest
    return [
        _draw_one((manifest.base, manifest.patched), metric)
        for case in comparison.cases
        for phase in case.phases
        for metric in [charted_metric(case, phase.name)]
        if metric is not None and metric.base and metric.patched and metric.pairs
    ]
