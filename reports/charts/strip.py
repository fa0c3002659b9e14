"""Wall mode: every sample with its block joined by a line, and A/A beside A/B."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from reports import wording
from reports.charts import canvas
from reports.charts.canvas import AGAIN, BAND, BASE, INK, MUTED, PATCHED, Chart
from reports.model import CaseComparison, Comparison, MetricComparison

HEIGHT_IN = 3.1
# Base stands in the middle: the lines to its left are A/A, those to its right A/B.
COLUMNS = (0.0, 1.0, 2.0)
MARKERS = ("s", "o", "o")


def charted_metrics(case: CaseComparison) -> list[MetricComparison]:
    """The primary metrics and the bandwidth of every phase, as far as they were measured."""
    names = [metric.name for metric in case.primary]
    names += [f"{phase.name}.bw" for phase in case.phases]
    metrics = (case.metric(name) for name in dict.fromkeys(names))
    return [metric for metric in metrics if metric is not None and metric.pairs]


def _samples(axes: Axes, metric: MetricComparison, names: Sequence[str]) -> None:
    for pair in metric.pairs:
        if pair.again is None:
            continue
        values = (pair.again, pair.base, pair.patched)
        axes.plot(COLUMNS, values, color=MUTED, linewidth=0.8, alpha=0.45)
        for column, colour, marker, value in zip(
            COLUMNS, (AGAIN, BASE, PATCHED), MARKERS, values, strict=True
        ):
            axes.plot(column, value, marker, color=colour, markersize=4.5, alpha=0.75)
    axes.set_xticks(COLUMNS, names)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.4, 2.4)
    axes.set_ylabel(metric.unit)
    axes.margins(y=0.08)
    canvas.clear(axes)


def _changes(axes: Axes, metric: MetricComparison, delta: float) -> None:
    change, noise = metric.judgement.change, metric.again
    axes.add_patch(
        Rectangle((-0.6, -100 * delta), 2.2, 200 * delta, color=BAND, linewidth=0, zorder=0.5)
    )
    axes.axhline(0, color=INK, linewidth=0.7)
    columns = (
        (0, AGAIN, "s", [pair.again_change for pair in metric.pairs], noise),
        (1, PATCHED, "o", [pair.change for pair in metric.pairs], change),
    )
    for column, colour, marker, values, judged in columns:
        percents = [100 * value for value in values if value is not None]
        axes.plot([column - 0.12] * len(percents), percents, marker, color=colour, markersize=4.5,
                  alpha=0.6)  # fmt: skip
        if judged is None or judged.estimate is None:
            continue
        if judged.low is not None and judged.high is not None:
            axes.vlines(
                column + 0.18, 100 * judged.low, 100 * judged.high, color=colour, linewidth=2
            )
        axes.plot(column + 0.18, 100 * judged.estimate, "D", color=colour, markersize=5.5)
    axes.set_xticks((0, 1), ("A/A", "A/B"))
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, 1.6)
    axes.set_ylabel("change, % of base")
    axes.margins(y=0.08)
    canvas.clear(axes)


@canvas.drawn_once
def _draw_one(arms: tuple[str, ...], delta: float, metric: MetricComparison) -> Chart:
    assert metric.base is not None
    assert metric.patched is not None
    base, patched, again = arms
    title = f"{metric.case}, {metric.name}"
    name = canvas.identifier("strip", metric.case, metric.name)
    alt = (
        f"{title}: {base} {wording.figure(metric.base.mean)}, {patched} "
        f"{wording.figure(metric.patched.mean)} {metric.unit}, {wording.samples(metric)}; change "
        f"{wording.change(metric)} {wording.interval(metric)}; "
        f"A/A on this host: {wording.noise(metric)}"
    )
    with canvas.figure(HEIGHT_IN) as fig:
        left, right = fig.subplots(1, 2, width_ratios=(1.5, 1))
        _samples(left, metric, (again, base, patched))
        _changes(right, metric, delta)
        left.set_title("every sample", fontsize=10, color=MUTED, loc="left")
        right.set_title("every block", fontsize=10, color=MUTED, loc="left")
        svg = canvas.to_svg(fig, name, alt)
    return Chart(
        name=name,
        kind="strip",
        title=title,
        caption="A line joins the runs of one block; the axis does not begin at zero. Beside it "
        f"what each block changed by: {again} against {base} (A/A), and {patched} against {base} "
        "(A/B). Diamonds are estimates with their intervals, the band is the threshold.",
        alt=alt,
        svg=svg,
    )


def draw(comparison: Comparison) -> list[Chart]:
    """One chart for each primary metric and each phase's bandwidth; none in exact mode."""
    if comparison.wall is None:
        return []
    manifest = comparison.manifest
    arms, thresholds = tuple(arm.name for arm in manifest.arms), manifest.experiment.thresholds
    return [
        _draw_one(arms, thresholds.of(metric.case, metric.name).change, metric)
        for case in comparison.cases
        for metric in charted_metrics(case)
    ]
