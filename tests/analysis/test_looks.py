"""Error rates over several looks: against simulated sums, and published boundaries."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from analysis import power as rates
from experiment.spec import SEED_LOOKS, Looks, budgets, looks_of

TO_32 = looks_of(8, 32)
FIXED = Looks((8,), sequential=False)


def test_looks_are_those_of_the_first_number_and_the_ladder() -> None:
    assert Looks((8, 10, 12, 16, 24, 32), sequential=True) == TO_32
    assert looks_of(8, 32, until=12).seeds == (8, 10, 12)
    assert looks_of(9, 16).seeds == (9, 10, 12, 16)
    assert looks_of(8, None) == FIXED
    assert looks_of(8, 8) == Looks((8,), sequential=True)
    assert budgets(20) == (20, 24, *SEED_LOOKS[5:])
    assert [each.seeds[-1] for each in rates.so_far(TO_32)] == list(TO_32.seeds)


@pytest.mark.parametrize("alpha", [0.2, 0.01])
def test_what_is_spent_is_what_was_set(alpha: float) -> None:
    """Sums of normals that go on while within all bounds: the share that left, look by look."""
    sums = np.cumsum(np.random.default_rng(3).standard_normal((200_000, 32)), axis=1)
    left = np.zeros(len(sums), dtype=bool)
    for looks in rates.so_far(TO_32):
        n = looks.seeds[-1]
        bound = stats.norm.isf(rates.change_level(looks, alpha) / 2)
        left |= np.abs(sums[:, n - 1]) / np.sqrt(n) >= bound
        spent = alpha * n * n / (n * n + rates.HALF_OF_CHANGE**2)
        error = np.sqrt(spent / len(sums))
        assert left.mean() == pytest.approx(spent, abs=4 * error)


def test_no_budget_uses_up_the_error_rate() -> None:
    """Whatever is added, all looks together stay below: levels are those of any budget."""
    long = looks_of(8, SEED_LOOKS[-1])
    for looks in rates.so_far(long)[:6]:
        assert rates.change_level(looks, 0.01) == rates.change_level(
            looks_of(8, 32, until=looks.seeds[-1]), 0.01
        )
    last = long.seeds[-1]
    assert 0.009 < 0.01 * last**2 / (last**2 + rates.HALF_OF_CHANGE**2) < 0.01
    assert 0 < rates.change_level(long, 0.01) < 0.001


def test_a_look_that_is_left_out_leaves_its_share_to_the_next() -> None:
    skipped = Looks((8, 16), sequential=True)
    assert rates.change_level(skipped, 0.01) > rates.change_level(looks_of(8, 16), 0.01)


def test_equal_levels_are_those_of_pocock() -> None:
    """Five equal looks at 5 %: Pocock's nominal level is 0.0158; spent as his test spends it."""
    seeds = (10, 20, 30, 40, 50)
    sums = np.cumsum(np.random.default_rng(4).standard_normal((400_000, 50)), axis=1)
    z = np.abs(sums[:, [n - 1 for n in seeds]]) / np.sqrt(seeds)
    together = (z.max(axis=1) >= stats.norm.isf(0.0158 / 2)).mean()
    assert together == pytest.approx(0.05, abs=0.0015)
    # A constant level and ours spend alike where the shares are those of the constant level.
    ours = rates._levels(seeds[:1], 0.0158 * (1 + (24 / 10) ** 2), 24.0)
    assert ours == pytest.approx((0.0158,))


def test_the_repeated_p_value_is_the_rate_at_which_it_is_just_significant() -> None:
    for looks in rates.so_far(TO_32):
        for alpha in (1e-6, 0.0025, 0.01, 0.3):
            level = rates.change_level(looks, alpha)
            assert rates.repeated_p(looks, level) == pytest.approx(alpha, rel=0.02)
    assert rates.repeated_p(TO_32, 0.0) == 0.0
    assert rates.repeated_p(TO_32, 1.0) == 1.0


def test_a_fixed_number_has_the_whole_rate() -> None:
    assert rates.change_level(FIXED, 0.01) == 0.01
    assert rates.equivalence_level(FIXED, 0.05) == 0.05
    assert rates.repeated_p(FIXED, 0.03) == 0.03


def test_no_change_is_judged_sooner_than_change() -> None:
    first = looks_of(8, 32, until=8)
    assert rates.equivalence_level(first, 0.05) / 0.05 > rates.change_level(first, 0.01) / 0.01
    with pytest.raises(ValueError, match="alpha"):
        rates.change_level(first, 0.0)
