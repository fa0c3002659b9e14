"""Waits for locks in diagnostic runs, per unit of work, paired by seed: pure.

They are a deterministic result of hold times and of the order in which vCPUs take turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from reports.lock_model import LockComparison, WaitRow
from reports.lock_rows import MANY, SLOW_PATHS, unit_of
from reports.paired import Paired, per, ratio
from results.locks import Locks, PhaseLocks, Wait
from results.profile import PhaseProfile, Profile
from results.record import CaseRecord, Manifest, PhaseRecord, RunRecord, TwinRecord

# Without a profile counts are given per time of the guest's clock.
WITHOUT_PROFILE = {"exact": "virtual ms", "wall": "ms"}


class LockRun(NamedTuple):
    """One arm of one block: the phase's waits, and its profile where there is one."""

    locks: PhaseLocks
    profile: PhaseProfile | None

    def units(self, unit: str) -> float:
        """Units of work, above zero; without a unit's name, virtual milliseconds."""
        return self.profile.units[unit] if unit and self.profile else self.locks.virtual_ns / 1e6


class SeedLocks(NamedTuple):
    """One seed on both arms."""

    seed: int
    base: LockRun
    patched: LockRun


def by_arm(blocks: Sequence[SeedLocks]) -> tuple[list[LockRun], list[LockRun]]:
    """The runs of base and of patched, seeds in the same order."""
    return [block.base for block in blocks], [block.patched for block in blocks]


def _blocks(
    manifest: Manifest, records: Sequence[RunRecord], locks: Mapping[str, Locks],
    profiles: Mapping[str, Profile], where: tuple[str, str, str],
) -> list[SeedLocks]:  # fmt: skip
    twin, case, phase = where
    by_block: dict[int, dict[str, tuple[int, LockRun]]] = {}
    for record in records:
        run_locks = locks.get(record.run_id)
        if (record.twin, record.case) != (twin, case) or record.samples is None or not run_locks:
            continue
        profile = profiles.get(record.run_id)
        profiles_of = {each.phase: each for each in profile.phases} if profile else {}
        for each in run_locks.phases:
            if each.phase == phase and each.virtual_ns > 0:
                run = LockRun(each, profiles_of.get(phase))
                by_block.setdefault(record.block, {})[record.arm] = (record.seed, run)
    return [
        SeedLocks(arms[manifest.base][0], arms[manifest.base][1], arms[manifest.patched][1])
        for _, arms in sorted(by_block.items())
        if manifest.base in arms and manifest.patched in arms
    ]


def _waits(blocks: Sequence[SeedLocks], unit: str) -> tuple[WaitRow, ...]:
    """Waits grouped by innermost caller and kind of lock, the longest first."""
    arms = by_arm(blocks)
    units = [[run.units(unit) for run in arm] for arm in arms]
    chains: dict[tuple[str, str], dict[tuple[str, ...], int]] = {}
    for arm in arms:
        for run in arm:
            for wait in run.locks.waits:
                of_group = chains.setdefault(_group(wait), {})
                of_group[wait.callers] = of_group.get(wait.callers, 0) + wait.count

    def total(group: tuple[str, str], field: str, scale: float) -> Paired:
        sums = [[float(sum(getattr(wait, field) for wait in run.locks.waits
                           if _group(wait) == group)) for run in arm] for arm in arms]  # fmt: skip
        return per(sums, units, scale)

    rows = [
        WaitRow(
            caller=group[0],
            flags=group[1],
            chain=min(of_group, key=lambda chain: (-of_group[chain], chain)),
            count=total(group, "count", MANY),
            wait=total(group, "total_ns", 1.0),
        )
        for group, of_group in chains.items()
    ]
    rows.sort(key=lambda r: (-(r.wait.base + r.wait.patched), r.caller, r.flags))
    return tuple(rows)


def _group(wait: Wait) -> tuple[str, str]:
    return (wait.callers[0] if wait.callers else "[unknown]", wait.flags)


def _slow_path(blocks: Sequence[SeedLocks], unit: str) -> tuple[Paired | None, Paired | None]:
    """Share of the slow path in everything, and entries into it per 1,000 units.

    None where the probe did not count.
    """
    arms = by_arm(blocks)
    if not all(run.profile and run.profile.instructions for arm in arms for run in arm):
        return None, None
    slow = [[[f for f in (run.profile.kernel if run.profile else ()) if f.name in SLOW_PATHS]
             for run in arm] for arm in arms]  # fmt: skip
    everything = [
        [float(run.profile.instructions) if run.profile else 0.0 for run in arm] for arm in arms
    ]
    units = [[run.units(unit) for run in arm] for arm in arms]
    instructions = [[float(sum(f.instructions for f in run)) for run in arm] for arm in slow]
    entries = [[float(sum(f.calls for f in run)) for run in arm] for arm in slow]
    return ratio(instructions, everything), per(entries, units, MANY)


def _phase(
    manifest: Manifest,
    twin: TwinRecord,
    case: CaseRecord,
    phase: PhaseRecord,
    blocks: Sequence[SeedLocks],
) -> LockComparison:
    mode = manifest.experiment.mode
    arms = by_arm(blocks)
    profiles = [run.profile for arm in arms for run in arm]
    unit, title = unit_of(phase, profiles) or ("", WITHOUT_PROFILE[mode])
    time = per(
        [[float(run.locks.virtual_ns) for run in arm] for arm in arms],
        [[run.units(unit) for run in arm] for arm in arms],
    )
    share, entries = (None, None) if twin.guest.vcpus == 1 else _slow_path(blocks, unit)
    base, patched = (sum(run.locks.dropped for run in arm) for arm in arms)
    return LockComparison(
        twin=twin.name,
        vcpus=twin.guest.vcpus,
        jobs=twin.guest.jobs,
        metronome_ns=twin.guest.metronome_ns,
        case=case.name,
        phase=phase.name,
        unit_title=title,
        seeds=tuple(block.seed for block in blocks),
        virtual_ns=time,
        waits=_waits(blocks, unit),
        dropped=(base, patched),
        slow_share=share,
        slow_entries=entries,
        in_wall=mode == "wall",
    )


def compare_locks(
    manifest: Manifest,
    records: Sequence[RunRecord],
    profiles: Sequence[Profile],
    locks: Sequence[Locks],
) -> tuple[LockComparison, ...]:
    """One comparison a twin, case and phase with waits on both arms, in the manifest's order.

    Units of work come from the profile of the same run; without one, counts are per
    millisecond of the guest's clock.
    """
    by_run = {each.run_id: each for each in locks}
    by_profile = {profile.run_id: profile for profile in profiles}
    result = []
    for twin in manifest.twins:
        for case in manifest.cases:
            for phase in case.phases:
                where = (twin.name, case.name, phase.name)
                blocks = _blocks(manifest, records, by_run, by_profile, where)
                if blocks:
                    result.append(_phase(manifest, twin, case, phase, blocks))
    return tuple(result)
