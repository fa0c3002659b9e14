"""The charts of a report: an explicit tuple of kinds, each one file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reports.charts import bandwidth, drift, forest, locks, per_io, strip, timeline, waterfall
from reports.charts.canvas import Chart
from reports.model import Comparison

Draw = Callable[[Comparison], list[Chart]]
KINDS: tuple[Draw, ...] = (
    forest.draw,
    bandwidth.draw,
    strip.draw,
    drift.draw,
    timeline.draw,
    per_io.draw,
    waterfall.draw,
    locks.draw,
)


# What a pair of arms of many is drawn: what the charts of all arms do not show.
OF_A_PAIR: tuple[Draw, ...] = (strip.draw, drift.draw, timeline.draw, waterfall.draw, locks.draw)
# What stays where a drawing for each case would be a wall of them.
OF_MANY_CASES: tuple[Draw, ...] = (forest.draw, strip.draw, drift.draw, waterfall.draw, locks.draw)


def draw_all(comparison: Comparison, kinds: Sequence[Draw] = KINDS) -> tuple[Chart, ...]:
    """Every chart the numbers allow, in the order of the report; the same bytes every time."""
    return tuple(chart for draw in kinds for chart in draw(comparison))


__all__ = ["KINDS", "OF_A_PAIR", "OF_MANY_CASES", "Chart", "Draw", "draw_all"]
