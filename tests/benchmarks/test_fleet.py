"""The simulated fleet: what it must do whatever the numbers are."""

from __future__ import annotations

import pytest

from benchmarks.fleet import Costs, Series, simulate

EVEN = Costs(run_s=100.0, spread=0.0, snapshot_s=0.0, build_s=0.0, check_one_in=0)
SERIES = Series(runs=36, machines=1, builds=1)


def test_one_worker_does_what_a_day_has_room_for() -> None:
    # 36 runs of 100 s: an hour.
    day = simulate(1, EVEN, SERIES, a_day=240, days=1)
    assert day.done == pytest.approx(24, rel=0.01)
    assert day.busy == pytest.approx(1, rel=0.01)


def test_ten_do_ten_times_as_much_and_many_wait_for_one_run() -> None:
    assert simulate(10, EVEN, SERIES, a_day=2400, days=1).done == pytest.approx(240, rel=0.01)
    day = simulate(1000, EVEN, SERIES, a_day=24, days=1)
    assert day.median_h == pytest.approx(100 / 3600)
    assert day.late_h == pytest.approx(100 / 3600)


def test_checks_and_the_scheduler_cost_what_they_take() -> None:
    checked = Costs(**{**vars(EVEN), "check_one_in": 12})
    assert simulate(1, checked, SERIES, a_day=240, days=1).done == pytest.approx(
        24 * 36 / 39, rel=0.01
    )
    slow = Costs(**{**vars(EVEN), "scheduler_s": 10.0})
    # No more than a run each ten seconds is begun, whatever the number of workers.
    assert simulate(1000, slow, SERIES, a_day=2400, days=1).done == pytest.approx(240, rel=0.01)
