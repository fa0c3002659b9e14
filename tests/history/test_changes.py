"""Which nights are told, once, by whose doing, and with which functions."""

import itertools
from collections.abc import Sequence
from datetime import date

import numpy as np
import pytest

from analysis.verdict import Verdict
from history import exact
from history.changes import Course, NightlyChange, changes_of, fixed_by, is_open, marked
from history.entry import PINNED, ArmCase, Entry
from history.exact import Kind
from history.policy import KnownChange, KnownChanges, Policy
from tests.history.altered import on_seeds_from
from tests.history.factory import Nights, release_of, with_functions
from tests.values import but, data


def changes_in(nights: Nights) -> tuple[NightlyChange, ...]:
    return changes_of(nights.entries())


def levels(*parts: tuple[float, int]) -> tuple[float, ...]:
    return tuple(itertools.chain(*([level] * count for level, count in parts)))


def test_nothing_is_reported_of_nothing() -> None:
    assert changes_in(Nights(levels((0.0, 60)))) == ()


@pytest.mark.parametrize("size", [-0.01, 0.01])
def test_a_step_is_reported_once_on_its_night(size: float) -> None:
    (change,) = changes_in(Nights(levels((0.0, 20), (size, 40))))
    assert (change.kind, change.night, change.detected) == ("step", "2026-01-21", "2026-01-21")
    assert change.before_night == "2026-01-20"
    assert change.verdict is (Verdict.REGRESSION if size < 0 else Verdict.IMPROVEMENT)
    assert change.estimate == pytest.approx(size, abs=0.002)
    assert change.course.arm == "tonight"


def test_what_was_reported_stays_so_as_nights_are_added() -> None:
    entries = Nights(levels((0.0, 20), (-0.004, 20), (0.006, 20))).entries()
    before: tuple[NightlyChange, ...] = ()
    for count in range(1, len(entries) + 1):
        # How a change stands may be another each night; what it is may not.
        now = tuple(but(change, status="open", why="") for change in changes_of(entries[:count]))
        assert now[: len(before)] == before
        assert all(change.detected_entry == entries[count - 1].id for change in now[len(before) :])
        before = now
    assert [change.verdict for change in before] == [Verdict.REGRESSION, Verdict.IMPROVEMENT]


def test_a_drift_is_detected_and_called_one() -> None:
    slope = tuple(-0.0003 * night for night in range(30))
    changes = changes_in(Nights(levels((0.0, 20)) + slope))
    assert {change.kind for change in changes} == {"drift"}
    assert abs(int(changes[0].night[-2:]) - 21) <= 4


def test_a_small_step_is_placed_on_its_night_although_detected_later() -> None:
    changes = [
        change
        for seed in range(8)
        for change in changes_in(Nights(levels((0.0, 30), (-0.003, 30)), random_seed=seed))
    ]
    assert len(changes) == 8
    assert np.median([abs(int(change.night[-2:]) - 31) for change in changes]) <= 1


def test_the_same_code_is_not_judged_and_must_give_the_same_bits() -> None:
    entries = Nights(levels((0.0, 10)), codes=("a",) * 10).entries()
    assert changes_of(entries) == ()
    odd = _with_value(entries[5], "tonight", 1, 251.0)
    changes = changes_of([*entries[:5], odd, *entries[6:]])
    assert [change.kind for change in changes] == ["unexplained", "unexplained"]
    assert [change.verdict for change in changes] == [None, None]
    # A run that failed is a hole and no other number.
    hole = _with_value(entries[5], "tonight", 1, None)
    assert changes_of([*entries[:5], hole, *entries[6:]]) == ()


def test_a_move_of_the_lab_is_the_labs_where_a_pinned_arm_shows_it() -> None:
    changes = changes_in(Nights(levels((0.0, 40)), lab={10: 0.03, 25: -0.02}))
    assert [(change.kind, change.course.arm) for change in changes] == [("lab", PINNED)] * 2
    assert changes[0].lab == ("qemu: 7.2.17 -> 8.10",)
    assert changes[0].estimate == pytest.approx(0.0305, abs=0.002)
    assert changes[0].verdict is None


