"""The changes of many metrics, one line each from the largest to the smallest, on a log axis."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from reports import wording
from reports.charts import canvas
from reports.charts.canvas import BAND, INK, MUTED, PATCHED, Chart
from reports.model import Comparison, MetricComparison
from reports.overall import geometric_means
from reports.verdict import CALLED, Change
from text import typeset

# From here on each metric is a line, and all are in the order of their changes.
MANY = 9
ROW_IN, EDGES_IN = 0.19, 0.95
FONT, LONGEST = 8.5, 30
# A tick is named where so much of the axis is free since the last one.
FREE = 0.1
TICKS = (
    -0.95, -0.9, -0.8, -0.67, -0.5, -0.33, -0.2, -0.1, -0.05, -0.02, -0.01, -0.005, 0.0, 0.005,
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 9.0, 19.0, 99.0,
)  # fmt: skip


def at(change: float) -> float:
    """Where a change is on the axis: +100 % is as far from zero as -50 %."""
    return math.log1p(max(change, -0.999))


def ticks(low: float, high: float) -> list[float]:
    """The changes that are named on an axis from ``low`` to ``high``, zero always."""
    chosen = [0.0]
    for side in (1, -1):
        last = 0.0
        for tick in sorted((t for t in TICKS if t * side > 0), key=abs):
            if low <= at(tick) <= high and abs(at(tick) - last) >= FREE * (high - low):
                chosen.append(tick)
                last = at(tick)
    return sorted(chosen)


def _changes(metrics: list[MetricComparison]) -> list[tuple[MetricComparison, Change]]:
    changes = [(metric, metric.judgement.change) for metric in metrics]
    return sorted(
        ((metric, change) for metric, change in changes if change is not None),
        key=lambda pair: (-pair[1].estimate, pair[0].case, pair[0].name),
    )


def _names(metrics: list[MetricComparison]) -> list[str]:
    """Case and metric, without what all of them begin with; the end of a long one counts more."""
    names = [f"{metric.case} {metric.name}" for metric in metrics]
    if len({name.partition(":")[0] for name in names}) == 1 and all(":" in name for name in names):
        names = [name.partition(":")[2] for name in names]
    return [name if len(name) <= LONGEST else f"…{name[1 - LONGEST :]}" for name in names]


def _draw_line(axes: Axes, position: int, metric: MetricComparison, change: Change) -> None:
    called = metric.judgement.verdict in CALLED
    colour = PATCHED if called else MUTED
    if change.low is not None and change.high is not None:
        axes.hlines(position, at(change.low), at(change.high), color=colour, linewidth=1.6)
    axes.plot(at(change.estimate), position, "o", color=colour, markersize=4)
    for reference in metric.published:
        low, high = axes.get_xlim()
        if low <= at(reference.change) <= high:
            axes.plot(at(reference.change), position, "D", markersize=4, markerfacecolor="none",
                      markeredgecolor=INK, markeredgewidth=0.9)  # fmt: skip
    text = f"{wording.MARKS[wording.verdict(metric)]} " if called else ""
    axes.text(1.01, position, typeset(f"{text}{wording.change(metric)}"), fontsize=FONT,
              transform=axes.get_yaxis_transform(), va="center_baseline", color=INK)  # fmt: skip


def draw(comparison: Comparison) -> list[Chart]:
    """One chart of all primary metrics that have a change, where they are many."""
    rows = _changes(list(comparison.primary))
    if len(rows) < MANY:
        return []
    means = geometric_means(metric for metric, _ in rows)
    delta = comparison.manifest.experiment.thresholds.change
    ends = [
        at(end)
        for _, change in rows
        for end in (change.estimate, change.low, change.high)
        if end is not None
    ]
    ends += [at(-delta), at(delta)]
    room = 0.04 * (max(ends) - min(ends))
    low, high = min(ends) - room, max(ends) + room
    labels = [*_names([metric for metric, _ in rows]),
              *(f"geometric mean of {mean.n}" for mean in means)]  # fmt: skip
    alt = "Changes from the largest to the smallest: " + "; ".join(
        f"{metric.case} {metric.name} {wording.change(metric)} {wording.interval(metric)}".rstrip()
        for metric, _ in rows
    ) + "".join(
        f"; geometric mean of {mean.n} in {mean.unit} {wording.percent(mean.change)}"
        for mean in means
    )  # fmt: skip
    with canvas.figure(EDGES_IN + ROW_IN * len(labels)) as fig:
        axes = fig.subplots()
        canvas.clear(axes, grid="x")
        axes.set_xlim(low, high)
        axes.add_patch(Rectangle((at(-delta), -1), at(delta) - at(-delta), len(labels) + 1,
                                 color=BAND, linewidth=0, zorder=0.5))  # fmt: skip
        axes.axvline(0, color=INK, linewidth=0.9)
        for position, (metric, change) in enumerate(rows):
            _draw_line(axes, position, metric, change)
        for position, mean in enumerate(means, start=len(rows)):
            axes.plot(at(mean.change), position, "s", color=INK, markersize=5)
            axes.text(1.01, position, typeset(wording.percent(mean.change)), fontsize=FONT,
                      transform=axes.get_yaxis_transform(), va="center_baseline",
                      fontweight="bold")  # fmt: skip
        axes.set_yticks(range(len(labels)), labels, fontsize=FONT)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.spines["left"].set_visible(False)
        marks = ticks(low, high)
        axes.set_xticks([at(tick) for tick in marks], [_tick(tick) for tick in marks])
        axes.minorticks_off()
        axes.set_xlabel("change, % of base, on a logarithmic scale")
        svg = canvas.to_svg(fig, "ranked", alt)
    return [Chart(
        name="ranked",
        kind="ranked",
        title="The change, from the largest to the smallest",
        caption=f"Intervals at {100 * rows[0][1].level:g} %; what has a verdict is in colour. The "
        f"band is the threshold of {wording.threshold(comparison.manifest.experiment.thresholds)}. "
        "Squares are geometric means, which are not judged. Published changes (◇) further out "
        "are not drawn.",
        alt=alt,
        svg=svg,
    )]  # fmt: skip


def _tick(change: float) -> str:
    return typeset(f"{100 * change:+.3g}" if change else "0")
