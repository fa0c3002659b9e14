"""Measure a wall session: one guest at a time, a block's arms back to back."""

from __future__ import annotations

import os
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from errors import InfraError
from experiment.plan import Conditions, PlannedRun, remaining_whole
from guests import virtme
from guests.channel import Ending
from guests.exact import Outcome
from host import accelerator, fitness
from host.fitness import Placement, read_counters
from kernels.cache import hold
from results.store import SessionStore
from runs import measure
from runs.boots import MIB, Reporter
from runs.keeping import cost_of
from runs.local import Options, workspace
from runs.prepare import Prepared, wall_boot_of
from text import duration


@dataclass
class WallStage:
    """What all runs of the stage share; ``began`` is on the host's monotonic clock."""

    session: Prepared
    store: SessionStore
    reporter: Reporter
    scratch: Path
    began: float

    def make(self, run: PlannedRun) -> None:
        """Make one run; what the host lost is tried again."""
        self.reporter.started(run.run_id)
        attempts = self.session.experiment.wall.attempts
        for attempt in range(1, attempts + 1):
            at_s = time.monotonic() - self.began
            outcome, conditions = watched(partial(self._boot, run))
            record, beside = measure.record_of(self.session, run, outcome, lambda files: ())
            if record.failure is None or record.failure.blame != "host" or attempt == attempts:
                break
            self.reporter.log(f"again    {run.run_id}: {record.failure.message}")
        record = record.model_copy(update={"conditions": conditions, "at_s": round(at_s, 1)})
        self.store.append(record, cost_of(run.run_id, outcome), *beside)
        problem = record.failure.message if record.failure else ""
        self.reporter.finished(run.run_id, problem=problem)

    def _boot(self, run: PlannedRun) -> Outcome:
        folder, logs = self.scratch / run.run_id, self.store.raw / run.run_id
        shutil.rmtree(folder, ignore_errors=True)

        def watch(word: str) -> None:
            self.reporter.reached(run.run_id, word)

        machine, job_text = wall_boot_of(self.session, run)
        try:
            return virtme.run(machine, job_text, folder, logs, watch)
        except InfraError as error:
            # One guest that did not start is one run lost; without KVM none would start.
            accelerator.require_device(machine.accelerator)
            return Outcome(None, Ending("lost", str(error)), 0.0, 0.0)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def measure_wall(
    session: Prepared,
    options: Options,
    store: SessionStore,
    reporter: Reporter,
) -> None:
    """Make every run of the plan that is not on record, an interrupted block as a whole.

    Raises InfraError: KVM is gone, or no disk.
    """
    if session.same_code:
        reporter.log("the arms' machine code is the same: nothing to boot (--measure-anyway does)")
        return
    recorded = store.records()
    left = remaining_whole(session.plan, {record.run_id for record in recorded})
    if not left:
        reporter.log("every planned run is on record")
        return
    total = len(session.plan.runs)
    ready = total - len(left)
    before = max((record.at_s or 0.0 for record in recorded), default=0.0)
    with (
        workspace(options.cache, session.resolved.measured.guest.memory_mib * MIB) as scratch,
        hold(*session.measured.values()),
        lab_kept_off(next(iter(session.wall.placements.values())) if session.wall else None),
        reporter.runs(total, ready, 1),
    ):
        stage = WallStage(session, store, reporter, scratch, time.monotonic() - before)
        for run in left:
            stage.make(run)
        reporter.log(f"measured in {duration(time.monotonic() - stage.began - before)}")


@contextmanager
def lab_kept_off(placement: Placement | None) -> Iterator[None]:
    """Keep this process, and all it starts, on the lab's own CPUs while a session runs."""
    before = os.sched_getaffinity(0)
    if placement is not None:
        os.sched_setaffinity(0, placement.lab)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def watched(boot: Callable[[], Outcome]) -> tuple[Outcome, Conditions]:
    """Boot one guest, and say what else the host did meanwhile."""
    before, own = read_counters(), _own_cpu_s()
    outcome = boot()
    # What was killed is not among the children that were waited for.
    used = max(_own_cpu_s() - own, outcome.cpu_s)
    measured = fitness.meanwhile(before, read_counters(), own_cpu_s=used)
    conditions = Conditions(
        stolen=measured.stolen,
        foreign=measured.foreign,
        swapped_pages=measured.swapped_pages,
        throttled=measured.throttled,
    )
    return outcome, conditions


def _own_cpu_s() -> float:
    """CPU time (seconds) of the lab and of all programs it has waited for."""
    spent = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)
