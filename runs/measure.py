"""Measure a session: every planned run once, and its record: valid, or failed with one to blame."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from errors import LabError
from experiment.plan import AGAIN, PlannedRun, remaining
from experiment.spec import CONTENTION, MEMORY
from guests import channel
from guests.channel import Ending
from guests.exact import Outcome
from guests.probe import fold
from host import limited
from kernels.cache import hold
from results.profile import Locks, Profile
from results.record import Failure, RunCost, RunRecord
from results.store import SessionStore
from runs import keeping
from runs.boots import MIB, Boot, Place, Reporter, diverging
from runs.keeping import cost_of
from runs.local import Options
from runs.prepare import Prepared, RunParts, boot_of, obstacle, parts_of
from text import duration
from workloads import metrics, parse, validity
from workloads.job import fio_arguments
from workloads.parse import GuestResult, phase_locks

EVIDENCE_LINES = 12
# Accesses without a page, as a share of instructions; there are none where all is well.
MOST_UNMAPPED = 0.0001
Blame = Literal["series", "workload", "host", "lab"]
Beside = tuple[Profile | Locks, ...]


def record_of(
    session: Prepared,
    run: PlannedRun,
    outcome: Outcome,
    differs: Callable[[Mapping[str, bytes]], tuple[str, ...]],
) -> tuple[RunRecord, Beside]:
    """The run's record, and what was observed beside it where the run is valid.

    ``differs`` is asked about the files of a repeat: how they differ from those of the
    run it repeats.  Whatever is raised on the way from what a guest sent to numbers is a
    failure of this run.
    """
    if outcome.files is None:
        return failed(session, run, outcome.ending), ()
    try:
        return _judged(session, run, outcome, outcome.files, differs)
    except Exception as error:  # nobody knows all that a reader of foreign text may raise
        known = isinstance(error, parse.ParseError)
        kind = "" if known else f"{type(error).__name__}: "
        raised = () if known else traceback.format_exc().splitlines()[-EVIDENCE_LINES:]
        ending = Ending("unreadable", f"result not readable: {kind}{error}", tuple(raised))
        return failed(session, run, ending), ()


def _judged(
    session: Prepared,
    run: PlannedRun,
    outcome: Outcome,
    files: Mapping[str, bytes],
    differs: Callable[[Mapping[str, bytes]], tuple[str, ...]],
) -> tuple[RunRecord, Beside]:
    """The record of a run that sent files."""
    parts = parts_of(session, run)
    phases, bench = parts.phases, parts.bench
    result = limited.call(parse.guest_result, files, tuple(phase.name for phase in phases))
    claim = _claim(session, parts)
    problems = validity.problems(result, claim)
    if outcome.ending.kind != "done":
        problems = (f"{outcome.ending.kind}: {outcome.ending.message}", *problems)
    if problems:
        record = failed(session, run, Ending("failed", "; ".join(problems)), kind="invalid")
        if record.failure and validity.of_user(result, claim):
            failure = record.failure.model_copy(update={"blame": "user"})
            record = record.model_copy(update={"failure": failure})
        return record, ()
    # A modelled machine is not felt, too; its guest is the judged one.
    judged = session.resolved.measured
    if run.repeat or (bench.machine is not None and bench.guests == judged.guests):
        difference = differs(files)
        if difference:
            message = f"not bit-exact: {difference[0]}"
            return failed(session, run, Ending("failed", message, difference), kind="inexact"), ()
    # Diagnostic runs are not of the judged guests, or count much besides.
    sources = frozenset() if run.twin else session.sources
    observed, findings = observe(parts, outcome, result, sources)
    profiles = [beside for beside in observed if isinstance(beside, Profile)]
    if parts.guest.vcpus == 1:
        problems = tuple(
            problem
            for profile in profiles
            for problem in validity.clock_problems(result, phases, profile)
        )
        if problems:
            return failed(session, run, Ending("failed", "; ".join(problems)), kind="invalid"), ()
    samples = metrics.samples(result.phases, phases, real_time=session.wall is not None)
    findings = (*validity.few_ios(result, phases), *findings)
    for profile in profiles:
        samples |= metrics.of_profile(profile, phases) | metrics.before_phases(result.phases)
        findings += tuple(metrics.uncounted(profile, phases))
    valid = {
        "samples": samples,
        "findings": findings,
        "fingerprint": channel.fingerprint(dict(files)),
    }
    return _record(session, run, valid), observed


def _claim(session: Prepared, parts: RunParts) -> validity.Claim:
    """What a run says about itself."""
    bench, run, arm = parts.bench, parts.run, parts.arm.spec
    size = bench.sizes[run.arm]
    # A guest of diagnostic runs may have more memory: for what it observes with, which takes it
    # when the phase begins.
    more_mib = parts.guest.memory_mib - session.resolved.measured.guests[run.arm].memory_mib
    return validity.Claim(
        phases=parts.phases,
        limit_bytes=parts.limit_bytes,
        seed=run.seed,
        build_id=parts.kernel.identity.build_id,
        left_pages=validity.LEFT_PAGES_WALL if session.wall else validity.LEFT_PAGES,
        sysctl=arm.sysctl,
        mount_options=arm.mount_options or parts.workload.mount_options,
        file_bytes=size.file_mib * MIB,
        memory_bytes=(size.memory_mib + more_mib) * MIB if size.memory_mib else 0,
        page_bytes=parts.kernel.identity.page_kib << 10,
        cmdline=arm.cmdline,
        fio={
            phase.name: fio_arguments(phase, parts.times[phase.name], jobs=size.jobs, seed=run.seed)
            for phase in parts.phases
            if phase.fio
        },
    )


def observe(
    parts: RunParts, outcome: Outcome, result: GuestResult, sources: Collection[str] = ()
) -> tuple[Beside, tuple[str, ...]]:
    """What was counted in a valid run, and findings: what cannot be read explains nothing."""
    beside: list[Profile | Locks] = []
    findings: list[str] = []
    for what in ("probe", "locks"):
        try:
            record = _observed(what, parts, outcome, result, sources)
        except LabError as error:
            findings.append(f"{what}: {error}")
        except Exception as error:  # as in :func:`record_of`: of what a guest sent
            findings.append(f"{what}: {type(error).__name__}: {error}")
        else:
            beside += [record] if record is not None else []
            if parts.bench.observe == MEMORY and isinstance(record, Profile):
                findings += unseen_memory(record)
    return tuple(beside), tuple(findings)


def unseen_memory(profile: Profile) -> list[str]:
    """What keeps a modelled machine's counts from being whole; empty where nothing does."""
    memory = profile.phases[0].memory if profile.phases else None
    if memory is None:
        return ["memory: nothing was modelled: the kernel's page tables are not in System.map"]
    everything = sum(phase.instructions for phase in profile.phases)
    if memory.unmapped > everything * MOST_UNMAPPED:
        return [
            f"memory: no page was found for {memory.unmapped} accesses of {everything} "
            "instructions; what is counted lacks them"
        ]
    return []


