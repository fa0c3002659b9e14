"""Checked against scipy, statsmodels, published critical values and simulation."""

import math
from itertools import product

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import counts
from analysis import statistics as s
from analysis.statistics import noise_floor
from tests.values import there

finite = st.floats(-1, 1, allow_nan=False).map(lambda x: round(x, 6))


def test_log_ratios_are_paired_and_exactly_zero_for_equal_values() -> None:
    assert s.log_ratios([100.0, 3.7], [110.0, 3.7]) == pytest.approx([math.log(1.1), 0.0])
    assert s.log_ratios([66339.528377], [66339.528377])[0] == 0.0


@pytest.mark.parametrize("sizes", [(2, 2), (2, 9), (5, 3), (30, 30)])
def test_welch_is_that_of_scipy(sizes: tuple[int, int]) -> None:
    random = np.random.default_rng(sum(sizes))
    base, patched = (
        np.exp(random.normal(m, sd, n))
        for m, sd, n in zip((0, 0.2), (0.1, 0.4), sizes, strict=True)
    )
    ours = s.welch(base.tolist(), patched.tolist(), 0.99)
    theirs = scipy.stats.ttest_ind(np.log(patched), np.log(base), equal_var=False)
    bounds = theirs.confidence_interval(0.99)
    assert ours is not None
    assert ours.p == pytest.approx(theirs.pvalue)
    assert ours.freedom == pytest.approx(theirs.df)
    assert (ours.interval.low, ours.interval.high) == pytest.approx((bounds.low, bounds.high))


def test_welch_knows_no_spread_of_one_value_and_of_equal_ones() -> None:
    assert s.welch([1.0], [2.0, 2.1], 0.99) is None
    assert s.welch([1.0, 1.0], [2.0, 2.0], 0.99) is None
    assert s.welch([1.0, 1.0], [2.0, 2.1], 0.99) is not None
    with pytest.raises(ValueError, match="above zero"):
        s.welch([0.0, 1.0], [2.0, 2.1], 0.99)


