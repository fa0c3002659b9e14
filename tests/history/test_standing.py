"""How changes stand on a night: fixed by level, open without one, and known while it lasts."""

import pytest

from analysis.verdict import Verdict
from history.changes import Course, NightlyChange, fixed_by, is_open, marked
from history.exact import Kind
from history.policy import KnownChange, KnownChanges, Policy

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
    ("sizes", "status"),
    [
        ((-0.02,), ["open"]),
        ((-0.02, 0.021), ["fixed", "open"]),
        ((-0.02, 0.0185), ["fixed", "open"]),
        ((-0.02, 0.01), ["open", "open"]),
        ((-0.02, 0.01, 0.011), ["fixed", "open", "open"]),
        ((-0.05, -0.03, 0.031), ["open", "fixed", "open"]),
        ((-0.05, -0.03, 0.09), ["fixed", "fixed", "open"]),
        ((-0.02, 0.021, -0.02), ["fixed", "open", "open"]),
        ((0.05, -0.02), ["open", "open"]),
    ],
)
def test_a_regression_is_fixed_when_its_former_level_is_back(
    sizes: tuple[float, ...], status: list[str]
) -> None:
    assert stand(*(change(at + 2, size) for at, size in enumerate(sizes))) == status


def test_of_times_less_is_better() -> None:
    slower, faster = change(2, 0.02, direction="lower"), change(3, -0.02, direction="lower")
    assert stand(slower) == ["open"]
    assert stand(slower, faster) == ["fixed", "open"]


def test_a_better_environment_fixes_no_kernel() -> None:
    mixed = change(3, 0.05, "mixed")
    assert stand(change(2, -0.02), mixed) == ["open", "open"]
    assert stand(change(2, -0.02, "mixed"), mixed) == ["fixed", "open"]
    assert stand(change(2, -0.02), change(3, 0.05, "lab")) == ["open", "open"]


@pytest.mark.parametrize("kind", ["suspected", "incomparable"])
def test_what_is_not_judged_fixes_nothing(kind: Kind) -> None:
    assert stand(change(2, -0.02), change(3, 0.05, kind)) == ["open", "open"]
    # A wall regression counts from three quarters of the threshold.
    assert fixed_by(change(2, -0.008), [change(3, 0.0001, kind)], 0.01) is None
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
    mute = KnownChange(kind="muted", metric="4k.bw", until=TONIGHT, reason="x")
    (state,) = marked((change(2, -0.02),), KnownChanges(known=(mute,)), TONIGHT, Policy())
    assert (state.status, state.why) == ("open", f"muted until {TONIGHT}, which has come: x")
    (state,) = marked((change(2, -0.02),), KnownChanges(known=(mute,)), "2026-02-28", Policy())
    assert state.status == "muted"
    assert stand(change(2, -0.02), change(3, 0.03), known=KnownChanges(known=(mute,)))[0] == "fixed"