def _observed(
    what: str, parts: RunParts, outcome: Outcome, result: GuestResult, sources: Collection[str]
) -> Profile | Locks | None:
    run, files = parts.run, outcome.files
    if files is None:
        return None
    if what == "locks":
        if parts.bench.observe != CONTENTION:
            return None
        phases = [limited.call(phase_locks, files, phase.name) for phase in result.phases]
        return Locks(run_id=run.run_id, twin=run.twin, phases=tuple(phases))
    if outcome.counts is None:
        return None
    counted = fold.profile(outcome.counts, parts.kernel, files, parts.phases, result, sources)
    return Profile(run_id=run.run_id, phases=counted)


def _record(session: Prepared, run: PlannedRun, values: Mapping[str, object]) -> RunRecord:
    of_run = run.model_dump(include={*RunRecord.model_fields})
    key = parts_of(session, run).kernel.identity.key
    return RunRecord.model_validate({**of_run, "kernel_key": key, **values})


def failed(session: Prepared, run: PlannedRun, ending: Ending, kind: str = "") -> RunRecord:
    """The record of a run that is no data point; ``kind`` is the ending's if not given."""
    kind = kind or ending.kind
    blame = _blame(session, run.arm, kind, by_clock=ending.by_clock)
    says = ending.message.rpartition(STOPPED)[2]
    # A kernel that somebody named, and that cannot even send why its agent stopped.
    of_user = run.arm in session.experiment.prebuilt and validity.is_of_user(says)
    failure = Failure(
        kind=kind,
        blame="user" if of_user else blame,
        message=ending.message,
        evidence=ending.evidence,
    )
    return _record(session, run, {"failure": failure})


def _blame(session: Prepared, arm: str, kind: str, *, by_clock: bool) -> Blame:
    if kind == "inexact":
        return "lab"
    if kind in ("invalid", "failed"):
        return "workload"
    # Where a guest's code is translated and others share the host, running out of real time
    # says nothing of a kernel.
    too_slow = by_clock and session.wall and not session.wall.accelerator.real_time
    if kind in ("lost", "silent") or too_slow:
        return "host"
    # A kernel that breaks: the series', unless the arm is one without it.
    base = session.resolved.arms[0].spec.name
    return "lab" if arm in (base, AGAIN) else "series"


