"""Power of the paired test, against statsmodels and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower  # type: ignore[import-untyped]

from reports import power


@pytest.mark.parametrize("n", [3, 8, 12, 40])
def test_detectable_effect_is_statsmodels(n: int) -> None:
    ours = power.detectable_effect(0.0025, n, 0.01)
    expected = TTestPower().solve_power(nobs=n, alpha=0.01, power=0.95, alternative="two-sided")
    assert ours == pytest.approx(0.0025 * expected, rel=1e-3)


def test_detectable_effect_tends_to_the_rule_of_method_md() -> None:
    effect = power.detectable_effect(1.0, 900, 0.01)
    assert effect is not None
    assert effect * math.sqrt(900) == pytest.approx(4.22, abs=0.02)


@pytest.mark.parametrize(("sd", "blocks"), [(0.005, 8), (0.01, 22), (0.02, 75)])
def test_blocks_for_one_percent(sd: float, blocks: int) -> None:
    # method.md says 10, 22 and 77 for the rank test, which pays up to 5 % for its safety.
    assert power.blocks_to_detect(sd, 0.01, 0.01) == blocks


def test_the_blocks_named_do_detect() -> None:
    n = power.blocks_to_detect(0.0025, 0.0031, 0.01)
    assert n is not None
    rng = np.random.default_rng(7)
    samples = rng.normal(0.0031, 0.0025, size=(2000, n))
    seen = np.mean(stats.ttest_1samp(samples, 0, axis=1).pvalue <= 0.01)
    assert 0.93 < seen < 0.985


def test_without_spread_everything_is_seen_with_the_fewest_blocks() -> None:
    assert power.detectable_effect(0.0, 8, 0.01) == 0.0
    assert power.blocks_to_detect(0.0, 0.001, 0.01) == 8
    assert power.blocks_to_exclude(0.0, 0.001, 0.05) == 5


def test_what_no_number_of_blocks_answers() -> None:
    assert power.detectable_effect(0.01, 1, 0.01) is None
    assert power.blocks_to_detect(1.0, 0.0, 0.01) is None
    assert power.blocks_to_detect(1.0, 0.001, 0.01) is None
    assert power.blocks_to_exclude(1.0, -0.1, 0.05) is None


def test_blocks_to_decide_asks_the_question_the_estimate_raises() -> None:
    seen = power.blocks_to_decide(0.002, 0.0025, change=0.0025, alpha=0.01, equivalence_alpha=0.05)
    assert seen == power.blocks_to_detect(0.0025, 0.002, 0.01)
    small = power.blocks_to_decide(
        -0.0005, 0.0025, change=0.0025, alpha=0.01, equivalence_alpha=0.05
    )
    assert small == power.blocks_to_exclude(0.0025, 0.002, 0.05)
    assert small is not None
    assert small > 8


@pytest.mark.parametrize(("sd", "alpha"), [(-1.0, 0.01), (math.nan, 0.01), (1.0, 0.0)])
def test_nonsense_is_refused(sd: float, alpha: float) -> None:
    with pytest.raises(ValueError, match=r"sense|alpha"):
        power.detectable_effect(sd, 8, alpha)