def test_a_step_on_the_night_of_a_lab_move_is_the_kernels() -> None:
    changes = changes_in(Nights(levels((0.0, 20), (-0.01, 20)), lab={20: 0.03}))
    assert [(change.kind, change.night) for change in changes] == [
        ("lab", "2026-01-21"),
        ("step", "2026-01-21"),
    ]
    assert changes[1].estimate == pytest.approx(-0.01, abs=0.003)
    assert changes[1].lab == ("qemu: 7.2.17 -> 8.20",)


def test_without_a_pinned_arm_nothing_tells_them_apart() -> None:
    changes = changes_in(Nights(levels((0.0, 40)), lab={10: 0.03}, pinned=False))
    assert {change.kind for change in changes} == {"mixed"}
    same = changes_in(Nights(levels((0.0, 40)), lab={10: 0.03}, pinned=False, codes=("a",) * 40))
    assert {change.kind for change in same} == {"lab"}


def test_an_inexact_night_is_no_evidence() -> None:
    entries = Nights(levels((0.0, 20), (-0.02, 1), (0.0, 10))).entries()
    entries[20] = but(entries[20], exactness="inexact")
    assert changes_of(entries) == ()


@pytest.mark.parametrize(("first", "last", "common"), [(9, 16, 0), (5, 12, 4)])
def test_other_seeds_begin_a_new_baseline_and_are_named(first: int, last: int, common: int) -> None:
    entries = Nights(levels((0.0, 29), (-0.02, 11)), seeds=16).entries()
    entries = on_seeds_from(entries, {0: range(1, 9), 20: range(first, last + 1)})
    gap, step = changes_of(entries)
    assert (gap.kind, gap.verdict, gap.night, gap.detected) == (
        "incomparable",
        None,
        "2026-01-21",
        "2026-01-21",
    )
    assert gap.lab == (f"seeds: 1..8 -> {first}..{last}, {common} in common, 8 needed",)
    assert (gap.estimate is None) == (common == 0)
    assert (step.kind, step.night, step.verdict) == ("step", "2026-01-30", Verdict.REGRESSION)
    assert step.id != gap.id


def test_back_on_the_old_seeds_the_old_baseline_is_good() -> None:
    entries = Nights(levels((0.0, 20), (-0.004, 20)), seeds=12).entries()
    entries = on_seeds_from(entries, {0: range(1, 9), 20: range(5, 13), 21: range(1, 9)})
    gap, step = changes_of(entries)
    assert (gap.kind, gap.night, gap.detected) == ("incomparable", "2026-01-21", "2026-01-21")
    assert (step.kind, step.detected, step.verdict) == ("step", "2026-01-22", Verdict.REGRESSION)
    assert step.estimate == pytest.approx(-0.004, abs=0.002)


def test_too_few_seeds_are_one_record_until_there_are_enough() -> None:
    entries = Nights(levels((0.0, 20), (-0.5, 20))).entries()
    entries = on_seeds_from(entries, {15: range(1, 7), 30: range(1, 9)})
    (gap,) = changes_of(entries[:30])
    assert (gap.kind, gap.night, gap.detected) == ("incomparable", "2026-01-16", "2026-01-30")
    assert gap.lab == ("seeds: 1..8 -> 1..6, 6 in common, 8 needed",)
    again, step = changes_of(entries)
    assert (again, again.id) == (gap, gap.id)
    # The baseline is the one of before, and the nights between were not judged.
    assert (step.kind, step.detected, step.verdict) == ("step", "2026-01-31", Verdict.REGRESSION)


def test_fewer_seeds_are_compared_where_enough_are_left() -> None:
    entries = Nights(levels((0.0, 20), (-0.01, 5)), seeds=16).entries()
    entries = on_seeds_from(entries, {15: range(1, 9)})
    (step,) = changes_of(entries)
    assert (step.kind, step.night) == ("step", "2026-01-21")


@pytest.mark.parametrize("rate", [0.0002, 0.0005])
def test_a_drift_is_detected_across_changes_of_the_environment(rate: float) -> None:
    environment = {night: 0.01 * (-1) ** night for night in range(7, 60, 7)}
    for seed in range(3):
        slope = tuple(-rate * night for night in range(60))
        changes = changes_in(Nights(slope, lab=environment, random_seed=seed))
        mine = [change for change in changes if change.course.arm == "tonight"]
        assert (mine[0].kind, mine[0].verdict) == ("drift", Verdict.REGRESSION)
        assert _number(mine[0].detected) <= 30
        # What is told adds up to most of what was lost.
        assert sum(change.estimate or 0 for change in mine) < -0.5 * 60 * rate