RESULT = "result"
# How the last line of an agent that stopped begins (workloads/agent.sh).
STOPPED = "twinboot: failed: "
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

    def drawn_with(self, boot: Boot) -> str:
        """As ``runs.boots.KeepingJudge``: one of each arm, and one of all diagnostic runs."""
        run = self.runs[boot.name]
        return "diagnostic runs" if run.twin else f"arm {run.arm}"

    def before(self, boot: Boot, outcome: Outcome) -> tuple[str, ...]:
        """As ``runs.boots.Judge``: a repeat waits for what it repeats, blame for the base."""
        run = self.runs[boot.name]
        if run.repeat and outcome.files is not None:
            return (run.original_id,)
        base = _base_of(self.session, run)
        return (base,) if base != run.run_id else ()

    def receive(self, boot: Boot, outcome: Outcome, *, last: bool) -> bool:
        """As ``runs.boots.Judge.receive``: a record, or once more for what the host broke."""
        run = self.runs[boot.name]

        def differs(files: Mapping[str, bytes]) -> tuple[str, ...]:
            """How a repeat differs from the run it repeats; empty when equal."""
            first = self.store.raw / run.original_id / RESULT
            if not first.exists():
                return (f"{run.original_id} left no result to compare with",)
            return diverging(limited.call(channel.read_result, first), files)

        record, beside = record_of(self.session, run, outcome, differs)
        if record.failure is not None and record.failure.kind in RETRIED and not last:
            self.reporter.log(f"again    {run.run_id}: {record.failure.message}")
            return True
        if record.failure is not None:
            failure = self._blamed(run, record.failure, killed=outcome.ending.killed)
            self.failures[run.run_id] = failure
            record = record.model_copy(update={"failure": failure})
        else:
            self.good.add(run.run_id)
        self.store.append(record, cost_of(run.run_id, outcome), *beside)
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
                self.store.append(_record(self.session, run, {"failure": failure}), cost)
        hindered_arms = {(run.arm, o.message): o for run in runs if (o := obstacles[run.run_id])}
        for (arm, message), failure in hindered_arms.items():
            self.reporter.log(f"not measured: {arm}: {failure.kind}: {message}")
        return tuple(run for run in runs if obstacles[run.run_id] is None)

    def _blamed(self, run: PlannedRun, failure: Failure, *, killed: bool) -> Failure:
        """The failure, blamed on the series only for what the base arm in this block has not."""
        twin, session = _base_of(self.session, run), self.session
        # An exact guest that works on one kernel and not on another is no accident; in real time,
        # or where settings alone differ, a run may be invalid for other reasons.
        key = parts_of(session, run).kernel.identity.key
        base = session.measured[session.resolved.arms[0].spec.name].identity.key
        of_kernel = failure.blame == "workload" and session.wall is None and key != base
        doubtful = of_kernel or (failure.kind in DOUBTFUL and not killed)
        if failure.blame == "series" and twin in self.failures:
            if self.failures[twin].blame == "lab":
                return failure.model_copy(update={"blame": "lab"})
        elif doubtful and twin != run.run_id and twin in self.good:
            message = f"{failure.message}; the base arm's run with this seed was measured"
            return failure.model_copy(update={"blame": "series", "message": message})
        return failure


def measure(session: Prepared, options: Options, store: SessionStore, reporter: Reporter) -> None:
    """Make every run of the plan that is not on record; InfraError: no disk, or no QEMU."""
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
    held = hold(*session.measured.values())
    with held, reporter.runs(len(session.plan.runs), len(done), slots):
        began = time.monotonic()
        batches = [
            [
                boot_of(session, run, cold=not options.snapshot)
                for run in todo
                if run.twin == bench.name
            ]
            for bench in session.benches
        ]
        place = Place(options.cache, store.raw, reporter, slots)
        ideal = keeping.boot(options.kept, executor, batches, judge, place) / slots
        elapsed = time.monotonic() - began
    cost = f": {elapsed / ideal:.2f} x the guests' CPU time over {slots} at once" if ideal else ""
    reporter.log(f"measured in {duration(elapsed)}{cost}")


def _base_of(session: Prepared, run: PlannedRun) -> str:
    """The base arm's judged run of the same case, block and twin, planned here or not."""
    base = session.resolved.arms[0].spec.name
    words = [run.original_id.removesuffix(f".{run.arm}"), base, run.twin]
    return ".".join(filter(None, words))


def host_failed(record: RunRecord) -> bool:
    """Whether a run is to be made again: what ended it was not the kernel's doing."""
    return record.failure is not None and record.failure.blame == "host"
