"""Measure a session: every planned run once, on whatever the executor has."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from experiment.plan import PlannedRun, remaining
from guests import channel
from guests.exact import Outcome
from host import limited
from kernels.cache import hold
from results.record import Failure, RunCost, RunRecord
from results.store import SessionStore
from runs import recording
from runs.boots import Boot, Place
from runs.exactness import diverging
from runs.options import Options
from runs.prepare import Prepared, boot_of, obstacle
from runs.progress import Reporter, duration

RESULT = "result"
RETRIED = ("lost", "unreadable")
# Endings that a host or a kernel may have caused; how the base arm ended in the same block decides.
DOUBTFUL = ("lost", "silent")


@dataclass
class Measurement:
    """Judges runs as they end; ``failures`` of this session by run id, ``good`` are data points."""

    session: Prepared
    store: SessionStore
    reporter: Reporter
    runs: Mapping[str, PlannedRun]
    failures: dict[str, Failure] = field(default_factory=dict)
    good: set[str] = field(default_factory=set)

    def first(self, boot: Boot, outcome: Outcome) -> str:
        """As ``runs.boots.Judge.first``: a repeat waits for what it repeats, blame for the base."""
        run = self.runs[boot.name]
        if run.repeat and outcome.files is not None:
            return run.original_id
        base = _base_of(self.session, run) if outcome.files is None else ""
        return base if base != run.run_id else ""

    def receive(self, boot: Boot, outcome: Outcome, *, last: bool) -> bool:
        """As ``runs.boots.Judge.receive``: a record, or once more for what the host broke."""
        run = self.runs[boot.name]

        def differs(files: Mapping[str, bytes]) -> tuple[str, ...]:
            return _difference(self.store, run, files)

        record, beside = recording.record(self.session, run, outcome, differs)
        if record.failure is not None and record.failure.kind in RETRIED and not last:
            self.reporter.log(f"again    {run.run_id}: {record.failure.message}")
            return True
        if record.failure is not None:
            failure = self._blamed(run, record.failure, killed=outcome.ending.killed)
            self.failures[run.run_id] = failure
            record = record.model_copy(update={"failure": failure})
        else:
            self.good.add(run.run_id)
        self.store.append(record, recording.cost_of(run, outcome), *beside)
        problem = record.failure.message if record.failure else ""
        self.reporter.finished(run.run_id, problem=problem)
        return False

    def without_hindered(self, runs: Sequence[PlannedRun]) -> tuple[PlannedRun, ...]:
        """The runs that can be made; those that cannot are put on record as failed."""
        obstacles = {run.run_id: obstacle(self.session, run) for run in runs}
        for run in runs:
            if failure := obstacles[run.run_id]:
                self.failures[run.run_id] = failure
                cost = RunCost(run_id=run.run_id, elapsed_s=0.0, guest_cpu_s=0.0)
                self.store.append(recording.hindered(self.session, run, failure), cost)
        hindered_arms = {(run.arm, o.message): o for run in runs if (o := obstacles[run.run_id])}
        for (arm, message), failure in hindered_arms.items():
            self.reporter.log(f"not measured: {arm}: {failure.kind}: {message}")
        return tuple(run for run in runs if obstacles[run.run_id] is None)

    def _blamed(self, run: PlannedRun, failure: Failure, *, killed: bool) -> Failure:
        """The failure with its blame, after what became of the base arm in the same block.

        A series is not to blame for what its base has, too, and it is for what ended its own
        run, each time, and not that of the base.
        """
        twin = _base_of(self.session, run)
        if failure.blame == "series" and twin in self.failures:
            if self.failures[twin].blame == "lab":
                return failure.model_copy(update={"blame": "lab"})
        elif failure.kind in DOUBTFUL and not killed and twin != run.run_id and twin in self.good:
            message = f"{failure.message}; the base arm's run was measured"
            return failure.model_copy(update={"blame": "series", "message": message})
        return failure


def measure(session: Prepared, options: Options, store: SessionStore, reporter: Reporter) -> None:
    """Make every run of the plan that is not on record yet.

    Raises:
        InfraError: the disk is too small or QEMU does not start.
        KeyboardInterrupt: passed on after all guests are gone.
    """
    if session.same_code:
        reporter.log("the arms' machine code is the same: nothing to boot (--measure-anyway does)")
        return
    # A run that failed for the host's sake is made again.
    kept = [record for record in store.records() if not host_failed(record)]
    planned = {run.run_id for run in session.plan.runs}
    done = planned & {record.run_id for record in kept}
    todo = remaining(session.plan, done)
    if not todo:
        reporter.log("every planned run is on record")
        return
    judge = Measurement(session, store, reporter, {run.run_id: run for run in session.plan.runs})
    judge.failures |= {record.run_id: record.failure for record in kept if record.failure}
    judge.good |= {record.run_id for record in kept if not record.failure}
    todo = judge.without_hindered(todo)
    done = planned - {run.run_id for run in todo}
    executor = options.executor
    slots = executor.slots(session.resolved.measured.guest.memory_mib, options.guests_at_once)
    with ExitStack() as held, reporter.runs(len(session.plan.runs), len(done), slots):
        for kernel in session.measured.values():
            held.enter_context(hold(kernel))
        began = time.monotonic()
        batches = [
            [
                # A repeat boots from cold: it checks the snapshot as well as the run.
                boot_of(session, run, cold=run.repeat or not options.snapshot)
                for run in todo
                if run.twin == bench.name
            ]
            for bench in session.benches
        ]
        place = Place(options.cache, store.raw, reporter, slots)
        ideal = executor.boot(batches, judge, place) / slots
        elapsed = time.monotonic() - began
    cost = f": {elapsed / ideal:.2f} x the guests' CPU time over {slots} at once" if ideal else ""
    reporter.log(f"measured in {duration(elapsed)}{cost}")


def _base_of(session: Prepared, run: PlannedRun) -> str:
    """The base arm's run of the same case, block and twin, whether or not it is planned here.

    Of a repeat it is the judged one.
    """
    base = session.resolved.arms[0].spec.name
    words = [run.original_id.removesuffix(f".{run.arm}"), base, run.twin]
    return ".".join(filter(None, words))


def _difference(
    store: SessionStore, run: PlannedRun, files: Mapping[str, bytes]
) -> tuple[str, ...]:
    """How a repeat differs from the run it repeats; empty when equal."""
    first = store.raw / run.original_id / RESULT
    if not first.exists():
        return (f"{run.original_id} left no result to compare with",)
    return diverging(limited.call(channel.read_result, first), files)


def host_failed(record: RunRecord) -> bool:
    """Whether a run is to be made again: what ended it was not the kernel's doing."""
    return record.failure is not None and record.failure.blame == "host"