def test_nothing_is_reported_of_nothing_whose_environment_changes_every_week() -> None:
    environment = {night: 0.01 * (-1) ** night for night in range(7, 120, 7)}
    changes = [
        change
        for seed in range(5)
        for change in changes_in(Nights(levels((0.0, 120)), lab=environment, random_seed=seed))
        if change.course.arm == "tonight"
    ]
    assert len(changes) <= 1


def test_a_control_arm_that_failed_for_a_night_costs_no_baseline() -> None:
    """It fails on the very nights on which the environment changes."""
    slope = tuple(-0.0002 * night for night in range(40))
    entries = Nights(slope, lab=dict.fromkeys((7, 14, 21, 28), 0.0)).entries()
    for at in (14, 28):
        for seed in range(8):
            entries[at] = _with_value(entries[at], PINNED, seed, None)
    mine = [change for change in changes_of(entries) if change.course.arm == "tonight"]
    assert [(change.kind, change.verdict) for change in mine[:1]] == [("drift", Verdict.REGRESSION)]


def test_a_slope_across_environments_is_a_drift_although_the_control_jumps() -> None:
    random = np.random.default_rng(4)
    epochs = [night // 7 for night in range(42)]
    jumps = 0.001 * random.standard_normal((6, 8))
    dice = 0.001 * random.standard_normal((42, 8))
    slope = -0.0005 * np.maximum(np.arange(42) - 10.0, 0.0)[:, np.newaxis]
    at, kind = exact.locate(slope + dice - jumps[epochs], epochs)
    assert kind == "drift"
    assert abs(at - 10) <= 4
    step = np.where(np.arange(42) < 25, 0.0, -0.006)[:, np.newaxis]
    assert exact.locate(step + dice - jumps[epochs], epochs) == (25, "step")


def test_kernels_and_commits_between_are_named() -> None:
    entries = Nights(levels((0.0, 20), (-0.01, 5))).entries()
    named = [
        but(entry, arms=tuple(but(arm, commit=f"{night:040x}") for arm in entry.arms))
        for night, entry in enumerate(entries)
    ]
    assert changes_of(named)[0].commits == f"{19:040x}"[:12] + ".." + f"{20:040x}"[:12]
    patched = but(release_of("bad", "6.12.41"), patches=("0001-slow.patch",))
    arms = tuple(
        but(arm, kernel=patched) if arm.name == "tonight" else arm for arm in entries[20].arms
    )
    entries[20] = but(entries[20], arms=arms)
    change = changes_of(entries[:21])[0]
    assert change.kernels == ("6.12.40-1", "6.12.41-1 + 1 patch")
    assert change.commits == ""


def test_the_functions_that_differ_otherwise_from_the_pinned_kernel_are_named() -> None:
    entries = [
        with_functions(entry, {"xas_load": 0.01, "b": 0.5} if number >= 20 else {"b": 0.5})
        for number, entry in enumerate(Nights(levels((0.0, 20), (-0.01, 5))).entries())
    ]
    (change,) = changes_of(entries)
    assert change.functions == ("xas_load",)


def test_the_cheap_question_is_never_stricter_than_the_verdict() -> None:
    random = np.random.default_rng(5)
    entry = Nights((0.0,)).entries()[0]
    called = 0
    for _ in range(400):
        before = 5 + 0.002 * random.standard_normal(8)
        after = before + 0.0025 * random.standard_normal(8) + random.choice([0, 0.003, -0.004])
        judged = exact.judged(before, after, entry, "higher", "filemap-4k", "4k.bw")
        change = judged.change
        if (
            judged.verdict in (Verdict.IMPROVEMENT, Verdict.REGRESSION)
            and change is not None
            and abs(change.estimate) >= entry.thresholds.change
        ):
            called += 1
            assert exact._may_differ(before, after, entry.thresholds)
    assert called > 50


def _number(night: str) -> int:
    return (date.fromisoformat(night) - date(2026, 1, 1)).days


def _with_value(entry: Entry, arm: str, at: int, value: float | None) -> Entry:
    case = entry.cases[0]

    def changed(case: ArmCase) -> ArmCase:
        if case.arm != arm:
            return case
        before: Sequence[float | None] = case.metrics["4k.bw"].values
        values = (*before[:at], value, *before[at + 1 :])
        ensemble = but(case.metrics["4k.bw"], values=values)
        return but(case, metrics={**case.metrics, "4k.bw": ensemble})

    case = but(case, arms=tuple(map(changed, case.arms)))
    return but(entry, cases=(case,))


COURSE = Course("nightly", "laptop", "exact", "filemap-4k", "4k.bw", "tonight")
TONIGHT = "2026-03-01"


def change(
    day: int, size: float | None, kind: Kind = "step", direction: str = "higher"
) -> NightlyChange:
    verdict = None
    if kind in ("step", "drift", "mixed") and size is not None:
        better = (size > 0) == (direction == "higher")
        verdict = Verdict.IMPROVEMENT if better else Verdict.REGRESSION
    night = f"2026-01-{day:02}"
    return NightlyChange(
        kind=kind,
        course=COURSE,
        unit="MiB/s",
        direction=direction,
        night=night,
        entry=f"{day:012}",
        before_night=f"2026-01-{day - 1:02}",
        before=f"{day - 1:012}",
        detected=night,
        detected_entry=f"{day:012}",
        verdict=verdict,
        estimate=size,
    )


def stand(*changes: NightlyChange, known: KnownChanges | None = None) -> list[str]:
    return [each.status for each in marked(changes, known or KnownChanges(), TONIGHT, Policy())]


@pytest.mark.parametrize(
    ("sizes", "status"), data(__file__, "a_regression_is_fixed_when_its_former_level_is_back")
)
def test_a_regression_is_fixed_when_its_former_level_is_back(
    sizes: tuple[float, ...], status: tuple[str, ...]
) -> None:
    assert stand(*(change(at + 2, size) for at, size in enumerate(sizes))) == [*status]


def test_of_times_less_is_better() -> None:
    slower, faster = change(2, 0.02, direction="lower"), change(3, -0.02, direction="lower")
    assert stand(slower) == ["open"]
    assert stand(slower, faster) == ["fixed", "open"]


def test_a_better_environment_fixes_no_kernel() -> None:
    mixed = change(3, 0.05, "mixed")
    assert stand(change(2, -0.02), mixed) == ["open", "open"]
    assert stand(change(2, -0.02, "mixed"), mixed) == ["fixed", "open"]
    assert stand(change(2, -0.02), change(3, 0.05, "lab")) == ["open", "open"]


def test_what_is_not_judged_fixes_nothing() -> None:
    kind: Kind = "incomparable"
    assert stand(change(2, -0.02), change(3, 0.05, kind)) == ["open", "open"]
    assert stand(change(2, -0.02), change(3, 0.001, kind), change(4, 0.021))[0] == "fixed"


def test_numbers_without_a_reason_are_open_until_they_are_back() -> None:
    off, back = change(2, 0.02, "unexplained"), change(3, -0.0197, "unexplained")
    assert [is_open(each) for each in marked((off,), KnownChanges(), TONIGHT, Policy())] == [True]
    assert stand(off, back) == ["fixed", "open"]
    assert stand(change(2, 0.001, "unexplained")) == ["small"]
    assert stand(change(2, None, "unexplained")) == ["small"]


def test_a_change_without_a_size_fixes_nothing() -> None:
    assert fixed_by(change(2, -0.001), [change(3, None, "unexplained")], 0.0025) is None


def test_what_is_fixed_needs_no_entry_and_an_expired_one_says_why() -> None:
    loss = change(2, -0.02)
    known = KnownChanges(known=(KnownChange(change=loss.id, until=TONIGHT, reason="x"),))
    (state,) = marked((loss,), known, TONIGHT, Policy())
    assert (state.status, state.why) == ("open", f"acknowledged until {TONIGHT}, which has come: x")
    (state,) = marked((loss,), known, "2026-02-28", Policy())
    assert state.status == "acknowledged"
    assert stand(loss, change(3, 0.03), known=known)[0] == "fixed"
