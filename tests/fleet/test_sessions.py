"""The same plan on this host and over workers that are real processes; guests stand in."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import fleet.members
from fleet.ledger import LEDGER
from fleet.members import Members
from fleet.settings import Settings
from tests.fleet.cluster import Cluster
from tests.fleet.conftest import MEMORY_MIB, SOON, FleetBench
from tests.integration.lab_process import wait_until

pytestmark = pytest.mark.slow

ENLISTED_WITHIN_S = 60.0
BEGUN_WITHIN_S = 4.0


def notes(bench: FleetBench, name: str) -> list[dict[str, object]]:
    text = (bench.store(name).folder / LEDGER).read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_three_workers_give_what_this_host_gives(bench: FleetBench, three: Cluster) -> None:
    bench.measure("local", 4)
    with bench.executor(three) as executor:
        members = executor.link.members

        def all_there() -> bool:
            members.refresh(at_once=True)
            return len(members.others(set())) == 3

        # On a busy host the first one can be through before another is there to agree.
        wait_until(all_there, "three workers")
        reporter = bench.measure("fleet", 4, executor)
    bench.require_same("local", "fleet")
    agreed = [note["agreed"] for note in notes(bench, "fleet") if "agreed" in note]
    assert agreed
    assert all(len(set(workers)) >= 2 for workers in agreed)  # type: ignore[call-overload]
    served = {note["worker"] for note in notes(bench, "fleet") if "worker" in note}
    confirmed = {worker for workers in agreed for worker in workers}  # type: ignore[attr-defined]
    assert served <= confirmed
    assert not [line for line in reporter.lines if "aside" in line or "refused" in line]


def test_workers_are_killed_all_the_time(bench: FleetBench, three: Cluster) -> None:
    bench.measure("local", 6)
    ledger = bench.store("fleet").folder / LEDGER
    with (
        three.losing(["two", "one", "three"], 0.2, ledger) as kills,
        bench.executor(three) as executor,
    ):
        bench.measure("fleet", 6, executor)
    assert kills
    bench.require_same("local", "fleet")


def test_a_worker_that_lies_is_named_and_what_it_made_is_made_again(
    bench: FleetBench, cluster: Cluster
) -> None:
    bench.measure("local", 4)
    cluster.start_worker("liar", STAND_IN_LIES="1")
    for name in ("one", "two"):
        cluster.start_worker(name)
    with bench.executor(cluster) as executor:
        reporter = bench.measure("fleet", 4, executor, workers=3)
    bench.require_same("local", "fleet")
    (line,) = [line for line in reporter.lines if "quarantined" in line]
    assert "it sent other bytes than" in line
    assert "out: line 1" in line
    liar = line.split()[1]
    made = [note["worker"] for note in notes(bench, "fleet") if "elapsed_s" in note]
    assert liar not in made[-8:]


def test_two_that_differ_and_nobody_to_decide_is_no_data_point(
    bench: FleetBench, cluster: Cluster
) -> None:
    cluster.start_worker("liar", STAND_IN_LIES="1")
    cluster.start_worker("one")
    with bench.executor(cluster) as executor:
        bench.measure("fleet", 1, executor, workers=2)
    failures = [record.failure for record in bench.records("fleet").values() if record.failure]
    assert failures
    assert {failure.blame for failure in failures} == {"host"}
    assert all("nobody is left to decide" in failure.message for failure in failures)
    # A third one knows; what is on record of the sound ones stays.
    cluster.start_worker("two")
    cluster.kill("liar")
    with bench.executor(cluster) as executor:
        bench.measure("fleet", 1, executor)
    bench.measure("local", 1)
    assert {r.run_id: r.fingerprint for r in bench.store("fleet").records()} == {
        r.run_id: r.fingerprint for r in bench.store("local").records()
    }


def test_one_worker_is_enough_and_is_reported_as_unchecked(
    bench: FleetBench, cluster: Cluster
) -> None:
    cluster.start_worker("one")
    bench.measure("local", 1)
    with bench.executor(cluster) as executor:
        reporter = bench.measure("fleet", 1, executor)
    bench.require_same("local", "fleet")
    assert "3 of 3 runs came from a worker that no other could check" in reporter.lines


def test_a_worker_without_the_memory_checks_nobody(bench: FleetBench, cluster: Cluster) -> None:
    cluster.start_worker("one")
    cluster.start_worker("small", DASK_DISTRIBUTED__WORKER__RESOURCES__MEMORY=f"{MEMORY_MIB // 2}")
    bench.measure("local", 1)
    with bench.executor(cluster) as executor:
        reporter = bench.measure("fleet", 1, executor, workers=2)
    bench.require_same("local", "fleet")
    assert "3 of 3 runs came from a worker that no other could check" in reporter.lines


def test_a_worker_with_another_qemu_is_refused(
    bench: FleetBench, cluster: Cluster, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    other = programs / "qemu-system-x86_64"
    other.write_text('#!/bin/sh\nexec /usr/bin/qemu-system-x86_64 "$@"\n')
    other.chmod(0o755)
    cluster.start_worker("one")
    with bench.executor(cluster) as executor:
        members = executor.link.members
        members.refresh(at_once=True)
        # On a busy host a worker may take longer to start than the whole plan takes.
        cluster.start_worker("other", PATH=f"{programs}:/usr/bin:/bin:/usr/sbin:/sbin")

        def any_refused() -> dict[str, str]:
            members.refresh()
            return members.refused

        wait_until(any_refused, "worker that is refused")
        reporter = bench.measure("fleet", 3, executor)
    assert {record.failure for record in bench.records("fleet").values()} == {None}
    served = {note["worker"] for note in notes(bench, "fleet") if "worker" in note}
    assert len(served) == 1
    lines = [line for line in reporter.lines if "is refused" in line]
    refused = executor.link.members.refused
    assert len(refused) == 1
    (reason,) = refused.values()
    assert "QEMU binary" in reason
    assert "QEMU version" not in reason
    assert not lines or reason in lines[0]


def test_what_was_begun_by_the_only_worker_is_made_by_the_next(
    bench: FleetBench, cluster: Cluster
) -> None:
    """Dask lets a task wait for a worker to join, and one that joins has no resources yet."""
    cluster.start_worker("one", STAND_IN_SECONDS="300")
    with bench.executor(cluster) as executor:
        executor.link.members.refresh(at_once=True)
        measuring = threading.Thread(target=bench.measure, args=("fleet", 1, executor))
        measuring.start()
        log = cluster.folder / "two.log"
        time.sleep(BEGUN_WITHIN_S)
        cluster.kill("one")
        wait_until(lambda: not executor.link.members.serving, "a look that found nobody")
        cluster.start_worker("two")
        measuring.join(ENLISTED_WITHIN_S)
        assert not measuring.is_alive(), log.read_text()
    assert {record.failure for record in bench.records("fleet").values()} == {None}


def test_what_nobody_was_left_to_take_is_made_by_who_is_enlisted_before_the_next_look(
    bench: FleetBench, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only worker is lost while the next one has joined and has no resources yet."""
    enlist, may_enlist = Members._enlist, threading.Event()

    def late(self: Members, address: str) -> dict[str, Any]:
        if self.serving:
            may_enlist.wait()
        return enlist(self, address)

    monkeypatch.setattr(Members, "_enlist", late)
    cluster.start_worker("one", STAND_IN_SECONDS="300")
    with bench.executor(cluster) as executor:
        client, members = executor.link.client, executor.link.members
        members.refresh(at_once=True)
        (first,) = members.serving
        measuring = threading.Thread(target=bench.measure, args=("fleet", 1, executor))
        measuring.start()
        wait_until(lambda: client.processing()[first], "something begun")
        cluster.start_worker("two")
        wait_until(lambda: len(members._invited) == 2, "a look that saw both")
        monkeypatch.setattr(fleet.members, "REFRESH_EVERY_S", 3600.0)
        cluster.kill("one")
        wait_until(lambda: first not in client.scheduler_info()["workers"], "the loss noticed")
        may_enlist.set()
        wait_until(lambda: len(members.serving) == 2, "the next one enlisted")
        monkeypatch.setattr(fleet.members, "REFRESH_EVERY_S", 0.2)
        measuring.join(ENLISTED_WITHIN_S)
        assert not measuring.is_alive()
    assert {record.failure for record in bench.records("fleet").values()} == {None}


