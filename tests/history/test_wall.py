"""Dates and sizes of steps in noise."""

import numpy as np
import pytest

from analysis.statistics import Floats
from history.wall import Dates, date_probabilities, dates, difference, level


def step(size: float, seed: int, before: int = 30, after: int = 30) -> Floats:
    """Nights with a deviation of 1 and a step."""
    random = np.random.default_rng(seed)
    return np.asarray(
        random.standard_normal(before + after) + np.repeat([0.0, size], [before, after])
    )


def test_a_clear_step_has_one_date_wherever_the_search_began() -> None:
    for seed, near in enumerate((24, 29, 30, 31, 36)):
        assert dates(date_probabilities(step(10.0, seed), near, 1.0)) == Dates(30, 30, 30)


def test_the_range_has_the_true_date_as_often_as_it_says() -> None:
    """With two deviations no method dates more than about two in three right."""
    right = inside = 0
    for seed in range(200):
        date = dates(date_probabilities(step(2.0, seed), 30, 1.0))
        right += date.at == 30
        inside += date.earliest <= 30 <= date.latest
    assert 110 <= right <= 150
    assert 180 <= inside <= 200


def test_a_single_night_far_off_beside_the_step_does_not_move_it() -> None:
    values = np.repeat([0.0, 5.0], [20, 20])
    for odd in (17, 22):
        values_with = values.copy()
        values_with[odd] = -30.0
        assert dates(date_probabilities(values_with, 20, 1.0)).at == 20


def test_a_level_of_two_nights_is_the_shortest() -> None:
    values = np.repeat([0.0, 8.0], [20, 2])
    assert dates(date_probabilities(values, 19, 1.0)).at == 20
    assert date_probabilities(values, 20, 1.0)[21] == 0
    assert dates(date_probabilities(values[:3], 2, 1.0)) == Dates(2, 2, 2)


def test_the_interval_has_the_size_as_often_as_it_says() -> None:
    inside = 0
    for seed in range(300):
        values = step(3.0, seed, 30, 3)
        inside += not difference(values[:30], values[30:], 1.0).excludes(3.0)
    assert inside >= 290


def test_an_outlier_does_not_move_the_level() -> None:
    values = np.zeros(20)
    values[[4, 19]] = 30.0
    assert level(values, 1.0) == pytest.approx(0.0)
