"""Misses of a modelled machine's caches and TLBs, per unit of work and paired by seed: pure.

They are counted in diagnostic runs of the judged guests; nothing here reaches a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiment.machine import MachineSpec
from reports import paired
from reports.attribution import SeedProfiles, path_unit, profiled_phases
from reports.attribution_model import Arm
from reports.memory_model import MemoryComparison, Missed, MissedIn
from reports.paired import Floats, Paired
from results.profile import IDLE_PROGRAM, Misses, PhaseProfile, Profile
from results.record import CaseRecord, Manifest, PhaseRecord, RunRecord, TwinRecord

EVENTS = tuple(Misses.model_fields)
MOST_ROWS = 60


class _Key(NamedTuple):
    name: str
    user: bool


def weights(machine: MachineSpec) -> Mapping[str, float]:
    """Cycles that each event adds, of accesses that wait for each other.

    A miss of a level adds the way from there to the next one; what is prefetched is there when it
    is asked for, and a miss of the first TLB that the second has is hidden.
    """
    cycles = machine.cycles
    return {
        "l1d": cycles.l2,
        "l1i": cycles.l2,
        "l2": cycles.llc - cycles.l2,
        "llc": cycles.memory - cycles.llc,
        "walks": cycles.walk,
    }


def _of(phase: PhaseProfile) -> dict[_Key, tuple[str, Misses]]:
    """The file and the misses of every function and user file, but of what idles."""
    assert phase.memory is not None
    misses_of: dict[_Key, tuple[str, Misses]] = {
        _Key(function.name, False): (function.file, function) for function in phase.memory.kernel
    }
    for name, misses in phase.memory.user.items():
        if name != IDLE_PROGRAM:
            misses_of[_Key(name, True)] = ("", misses)
    return misses_of


class _Table:
    """Events of both arms: arrays (seeds, keys), by arm and event; ``units`` (seeds, 1) by arm."""

    def __init__(self, blocks: Sequence[SeedProfiles], unit: str, machine: MachineSpec) -> None:
        arms = ([b.base for b in blocks], [b.patched for b in blocks])
        runs = [[_of(phase) for phase in arm] for arm in arms]
        self.keys = sorted({key for arm in runs for run in arm for key in run})
        self.files: dict[_Key, str] = {}
        for run in (run for arm in runs for run in arm):
            for key, (file, _) in run.items():
                self.files[key] = self.files.get(key) or file
        self.units = [np.array([[phase.units[unit]] for phase in arm]) for arm in arms]
        self.busy = [np.array([[float(phase.busy)] for phase in arm]) for arm in arms]
        nothing = ("", Misses())
        self.events: list[dict[str, Floats]] = []
        for arm in runs:
            by_seed = [[run.get(key, nothing)[1] for key in self.keys] for run in arm]
            shape = len(arm), len(self.keys)
            self.events.append({
                event: np.array([[float(getattr(each, event)) for each in run] for run in by_seed])
                .reshape(shape)
                for event in EVENTS
            })  # fmt: skip
        for events in self.events:
            parts = [weight * events[event] for event, weight in weights(machine).items()]
            events["cycles"] = np.sum(parts, axis=0)

    def each(self) -> list[dict[str, Paired]]:
        """Each event of every column, per unit."""
        by_event = {
            event: self.per([arm[event] for arm in self.events]) for event in (*EVENTS, "cycles")
        }
        return [
            {event: of_columns[column] for event, of_columns in by_event.items()}
            for column in range(len(self.keys))
        ]

    def summed(self, columns: Sequence[int]) -> dict[str, Paired]:
        """Each event over these columns, per unit."""
        return {
            event: self.per([arm[event][:, columns].sum(axis=1, keepdims=True)
                             for arm in self.events])[0]
            for event in (*EVENTS, "cycles")
        }  # fmt: skip

    def per(self, arms: Sequence[Floats]) -> list[Paired]:
        """Quantities by arm, of shape (seeds, quantities), per unit."""
        base, patched = (arm / units for arm, units in zip(arms, self.units, strict=True))
        return paired.columns(base, patched)

    def only_in(self, column: int) -> Arm:
        """The arm that alone has any event of a column."""
        present = [any(arm[event][:, column].any() for event in EVENTS) for arm in self.events]
        return "" if all(present) else "base" if present[0] else "patched"


def _order(row: MissedIn) -> tuple[float, float, str]:
    return -abs(row.cycles.difference), -(row.cycles.base + row.cycles.patched), row.name


def _phase(
    twin: TwinRecord, case: CaseRecord, phase: PhaseRecord, blocks: Sequence[SeedProfiles]
) -> MemoryComparison | None:
    both = [profile for block in blocks for profile in (block.base, block.patched)]
    unit = path_unit(phase, both)
    if twin.machine is None or unit is None or any(profile.memory is None for profile in both):
        return None
    table = _Table(blocks, unit[0], twin.machine)
    rows = sorted(
        (
            MissedIn(
                name=key.name, file=table.files[key], user=key.user,
                only_in=table.only_in(column), **events,
            )
            for column, (key, events) in enumerate(zip(table.keys, table.each(), strict=True))
        ),
        key=_order,
    )  # fmt: skip
    listed = {_Key(row.name, row.user) for row in rows[:MOST_ROWS]}
    rest = [column for column, key in enumerate(table.keys) if key not in listed]
    cycles = [
        busy + events["cycles"].sum(axis=1, keepdims=True)
        for busy, events in zip(table.busy, table.events, strict=True)
    ]
    return MemoryComparison(
        twin=twin.name,
        machine=twin.machine.name,
        machine_title=twin.machine.title,
        case=case.name,
        phase=phase.name,
        unit_title=unit[1],
        seeds=tuple(block.seed for block in blocks),
        instructions=table.per(table.busy)[0],
        total=Missed(**table.summed(range(len(table.keys)))),
        cycles=table.per(cycles)[0],
        rows=tuple(rows[:MOST_ROWS]),
        others=Missed(**table.summed(rest)) if rest else None,
        other_count=len(rest),
        unmapped=(
            sum(block.base.memory.unmapped for block in blocks if block.base.memory),
            sum(block.patched.memory.unmapped for block in blocks if block.patched.memory),
        ),
    )


def compare_memory(
    manifest: Manifest, records: Sequence[RunRecord], profiles: Sequence[Profile]
) -> tuple[MemoryComparison, ...]:
    """One comparison a twin that models a machine, case and phase, where both arms have counts."""
    comparisons = []
    for twin in manifest.twins:
        if twin.machine is None:
            continue
        for case, phase, blocks in profiled_phases(manifest, records, profiles, twin.name):
            comparison = _phase(twin, case, phase, blocks)
            comparisons += [comparison] if comparison else []
    return tuple(comparisons)
