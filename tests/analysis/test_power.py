"""The stated power is that of the rule over all looks, whose levels are those published."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy

from analysis import power
from analysis import power as rates
from analysis.power import Question
from experiment.spec import SEED_LOOKS, Looks, budgets, looks_of
from tests.analysis import simulation
from tests.values import there

ALONE = Question(change=1e-6, alpha=0.01, equivalence_alpha=0.05)
QUESTION = Question(change=0.0025, alpha=0.01, equivalence_alpha=0.05)
RANKED = Question(change=1e-6, alpha=0.01, equivalence_alpha=0.05, ranked=True)
SD = 0.0025


def fixed(n: int) -> Looks:
    return Looks((n,), sequential=False)


def sessions(effect: float, looks: Looks) -> simulation.Rates:
    """How made-up sessions of such an effect end, by the rule of the verdicts."""
    drawn = np.random.default_rng(looks.seeds[-1]).standard_normal((4000, looks.seeds[-1]))
    return simulation.simulated(simulation.bounds(drawn, looks), effect, SD)


@pytest.mark.parametrize("n", [8, 10, 16])
def test_the_detectable_effect_is_called_as_often_as_stated(n: int) -> None:
    effect = there(power.detectable_effect(SD, fixed(n), QUESTION))
    # 4,000 sessions, and as many for the figure: 95 % within four standard errors.
    assert sessions(effect, fixed(n)).called == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("effect", [0.0, 0.0025, 0.005])
def test_a_session_that_adds_seeds_ends_as_stated(effect: float) -> None:
    looks = looks_of(8, 16)
    stated = power.chances(effect, SD, looks, QUESTION)
    made = sessions(effect, looks)
    assert made.called + made.wrong_way == pytest.approx(stated.called, abs=0.03)
    assert made.same == pytest.approx(stated.same, abs=0.03)
    assert made.seeds == pytest.approx(stated.seeds, abs=0.2)


def detected_by_the_t_test(pairs: int) -> float:
    """The effect in standard deviations at 1 % and 95 % power, as TTestPower of statsmodels."""
    critical = scipy.special.stdtrit(pairs - 1, 1 - 0.01 / 2)
    return float(scipy.special.nctdtrinc(pairs - 1, 1 - 0.95, critical)) / math.sqrt(pairs)


def test_the_t_tests_figure_is_not_reached_by_the_rule() -> None:
    """With eight pairs the t test detects 2.0 sd at 95 % power, the rule 2.5."""
    alone = detected_by_the_t_test(8)
    assert alone == pytest.approx(2.0, abs=0.01)
    assert power.detectable_effect(1.0, fixed(8), ALONE) == pytest.approx(2.48, abs=0.04)
    assert power.chances(alone, 1.0, fixed(8), ALONE).called < 0.86


@pytest.mark.parametrize(("n", "sds"), [(9, 2.04), (10, 1.75), (12, 1.51), (16, 1.24), (22, 1.01)])
def test_what_numbers_of_pairs_detect(n: int, sds: float) -> None:
    assert power.detectable_effect(1.0, fixed(n), ALONE) == pytest.approx(sds, rel=0.04)


def test_many_seeds_detect_what_the_t_test_does() -> None:
    alone = detected_by_the_t_test(128)
    assert power.detectable_effect(1.0, fixed(128), ALONE) == pytest.approx(alone, rel=0.03)


def test_a_family_of_metrics_and_a_threshold_make_it_harder() -> None:
    looks = looks_of(8, 24)
    alone = there(power.detectable_effect(SD, looks, ALONE))
    of_ten = there(power.detectable_effect(SD, looks, Question(1e-6, 0.01, 0.05, family=10)))
    far = there(power.detectable_effect(SD, looks, Question(0.02, 0.01, 0.05, family=10)))
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


@pytest.mark.parametrize(("n", "alpha"), [(8, 0.01), (12, 0.01), (22, 0.01), (40, 0.004)])
def test_the_rank_tests_power_is_that_of_trials(n: int, alpha: float) -> None:
    """Of sessions of normal noise at the detectable effect 95 % are called."""
    effect = there(power.detectable_effect(0.012, fixed(n), replace(RANKED, alpha=alpha)))
    trials = np.random.default_rng(n).normal(effect, 0.012, (4000, n))
    assert simulation.above(trials, 0.0, alpha).mean() == pytest.approx(0.95, abs=0.02)


def test_ranks_of_many_pairs_go_on_from_those_of_few_and_tend_to_the_rule_of_thumb() -> None:
    most = power.MOST_RANKED
    in_sds = [
        there(power.detectable_effect(1.0, fixed(n), RANKED)) * math.sqrt(n)
        for n in (most, most + 1, SEED_LOOKS[-1])
    ]
    assert in_sds[1] == pytest.approx(in_sds[0], rel=0.03)
    assert in_sds[2] == pytest.approx(4.22 * math.sqrt(math.pi / 3), rel=0.03)


@pytest.mark.parametrize("effect", [0.0, 0.006, 0.014])
def test_a_session_that_adds_blocks_ends_as_stated(effect: float) -> None:
    question = Question(change=0.01, alpha=0.01, equivalence_alpha=0.05, family=2, ranked=True)
    looks, trials, sd = looks_of(12, 48), 4000, 0.012
    stated = power.chances(effect, sd, looks, question)
    drawn = np.random.default_rng(1).normal(effect, sd, (trials, looks.seeds[-1]))
    going = np.ones(trials, dtype=bool)
    called, same, spent = 0.0, 0.0, 0.0
    for at in power.so_far(looks):
        differences = drawn[:, : at.seeds[-1]]
        level = power.change_level(at, question.alpha / question.family)
        change = simulation.above(differences, 0.0, level) & (differences.mean(axis=1) >= 0.005)
        on_none = 2 * power.equivalence_level(at, question.equivalence_alpha)
        equal = simulation.above(differences, -0.01, on_none)
        equal &= simulation.below(differences, 0.01, on_none)
        called += (going & change).mean()
        same += (going & ~change & equal).mean()
        spent += at.seeds[-1] * (going & (change | equal)).mean()
        going &= ~(change | equal)
    assert called == pytest.approx(stated.called, abs=0.03)
    assert same == pytest.approx(stated.same, abs=0.03)
    assert spent + looks.seeds[-1] * going.mean() == pytest.approx(stated.seeds, abs=1.0)


def test_fewer_blocks_than_the_ranks_of_a_family_need_detect_nothing() -> None:
    of_three = Question(change=0.01, alpha=0.01, equivalence_alpha=0.05, family=3, ranked=True)
    assert power.pairs_of_ranks(fixed(9), of_three) == 10
    assert power.detectable_effect(0.001, fixed(9), of_three) is None
    assert power.detectable_effect(0.0, fixed(10), of_three) == 0.005
    assert power.seeds_to_decide(0.01, 0.001, fixed(9), of_three) == 10
    # At a first look, which has a fifth of the error rate.
    assert power.pairs_of_ranks(looks_of(9, 9), of_three) > 10


@pytest.mark.parametrize("sd", [-1.0, math.nan])
def test_nonsense_is_refused(sd: float) -> None:
    with pytest.raises(ValueError, match="sense"):
        power.detectable_effect(sd, fixed(8), QUESTION)
    with pytest.raises(ValueError, match="sense"):
        power.chances(0.0, sd, fixed(8), QUESTION)
    with pytest.raises(ValueError, match="alpha"):
        Question(0.0025, 0.0, 0.05)


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


def test_what_is_spent_is_what_was_set() -> None:
    """Sums of normals that go on while within all bounds: the share that left, look by look."""
    sums = np.cumsum(np.random.default_rng(3).standard_normal((200_000, 32)), axis=1)
    for alpha in (0.2, 0.01):
        left = np.zeros(len(sums), dtype=bool)
        for looks in rates.so_far(TO_32):
            n = looks.seeds[-1]
            bound = -scipy.special.ndtri(rates.change_level(looks, alpha) / 2)
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
