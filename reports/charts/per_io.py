"""What an I/O cost below the page cache: refaults, and pages read from the device."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from reports import wording
from reports.charts import canvas
from reports.charts.canvas import AGAIN, BASE, PATCHED, RULE, Chart
from reports.model import Comparison, MetricComparison

SHOWN = (
    ("refaults_per_io", "Refaults per I/O", "refaults per I/O"),
    ("work", "Pages read per I/O", "pages read from the device per I/O"),
    # Sessions of before had this in its place.
    (
        "device_bytes_per_fio_byte",
        "Device bytes per fio byte",
        "bytes read from the device per byte fio asked for",
    ),
)
ROW_IN = 0.56
EDGES_IN = 1.0
# Beyond this ratio between the largest and the smallest value dots need a logarithmic axis.
LINEAR_RATIO = 25


def _axis(axes: Axes, values: Sequence[float]) -> None:
    positive = [value for value in values if value > 0]
    if positive and len(positive) == len(values) and max(positive) > LINEAR_RATIO * min(positive):
        axes.set_xscale("log")
        axes.set_xlim(min(positive) / 1.8, max(positive) * 1.8)
        axes.xaxis.set_major_locator(LogLocator(numticks=7))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(0, 1.12 * max(values) or 1)


def _row(axes: Axes, position: float, metric: MetricComparison) -> None:
    assert metric.base is not None
    assert metric.patched is not None
    across = axes.get_yaxis_transform()
    axes.text(0, position - 0.38, f"{metric.case}  {metric.phase}", transform=across, va="center")
    both = f"{wording.figure(metric.base.mean, 4)} → {wording.figure(metric.patched.mean, 4)}"
    axes.text(1, position - 0.38, both, transform=across, va="center", ha="right")
    axes.axhline(position, color=RULE, linewidth=0.7, zorder=0.6)
    again = [pair.again for pair in metric.pairs if pair.again is not None]
    for shift, colour, summary, values in (
        (-0.07, BASE, metric.base, [pair.base for pair in metric.pairs]),
        (0.12, PATCHED, metric.patched, [pair.patched for pair in metric.pairs]),
        (0.28, AGAIN, metric.again_values, again),
    ):
        if summary is None:
            continue
        axes.plot(values, [position + shift] * len(values), "o", color=colour, markersize=3,
                  alpha=0.3)  # fmt: skip
        axes.plot(summary.mean, position + shift, "o", color=colour, markersize=6.5)


def _draw_one(
    comparison: Comparison, short: str, title: str, label: str, metrics: list[MetricComparison]
) -> Chart:
    name = canvas.identifier(short)
    arms = tuple(arm.name for arm in comparison.manifest.arms)
    many = "blocks" if comparison.wall else "seeds"
    alt = f"{title}, {' then '.join(arms)}: " + "; ".join(
        f"{metric.case} {metric.phase} {wording.figure(metric.base.mean, 4)} then "
        f"{wording.figure(metric.patched.mean, 4)}"
        + (f" then {wording.figure(metric.again_values.mean, 4)}" if metric.again_values else "")
        for metric in metrics
        if metric.base and metric.patched
    )
    with canvas.figure(EDGES_IN + ROW_IN * len(metrics)) as drawn:
        axes = drawn.subplots()
        canvas.clear(axes, grid="x")
        for position, metric in enumerate(metrics):
            _row(axes, position, metric)
        _axis(axes, [v for m in metrics for pair in m.pairs
                     for v in (pair.base, pair.patched, pair.again) if v is not None])  # fmt: skip
        axes.set_ylim(len(metrics) - 0.6, -0.68)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        logarithmic = axes.get_xscale() == "log"
        axes.set_xlabel(f"{label}{' (logarithmic)' if logarithmic else ''}")
        canvas.legend(drawn, arms=arms)
        svg = canvas.to_svg(drawn, name, alt)
    return Chart(
        name=name,
        kind="per-io",
        title=title,
        caption=f"Large dots are means over the {many}, small ones the {many}; fewer is better.",
        alt=alt,
        svg=svg,
    )


def draw(comparison: Comparison) -> list[Chart]:
    """One chart for each of these metrics that any phase has."""
    charts = []
    for short, title, label in SHOWN:
        metrics = [
            metric
            for case in comparison.cases
            for phase in case.phases
            for metric in [case.metric(f"{phase.name}.{short}")]
            if metric is not None and metric.base and metric.patched
        ]
        if metrics:
            charts.append(_draw_one(comparison, short, title, label, metrics))
    return charts
