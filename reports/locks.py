"""What the twins saw of locks, per unit of work, paired by seed: pure.

Hold times and acquisitions are read on one vCPU, where nothing runs in between;
contention and waits on several, where they are a deterministic result of hold times
and of the order in which vCPUs take turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reports.lock_identity import agreed, identify
from reports.lock_model import LockComparison, WaitRow
from reports.lock_rows import (
    MANY,
    SLOW_PATHS,
    Identities,
    LockRun,
    SeedLocks,
    by_arm,
    lock_rows,
    unit_of,
    units_done,
)
from reports.paired import Paired, per, ratio
from results.locks import LockClass, Locks, Wait
from results.profile import Profile
from results.record import CaseRecord, Manifest, PhaseRecord, RunRecord, TwinRecord

# Without a profile counts are given per time of the guest's clock.
WITHOUT_PROFILE = {"exact": "virtual ms", "wall": "ms"}
MOST_LISTED = 10


def _identities(
    manifest: Manifest, records: Sequence[RunRecord], locks: Sequence[Locks]
) -> dict[str, Identities]:
    """Identities of the classes by kernel, from all twins that booted that kernel."""
    kernels = {
        (twin.name, arm): kernel.key for twin in manifest.twins
        for arm, kernel in twin.kernels.items()
    }  # fmt: skip
    of_run = {r.run_id: kernels.get((r.twin, r.arm)) for r in records if r.twin}
    classes: dict[str, list[LockClass]] = {}
    for run_locks in locks:
        kernel = of_run.get(run_locks.run_id)
        if kernel is not None:
            classes.setdefault(kernel, []).extend(c for p in run_locks.phases for c in p.classes)
    return agreed({kernel: identify(rows) for kernel, rows in classes.items()})


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
    units = [[units_done(run, unit) for run in arm] for arm in arms]
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

    Of all instructions where the probe counted, of perf's samples where that sampled;
    samples know no entries.
    """
    arms = by_arm(blocks)
    if all(run.locks.samples for arm in arms for run in arm):
        sampled = [[float(sum(w.count for w in run.locks.waits)) for run in arm] for arm in arms]
        return ratio(sampled, [[float(run.locks.samples) for run in arm] for arm in arms]), None
    if not all(run.profile and run.profile.instructions for arm in arms for run in arm):
        return None, None
    slow = [[[f for f in (run.profile.kernel if run.profile else ()) if f.name in SLOW_PATHS]
             for run in arm] for arm in arms]  # fmt: skip
    everything = [
        [float(run.profile.instructions) if run.profile else 0.0 for run in arm] for arm in arms
    ]
    units = [[units_done(run, unit) for run in arm] for arm in arms]
    instructions = [[float(sum(f.instructions for f in run)) for run in arm] for arm in slow]
    entries = [[float(sum(f.calls for f in run)) for run in arm] for arm in slow]
    return ratio(instructions, everything), per(entries, units, MANY)


def _phase(
    manifest: Manifest, twin: TwinRecord, case: CaseRecord, phase: PhaseRecord,
    blocks: Sequence[SeedLocks], identities: tuple[Identities, Identities],
) -> LockComparison:  # fmt: skip
    mode = manifest.experiment.mode
    profiles = [run.profile for block in blocks for run in block.arms]
    unit, title = unit_of(phase, profiles) or ("", WITHOUT_PROFILE[mode])
    serial = twin.guest.vcpus == 1
    rows = lock_rows(blocks, unit, identities, serial=serial)
    arms = by_arm(blocks)
    time = per([[float(run.locks.virtual_ns) for run in arm] for arm in arms],
               [[units_done(run, unit) for run in arm] for arm in arms])  # fmt: skip
    sampled = twin.observe == "perf"
    share, entries = (None, None) if serial and not sampled else _slow_path(blocks, unit)
    return LockComparison(
        twin=twin.name,
        observe=twin.observe,
        flavour=twin.flavour,
        other_kernel=twin.flavour != manifest.experiment.kernel.flavour,
        vcpus=twin.guest.vcpus,
        jobs=twin.guest.jobs,
        metronome_ns=twin.guest.metronome_ns,
        case=case.name,
        phase=phase.name,
        unit_title=title,
        seeds=tuple(block.seed for block in blocks),
        virtual_ns=time,
        rows=rows,
        listed=min(len(rows), MOST_LISTED),
        waits=_waits(blocks, unit),
        dropped=(sum(run.locks.dropped for run in arms[0]),
                 sum(run.locks.dropped for run in arms[1])),
        slow_share=share,
        slow_entries=entries,
        in_wall=mode == "wall",
    )  # fmt: skip


def compare_locks(
    manifest: Manifest, records: Sequence[RunRecord], profiles: Sequence[Profile],
    locks: Sequence[Locks],
) -> tuple[LockComparison, ...]:  # fmt: skip
    """One comparison a twin, case and phase with locks on both arms, in the manifest's order.

    Units of work come from the profile of the same run; without one, counts are per
    millisecond of the guest's clock.
    """
    identities = _identities(manifest, records, locks)
    by_run = {each.run_id: each for each in locks}
    by_profile = {profile.run_id: profile for profile in profiles}
    result = []
    for twin in manifest.twins:
        if not {manifest.base, manifest.patched} <= twin.kernels.keys():
            continue
        of_base, of_patched = (
            identities.get(twin.kernels[arm].key, {}) for arm in (manifest.base, manifest.patched)
        )
        for case in manifest.cases:
            for phase in case.phases:
                where = (twin.name, case.name, phase.name)
                blocks = _blocks(manifest, records, by_run, by_profile, where)
                if blocks:
                    both = (of_base, of_patched)
                    result.append(_phase(manifest, twin, case, phase, blocks, both))
    return tuple(result)
