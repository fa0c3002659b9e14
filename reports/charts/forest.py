"""The change of every primary metric with its interval, on one axis in percent."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.transforms import blended_transform_factory

from reports import wording
from reports.charts import canvas, ranked
from reports.charts.canvas import AGAIN, BAND, INK, MUTED, PATCHED, Chart
from reports.model import Comparison, MetricComparison
from reports.verdict import Change
from reports.wall_model import Again
from text import typeset

ROW_IN = 0.5
# Where a name and what is said of it do not fit beside each other, they stand in two lines.
TALL_ROW_IN = 0.85
LETTERS = 50
EDGES_IN = 1.0
# A published change further out than this many times our own range would flatten ours.
FURTHEST = 2.5


def limits_of(
    changes: Sequence[Change], published: Sequence[float], delta: float,
    noise: Sequence[Again] = (),
) -> tuple[float, float]:  # fmt: skip
    """Axis limits in percent: all intervals, the bands, and published changes not too far out."""
    ends = [-1.6 * delta, 1.6 * delta]
    for again in noise:
        bounds = (again.estimate, again.low, again.high, again.floor, -(again.floor or 0.0))
        ends += [end for end in bounds if end is not None]
    for change in changes:
        ends += [change.estimate, change.low or change.estimate, change.high or change.estimate]
    reach = FURTHEST * max(abs(end) for end in ends)
    ends += [value for value in published if abs(value) <= reach]
    low, high = 100 * min(ends), 100 * max(ends)
    span = high - low
    # Room beside the intervals for the arrows of what lies further out.
    left = 0.32 if any(value < -reach for value in published) else 0.06
    right = 0.32 if any(value > reach for value in published) else 0.06
    return low - left * span, high + right * span


def _shown_change(metric: MetricComparison) -> tuple[str, str]:
    """The name of a row, and its change and verdict."""
    return (
        f"{metric.case}  {metric.name}",
        typeset(f"{wording.change(metric)}  {wording.judged(metric)}"),
    )


def _row(
    axes: Axes, position: float, metric: MetricComparison, limits: tuple[float, float], *,
    tall: bool,
) -> None:  # fmt: skip
    across = blended_transform_factory(axes.transAxes, axes.transData)
    change = metric.judgement.change
    assert change is not None
    name, text = _shown_change(metric)
    axes.text(0, position - (0.54 if tall else 0.38), name, transform=across, va="center")
    axes.text(0 if tall else 1, position - (0.3 if tall else 0.38), text, transform=across,
              va="center", ha="left" if tall else "right", color=MUTED)  # fmt: skip
    if change.low is not None and change.high is not None:
        axes.hlines(position, 100 * change.low, 100 * change.high, color=PATCHED, linewidth=2.2)
    axes.plot(100 * change.estimate, position, "o", color=PATCHED, markersize=6.5)
    if metric.again is not None:
        _noise(axes, position, metric.again)
    for reference in metric.published:
        value = 100 * reference.change
        if limits[0] <= value <= limits[1]:
            axes.plot(
                value, position, "D", color=INK, markersize=6.5, markerfacecolor="none",
                markeredgecolor=INK, markeredgewidth=1.1,
            )  # fmt: skip
            continue
        right = value > limits[1]
        text = typeset(wording.percent(reference.change, decimals=1))
        axes.text(
            1 if right else 0, position, f"◇ {text} →" if right else f"← {text} ◇",
            transform=across,
            va="center", ha="right" if right else "left",
        )  # fmt: skip


def _noise(axes: Axes, position: float, again: Again) -> None:
    """What base differs by from itself, below the change; its floor as a band around zero."""
    if again.floor is not None:
        axes.add_patch(
            Rectangle((-100 * again.floor, position - 0.17), 200 * again.floor, 0.36, color=AGAIN,
                      alpha=0.22, linewidth=0, zorder=0.6)
        )  # fmt: skip
    if again.low is not None and again.high is not None:
        axes.hlines(position + 0.15, 100 * again.low, 100 * again.high, color=AGAIN, linewidth=1.6)
    if again.estimate is not None:
        axes.plot(100 * again.estimate, position + 0.15, "s", color=AGAIN, markersize=4.5)


def draw(comparison: Comparison) -> list[Chart]:
    """One chart of all primary metrics that have a change; none where no metric has, or many."""
    metrics = [metric for metric in comparison.primary if metric.judgement.change is not None]
    if not metrics or len(metrics) >= ranked.MANY:
        return []
    thresholds = comparison.manifest.experiment.thresholds
    delta = thresholds.change
    band = "threshold" if thresholds.metrics else wording.threshold(thresholds)
    changes = [metric.judgement.change for metric in metrics if metric.judgement.change]
    published = [reference.change for metric in metrics for reference in metric.published]
    noise = [metric.again for metric in metrics if metric.again is not None]
    limits = limits_of(changes, published, delta, noise)
    level = f"{100 * changes[0].level:g} %"
    alt = "Change of each primary metric with its interval: " + "; ".join(
        f"{metric.case} {metric.name} {wording.change(metric)} {wording.interval(metric)}, "
        f"{wording.verdict(metric)}"
        + (f", {wording.published(metric)}" if metric.published else "")
        + (f", A/A: {wording.noise(metric)}" if metric.again else "")
        for metric in metrics
    )
    tall = any(sum(map(len, _shown_change(metric))) > LETTERS for metric in metrics)
    with canvas.figure(EDGES_IN + (TALL_ROW_IN if tall else ROW_IN) * len(metrics)) as fig:
        axes = fig.subplots()
        axes.patch.set_alpha(0)
        for position, metric in enumerate(metrics):
            # In pieces: one band over the whole height would run through the names.
            own = thresholds.of(metric.case, metric.name).change
            axes.add_patch(
                Rectangle((-100 * own, position - 0.17), 200 * own, 0.36, color=BAND,
                          linewidth=0, zorder=0.5)
            )  # fmt: skip
            axes.vlines(0, position - 0.17, position + 0.19, color=INK, linewidth=0.9)
            _row(axes, position, metric, limits, tall=tall)
        axes.set_xlim(*limits)
        axes.set_ylim(len(metrics) - 0.55, -0.8 if tall else -0.65)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("change, % of base")
        extra: list[tuple[str, dict[str, object]]] = [
            (f"change, {level} interval", {"marker": "o", "color": PATCHED, "markersize": 6}),
            (band, {"marker": "s", "color": BAND, "markersize": 8}),
        ]
        if noise:
            extra.append(("A/A", {"marker": "s", "color": AGAIN, "markersize": 5}))
        if published:
            extra.append(("published", {
                "marker": "D", "markerfacecolor": "none", "markeredgecolor": INK, "markersize": 6,
            }))  # fmt: skip
        canvas.legend(fig, *extra)
        svg = canvas.to_svg(fig, "forest", alt)
    return [
        Chart(
            name="forest",
            kind="forest",
            title="The change, case by case",
            caption=_caption(wording.threshold(thresholds), bool(noise)),
            alt=alt,
            svg=svg,
        )
    ]


def _caption(band: str, noise: bool) -> str:
    published = (
        "Published changes were measured on other machines, in real time; an arrow means further "
        "out."
    )
    threshold = f"The band is the threshold of {band}."
    if not noise:
        return f"{threshold} {published}"
    return (
        f"{threshold} Squares are A/A, base against itself with its interval; the tinted band is "
        f"the noise floor, half that interval's width on either side of zero. {published}"
    )
