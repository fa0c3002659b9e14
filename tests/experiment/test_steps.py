"""Each step has one patch more, in whichever direction the patches point."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import SpecError
from experiment.spec import MOST_ARMS, ArmSpec, Experiment, Published, SeriesSpec
from experiment.steps import per_patch, step_arms
from tests.experiment.test_plan import make_experiment

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
    assert arms[1].label == '1: undoes "mm: three" (patch 3 of 3 takes it out)'
    assert arms[3].label == '3: undoes "mm: one" (patch 1 of 3 takes it out)'


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
    case = plain.cases[0].model_copy(update={"published": (figure,)})
    experiment = per_patch(plain.model_copy(update={"cases": (case,)}), SUBJECTS)
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
        (
            {"series": None, "arms": (ArmSpec(name="a"), ArmSpec(name="b"))},
            (),
            "has no series",
        ),
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
