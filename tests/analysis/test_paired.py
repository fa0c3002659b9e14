"""Means of pairs, against scipy and by their own promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis import counts

COUNTS = st.floats(0, 1e7, allow_nan=False)


def test_the_interval_is_that_of_scipys_paired_t_test() -> None:
    base, patched = [634.6, 630.1, 641.0, 633.3], [494.9, 497.2, 489.1, 500.4]
    pair = counts.pair(base, patched)
    known = stats.ttest_rel(patched, base).confidence_interval(0.95)
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
