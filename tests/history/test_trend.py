"""What a chart shows of a course."""

import numpy as np
import pytest

from history.changes import changes_of
from history.entry import PINNED
from history.trend import trends
from tests.history.factory import Nights


def test_a_trend_has_its_level_band_and_marks() -> None:
    entries = Nights((0.0,) * 20 + (-0.01,) * 10, lab={10: 0.03}).entries()
    changes = changes_of(entries)
    by_arm = {t.course.arm: t for t in trends(entries, changes, primary_only=True)}
    assert set(by_arm) == {PINNED, "tonight"}
    trend = by_arm["tonight"]
    assert trend.unit == "virtual MiB/s"
    marked = [point for point in trend.points if point.changes]
    assert [point.night for point in marked] == ["2026-01-21"]
    assert trend.points[10].lab == ("qemu: 7.2.17 -> 8.10",)
    levels = [point.level for point in trend.points]
    assert levels[19] is not None
    assert levels[20] is not None
    assert levels[20] / levels[19] == pytest.approx(0.99, abs=0.003)
    assert len(set(levels)) == 3
    # Of all nights until the next change, not of the first of them.
    values = [point.value or 0.0 for point in trend.points]
    assert levels[20] == pytest.approx(sum(values[20:]) / 10)
    assert all(p.low < p.value < p.high for p in trend.points if p.low and p.value and p.high)


def test_a_wall_trend_is_a_ratio_to_the_pinned_kernel() -> None:
    nights = Nights((0.0,) * 30 + (-0.02,) * 20, mode="wall", seeds=12, noise=0.008, host=0.02)
    entries = nights.entries()
    trend = next(t for t in trends(entries, changes_of(entries)) if t.course.arm == "tonight")
    assert trend.unit == f"ratio to {PINNED}"
    values = [point.value for point in trend.points]
    assert values[-1] == pytest.approx(0.98, abs=0.01)
    assert values[0] == pytest.approx(1.0, abs=0.01)
    assert trend.points[-1].level == pytest.approx(np.mean([v for v in values[30:] if v]))
    assert sum(p.low < p.value < p.high for p in trend.points if p.low and p.value and p.high) >= 47
