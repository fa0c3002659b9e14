"""A wall run between its plan and its record, with guests that are only told about."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiment.design import AGAIN, wall_plan
from experiment.plan import PlannedRun
from guests import virtme
from guests.console import Ending
from guests.exact import Outcome
from guests.virtme import WallMachine
from host.topology import Placement
from runs.prepare import Session
from runs.wall import Wall, kernel_arm, lab_kept_off, observe_run, wall_machine
from tests.runs.test_measure import _session as session_of
from workloads import parse, validity

WALL = Wall("tcg", Placement((1,), (0,), (), True))


@pytest.fixture
def session() -> Session:
    return session_of(2)


def runs(session: Session) -> dict[str, PlannedRun]:
    """The first block's runs by arm."""
    plan = wall_plan(session.experiment)
    case = session.experiment.cases[0].name
    return {run.arm: run for run in plan.runs if (run.block, run.case) == (0, case)}


def test_a_a_arm_boots_the_base_kernel_in_the_same_machine(session: Session) -> None:
    machines = {arm: wall_machine(session, run, WALL) for arm, run in runs(session).items()}
    assert machines[AGAIN] == machines["base"]
    assert machines["patched"] != machines["base"]
    assert machines["base"].placement == WALL.placement
    assert kernel_arm(session, AGAIN) == "base"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[validity.Claim]:
    """A guest that sends what it is told; the claims that its results were checked for."""
    claims: list[validity.Claim] = []

    def problems(result: object, claim: validity.Claim) -> tuple[str, ...]:
        claims.append(claim)
        return ("told to be invalid",) if claim.seed == 99 else ()

    monkeypatch.setattr(parse, "guest_result", lambda files, names: SimpleNamespace(phases=()))
    monkeypatch.setattr(validity, "problems", problems)
    return claims


def outcome(files: dict[str, bytes] | None, ending: Ending) -> Callable[..., Outcome]:
    def run(machine: WallMachine, text: str, *rest: object) -> Outcome:
        return Outcome(files, ending, 1.0, 2.0)

    return run


DONE = Ending("done", "the agent finished")


@pytest.mark.parametrize(
    ("files", "ending", "seed", "kind", "message"),
    [
        ({"a": b""}, DONE, 1, "done", "the agent finished"),
        ({"a": b""}, DONE, 99, "failed", "told to be invalid"),
        ({"a": b""}, Ending("oom", "killed"), 1, "failed", "oom: killed"),
        (None, Ending("panic", "told"), 1, "panic", "told"),
    ],
)
def test_only_a_valid_run_has_a_result(
    session: Session, told: list[validity.Claim], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    files: dict[str, bytes] | None, ending: Ending, seed: int, kind: str, message: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(virtme, "run", outcome(files, ending))
    run = runs(session)[AGAIN].model_copy(update={"seed": seed})
    seen = observe_run(session, run, WALL, tmp_path, tmp_path, lambda word: None)
    assert (seen.ending.kind, seen.ending.message) == (kind, message)
    assert (seen.result is not None) == (kind == "done")
    assert 0 <= seen.conditions.foreign <= 1
    assert all(claim.left_pages == validity.LEFT_PAGES_WALL for claim in told)


def test_result_that_cannot_be_read_is_lost(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(virtme, "run", outcome({"uname": b"Linux"}, DONE))
    run = runs(session)["base"]
    seen = observe_run(session, run, WALL, tmp_path, tmp_path, lambda word: None)
    assert seen.result is None
    assert seen.ending.kind == "lost"


def test_lab_is_kept_off_and_let_back() -> None:
    before = os.sched_getaffinity(0)
    first = min(before)
    with lab_kept_off(Placement((1,), (first,), (), True)):
        assert os.sched_getaffinity(0) == {first}
    assert os.sched_getaffinity(0) == before
    with lab_kept_off(None):
        assert os.sched_getaffinity(0) == before
