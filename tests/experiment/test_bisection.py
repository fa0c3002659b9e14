"""The search finds the patch, asks no more than it must, and goes on from what is known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import SpecError
from experiment.spec import MOST_ARMS, ArmSpec, Experiment, Published, SeriesSpec
from experiment.steps import (
    CHAOS,
    Boundary,
    State,
    can_decide,
    next_step,
    per_patch,
    seeds_for,
    state_of,
    step_arms,
    threshold_of,
)
from tests.experiment.test_plan import make_experiment
from tests.values import but


def search(states: list[State]) -> tuple[Boundary, list[int], list[dict[int, State]]]:
    """Search these states; what was found, the points asked for, and all that was known."""
    known: dict[int, State] = {0: states[0], len(states) - 1: states[-1]}
    steps: list[int] = []
    memory = [dict(known)]
    while True:
        decided = next_step(len(states), known)
        if isinstance(decided, Boundary):
            return decided, steps, memory
        assert decided not in known
        steps.append(decided)
        known[decided] = states[decided]
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
def test_the_one_patch_takes_as_few_steps_as_halving_does(given_: tuple[list[State], int]) -> None:
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
        expected = steps[number] if number < len(steps) else boundary
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


SUBJECTS = ("mm: one", "mm: two", "mm: three")


def applied(arm: ArmSpec, total: int) -> int:
    """How many patches the kernel of an arm is built with."""
    if not arm.patches:
        return 0
    return total if arm.upto is None else arm.upto


def test_forward_patches_are_added_one_by_one() -> None:
    arms = step_arms(SeriesSpec(path="x"), SUBJECTS)
    assert [arm.name for arm in arms] == ["base", "patch-1", "patch-2", "patch-3"]
    assert [applied(arm, 3) for arm in arms] == [0, 1, 2, 3]
    assert [arm.label for arm in arms[1:]] == ["1: mm: one", "2: mm: two", "3: mm: three"]


def test_a_source_that_holds_the_series_loses_the_last_patch_first() -> None:
    arms = step_arms(SeriesSpec(path="x", reverse=True), SUBJECTS)
    assert [applied(arm, 3) for arm in arms] == [3, 2, 1, 0]
    assert arms[1].label == '1: undoes "mm: three" (patch 3 of 3 removes it)'
    assert arms[3].label == '3: undoes "mm: one" (patch 1 of 3 removes it)'


def test_a_posted_series_that_was_turned_around_has_its_own_subjects() -> None:
    # As they are kept: the last one first, each under "revert: ".
    kept = [f"revert: {subject}" for subject in reversed(SUBJECTS)]
    arms = step_arms(SeriesSpec(path="x", reverse=True, revert=True), kept)
    assert [arm.label for arm in arms[1:]] == ["1: mm: one", "2: mm: two", "3: mm: three"]


@given(st.integers(1, 120), st.booleans())
def test_ends_are_the_plain_arms_and_neighbours_differ_by_one_patch(
    total: int, reverse: bool
) -> None:
    series = SeriesSpec(path="x", reverse=reverse)
    arms = step_arms(series, ["s"] * total)
    counts = [applied(arm, total) for arm in arms]
    assert counts == (list(range(total, -1, -1)) if reverse else list(range(total + 1)))
    plain = make_experiment([("w", "default")], series=series).all_arms
    assert [(arm.patches, arm.upto) for arm in (arms[0], arms[-1])] == [
        (arm.patches, None) for arm in plain
    ]
    names = [arm.name for arm in arms]
    assert len(set(names)) == len(names)
    assert names[1:] == sorted(names[1:])


def test_steps_are_compared_with_the_one_before_and_as_a_whole() -> None:
    experiment = per_patch(make_experiment([("w", "default")]), SUBJECTS)
    assert experiment.compared == (
        ("base", "patch-1"),
        ("patch-1", "patch-2"),
        ("patch-2", "patch-3"),
        ("base", "patch-3"),
    )
    # As it is written into the manifest and read again.
    assert Experiment.model_validate_json(experiment.model_dump_json()) == experiment


def test_a_series_of_one_patch_is_the_usual_comparison() -> None:
    experiment = per_patch(make_experiment([("w", "default")]), SUBJECTS[:1])
    assert experiment.compared == (("base", "patch-1"),)


def test_published_figures_are_about_the_whole_series() -> None:
    figure = Published(metric="4k.bw", unit="MiB/s", base=1, patched=2, document="d")
    plain = make_experiment([("w", "default")])
    case = but(plain.cases[0], published=(figure,))
    experiment = per_patch(but(plain, cases=(case,)), SUBJECTS)
    assert [each.arm for each in experiment.cases[0].published] == ["patch-3"]


@pytest.mark.parametrize(
    ("changes", "subjects", "message"),
    [
        ({}, ["s"] * MOST_ARMS, f"{MOST_ARMS} patches; at most {MOST_ARMS - 1} can be compared"),
        (
            {"arms": (ArmSpec(name="a"), ArmSpec(name="b", sysctl={"vm.x": "1"}))},
            SUBJECTS,
            "has arms of its own (a, b)",
        ),
        ({"series": None, "arms": (ArmSpec(name="a"), ArmSpec(name="b"))}, (), "has no series"),
    ],
)
def test_what_cannot_be_taken_apart_is_refused(
    changes: dict[str, object], subjects: list[str], message: str
) -> None:
    with pytest.raises(SpecError, match="--per-patch: e: ") as error:
        per_patch(make_experiment([("w", "default")], **changes), subjects)
    assert message in str(error.value)


def test_as_many_as_fit_are_taken() -> None:
    experiment = per_patch(make_experiment([("w", "default")]), ["s"] * (MOST_ARMS - 1))
    assert len(experiment.all_arms) == MOST_ARMS
