"""A wall session's stage with guests that are only told about: order, retries, resume."""

import dataclasses
import functools
import os
from pathlib import Path
from typing import Any

import pytest

from errors import InfraError
from experiment.plan import AGAIN
from guests import virtme
from guests.channel import Ending
from guests.exact import Outcome
from guests.virtme import WallMachine
from host import accelerator
from host.accelerator import AcceleratorTest
from host.fitness import Placement
from results.record import RunRecord
from runs.boots import Reporter, WallHost
from runs.local import Options
from runs.prepare import Prepared, prepare
from runs.resolved import resolve
from runs.session import with_seeds
from runs.wall import lab_kept_off, measure_wall
from tests.runs.made_up import CHECKOUT, SMALL, ToldGuests, prepared, shipped, sound_results
from tests.values import but
from workloads import validity


class WallGuests(ToldGuests):
    """Those of wall mode, with their machines and what they claim."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.machines: dict[str, WallMachine] = {}
        self.claims: list[validity.Claim] = []

    def run(self, machine: WallMachine, text: str, folder: Path, *rest: Any) -> Outcome:
        self.machines[folder.name] = machine
        kind = self.boot(folder.name)
        files = {"out": b""} if kind == "done" else None
        ending = Ending(kind, f"told {kind}", by_clock=kind == "boot")
        return Outcome(files, ending, 1.0, 2.0)

    def problems(self, result: object, claim: validity.Claim) -> tuple[str, ...]:
        self.claims.append(claim)
        return ()

    def measure(
        self,
        blocks: int = 2,
        session: Prepared | None = None,
        **wall: object,
    ) -> dict[str, RunRecord]:
        """Make what is not on record of so many blocks; all that is on record then."""
        session = session or wall_session(self.cache, blocks, **wall)
        measure_wall(session, Options(CHECKOUT, self.cache), self.store, Reporter())
        return {record.run_id: record for record in self.store.records()}


@pytest.fixture
def guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WallGuests:
    stand_in = WallGuests(tmp_path)
    monkeypatch.setattr(virtme, "run", stand_in.run)
    sound_results(monkeypatch, stand_in.problems)
    return stand_in


def wall_session(cache: Path, blocks: int, **wall: object) -> Prepared:
    small = shipped(SMALL, f"blocks={blocks}", "mode=wall")
    experiment = but(small, wall=but(small.wall, **wall))
    places = {("", arm): None for arm in ("base", "patched", AGAIN)}
    host = WallHost(AcceleratorTest("tcg", ()), places, ())
    made = prepared(experiment, kernels=cache / "kernels", wall=host)
    judged = {**made.measured, AGAIN: made.measured["base"]}
    return dataclasses.replace(made, kernels={made.resolved.flavours[0]: judged})


def test_every_run_once_in_the_plans_order_with_what_the_host_did(guests: WallGuests) -> None:
    records = guests.measure(3)
    planned = [each.run_id for each in wall_session(guests.cache, 3).plan.runs]
    assert guests.booted == planned
    assert len(planned) == 9
    assert all(record.failure is None for record in records.values())
    assert all(record.conditions is not None for record in records.values())
    times = [records[run_id].at_s for run_id in planned]
    assert times == sorted(times, key=lambda at: at or 0.0)
    assert {claim.left_pages for claim in guests.claims} == {validity.LEFT_PAGES_WALL}


def test_the_base_again_boots_the_base_kernel_in_the_same_machine(guests: WallGuests) -> None:
    guests.measure(1)
    base, patched, again = (
        guests.machines[f"filemap-4k.b00.{arm}"] for arm in ("base", "patched", AGAIN)
    )
    assert again == base
    assert patched != base


def test_only_a_guest_that_was_lost_is_tried_again_and_as_often_as_planned(
    guests: WallGuests,
) -> None:
    lost, broken = "filemap-4k.b00.base", "filemap-4k.b01.base"
    guests.endings = {lost: ["lost", "lost", "done"], broken: ["panic"]}
    records = guests.measure(2, attempts=3)
    assert guests.booted.count(lost) == 3
    assert records[lost].failure is None
    assert guests.booted.count(broken) == 1
    failure = records[broken].failure
    assert failure is not None
    assert (failure.kind, records[broken].samples) == ("panic", None)


def test_a_guest_that_stays_lost_is_the_hosts_fault(
    guests: WallGuests, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: object) -> Outcome:
        raise InfraError("virtme-ng started no guest", where="here")

    monkeypatch.setattr(virtme, "run", refused)
    failure = guests.measure(1)["filemap-4k.b00.patched"].failure
    assert failure is not None
    assert (failure.kind, failure.blame) == ("lost", "host")
    assert "started no guest" in failure.message


def test_a_session_whose_kvm_goes_stops_and_goes_on_where_it_was(
    guests: WallGuests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not on record is made when KVM is back: a lost guest would stay lost."""
    device, session = tmp_path / "kvm", wall_session(guests.cache, 2)
    host = WallHost(AcceleratorTest("kvm", ()), {("", a): None for a in session.measured}, ())
    session = dataclasses.replace(session, wall=host)
    of_device = functools.partial(accelerator.require_device, device=device)
    monkeypatch.setattr(accelerator, "require_device", of_device)

    def boots(machine: WallMachine, *arguments: Any) -> Outcome:
        if not device.exists():
            raise InfraError("virtme-ng started no guest", where="here")
        if len(guests.booted) == 3:
            device.unlink()
        return guests.run(machine, *arguments)

    monkeypatch.setattr(virtme, "run", boots)
    device.touch()
    with pytest.raises(InfraError, match="KVM is gone"):
        guests.measure(session=session)
    assert len(guests.store.records()) == 4
    device.touch()
    guests.booted.clear()
    guests.measure(session=session)
    assert [name.split(".")[1] for name in guests.booted] == ["b01"] * 3
    assert [record.failure for record in guests.store.records()] == [None] * 6


