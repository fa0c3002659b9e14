"""What a chart shows of a course."""

import pytest

from history.changes import changes_of
from history.entry import PINNED
from history.pages.tracks import trends
from tests.history.factory import Nights


def test_a_trend_has_its_level_band_and_marks() -> None:
    entries = Nights((0.0,) * 20 + (-0.01,) * 10, lab={10: 0.03}).entries()
    changes = changes_of(entries)
    by_arm = {t.course.arm: t for t in trends(entries, changes) if t.primary}
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
