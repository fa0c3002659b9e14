"""What a modelled machine missed, in all and while each lock was held, for many CPUs: pure.

It is counted in diagnostic runs of the judged guests; nothing here reaches a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiment.machine import MachineSpec
from reports.attribution import SeedProfiles, profiled_phases
from reports.lock_identity import TakerNames
from reports.lock_rows import unit_of
from reports.memory import weights
from reports.paired import per, ratio
from reports.scaling_model import MissedEach
from results.profile import IDLE_PROGRAM, PhaseProfile, Profile
from results.record import Manifest, PhaseRecord, RunRecord

# What is waited for: a line that is in L2 comes within what instructions are taken to need.
EVENTS = tuple(MissedEach.model_fields)
_Sums = dict[str, float]


class MissedInPhase(NamedTuple):
    """Events of base and patched in one phase, of a modelled machine.

    ``total`` is per unit of work, ``held`` by the label of a lock: per instruction with it held.
    """

    unit_title: str
    total: MissedEach
    held: Mapping[str, MissedEach]


def cycles_of(machine: MachineSpec, missed: MissedEach) -> tuple[float, float]:
    """Cycles that events take on base and on patched, each waited for from its first to its last.

    A miss of L2 adds the way from there to the last level, and one of that the way to memory.
    """
    cycles = weights(machine)
    base, patched = (
        sum(cycles[event] * getattr(missed, event)[arm] for event in EVENTS) for arm in (0, 1)
    )
    return base, patched


def _in_all(run: PhaseProfile) -> _Sums:
    assert run.memory is not None
    user = (missed for file, missed in run.memory.user.items() if file != IDLE_PROGRAM)
    every = (*run.memory.kernel, *user)
    return {event: float(sum(getattr(each, event) for each in every)) for event in EVENTS}


def _by_lock(run: PhaseProfile, names: TakerNames) -> dict[str, _Sums]:
    """By label: the events with the lock held, and ``held``, the instructions meanwhile."""
    sums: dict[str, _Sums] = {}
    for use in run.locks or ():
        for site, taker in zip(use.sites, names.of(use), strict=True):
            here = sums.setdefault(taker.label, dict.fromkeys(("held", *EVENTS), 0.0))
            for field in here:
                here[field] += getattr(site, field)
    return sums


def _phase(phase: PhaseRecord, blocks: Sequence[SeedProfiles]) -> MissedInPhase | None:
    arms = [[b.base for b in blocks], [b.patched for b in blocks]]
    runs = [run for arm in arms for run in arm]
    unit = unit_of(phase, runs)
    if unit is None or not all(run.memory is not None and run.memory.by_lock for run in runs):
        return None
    names = TakerNames([use for run in runs for use in run.locks or ()])
    units = [[run.units[unit[0]] for run in arm] for arm in arms]
    in_all = [[_in_all(run) for run in arm] for arm in arms]
    by_lock = [[_by_lock(run, names) for run in arm] for arm in arms]
    total = {
        event: per([[sums[event] for sums in arm] for arm in in_all], units) for event in EVENTS
    }
    held = {}
    # A lock that some run never took is none that many CPUs meet at.
    for label in set.intersection(*(set(run) for arm in by_lock for run in arm)):
        sums = [[run[label] for run in arm] for arm in by_lock]
        instructions = [[each["held"] for each in arm] for arm in sums]
        pairs = {
            event: ratio([[each[event] for each in arm] for arm in sums], instructions)
            for event in EVENTS
        }
        if all(pairs.values()):
            held[label] = MissedEach(
                **{event: (pair.base, pair.patched) for event, pair in pairs.items() if pair}
            )
    return MissedInPhase(
        unit_title=unit[1],
        total=MissedEach(**{event: (pair.base, pair.patched) for event, pair in total.items()}),
        held=held,
    )


def missed_in_phases(
    manifest: Manifest, records: Sequence[RunRecord], profiles: Sequence[Profile]
) -> dict[tuple[str, str], MissedInPhase]:
    """By case and phase, of the diagnostic runs that model the manifest's machine.

    Runs of a lab that did not count by lock have none.
    """
    by_phase: dict[tuple[str, str], MissedInPhase] = {}
    for twin in manifest.twins:
        if twin.observe != "memory" or twin.machine != manifest.machine:
            continue
        for case, phase, blocks in profiled_phases(manifest, records, profiles, twin.name):
            missed = _phase(phase, blocks)
            if missed is not None:
                by_phase[case.name, phase.name] = missed
    return by_phase
