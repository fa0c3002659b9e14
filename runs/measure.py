"""Measure a session: every planned run once, as many guests at once as fit."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from experiment.plan import PlannedRun, remaining
from guests import channel, exact
from guests.console import Ending
from guests.exact import BootError, Machine, Outcome, Snapshot
from host import facts
from kernels.cache import hold
from results.locks import Locks
from results.profile import Profile
from results.record import Failure, RunCost, RunRecord
from results.store import SessionStore
from runs import recording
from runs.exactness import diverging
from runs.options import Options
from runs.prepare import Bench, Session
from runs.progress import Reporter, duration
from runs.workspace import workspace

RESULT = "result"
MIB = 1 << 20
# Host trouble may pass; anything else is a function of the inputs and would only
# be the same again.
ATTEMPTS = 2
RETRIED = ("lost",)


class InterruptedRunError(Exception):
    """The lab was asked to stop; runs under way are dropped, records are kept."""


@dataclass
class Measurement:
    """Shared state of one measuring stage."""

    session: Session
    options: Options
    store: SessionStore
    reporter: Reporter
    scratch: Path
    stop: threading.Event = field(default_factory=threading.Event)
    snapshots: dict[Machine, Future[Snapshot]] = field(default_factory=dict)
    snapshots_taken: int = 0
    pending: dict[str, Future[None]] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    cpu_s: list[float] = field(default_factory=list)


def slots_for(session: Session, options: Options) -> int:
    """Guests that run at once: what the user said, or what cores and memory allow."""
    return options.guests_at_once or facts.guests_at_once(session.guest.memory_mib)


def measure(session: Session, options: Options, store: SessionStore, reporter: Reporter) -> None:
    """Make every run of the plan that is not on record yet.

    Raises:
        InfraError: the disk is too small or QEMU does not start.
        KeyboardInterrupt: passed on after all guests are gone.
    """
    if session.same_code:
        reporter.say("the arms' machine code is the same: nothing to boot (--measure-anyway does)")
        return
    # A run that failed for the host's sake is made again.
    kept = [record for record in store.records() if not _host_failed(record)]
    done = {record.run_id for record in kept}
    todo = remaining(session.plan, done)
    if not todo:
        reporter.say("every planned run is on record")
        return
    slots = slots_for(session, options)
    needed = max(_memory_mib(session, bench, slots) for bench in session.benches) * MIB
    with workspace(options.cache, needed) as scratch:
        state = Measurement(session, options, store, reporter, scratch)
        state.failures |= {record.run_id: record.failure for record in kept if record.failure}
        with ExitStack() as held, reporter.runs(len(session.plan.runs), len(done), slots):
            for bench in session.benches:
                for kernel in bench.kernels.values():
                    held.enter_context(hold(kernel))
            began = time.monotonic()
            # One bench after the other: each keeps a snapshot a machine in the scratch folder.
            for bench in session.benches:
                runs = tuple(run for run in todo if run.twin == bench.name)
                _all(state, runs, slots)
                _drop_snapshots(state)
            ideal = sum(state.cpu_s) / slots
            elapsed = time.monotonic() - began
        cost = f": {elapsed / ideal:.2f} x the guests' CPU time over {slots} at once"
        reporter.say(f"measured in {duration(elapsed)}{cost if ideal else ''}")


def _memory_mib(session: Session, bench: Bench, slots: int) -> int:
    """What a bench's guests take: a snapshot of each machine, and those that run."""
    machines = {
        session.machine(run)
        for run in session.plan.runs
        if run.twin == bench.name and not run.repeat
    }
    largest = max(guest.memory_mib for guest in bench.guests.values())
    return sum(machine.guest.memory_mib for machine in machines) + slots * largest


def _drop_snapshots(state: Measurement) -> None:
    for snapshot in state.snapshots.values():
        if snapshot.exception() is None:
            shutil.rmtree(snapshot.result().memory.parent, ignore_errors=True)
    state.snapshots.clear()