def test_a_straggler_is_overtaken(bench: FleetBench, cluster: Cluster) -> None:
    cluster.start_worker("slow", STAND_IN_SECONDS="100")
    for name in ("one", "two"):
        cluster.start_worker(name)
    quick = Settings(**{**SOON.model_dump(), "straggler_s": 3.0})
    with bench.executor(cluster, quick) as executor:
        reporter = bench.measure("fleet", 6, executor, workers=3)
    bench.measure("local", 6)
    bench.require_same("local", "fleet")
    assert [line for line in reporter.lines if line.startswith("slow ")]


def test_a_parcel_that_kills_its_workers_is_named(bench: FleetBench, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        cluster.start_scheduler(DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0")
        for number in range(4):
            # Seed 8 is that of block 1.
            cluster.start_worker(f"w{number}", STAND_IN_DIES_OF="--randseed=8,kernel of patched")
        some = Settings(**{**SOON.model_dump(), "losses": 1})
        with bench.executor(cluster, some) as executor:
            bench.measure("fleet", 2, executor)
    finally:
        cluster.stop()
    records = bench.records("fleet")
    (run_id,) = [run_id for run_id, record in records.items() if record.failure]
    assert run_id == "filemap-4k.b01.patched"
    failure = records[run_id].failure
    assert failure is not None
    assert failure.blame == "host"
    assert failure.message.startswith("2 workers died while they made it; last tcp://")
