"""Dumbbells of locks: changes against the base arm, so that 1 % is seen beside any size."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.charts import locks
from reports.paired import Paired, pair


def axis(*pairs: Paired) -> tuple[Axes, bool]:
    axes = Figure().subplots()
    for position, each in enumerate(pairs):
        locks._row(axes, position, f"lock {position}", each)
    return axes, locks._set_axis(axes, [("", each) for each in pairs])


def dots(axes: Axes) -> list[float]:
    return [float(np.asarray(line.get_xdata())[0]) for line in axes.lines
            if line.get_marker() == "o"]  # fmt: skip


@pytest.mark.parametrize("size", [9.0, 900.0, 9e6])
def test_a_change_of_one_percent_shows_at_any_size(size: float) -> None:
    axes, wide = axis(pair([size, size], [1.01 * size, 1.01 * size]))
    low, high = axes.get_xlim()
    base, patched = dots(axes)
    assert base == 0.0
    assert patched == pytest.approx(1.0)
    assert (patched - base) / (high - low) > 0.3
    assert not wide


def test_a_lock_that_became_tenfold_does_not_hide_the_others() -> None:
    axes, wide = axis(pair([5.0, 5.0], [50.0, 50.0]), pair([100.0, 100.0], [95.0, 95.0]))
    assert wide
    low, high = axes.get_xlim()
    ends = axes.transData.transform([(low, 0), (high, 0)])[:, 0]
    base, patched = axes.transData.transform([(0, 0), (-5, 0)])[:, 0]
    assert abs(patched - base) / (ends[1] - ends[0]) > 0.05
    assert low < -5 < 900 < high