@pytest.mark.parametrize(
    ("base", "patched"),
    [
        ([], []),
        ([1.0], [1.0, 2.0]),
        ([0.0], [1.0]),
        ([1.0], [-1.0]),
        ([math.nan], [1.0]),
        ([1.0], [math.inf]),
    ],
)
def test_what_has_no_ratio_is_refused(base: list[float], patched: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pairs|above zero"):
        s.log_ratios(base, patched)


@pytest.mark.parametrize("bad", [[], [math.nan], [math.inf, 1.0]])
def test_differences_that_are_no_numbers_are_refused(bad: list[float]) -> None:
    for function in (s.mean, s.hodges_lehmann, s.signed_rank_p, s.t_p, s.walsh_averages):
        with pytest.raises(ValueError, match="difference"):
            function(bad)


def test_hodges_lehmann_by_hand() -> None:
    # Walsh averages of 1, 2, 6: 1, 1.5, 2, 3.5, 4, 6.
    assert list(s.walsh_averages([6, 1, 2])) == [1, 1.5, 2, 3.5, 4, 6]
    assert s.hodges_lehmann([6, 1, 2]) == 2.75
    assert s.hodges_lehmann([0.3]) == 0.3


def test_signed_rank_distribution_is_that_of_all_sign_patterns() -> None:
    sums = [
        sum(r for r, up in zip(range(1, 7), signs, strict=True) if up)
        for signs in product((0, 1), repeat=6)
    ]
    counted = np.bincount(sums) / 2**6
    assert s.signed_rank_probabilities(6) == pytest.approx(counted)


# Wilcoxon's T, two-sided 0.05 and 0.01: the largest T that is significant (Siegel 1956, table G).
@pytest.mark.parametrize(
    ("n", "at_5", "at_1"),
    [
        (6, 0, None),
        (7, 2, None),
        (8, 3, 0),
        (9, 5, 1),
        (10, 8, 3),
        (12, 13, 7),
        (16, 29, 19),
        (20, 52, 37),
        (25, 89, 68),
    ],
)
def test_published_critical_values(n: int, at_5: int, at_1: int | None) -> None:
    cumulated = np.cumsum(s.signed_rank_probabilities(n))
    for alpha, critical in ((0.05, at_5), (0.01, at_1)):
        largest = int(np.sum(cumulated <= alpha / 2)) - 1
        assert largest == (-1 if critical is None else critical)


@pytest.mark.parametrize(("level", "needed"), [(0.99, 8), (0.95, 6), (0.9, 5), (0.5, 2)])
def test_pairs_needed_is_where_the_interval_begins_to_exist(level: float, needed: int) -> None:
    assert s.pairs_needed(level) == needed
    assert s.signed_rank_interval(list(range(1, needed)), level) is None
    assert s.signed_rank_interval(list(range(1, needed + 1)), level) is not None


def test_signed_rank_interval_published_example() -> None:
    # Hollander, Wolfe and Chicken, table 3.1 (Hamilton depression scale, nine patients):
    # 96 % interval for the change (-0.786, -0.010), estimate -0.46.
    before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    change = [b - a for a, b in zip(before, after, strict=True)]
    interval = there(s.signed_rank_interval(change, 0.96))
    assert (interval.low, interval.high) == pytest.approx((-0.786, -0.010), abs=1e-9)
    assert s.hodges_lehmann(change) == pytest.approx(-0.46)
    assert s.signed_rank_p(change) == pytest.approx(0.0390625)


@given(st.lists(finite, min_size=1, max_size=14, unique_by=abs).filter(lambda d: 0 not in d))
def test_signed_rank_p_is_scipys(differences: list[float]) -> None:
    expected = scipy.stats.wilcoxon(differences, method="exact").pvalue
    assert s.signed_rank_p(differences) == pytest.approx(expected)


def test_signed_rank_p_with_ties_is_that_of_all_sign_patterns() -> None:
    differences = [1.0, 1.0, -1.0, 2.0, 2.0, 3.0]
    ranks = scipy.stats.rankdata(np.abs(differences))
    observed = ranks[np.asarray(differences) > 0].sum()
    sums = np.array([np.dot(ranks, signs) for signs in product((0, 1), repeat=6)])
    expected = min(1.0, 2 * min(np.mean(sums <= observed), np.mean(sums >= observed)))
    assert s.signed_rank_p(differences) == pytest.approx(expected)
    assert s.signed_rank_p([*differences, 0.0]) == pytest.approx(expected)


@given(st.lists(finite, min_size=2, max_size=20).filter(lambda d: np.std(d) > 1e-3))
def test_t_is_scipys(differences: list[float]) -> None:
    result = scipy.stats.ttest_1samp(differences, 0)
    assert s.t_p(differences) == pytest.approx(result.pvalue)
    expected = result.confidence_interval(0.99)
    interval = there(s.t_interval(differences, 0.99))
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))


@given(st.lists(finite, min_size=8, max_size=12))
def test_interval_and_p_value_agree_about_zero(differences: list[float]) -> None:
    distinct = np.abs(differences)
    if len(set(distinct)) < len(differences) or 0 in differences:
        return
    interval = there(s.signed_rank_interval(differences, 0.99))
    assert interval.excludes(0) == (s.signed_rank_p(differences) <= 0.01)


def test_an_a_a_of_exact_equals_is_exactly_zero() -> None:
    zeros = [0.0] * 8
    assert s.mean(zeros) == 0.0
    assert s.hodges_lehmann(zeros) == 0.0
    for interval in (s.signed_rank_interval(zeros, 0.99), s.t_interval(zeros, 0.99)):
        assert interval is not None
        assert interval[:2] == (0.0, 0.0)
        assert not interval.excludes(0)
    assert s.signed_rank_p(zeros) == 1.0
    assert s.t_p(zeros) == 1.0
    assert s.t_p([0.25, 0.25]) == 0.0


def test_one_pair_has_an_estimate_and_no_interval() -> None:
    assert s.mean([0.01]) == 0.01
    assert s.t_interval([0.01], 0.99) is None
    assert s.t_p([0.01]) is None
    assert s.standard_deviation([0.01]) is None
    assert s.signed_rank_interval([0.01], 0.99) is None
    assert s.signed_rank_p([0.01]) == 1.0


