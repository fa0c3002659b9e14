"""The stated power of wall mode is that of its rank rule: against the test itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis import statistics, wall_power
from analysis.wall_power import DecisionRule

RANK = DecisionRule(0.01)


@pytest.mark.parametrize(("n", "alpha"), [(8, 0.01), (12, 0.01), (22, 0.01), (40, 0.004)])
def test_the_rank_tests_power_is_that_of_trials(n: int, alpha: float) -> None:
    """2,000 sessions of normal noise at the detectable effect: 95 % found."""
    sd = 0.012
    effect = wall_power.detectable_effect(sd, n, DecisionRule(alpha))
    assert effect is not None
    random = np.random.default_rng(n)
    called = sum(
        statistics.signed_rank_p(row) <= alpha for row in random.normal(effect, sd, (2000, n))
    )
    assert called / 2000 == pytest.approx(0.95, abs=0.02)


def test_simulated_and_asymptotic_meet() -> None:
    last = wall_power.detectable_effect(1.0, wall_power.MOST_SIMULATED, RANK)
    first = wall_power.detectable_effect(1.0, wall_power.MOST_SIMULATED + 1, RANK)
    assert last is not None
    assert first is not None
    assert first * math.sqrt(wall_power.MOST_SIMULATED + 1) == pytest.approx(
        last * math.sqrt(wall_power.MOST_SIMULATED), rel=0.03
    )


def test_many_pairs_tend_to_the_rule_of_thumb() -> None:
    effect = wall_power.detectable_effect(1.0, 900, RANK)
    assert effect is not None
    assert effect * math.sqrt(900) == pytest.approx(4.22 * math.sqrt(math.pi / 3), abs=0.03)


def test_a_threshold_makes_it_harder() -> None:
    alone = wall_power.detectable_effect(0.0025, 12, RANK)
    far = wall_power.detectable_effect(0.0025, 12, DecisionRule(0.01, least=0.01))
    assert alone is not None
    assert far is not None
    assert alone < 0.01 < far


def test_without_spread_everything_is_detected_with_the_fewest_blocks() -> None:
    assert wall_power.detectable_effect(0.0, 8, RANK) == 0.0
    assert wall_power.blocks_to_detect(0.0, 0.001, RANK) == 8
    assert wall_power.blocks_to_exclude(0.0, 0.001, 0.05) == 5


def test_what_no_number_of_blocks_answers() -> None:
    assert wall_power.detectable_effect(0.01, 7, RANK) is None
    assert wall_power.blocks_to_detect(1.0, 0.0, RANK) is None
    assert wall_power.blocks_to_detect(1.0, 0.001, RANK) is None
    assert wall_power.blocks_to_exclude(1.0, -0.1, 0.05) is None


def test_blocks_to_decide_asks_the_question_the_estimate_raises() -> None:
    rule = DecisionRule(0.01, least=0.00125)
    blocks = wall_power.blocks_to_decide(
        0.002, 0.0025, change=0.0025, rule=rule, equivalence_alpha=0.05
    )
    assert blocks == wall_power.blocks_to_detect(0.0025, 0.002, RANK)
    small = wall_power.blocks_to_decide(
        -0.0005, 0.0025, change=0.0025, rule=rule, equivalence_alpha=0.05
    )
    assert small == wall_power.blocks_to_exclude(0.0025, 0.002, 0.05)
    assert small is not None
    assert small > 8


@pytest.mark.parametrize("sd", [-1.0, math.nan])
def test_nonsense_is_refused(sd: float) -> None:
    with pytest.raises(ValueError, match="sense"):
        wall_power.detectable_effect(sd, 8, RANK)
    with pytest.raises(ValueError, match="alpha"):
        DecisionRule(0.0)
