"""The stated power is that of the rule over all looks: against the verdicts themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower  # type: ignore[import-untyped]

from analysis import power
from analysis.power import Question, so_far
from analysis.verdict import CALLED, OPEN, Evidence, Verdict, judge_primary
from experiment.spec import Looks, Thresholds, looks_of

ALONE = Question(change=1e-6, alpha=0.01, equivalence_alpha=0.05)
QUESTION = Question(change=0.0025, alpha=0.01, equivalence_alpha=0.05)
SD = 0.0025


def fixed(n: int) -> Looks:
    return Looks((n,), sequential=False)


def sessions(effect: float, sd: float, looks: Looks, count: int) -> tuple[float, float, float]:
    """Shares of made-up sessions called a change and no change, and the mean of their seeds."""
    random = np.random.default_rng(looks.seeds[-1])
    called = same = spent = 0
    for _ in range(count):
        values = np.exp(random.normal(effect, sd, looks.seeds[-1]))
        for each in so_far(looks):
            n = each.seeds[-1]
            evidence = Evidence(
                direction="higher",
                base=(1.0,) * n,
                patched=tuple(values[:n].tolist()),
                blocks_planned=n,
                looks=each,
            )
            judged = judge_primary([evidence], Thresholds(change=0.0025))[0]
            if judged.cause not in OPEN:
                break
        called += judged.verdict in CALLED
        same += judged.verdict is Verdict.NO_CHANGE
        spent += n
    return called / count, same / count, spent / count


@pytest.mark.parametrize("n", [8, 10, 16])
def test_the_detectable_effect_is_called_as_often_as_stated(n: int) -> None:
    effect = power.detectable_effect(SD, fixed(n), QUESTION)
    assert effect is not None
    # 300 sessions: 95 % within three standard errors.
    assert sessions(effect, SD, fixed(n), 300)[0] == pytest.approx(0.95, abs=0.04)


@pytest.mark.parametrize("effect", [0.0, 0.0025, 0.005])
def test_a_session_that_adds_seeds_ends_as_stated(effect: float) -> None:
    looks = looks_of(8, 16)
    stated = power.chances(effect, SD, looks, QUESTION)
    called, same, seeds = sessions(effect, SD, looks, 150)
    assert called == pytest.approx(stated.called, abs=0.13)
    assert same == pytest.approx(stated.same, abs=0.13)
    assert seeds == pytest.approx(stated.seeds, abs=1.0)


def test_the_t_tests_figure_is_not_reached_by_the_rule() -> None:
    """With eight pairs the t test detects 2.0 sd at 95 % power, the rule 2.5."""
    alone = TTestPower().solve_power(nobs=8, alpha=0.01, power=0.95, alternative="two-sided")
    assert alone == pytest.approx(2.0, abs=0.01)
    assert power.detectable_effect(1.0, fixed(8), ALONE) == pytest.approx(2.48, abs=0.04)
    assert power.chances(alone, 1.0, fixed(8), ALONE).called < 0.86


@pytest.mark.parametrize(("n", "sds"), [(9, 2.04), (10, 1.75), (12, 1.51), (16, 1.24), (22, 1.01)])
def test_what_numbers_of_pairs_detect(n: int, sds: float) -> None:
    assert power.detectable_effect(1.0, fixed(n), ALONE) == pytest.approx(sds, rel=0.04)


def test_many_seeds_detect_what_the_t_test_does() -> None:
    alone = TTestPower().solve_power(nobs=128, alpha=0.01, power=0.95, alternative="two-sided")
    assert power.detectable_effect(1.0, fixed(128), ALONE) == pytest.approx(alone, rel=0.03)


def test_a_family_of_metrics_and_a_threshold_make_it_harder() -> None:
    looks = looks_of(8, 24)
    alone = power.detectable_effect(SD, looks, ALONE)
    of_ten = power.detectable_effect(SD, looks, Question(1e-6, 0.01, 0.05, family=10))
    far = power.detectable_effect(SD, looks, Question(0.02, 0.01, 0.05, family=10))
    assert alone is not None
    assert of_ten is not None
    assert far is not None
    assert alone < of_ten < far
    assert far > 0.01


def test_a_larger_budget_detects_less_and_needs_no_more_where_it_is_clear() -> None:
    few, many = looks_of(8, 12), looks_of(8, 32)
    effects = [power.detectable_effect(SD, looks, QUESTION) for looks in (few, many)]
    assert None not in effects
    assert effects[0] > 1.5 * effects[1]  # type: ignore[operator]
    clear = [power.chances(0.02, SD, looks, QUESTION) for looks in (few, many)]
    assert clear[0].seeds == clear[1].seeds < 8.1


def test_the_seeds_named_do_decide() -> None:
    seeds = power.seeds_to_decide(0.003, SD, looks_of(8, 12), QUESTION)
    assert seeds == 32
    with_them = power.chances(0.003, SD, looks_of(8, seeds), QUESTION)
    before = power.chances(0.003, SD, looks_of(8, 24), QUESTION)
    assert with_them.called + with_them.same >= 0.95 > before.called + before.same
    assert power.seeds_to_decide(0.0, SD / 5, looks_of(8, 12), QUESTION) == 8


def test_without_spread_everything_is_detected_with_the_fewest_seeds() -> None:
    assert power.detectable_effect(0.0, fixed(8), QUESTION) == 0.00125
    assert power.seeds_to_decide(0.001, 0.0, fixed(4), QUESTION) == 8


def test_what_no_number_of_seeds_answers() -> None:
    assert power.detectable_effect(0.01, fixed(7), QUESTION) is None
    assert power.seeds_to_decide(0.0, 1.0, fixed(8), QUESTION) is None


@pytest.mark.parametrize("sd", [-1.0, math.nan])
def test_nonsense_is_refused(sd: float) -> None:
    with pytest.raises(ValueError, match="sense"):
        power.detectable_effect(sd, fixed(8), QUESTION)
    with pytest.raises(ValueError, match="sense"):
        power.chances(0.0, sd, fixed(8), QUESTION)
    with pytest.raises(ValueError, match="alpha"):
        Question(0.0025, 0.0, 0.05)