def test_wider_takes_the_wider_and_copes_with_none() -> None:
    narrow, wide = s.Interval(0.1, 0.2, 0.99), s.Interval(-0.1, 0.3, 0.99)
    assert s.wider(narrow, wide) == wide
    assert s.wider(wide, narrow) == wide
    assert s.wider(None, narrow) == narrow
    assert s.wider(None, None) is None


@pytest.mark.slow
# Few: statsmodels looks for garbage each time.
@settings(max_examples=10)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_adjusted_p_values_are_those_of_statsmodels_and_scipy(p_values: list[float]) -> None:
    from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

    assert s.holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])
    expected = scipy.stats.false_discovery_control(p_values)
    assert s.benjamini_hochberg(p_values) == pytest.approx(expected)


def test_adjusting_nothing_and_nonsense() -> None:
    assert s.holm([]) == s.benjamini_hochberg([]) == []
    for function in (s.holm, s.benjamini_hochberg):
        with pytest.raises(ValueError, match="p value"):
            function([1.2])


@pytest.mark.parametrize("draw", ["normal", "laplace"])
def test_intervals_cover_as_often_as_they_say(draw: str) -> None:
    rng = np.random.default_rng(20260101)
    trials, truth = 1500, 0.01
    samples = truth + 0.0025 * getattr(rng, draw)(size=(trials, 10))
    hits = {"rank": 0, "wider": 0}
    for sample in samples:
        rank, student = s.signed_rank_interval(sample, 0.9), s.t_interval(sample, 0.9)
        assert rank is not None
        widest = there(s.wider(rank, student))
        hits["rank"] += not rank.excludes(truth)
        hits["wider"] += not widest.excludes(truth)
    # Three binomial standard errors of 90 % in 1500 trials are 2.3 %.
    assert 0.877 < hits["rank"] / trials < 0.96
    assert hits["wider"] >= hits["rank"] - trials * 0.01


def test_change_of_a_log_ratio() -> None:
    assert s.as_change(math.log(1.0131)) == pytest.approx(0.0131)
    # The interval of two pairs of an arm64 guest's metric ended above what a float holds.
    assert s.as_change(710.0) == s.as_change(s.LARGEST) == pytest.approx(math.exp(s.LARGEST))
    assert s.as_change(-710.0) == -1.0


def test_noise_has_the_interval_of_the_ranks() -> None:
    differences = [0.010, -0.004, 0.003, -0.008, 0.006, -0.001, 0.002, -0.011, 0.007, -0.003]
    noise = noise_floor(differences, 0.05)
    # R: wilcox.test(x, conf.int = TRUE) with n = 10 takes the 9th smallest and largest
    # Walsh average at 95 % (Hollander, Wolfe and Chicken, table A.4: t = 47).
    averages = sorted((a + b) / 2 for i, a in enumerate(differences) for b in differences[i:])
    assert (there(noise.interval).low, there(noise.interval).high) == (averages[8], averages[-9])
    assert not noise.differs
    # The same kernel that differs from itself; and too few pairs for an interval.
    assert noise_floor([0.01 + 0.001 * n for n in range(10)], 0.01).differs
    # By the rule for a change: none is called below half of the threshold.
    steady = [0.002 + 0.0001 * n for n in range(10)]
    assert noise_floor(steady, 0.01).differs
    assert noise_floor(steady, 0.01, change=0.004).differs
    assert not noise_floor(steady, 0.01, change=0.01).differs
    few = noise_floor([0.01, -0.01], 0.01)
    assert (few.interval, few.differs) == (None, False)
    assert noise_floor([0.01], 0.01).sd is None


COUNTS = st.floats(0, 1e7, allow_nan=False)


