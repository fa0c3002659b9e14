"""What a run showed beside its samples: the probe's counts, and a twin's locks."""

from __future__ import annotations

from dataclasses import dataclass

from errors import LabError
from experiment.plan import PlannedRun
from guests.exact import Outcome
from guests.probe import fold
from host import limited
from results.locks import Locks
from results.profile import Profile
from runs.prepare import Session
from workloads import locks
from workloads.parse import GuestResult


@dataclass(frozen=True)
class Observed:
    """Records to keep beside the run's, and findings where there is nothing to keep."""

    beside: tuple[Profile | Locks, ...]
    findings: tuple[str, ...]


def observe(session: Session, run: PlannedRun, outcome: Outcome, result: GuestResult) -> Observed:
    """Read what was counted and observed in a valid run.

    What cannot be read explains nothing, and takes nothing from what was measured:
    it becomes a finding.
    """
    found: list[Profile | Locks] = []
    findings: list[str] = []
    readers = ((_profile, "probe"), (_locks, "locks"))
    for read, what in readers:
        try:
            seen = read(session, run, outcome, result)
        except LabError as error:
            findings.append(f"{what}: {error}")
        except Exception as error:  # as in runs.recording: of what a guest sent
            findings.append(f"{what}: {type(error).__name__}: {error}")
        else:
            found += [seen] if seen is not None else []
    return Observed(tuple(found), tuple(findings))


def _profile(
    session: Session, run: PlannedRun, outcome: Outcome, result: GuestResult
) -> Profile | None:
    if outcome.counts is None or outcome.files is None:
        return None
    phases = fold.profile(
        outcome.counts,
        session.bench(run).kernels[run.arm],
        outcome.files,
        session.phases(session.case(run.case)),
        result,
    )
    return Profile(run_id=run.run_id, phases=phases)


def _locks(
    session: Session, run: PlannedRun, outcome: Outcome, result: GuestResult
) -> Locks | None:
    observe = session.bench(run).observe
    if not observe or outcome.files is None:
        return None
    names = [seen.name for seen in result.phases]
    phases = tuple(limited.call(locks.phase_locks, outcome.files, n, observe) for n in names)
    return Locks(run_id=run.run_id, twin=run.twin, phases=phases)
