"""Bandwidth within a run: the median over the seeds, and each seed faintly."""

from __future__ import annotations

import numpy as np

from reports.charts import canvas
from reports.charts.canvas import AGAIN, BASE, PATCHED, Chart
from reports.model import Comparison, TimelineComparison

HEIGHT_IN = 2.75


@canvas.drawn_once
def _draw_one(seconds: str, all_names: tuple[str, ...], line: TimelineComparison) -> Chart:
    name = canvas.identifier("timeline", line.case, line.phase)
    arms = [arm for arm in (line.base, line.patched, line.again) if arm]
    names = all_names[: len(arms)]
    medians = [np.median(np.asarray(arm), axis=0) for arm in arms]
    many = "blocks" if line.again else "seeds"
    alt = (
        f"Bandwidth over time in {line.case}, phase {line.phase}: median over "
        f"{len(line.base)} {many}, "
        + ", ".join(
            f"{name} from {median.min():.4g} to {median.max():.4g}"
            for name, median in zip(names, medians, strict=True)
        )
        + f" {line.unit}."
    )
    with canvas.figure(HEIGHT_IN) as fig:
        axes = fig.subplots()
        canvas.clear(axes)
        for arm, colour in zip(arms, (BASE, PATCHED, AGAIN), strict=False):
            for seed in arm:
                axes.plot(line.t_s, seed, color=colour, linewidth=0.7, alpha=0.16)
        styles = ((BASE, "-"), (PATCHED, (0, (5, 1.2))), (AGAIN, (0, (1, 1))))
        for median, (colour, style) in zip(medians, styles, strict=False):
            axes.plot(line.t_s, median, color=colour, linewidth=1.7, linestyle=style)
        axes.set_xlim(line.t_s[0], line.t_s[-1])
        axes.set_xlabel(f"{seconds} since the phase began")
        axes.set_ylabel(line.unit)
        canvas.legend(fig, arms=names)
        svg = canvas.to_svg(fig, name, alt)
    return Chart(
        name=name,
        kind="timeline",
        title=f"{line.case}, phase {line.phase}",
        caption=f"Median over the {many}, each {many[:-1]} faintly behind it. The axis does not "
        "begin at zero.",
        alt=alt,
        svg=svg,
    )


def draw(comparison: Comparison) -> list[Chart]:
    """One chart a phase with timelines on both arms."""
    manifest = comparison.manifest
    seconds = "virtual s" if manifest.experiment.mode == "exact" else "s"
    names = tuple(arm.name for arm in manifest.arms)
    return [_draw_one(seconds, names, line) for case in comparison.cases for line in case.timelines]
