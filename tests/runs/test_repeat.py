"""Every number is compared, and one that differs in its last digit is found."""

from __future__ import annotations

import pytest

from results.profile import FunctionCount, PhaseProfile, Profile
from results.record import Failure, RunRecord
from runs.repro import Kept, compare_sessions


def record(run_id: str, **changes: object) -> RunRecord:
    fields: dict[str, object] = {
        "run_id": run_id,
        "case": "c",
        "arm": "base",
        "block": 0,
        "seed": 1,
        "kernel_key": "k",
        "samples": {"4k.bw": 258.1234567890123, "4k.iops": 66000.0},
        "fingerprint": "f" * 64,
    }
    return RunRecord.model_validate({**fields, **changes})


def profile(run_id: str, instructions: int = 1234567) -> Profile:
    xas = FunctionCount(name="xas_load", file="lib/xarray.c", instructions=instructions, calls=7)
    phase = PhaseProfile(
        phase="4k",
        instructions=instructions + 5,
        kernel=(xas,),
        user={"fio": 5},
        by_vcpu=(instructions + 5,),
        units={"io": 100.0},
    )
    return Profile(run_id=run_id, phases=(phase,))


def test_the_same_session_is_the_same() -> None:
    kept = Kept([record("a"), record("b")], [profile("a")])
    compared = compare_sessions(kept, kept)
    assert [run.run_id for run in compared] == ["a", "b"]
    assert all(run.same for run in compared)
    assert [len(run.numbers) for run in compared] == [2, 2]
    assert {each.name for each in compared[0].counts} >= {
        "phases[0 4k].kernel[0 xas_load].instructions",
        "phases[0 4k].user.fio",
        "phases[0 4k].by_vcpu[0]",
        "phases[0 4k].units.io",
    }
    # What is not in the run's numbers is in no other run's.
    assert compared[1].counts == ()


def test_the_last_digit_counts() -> None:
    samples = {"4k.bw": 258.1234567890124, "4k.iops": 66000.0}
    compared = compare_sessions(Kept([record("a")]), Kept([record("a", samples=samples)]))
    assert not compared[0].same
    assert [each.name for each in compared[0].numbers if not each.same] == ["4k.bw"]


@pytest.mark.parametrize(
    "now",
    [
        Kept([record("a", fingerprint="e" * 64)], [profile("a")]),
        Kept([record("a")], [profile("a", 1234568)]),
        Kept([record("a")]),
        Kept([]),
        Kept(
            [record("a", samples=None, failure=Failure(kind="panic", blame="lab", message=""))],
            [profile("a")],
        ),
    ],
)
def test_whatever_is_not_the_same_is_named(now: Kept) -> None:
    compared = compare_sessions(Kept([record("a")], [profile("a")]), now)
    assert [run.same for run in compared] == [False]


def test_a_run_that_fails_alike_is_the_same() -> None:
    failed = record("a", samples=None, failure=Failure(kind="panic", blame="series", message="x"))
    assert compare_sessions(Kept([failed]), Kept([failed]))[0].same


def test_runs_that_were_never_on_record_are_nobodys_business() -> None:
    compared = compare_sessions(Kept([record("a")]), Kept([record("a"), record("b")]))
    assert [run.run_id for run in compared] == ["a"]