def test_an_interrupted_block_is_made_again_whole(guests: WallGuests) -> None:
    guests.measure(2)
    records = guests.store.folder / "runs.jsonl"
    records.write_text("".join(records.read_text().splitlines(keepends=True)[:4]))
    guests.booted.clear()
    guests.measure(2)
    assert [name.split(".")[1] for name in guests.booted] == ["b01"] * 3
    guests.booted.clear()
    guests.measure(2)
    assert guests.booted == []


def test_blocks_that_are_added_are_all_that_is_made(guests: WallGuests) -> None:
    guests.measure(2)
    guests.booted.clear()
    guests.measure(session=with_seeds(wall_session(guests.cache, 2), 4))
    assert [name.split(".")[1] for name in guests.booted] == ["b02"] * 3 + ["b03"] * 3


def test_lab_is_kept_off_and_let_back() -> None:
    before = os.sched_getaffinity(0)
    first = min(before)
    with lab_kept_off(Placement((1,), (first,), (), True)):
        assert os.sched_getaffinity(0) == {first}
    assert os.sched_getaffinity(0) == before
    with lab_kept_off(None):
        assert os.sched_getaffinity(0) == before


def test_the_base_again_breaking_is_not_the_series_fault(guests: WallGuests) -> None:
    again, patched = f"filemap-4k.b00.{AGAIN}", "filemap-4k.b01.patched"
    guests.endings = {again: ["panic"], patched: ["panic"]}
    records = guests.measure(2)
    blames = {name: record.failure.blame for name, record in records.items() if record.failure}
    assert blames == {again: "lab", patched: "series"}


def test_a_clock_that_runs_out_of_translated_code_is_the_hosts_and_tried_again(
    guests: WallGuests,
) -> None:
    slow, late = "filemap-4k.b00.patched", "filemap-4k.b01.patched"
    guests.endings = {slow: ["boot", "boot"], late: ["boot", "done"]}
    records = guests.measure(2, attempts=2)
    assert guests.booted.count(slow) == guests.booted.count(late) == 2
    assert records[late].failure is None
    failure = records[slow].failure
    assert failure is not None
    assert (failure.kind, failure.blame) == ("boot", "host")


def test_a_strict_session_is_refused_on_an_unfit_host_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(*_: object) -> None:
        raise AssertionError("nothing is to be built")

    monkeypatch.setattr("runs.prepare.build_arms", built)
    monkeypatch.setattr(accelerator, "some_kernel", lambda cache: tmp_path / "bzImage")
    monkeypatch.setattr(accelerator, "provide", lambda *_: AcceleratorTest("tcg", ()))
    root = tmp_path / "root.cpio"
    root.write_bytes(b"")
    options = Options(CHECKOUT, tmp_path, fit_only=True, root=root)
    resolved = resolve(shipped("noop", "mode=wall"), checkout=CHECKOUT, cache=tmp_path)
    with pytest.raises(InfraError, match="not fit to measure time"):
        prepare(resolved, options, lambda *_: None)
