"""What a run showed beside its samples: the probe's counts, and a twin's locks."""

from __future__ import annotations

from dataclasses import dataclass

from errors import LabError
from experiment.plan import PlannedRun
from experiment.spec import CONTENTION, MEMORY
from guests.exact import Outcome
from guests.probe import fold
from host import limited
from results.locks import Locks
from results.profile import Profile
from runs.prepare import Session
from workloads.contention import phase_locks
from workloads.parse import GuestResult

# Accesses without a page, as a share of instructions; there are none where all is well.
MOST_UNMAPPED = 0.0001


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
    beside: list[Profile | Locks] = []
    findings: list[str] = []
    readers = ((_profile, "probe"), (_locks, "locks"))
    modelled = session.bench(run).observe == MEMORY
    for read, what in readers:
        try:
            record = read(session, run, outcome, result)
        except LabError as error:
            findings.append(f"{what}: {error}")
        except Exception as error:  # as in runs.recording: of what a guest sent
            findings.append(f"{what}: {type(error).__name__}: {error}")
        else:
            beside += [record] if record is not None else []
            if modelled and isinstance(record, Profile):
                findings += unseen_memory(record)
    return Observed(tuple(beside), tuple(findings))


def unseen_memory(profile: Profile) -> list[str]:
    """What keeps a modelled machine's counts from being whole; empty where nothing does."""
    memory = profile.phases[0].memory if profile.phases else None
    if memory is None:
        return ["memory: nothing was modelled: the kernel's page tables are not in System.map"]
    everything = sum(phase.instructions for phase in profile.phases)
    if memory.unmapped > everything * MOST_UNMAPPED:
        return [f"memory: no page was found for {memory.unmapped} accesses of {everything} "
                "instructions; what is counted lacks them"]  # fmt: skip
    return []


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
    if observe != CONTENTION or outcome.files is None:
        return None
    names = [phase.name for phase in result.phases]
    phases = tuple(limited.call(phase_locks, outcome.files, name) for name in names)
    return Locks(run_id=run.run_id, twin=run.twin, phases=phases)
