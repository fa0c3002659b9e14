"""The charts of a report: an explicit tuple of kinds, each one file."""

from __future__ import annotations

from collections.abc import Callable

from reports.charts import (
    bandwidth,
    drift,
    forest,
    icicle,
    locks,
    ranked,
    scaling,
    strip,
    timeline,
    waterfall,
)
from reports.charts.canvas import Chart
from reports.model import Comparison

Draw = Callable[[Comparison], list[Chart]]
# From here on a drawing for each case would be a wall of them.
MANY_CASES = 8
# Every run of a pair of arms: what verdicts are made of.
OF_RUNS: tuple[Draw, ...] = (bandwidth.draw, strip.draw, drift.draw, timeline.draw)
OF_MANY_CASES: tuple[Draw, ...] = (strip.draw, drift.draw)
# What the charts of all arms do not show of a pair.
OF_A_PAIR: tuple[Draw, ...] = (strip.draw, drift.draw, timeline.draw)
KINDS: tuple[Draw, ...] = (
    forest.draw,
    ranked.draw,
    *OF_RUNS,
    waterfall.draw,
    icicle.draw,
    locks.draw,
    scaling.draw,
)

__all__ = ["KINDS", "MANY_CASES", "OF_A_PAIR", "OF_MANY_CASES", "OF_RUNS", "Chart", "Draw"]
