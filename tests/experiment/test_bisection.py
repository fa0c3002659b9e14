"""The search finds the patch, asks no more than it must, and goes on from what is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import SpecError
from experiment.steps import (
    CHAOS,
    Boundary,
    NextPoint,
    State,
    can_decide,
    next_step,
    seeds_for,
    state_of,
    threshold_of,
)


def search(states: list[State]) -> tuple[Boundary, list[int], list[dict[int, State]]]:
    """Search these states; what was found, the points asked for, and all that was known."""
    known: dict[int, State] = {0: states[0], len(states) - 1: states[-1]}
    steps: list[int] = []
    memory = [dict(known)]
    while True:
        decided = next_step(len(states), known)
        if isinstance(decided, Boundary):
            return decided, steps, memory
        assert decided.point not in known
        steps.append(decided.point)
        known[decided.point] = states[decided.point]
        memory.append(dict(known))


@st.composite
def stepped(draw: st.DrawFn) -> tuple[list[State], int]:
    """States of a series in which one patch moves the metric for good, and its number."""
    points = draw(st.integers(2, 120))
    culprit = draw(st.integers(1, points - 1))
    states: list[State] = ["old"] * culprit
    states += ["new"] * (points - culprit)
    return states, culprit


@given(stepped())
def test_the_one_patch_takes_as_few_steps_as_halving_does(
    given_: tuple[list[State], int],
) -> None:
    states, culprit = given_
    boundary, steps, _ = search(states)
    assert boundary == Boundary(culprit - 1, culprit)
    assert boundary.single
    assert len(steps) <= math.ceil(math.log2(len(states) - 1)) if len(states) > 2 else not steps


@given(stepped(), st.data())
def test_points_that_cannot_be_tested_widen_the_answer_to_exactly_those_around_the_patch(
    given_: tuple[list[State], int], data: st.DataObject
) -> None:
    states, culprit = given_
    middle = range(1, len(states) - 1)
    skipped = data.draw(st.sets(st.sampled_from(middle))) if middle else set()
    shown: list[State] = ["skip" if n in skipped else state for n, state in enumerate(states)]
    boundary, steps, _ = search(shown)
    tested = [n for n in range(len(states)) if n not in skipped]
    assert boundary.old == max(n for n in tested if n < culprit)
    assert boundary.new == min(n for n in tested if n >= culprit)
    assert boundary.single == (boundary.new - boundary.old == 1)
    assert len(steps) == len(set(steps))


@given(st.lists(st.sampled_from(["old", "new", "skip"]), max_size=60))
def test_whatever_the_points_are_the_result_is_a_move(middle: list[State]) -> None:
    states: list[State] = ["old", *middle, "new"]
    boundary, _, _ = search(states)
    assert (states[boundary.old], states[boundary.new]) == ("old", "new")
    assert all(states[n] == "skip" for n in range(boundary.old + 1, boundary.new))


@given(st.lists(st.sampled_from(["old", "new", "skip"]), max_size=60))
def test_a_search_that_was_stopped_goes_on_where_it_was(middle: list[State]) -> None:
    states: list[State] = ["old", *middle, "new"]
    boundary, steps, memory = search(states)
    for number, known in enumerate(memory):
        expected = NextPoint(steps[number]) if number < len(steps) else boundary
        assert next_step(len(states), known) == expected


@pytest.mark.parametrize("known", [{}, {0: "old"}, {0: "new", 3: "new"}, {0: "old", 3: "old"}])
def test_ends_that_do_not_differ_are_no_search(known: dict[int, State]) -> None:
    with pytest.raises(ValueError, match="begins with"):
        next_step(4, known)


def test_a_move_counts_only_in_the_direction_of_the_whole() -> None:
    assert state_of(-0.017, -0.017, 0.005) == "new"
    assert state_of(-0.004, -0.017, 0.005) == "old"
    assert state_of(+0.017, -0.017, 0.005) == "old"
    assert state_of(+0.017, +0.02, 0.005) == "new"


def test_seeds_keep_what_means_nothing_within_the_threshold() -> None:
    assert [seeds_for(t) for t in (0.02, 0.01, 0.005, 0.0025)] == [1, 1, 4, 14]
    assert seeds_for(1e-9) == 32
    rng = np.random.default_rng(1)
    for threshold in (0.005, 0.0025):
        n = seeds_for(threshold)
        # Each side of each ratio is perturbed on its own.
        ratios = rng.normal(0, CHAOS, (40000, n)) - rng.normal(0, CHAOS, (40000, n))
        wrong = float(np.mean(np.abs(ratios.mean(axis=1)) > threshold))
        assert wrong <= 0.011
    # One seed less would not do.
    fewer = rng.normal(0, CHAOS * math.sqrt(2), (40000, seeds_for(0.005) - 1))
    assert float(np.mean(np.abs(fewer.mean(axis=1)) > 0.005)) > 0.01


def test_a_spread_that_hides_the_threshold_decides_nothing() -> None:
    assert can_decide(0.005, 0.0035, 4)
    assert not can_decide(0.005, 0.0035, 1)


@pytest.mark.parametrize(
    ("text", "value"), [("0.5%", 0.005), ("0.005", 0.005), (" 2 % ", 0.02), ("1e-3", 0.001)]
)
def test_thresholds_are_shares(text: str, value: float) -> None:
    assert threshold_of(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "0", "0%", "-1%", "100%", "1", "nan", "inf", "0.5%%", "half"])
def test_other_thresholds_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="--threshold: found"):
        threshold_of(text)
