"""From a run's outcome to its record: valid, or failed with somebody to blame."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Literal

from experiment.design import AGAIN
from experiment.plan import PlannedRun
from guests import channel
from guests.console import Ending
from guests.exact import Outcome
from host import limited
from results.locks import Locks
from results.profile import Profile
from results.record import Failure, RunRecord
from runs.observe import observe
from runs.prepare import MIB, Session
from workloads import metrics, parse, validity

EVIDENCE_LINES = 12
Blame = Literal["series", "workload", "host", "lab"]


def record(
    session: Session,
    run: PlannedRun,
    outcome: Outcome,
    differs: Callable[[Mapping[str, bytes]], tuple[str, ...]],
) -> tuple[RunRecord, tuple[Profile | Locks, ...]]:
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
    session: Session,
    run: PlannedRun,
    outcome: Outcome,
    files: Mapping[str, bytes],
    differs: Callable[[Mapping[str, bytes]], tuple[str, ...]],
) -> tuple[RunRecord, tuple[Profile | Locks, ...]]:
    """The record of a run that sent files."""
    case, bench = session.case(run.case), session.bench(run)
    phases = session.phases(case)
    result = limited.call(parse.guest_result, files, tuple(phase.name for phase in phases))
    claim = validity.Claim(
        phases,
        bench.limit_bytes(run.arm),
        run.seed,
        bench.kernels[run.arm].identity.build_id,
        validity.LEFT_PAGES_WALL if session.wall else validity.LEFT_PAGES,
        session.arm(run.arm).sysctl,
        session.mount_options(run),
        bench.sizes[run.arm].file_mib * MIB,
        _memory_left_mib(session, run) * MIB,
        bench.kernels[run.arm].identity.page_kib << 10,
        fio=session.fio(run),
        cmdline=session.arm(run.arm).cmdline,
    )
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
    if run.repeat or (bench.machine is not None and bench.guests == session.measured.guests):
        difference = differs(files)
        if difference:
            message = f"not bit-exact: {difference[0]}"
            return failed(session, run, Ending("failed", message, difference), kind="inexact"), ()
    observed = observe(session, run, outcome, result)
    if bench.guests[run.arm].vcpus == 1:
        problems = tuple(
            problem
            for beside in observed.beside
            if isinstance(beside, Profile)
            for problem in validity.clock_problems(result, phases, beside)
        )
        if problems:
            return failed(session, run, Ending("failed", "; ".join(problems)), kind="invalid"), ()
    samples = metrics.samples(result.phases, phases, real_time=session.wall is not None)
    findings = [*validity.few_ios(result, phases), *observed.findings]
    for beside in observed.beside:
        if isinstance(beside, Profile):
            samples |= metrics.of_profile(beside, phases)
            findings += metrics.uncounted(beside, phases)
    known = {name: getattr(_identity(session, run), name) for name in RunRecord.model_fields}
    valid = RunRecord(
        **{
            **known,
            "failure": None,
            "samples": samples,
            "findings": tuple(findings),
            "timelines": tuple(phase.timeline for phase in result.phases),
            "fingerprint": channel.fingerprint(dict(files)),
        }
    )
    return valid, observed.beside


def _memory_left_mib(session: Session, run: PlannedRun) -> int:
    """What is to be left for the page cache; a twin with more memory has more left.

    It is for what the twin observes with, which takes it when the phase begins.
    """
    bench, arm = session.bench(run), run.arm
    more_mib = bench.guests[arm].memory_mib - session.measured.guests[arm].memory_mib
    planned_mib = bench.sizes[arm].memory_mib
    return planned_mib + more_mib if planned_mib else 0


def _identity(session: Session, run: PlannedRun) -> RunRecord:
    return RunRecord(
        run_id=run.run_id,
        case=run.case,
        arm=run.arm,
        block=run.block,
        seed=run.seed,
        repeat=run.repeat,
        twin=run.twin,
        kernel_key=session.bench(run).kernels[run.arm].identity.key,
        failure=Failure(kind="lost", blame="host", message="not started"),
    )


def failed(session: Session, run: PlannedRun, ending: Ending, kind: str = "") -> RunRecord:
    """The record of a run that is no data point; ``kind`` is the ending's if not given."""
    kind = kind or ending.kind
    failure = Failure(
        kind=kind,
        blame=_blame(session, run.arm, kind, by_clock=ending.by_clock),
        message=ending.message,
        evidence=ending.evidence,
    )
    return _identity(session, run).model_copy(update={"failure": failure})


def hindered(session: Session, run: PlannedRun, failure: Failure) -> RunRecord:
    """The record of a run that cannot be made."""
    return _identity(session, run).model_copy(update={"failure": failure})


def _blame(session: Session, arm: str, kind: str, *, by_clock: bool) -> Blame:
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
    base = session.experiment.all_arms[0].name
    return "lab" if arm in (base, AGAIN) else "series"
