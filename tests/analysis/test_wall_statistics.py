"""Noise floors and rates, checked against R's and published values and by simulation."""

from __future__ import annotations

import pytest
from scipy import stats

from analysis.statistics import noise_floor, rate_interval


def test_noise_floor_is_half_the_interval() -> None:
    differences = [0.010, -0.004, 0.003, -0.008, 0.006, -0.001, 0.002, -0.011, 0.007, -0.003]
    noise = noise_floor(differences, 0.05)
    # R: wilcox.test(x, conf.int = TRUE) with n = 10 takes the 9th smallest and largest
    # Walsh average at 95 % (Hollander, Wolfe and Chicken, table A.4: t = 47).
    averages = sorted((a + b) / 2 for i, a in enumerate(differences) for b in differences[i:])
    assert noise.interval is not None
    assert (noise.interval.low, noise.interval.high) == (averages[8], averages[-9])
    assert noise.floor == pytest.approx((averages[-9] - averages[8]) / 2)
    assert not noise.differs
    assert noise.pairs == 10


def test_same_kernel_that_differs_from_itself_is_detected() -> None:
    assert noise_floor([0.01 + 0.001 * n for n in range(10)], 0.01).differs


def test_few_pairs_have_no_floor() -> None:
    noise = noise_floor([0.01, -0.01], 0.01)
    assert (noise.floor, noise.interval, noise.differs) == (None, None, False)
    assert noise_floor([0.01], 0.01).sd is None


@pytest.mark.parametrize(("calls", "trials"), [(0, 20), (1, 20), (7, 20), (20, 20), (13, 1000)])
def test_rate_interval_is_scipys(calls: int, trials: int) -> None:
    expected = stats.binomtest(calls, trials).proportion_ci(0.95, method="exact")
    interval = rate_interval(calls, trials)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))


def test_published_rate_interval() -> None:
    """Clopper and Pearson 1934: 10 of 50 at 95 % is 10.0 % to 33.7 %."""
    low, high, _ = rate_interval(10, 50)
    assert (round(low, 3), round(high, 3)) == (0.100, 0.337)


@pytest.mark.parametrize(("calls", "trials"), [(1, 0), (-1, 5), (6, 5)])
def test_what_is_no_rate_is_refused(calls: int, trials: int) -> None:
    with pytest.raises(ValueError, match="is no rate"):
        rate_interval(calls, trials)
