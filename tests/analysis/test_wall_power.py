"""The stated power of wall mode is that of its rank rule: against the test itself."""

import math

import numpy as np
import pytest

from analysis import power, statistics
from analysis.power import Question

ALPHA = 0.01


def detectable(sd: float, n: int, alpha: float = ALPHA, least: float = 0.0) -> float:
    effect = power.detectable_in_blocks(sd, n, alpha, least)
    assert effect is not None
    return effect


@pytest.mark.parametrize(("n", "alpha"), [(8, 0.01), (12, 0.01), (22, 0.01), (40, 0.004)])
def test_the_rank_tests_power_is_that_of_trials(n: int, alpha: float) -> None:
    """2,000 sessions of normal noise at the detectable effect: 95 % found."""
    trials = np.random.default_rng(n).normal(detectable(0.012, n, alpha), 0.012, (2000, n))
    called = sum(statistics.signed_rank_p(row) <= alpha for row in trials)
    assert called / 2000 == pytest.approx(0.95, abs=0.02)


def test_simulated_and_asymptotic_meet_and_tend_to_the_rule_of_thumb() -> None:
    most = power.MOST_RANKED
    last = detectable(1.0, most) * math.sqrt(most)
    assert detectable(1.0, most + 1) * math.sqrt(most + 1) == pytest.approx(last, rel=0.03)
    thumb = 4.22 * math.sqrt(math.pi / 3)
    assert detectable(1.0, 900) * math.sqrt(900) == pytest.approx(thumb, abs=0.03)


@pytest.mark.parametrize("n", [12, 100])
def test_a_threshold_makes_it_harder(n: int) -> None:
    assert detectable(0.0025, n) < 0.01 < detectable(0.0025, n, least=0.01)


def test_without_spread_everything_is_detected_with_the_fewest_blocks() -> None:
    assert detectable(0.0, 8) == 0.0
    assert power.blocks_to_detect(0.0, 0.001, ALPHA) == 8
    assert power.blocks_to_exclude(0.0, 0.001, 0.05) == 5


@pytest.mark.parametrize(("sd", "effect"), [(0.01, 0.05), (0.01, 0.014), (0.01, 0.008)])
def test_the_blocks_named_are_the_fewest_that_detect(sd: float, effect: float) -> None:
    blocks = power.blocks_to_detect(sd, effect, ALPHA)
    assert blocks is not None
    assert detectable(sd, blocks) <= effect
    assert (power.detectable_in_blocks(sd, blocks - 1, ALPHA) or math.inf) > effect


def test_what_no_number_of_blocks_answers() -> None:
    assert power.detectable_in_blocks(0.01, 7, ALPHA) is None
    assert power.blocks_to_detect(1.0, 0.0, ALPHA) is None
    assert power.blocks_to_detect(1.0, 0.001, ALPHA) is None
    assert power.blocks_to_exclude(1.0, -0.1, 0.05) is None
    assert power.blocks_to_exclude(1.0, 0.001, 0.05) is None


def test_blocks_to_decide_asks_the_question_the_estimate_raises() -> None:
    question = Question(0.0025, 0.02, 0.05, family=2)
    blocks = power.blocks_to_decide(0.002, 0.0025, question)
    assert blocks == power.blocks_to_detect(0.0025, 0.002, 0.01)
    small = power.blocks_to_decide(-0.0005, 0.0025, question)
    assert small == power.blocks_to_exclude(0.0025, 0.002, 0.05)
    assert small is not None
    assert small > 8


@pytest.mark.parametrize("sd", [-1.0, math.nan])
def test_nonsense_is_refused(sd: float) -> None:
    with pytest.raises(ValueError, match="sense"):
        power.detectable_in_blocks(sd, 8, ALPHA)
    with pytest.raises(ValueError, match="level"):
        power.detectable_in_blocks(1.0, 8, 0.0)
