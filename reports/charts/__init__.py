"""The charts of a report: an explicit tuple of kinds, each one file."""

from __future__ import annotations

from reports.charts import bandwidth, drift, forest, locks, per_io, strip, timeline, waterfall
from reports.charts.canvas import Chart
from reports.model import Comparison

KINDS = (
    forest.draw,
    bandwidth.draw,
    strip.draw,
    drift.draw,
    timeline.draw,
    per_io.draw,
    waterfall.draw,
    locks.draw,
)


def draw_all(comparison: Comparison) -> tuple[Chart, ...]:
    """Every chart the numbers allow, in the order of the report; the same bytes every time."""
    return tuple(chart for draw in KINDS for chart in draw(comparison))


__all__ = ["KINDS", "Chart", "draw_all"]