def _all(state: Measurement, todo: tuple[PlannedRun, ...], slots: int) -> None:
    pool = ThreadPoolExecutor(max_workers=slots, thread_name_prefix="guest")
    try:
        if state.options.snapshot:
            for run in todo:
                machine = state.session.machine(run)
                if machine not in state.snapshots and not run.repeat:
                    state.snapshots_taken += 1
                    state.snapshots[machine] = pool.submit(
                        _snapshot, state, machine, run, state.snapshots_taken
                    )
        for run in todo:
            state.pending[run.run_id] = pool.submit(_run, state, run)
        for finished in as_completed(list(state.pending.values())):
            finished.result()
    except BaseException:
        state.stop.set()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _snapshot(state: Measurement, machine: Machine, run: PlannedRun, number: int) -> Snapshot:
    arm = f"{run.arm}-{run.twin}" if run.twin else run.arm
    name = f"snapshot {number} ({arm})"
    state.reporter.started(name)
    problem = "stopped"
    try:
        snapshot = exact.take_snapshot(
            machine,
            state.scratch / f"snapshot-{number}",
            state.store.raw / f"snapshot-{number}-{arm}",
            _watch(state, name),
        )
        problem = ""
        state.cpu_s.append(snapshot.cpu_s)
        return snapshot
    except BootError as error:
        problem = error.ending.message
        raise
    finally:
        state.reporter.finished(name, problem=problem, counts=False)


def _watch(state: Measurement, name: str) -> Callable[[str], None]:
    def watch(word: str) -> None:
        if state.stop.is_set():
            raise InterruptedRunError
        state.reporter.said(name, word)

    return watch


def _run(state: Measurement, run: PlannedRun) -> None:
    if state.stop.is_set():
        raise InterruptedRunError
    state.reporter.started(run.run_id)
    record, cost = recording.failed(state.session, run, Ending("lost", "not started")), None
    beside: tuple[Profile | Locks, ...] = ()

    def differs(files: Mapping[str, bytes]) -> tuple[str, ...]:
        return _difference(state, run, files)

    for attempt in range(1, ATTEMPTS + 1):
        outcome = _boot(state, run)
        state.cpu_s.append(outcome.cpu_s)
        record, beside = recording.record(state.session, run, outcome, differs)
        cost = RunCost(run_id=run.run_id, elapsed_s=outcome.elapsed_s, guest_cpu_s=outcome.cpu_s)
        if record.failure is None or record.failure.kind not in RETRIED or attempt == ATTEMPTS:
            break
        state.reporter.say(f"again    {run.run_id}: {record.failure.message}")
    if record.failure is not None:
        failure = state.failures[run.run_id] = _cleared(state, run, record.failure)
        record = record.model_copy(update={"failure": failure})
    state.store.append(record, *([cost] if cost else []), *beside)
    problem = record.failure.message if record.failure else ""
    state.reporter.finished(run.run_id, problem=problem)


def _boot(state: Measurement, run: PlannedRun) -> Outcome:
    session = state.session
    text, machine = session.job(run), session.machine(run)
    probe = session.probe_of(run)
    folder, logs = state.scratch / run.run_id, state.store.raw / run.run_id
    shutil.rmtree(folder, ignore_errors=True)
    watch = _watch(state, run.run_id)
    try:
        # A repeat boots from cold: it checks the snapshot as well as the run.
        if state.options.snapshot and not run.repeat:
            try:
                snapshot = state.snapshots[machine].result()
            except BootError as error:
                return Outcome(None, error.ending, 0.0, 0.0)
            return exact.run_restored(snapshot, text, folder, logs, watch, probe=probe)
        return exact.run_cold(machine, text, folder, logs, watch, probe=probe)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _difference(state: Measurement, run: PlannedRun, files: Mapping[str, bytes]) -> tuple[str, ...]:
    """How a repeat differs from the run it repeats; empty when equal."""
    original = run.run_id.removesuffix(".repeat")
    if original in state.pending:
        # Queued before this run, so it ends without it.
        state.pending[original].result()
    first = state.store.raw / original / RESULT
    if not first.exists():
        return (f"{original} left no result to compare with",)
    return diverging(channel.decode(first.read_bytes()), files)


def _cleared(state: Measurement, run: PlannedRun, failure: Failure) -> Failure:
    """Take the blame off a series whose base arm broke in the same block, too."""
    base = state.session.experiment.all_arms[0].name
    if failure.blame != "series":
        return failure
    twin = next(
        other.run_id
        for other in state.session.plan.runs
        if (other.case, other.block, other.arm, other.twin) == (run.case, run.block, base, run.twin)
    )
    if twin in state.pending:
        # Queued before this run, so it ends without it.
        state.pending[twin].result()
    if twin not in state.failures or state.failures[twin].blame != "lab":
        return failure
    return failure.model_copy(update={"blame": "lab"})


def _host_failed(record: RunRecord) -> bool:
    return record.failure is not None and record.failure.blame == "host"
