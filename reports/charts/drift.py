"""Wall mode: every run by the time it began, so that a drift of the host is seen."""

from __future__ import annotations

from collections.abc import Sequence

from reports import wording
from reports.charts import canvas
from reports.charts.canvas import AGAIN, BASE, MUTED, PATCHED, Chart
from reports.model import Comparison, MetricComparison
from reports.wall_model import DriftPoint

HEIGHT_IN = 2.75
MINUTE_S = 60.0
# A session shorter than this is shown in seconds.
SHORT_S = 600.0


def _draw_one(
    comparison: Comparison, metric: MetricComparison, points: Sequence[DriftPoint]
) -> Chart:
    arms = tuple(arm.name for arm in comparison.manifest.arms)
    short = max(point.at_s for point in points) < SHORT_S
    scale, unit = (1.0, "seconds") if short else (MINUTE_S, "minutes")
    name = canvas.identifier("drift", metric.case, metric.name)
    parts = []
    for arm in arms:
        of_arm = sorted((p for p in points if p.arm == arm), key=lambda point: point.at_s)
        if of_arm:
            parts.append(
                f"{arm} from {wording.figure(of_arm[0].value, 4)} to "
                f"{wording.figure(of_arm[-1].value, 4)}"
            )
    alt = f"{metric.case}, {metric.name} over the session, first to last run: {', '.join(parts)}"
    left_out = [point for point in points if not point.used]
    with canvas.figure(HEIGHT_IN) as fig:
        axes = fig.subplots()
        canvas.clear(axes)
        for arm, colour, marker in zip(arms, (BASE, PATCHED, AGAIN), "oos", strict=False):
            used = sorted((p.at_s / scale, p.value) for p in points if p.arm == arm and p.used)
            if used:
                axes.plot(*zip(*used, strict=True), color=colour, linewidth=0.9, alpha=0.5)
                axes.plot(*zip(*used, strict=True), marker, color=colour, markersize=4.5,
                          alpha=0.8)  # fmt: skip
            for point in left_out:
                if point.arm == arm:
                    axes.plot(point.at_s / scale, point.value, "x", color=colour, markersize=5.5)
        axes.set_xlabel(f"{unit} since the session began")
        axes.set_ylabel(metric.unit)
        extra: list[tuple[str, dict[str, object]]] = []
        if left_out:
            extra.append(("left out", {"marker": "x", "color": MUTED, "markersize": 5}))
        canvas.legend(fig, *extra, arms=arms)
        svg = canvas.to_svg(fig, name, alt)
    return Chart(
        name=name,
        kind="drift",
        title=f"{metric.case}, {metric.name}",
        caption="Each dot is one boot. Blocks are randomised and compared within themselves, so a "
        "drift common to all arms costs precision and does not make a change."
        + (" Crosses are runs of blocks that were left out whole." if left_out else ""),
        alt=alt,
        svg=svg,
    )


def draw(comparison: Comparison) -> list[Chart]:
    """One chart for each primary metric with a run whose time is known; none in exact mode."""
    if comparison.wall is None:
        return []
    charts = []
    for metric in comparison.primary:
        where = (metric.case, metric.name)
        points = [p for p in comparison.wall.drift if (p.case, p.metric) == where]
        if points:
            charts.append(_draw_one(comparison, metric, points))
    return charts
