"""The stated power is that of the rule: against the verdicts themselves, and statsmodels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower  # type: ignore[import-untyped]

from experiment.spec import Thresholds
from reports import power, statistics
from reports.power import Rule
from reports.verdict import CALLED, Evidence, judge_primary

EXACT = Rule(0.01, t_alpha=0.01)
RANK = Rule(0.01)


def called(effect: float, sd: float, n: int, sessions: int, family: int = 1) -> float:
    """Share of made-up sessions whose first metric gets a verdict of a change."""
    random = np.random.default_rng(n)
    thresholds = Thresholds(change=0.0025)
    count = 0
    for _ in range(sessions):
        changes = [random.normal(effect, sd, n), *random.normal(0.0, sd, (family - 1, n))]
        evidence = [
            Evidence(
                direction="higher", base=(1.0,) * n,
                patched=tuple(float(value) for value in np.exp(each)), blocks_planned=n,
            )
            for each in changes
        ]  # fmt: skip
        count += judge_primary(evidence, thresholds)[0].verdict in CALLED
    return count / sessions


@pytest.mark.parametrize("n", [8, 10, 16])
def test_the_detectable_effect_is_called_as_often_as_stated(n: int) -> None:
    sd = 0.0025
    effect = power.detectable_effect(sd, n, Rule(0.01, t_alpha=0.01, least=0.00125))
    assert effect is not None
    # 800 sessions: 95 % within three standard errors.
    assert called(effect, sd, n, 800) == pytest.approx(0.95, abs=0.024)


def test_the_t_tests_figure_is_not_reached_by_the_rule() -> None:
    """With eight pairs the t test detects 2.0 sd at 95 % power; the rule then has 82 %."""
    alone = TTestPower().solve_power(nobs=8, alpha=0.01, power=0.95, alternative="two-sided")
    assert alone == pytest.approx(2.0, abs=0.01)
    effect = power.detectable_effect(1.0, 8, EXACT)
    assert effect == pytest.approx(2.48, abs=0.03)
    assert called(0.0025 * alone, 0.0025, 8, 400) < 0.88


@pytest.mark.parametrize(("n", "sds"), [(9, 2.04), (10, 1.75), (12, 1.51), (16, 1.24), (22, 1.01)])
def test_what_numbers_of_pairs_detect(n: int, sds: float) -> None:
    assert power.detectable_effect(1.0, n, EXACT) == pytest.approx(sds, rel=0.02)


def test_a_family_of_metrics_and_a_threshold_make_it_harder() -> None:
    alone = power.detectable_effect(0.0025, 12, EXACT)
    of_ten = power.detectable_effect(0.0025, 12, Rule(0.01, t_alpha=0.001))
    far = power.detectable_effect(0.0025, 12, Rule(0.01, t_alpha=0.01, least=0.01))
    assert alone is not None
    assert of_ten is not None
    assert far is not None
    assert alone < of_ten < far
    assert far > 0.01


def test_simulated_and_asymptotic_meet() -> None:
    last = power.detectable_effect(1.0, power.MOST_SIMULATED, EXACT)
    first = power.detectable_effect(1.0, power.MOST_SIMULATED + 1, EXACT)
    assert last is not None
    assert first is not None
    assert first * math.sqrt(power.MOST_SIMULATED + 1) == pytest.approx(
        last * math.sqrt(power.MOST_SIMULATED), rel=0.03
    )


def test_many_pairs_tend_to_the_rule_of_thumb() -> None:
    effect = power.detectable_effect(1.0, 900, RANK)
    assert effect is not None
    assert effect * math.sqrt(900) == pytest.approx(4.22 * math.sqrt(math.pi / 3), abs=0.03)


@pytest.mark.parametrize(("n", "alpha"), [(8, 0.01), (12, 0.01), (22, 0.01), (40, 0.004)])
def test_the_rank_tests_power_is_the_power_found(n: int, alpha: float) -> None:
    """2,000 sessions of normal noise at the detectable effect: 95 % found."""
    sd = 0.012
    effect = power.detectable_effect(sd, n, Rule(alpha)) if n >= 8 else None
    assert effect is not None
    random = np.random.default_rng(n)
    found = sum(
        statistics.signed_rank_p(row) <= alpha for row in random.normal(effect, sd, (2000, n))
    )
    assert found / 2000 == pytest.approx(0.95, abs=0.02)


def test_the_pairs_named_do_detect() -> None:
    n = power.blocks_to_detect(0.0025, 0.0031, EXACT)
    assert n is not None
    assert 14 <= n <= 18
    assert 0.92 < called(0.0031, 0.0025, n, 400) <= 0.99


def test_without_spread_everything_is_seen_with_the_fewest_blocks() -> None:
    assert power.detectable_effect(0.0, 8, EXACT) == 0.0
    assert power.blocks_to_detect(0.0, 0.001, EXACT) == 8
    assert power.blocks_to_exclude(0.0, 0.001, 0.05, with_t=True) == 5


def test_what_no_number_of_blocks_answers() -> None:
    assert power.detectable_effect(0.01, 7, EXACT) is None
    assert power.blocks_to_detect(1.0, 0.0, EXACT) is None
    assert power.blocks_to_detect(1.0, 0.001, EXACT) is None
    assert power.blocks_to_exclude(1.0, -0.1, 0.05, with_t=False) is None


def test_blocks_to_decide_asks_the_question_the_estimate_raises() -> None:
    rule = Rule(0.01, t_alpha=0.01, least=0.00125)
    seen = power.blocks_to_decide(0.002, 0.0025, change=0.0025, rule=rule, equivalence_alpha=0.05)
    assert seen == power.blocks_to_detect(0.0025, 0.002, EXACT)
    small = power.blocks_to_decide(
        -0.0005, 0.0025, change=0.0025, rule=rule, equivalence_alpha=0.05
    )
    assert small == power.blocks_to_exclude(0.0025, 0.002, 0.05, with_t=True)
    assert small is not None
    assert small > 8


@pytest.mark.parametrize("sd", [-1.0, math.nan])
def test_nonsense_is_refused(sd: float) -> None:
    with pytest.raises(ValueError, match="sense"):
        power.detectable_effect(sd, 8, EXACT)
    with pytest.raises(ValueError, match="alpha"):
        Rule(0.0)
