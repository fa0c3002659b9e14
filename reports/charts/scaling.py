"""Throughput against the number of CPUs: an estimated range for both arms, and their change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.explain.scaling import EXPLANATION, Range, Scaling
from analysis.model import Comparison
from reports import wording
from reports.charts import canvas
from reports.charts.canvas import BASE, INK, PATCHED, Chart

HEIGHT_IN = 4.6
TICKS = (1, 2, 4, 8, 16, 32, 64)


def _band(axes: Axes, cpus: Sequence[int], ranges: Sequence[Range], colour: str) -> None:
    low, high = zip(*ranges, strict=True)
    axes.fill_between(cpus, low, high, color=colour, alpha=0.22, linewidth=0)
    for edge in (low, high):
        axes.plot(cpus, edge, color=colour, linewidth=1.0)


def _set_cpus(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(TICKS))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _alt(base: str, patched: str, scaling: Scaling) -> str:
    ends = "; ".join(
        f"{point.cpus} CPUs {wording.percent(point.change[0])} to "
        f"{wording.percent(point.change[1])}"
        for point in scaling.points
        if point.cpus in TICKS
    )
    published = scaling.published
    text = ""
    if published:
        text = f"; published {wording.percent(published.change)} at {published.jobs}"
    return (
        f"Estimated change of throughput, {patched} against {base}, "
        f"{scaling.case} {scaling.phase}: {ends}{text}"
    )


@canvas.drawn_once
def _draw_one(base: str, patched: str, scaling: Scaling) -> Chart:
    name = canvas.identifier("scaling", scaling.case, scaling.phase)
    alt = _alt(base, patched, scaling)
    published = scaling.published
    cpus = [point.cpus for point in scaling.points]
    with canvas.figure(HEIGHT_IN) as fig:
        upper, lower = fig.subplots(2, 1, sharex=True, height_ratios=(1, 1))
        for axes in (upper, lower):
            canvas.clear(axes)
            _set_cpus(axes)
        _band(upper, cpus, [point.base for point in scaling.points], BASE)
        _band(upper, cpus, [point.patched for point in scaling.points], PATCHED)
        upper.set_yscale("log", base=2)
        upper.yaxis.set_major_locator(FixedLocator(TICKS))
        upper.yaxis.set_minor_locator(NullLocator())
        upper.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        upper.set_ylabel(f"times one CPU of {base}")
        changes = [(100 * low, 100 * high) for low, high in (p.change for p in scaling.points)]
        _band(lower, cpus, changes, INK)
        lower.axhline(0, color=INK, linewidth=0.8)
        lower.set_ylabel("change, %")
        lower.set_xlabel("CPUs (estimated range, not measured)")
        extra: list[tuple[str, dict[str, object]]] = []
        if published:
            style: dict[str, Any] = {"marker": "D", "color": INK, "markersize": 6}
            lower.plot([published.jobs], [100 * published.change], linestyle="", **style)
            extra.append(("published", style))
        canvas.legend(fig, *extra, arms=(base, patched))
        svg = canvas.to_svg(fig, name, alt)
    return Chart(
        name=name,
        kind=name,
        title="Throughput by number of CPUs",
        caption="Estimated range, not measured. Above, both arms against one CPU of "
        f"{base}; below, the change." + (
            f" The diamond is {wording.percent(published.change)} of {published.document}, at "
            f"{published.jobs} jobs." if published else ""
        ),
        alt=alt,
        svg=svg,
    )  # fmt: skip


def draw(comparison: Comparison) -> list[Chart]:
    """One chart for each phase that has a range."""
    manifest = comparison.manifest
    return [_draw_one(manifest.base, manifest.patched, each) for each in EXPLANATION.of(comparison)]
