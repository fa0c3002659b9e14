"""From a run's outcome to its record: valid, or failed with somebody to blame."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Literal

from errors import LabError
from experiment.plan import AGAIN, PlannedRun
from experiment.spec import CONTENTION, MEMORY
from guests import channel
from guests.channel import Ending
from guests.exact import Outcome
from guests.probe import fold
from host import limited
from results.locks import Locks
from results.profile import Profile
from results.record import Failure, RunCost, RunRecord
from runs.boots import MIB
from runs.prepare import Prepared, RunParts, parts_of
from workloads import metrics, parse, validity
from workloads.contention import phase_locks
from workloads.job import fio_arguments
from workloads.parse import GuestResult

EVIDENCE_LINES = 12
# Accesses without a page, as a share of instructions; there are none where all is well.
MOST_UNMAPPED = 0.0001
Blame = Literal["series", "workload", "host", "lab"]
Beside = tuple[Profile | Locks, ...]


def record(
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
    except parse.ParseError as error:
        ending = Ending("unreadable", f"result not readable: {error}")
    except Exception as error:  # nobody knows all that a reader of foreign text may raise
        message = f"result not readable: {type(error).__name__}: {error}"
        raised = traceback.format_exc().splitlines()[-EVIDENCE_LINES:]
        ending = Ending("unreadable", message, tuple(raised))
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
    observed, findings = observe(parts, outcome, result)
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
        samples |= metrics.of_profile(profile, phases)
        findings += tuple(metrics.uncounted(profile, phases))
    valid = _identity(session, run) | {
        "samples": samples,
        "findings": findings,
        "timelines": tuple(phase.timeline for phase in result.phases),
        "fingerprint": channel.fingerprint(dict(files)),
    }
    return RunRecord.model_validate(valid), observed


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
    parts: RunParts, outcome: Outcome, result: GuestResult
) -> tuple[Beside, tuple[str, ...]]:
    """What was counted and observed in a valid run, and findings where it cannot be read.

    What cannot be read explains nothing, and takes nothing from what was measured.
    """
    beside: list[Profile | Locks] = []
    findings: list[str] = []
    for read, what in ((_profile, "probe"), (_locks, "locks")):
        try:
            record = read(parts, outcome, result)
        except LabError as error:
            findings.append(f"{what}: {error}")
        except Exception as error:  # as in :func:`record`: of what a guest sent
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


def _profile(parts: RunParts, outcome: Outcome, result: GuestResult) -> Profile | None:
    if outcome.counts is None or outcome.files is None:
        return None
    phases = fold.profile(outcome.counts, parts.kernel, outcome.files, parts.phases, result)
    return Profile(run_id=parts.run.run_id, phases=phases)


def _locks(parts: RunParts, outcome: Outcome, result: GuestResult) -> Locks | None:
    if parts.bench.observe != CONTENTION or outcome.files is None:
        return None
    names = [phase.name for phase in result.phases]
    phases = tuple(limited.call(phase_locks, outcome.files, name) for name in names)
    return Locks(run_id=parts.run.run_id, twin=parts.run.twin, phases=phases)


def _identity(session: Prepared, run: PlannedRun) -> dict[str, object]:
    of_run = run.model_dump(include={*RunRecord.model_fields})
    return of_run | {"kernel_key": parts_of(session, run).kernel.identity.key}


def failed(session: Prepared, run: PlannedRun, ending: Ending, kind: str = "") -> RunRecord:
    """The record of a run that is no data point; ``kind`` is the ending's if not given."""
    kind = kind or ending.kind
    return hindered(
        session,
        run,
        Failure(
            kind=kind,
            blame=_blame(session, run.arm, kind, by_clock=ending.by_clock),
            message=ending.message,
            evidence=ending.evidence,
        ),
    )


def hindered(session: Prepared, run: PlannedRun, failure: Failure) -> RunRecord:
    """The record of a run that cannot be made."""
    return RunRecord.model_validate(_identity(session, run) | {"failure": failure})


def cost_of(run: PlannedRun, outcome: Outcome) -> RunCost:
    """What a run cost this host."""
    return RunCost(run_id=run.run_id, elapsed_s=outcome.elapsed_s, guest_cpu_s=outcome.cpu_s)


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