def test_the_interval_is_that_of_scipys_paired_t_test() -> None:
    base, patched = [634.6, 630.1, 641.0, 633.3], [494.9, 497.2, 489.1, 500.4]
    pair = counts.pair(base, patched)
    known = scipy.stats.ttest_rel(patched, base).confidence_interval(0.95)
    assert (pair.low, pair.high) == pytest.approx((known.low, known.high))
    assert pair.difference == pytest.approx(np.mean(patched) - np.mean(base))
    assert pair.difference_range == pytest.approx((-151.9, -132.9))
    assert not pair.within_scatter


def test_scatter_that_reaches_zero_is_reported() -> None:
    assert counts.pair([10.0, 10.0, 10.0], [11.0, 9.5, 10.2]).within_scatter
    assert not counts.pair([10.0, 10.0, 10.0], [11.0, 11.1, 10.9]).within_scatter


def test_equal_is_exactly_equal() -> None:
    pair = counts.pair([0.1, 0.7, 1.3], [0.1, 0.7, 1.3])
    assert pair.equal
    assert (pair.difference, pair.low, pair.high, pair.change) == (0.0, 0.0, 0.0, 0.0)
    assert not pair.within_scatter
    nearly = counts.pair([0.1, 0.7, 1.3], [0.1, 0.7, math.nextafter(1.3, 2)])
    assert not nearly.equal


def test_one_seed_has_no_scatter_to_speak_of() -> None:
    pair = counts.pair([5.0], [6.0])
    assert (pair.difference, pair.low, pair.high, pair.n) == (1.0, None, None, 1)
    assert not pair.within_scatter


def test_a_difference_from_zero_has_no_change() -> None:
    assert counts.pair([0.0, 0.0], [1.0, 1.0]).change is None


@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), min_size=1, max_size=9))
def test_parts_add_up_to_the_whole(rows: list[tuple[float, float, float, float]]) -> None:
    matrix = np.asarray(rows)
    parts = counts.columns(matrix[:, :2], matrix[:, 2:])
    whole = counts.pair(matrix[:, :2].sum(axis=1), matrix[:, 2:].sum(axis=1))
    scale = max(1.0, float(matrix.max()))
    assert sum(part.difference for part in parts) == pytest.approx(
        whole.difference, abs=1e-9 * scale
    )
    for part in parts:
        low, high = part.difference_range
        assert low - 1e-9 * scale <= part.difference <= high + 1e-9 * scale


def test_a_ratio_needs_something_to_divide_by() -> None:
    assert counts.ratio([[1.0], [1.0]], [[2.0], [0.0]]) is None
    with pytest.raises(ValueError, match="not above zero"):
        counts.per([[1.0], [1.0]], [[2.0], [0.0]])
    assert counts.per([[1.0], [3.0]], [[2.0], [4.0]], 1000).patched == 750.0


@pytest.mark.parametrize("shape", [(0, 3), (2, 3)])
def test_matrices_that_do_not_fit(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="two equal matrices"):
        counts.columns(np.zeros(shape), np.zeros((0, 3)))


def test_ratios_of_many_are_those_of_each_one() -> None:
    dice = np.random.default_rng(1)
    above, below = dice.uniform(1, 9, (2, 4, 6)), dice.uniform(1, 9, (2, 4, 6))
    below[1, 2, 3] = 0.0
    many = counts.ratios(above, below, 1000)
    alone = [
        counts.ratio(above[:, :, at].tolist(), below[:, :, at].tolist(), 1000) for at in range(6)
    ]
    assert [at for at, pair in enumerate(many) if pair is None] == [3]
    for together, single in zip(many, alone, strict=True):
        assert (together is None) == (single is None)
        if together and single:
            assert together.difference == pytest.approx(single.difference, rel=1e-12)
            assert together.difference_range == single.difference_range


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        counts.pair([1.0, value], [1.0, 2.0])


@pytest.mark.parametrize("skew", [0.0, 1e-12, 0.4, -1.5])
def test_what_is_unskewed_goes_back(skew: float) -> None:
    t, skews = np.linspace(-1.5, 1.5, 7), np.full(7, skew)
    straight = s.unskewed(t, skews, 12)
    assert s.skewed(straight, skews, 12) == pytest.approx(t, abs=1e-6)
    assert (abs(straight - t).max() > 1e-3) == (abs(skew) > 1e-9)
