"""Waits for locks in diagnostic runs, per unit of work, paired by seed: pure.

They are a deterministic result of hold times and of the order in which vCPUs take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analysis import counts, paired
from analysis.counts import FAVOURITE_UNIT, BothArms, Recorded
from analysis.explain import Explanation
from analysis.explain.locks import MANY, SLOW_PATHS
from analysis.paired import Paired
from results.profile import PhaseLocks, PhaseProfile, Wait
from results.record import CaseRecord, Manifest, PhaseRecord, Record, TwinRecord

# Without a profile counts are given per time of the guest's clock.
WITHOUT_PROFILE = {"exact": "virtual ms", "wall": "ms"}
# A phase's waits, and its profile where there is one.
_Run = tuple[PhaseLocks, PhaseProfile | None]


class WaitRow(Record):
    """Waits of one caller: events per 1,000 units, and virtual ns per unit.

    ``chain`` is the most frequent chain of callers, the innermost first.
    """

    caller: str
    flags: str
    chain: tuple[str, ...]
    count: Paired
    wait: Paired


class LockComparison(Record):
    """Waits of one phase of one case in diagnostic runs.

    ``slow_share`` is the share of all instructions that ran in the slow path of spin
    locks (a fraction), ``slow_entries`` how often it was entered per 1,000 units; both
    from the probe, None on one vCPU or without it.  ``virtual_ns`` is virtual time per
    unit.  ``dropped`` counts lost events on base and patched.  ``in_wall`` is true where the
    guest's clock was the host's: times are real ns then, also those that are called virtual here.
    """

    twin: str
    vcpus: int
    jobs: int
    metronome_ns: int
    case: str
    phase: str
    unit_title: str
    seeds: tuple[int, ...]
    virtual_ns: Paired
    waits: tuple[WaitRow, ...] = ()
    dropped: tuple[int, int] = (0, 0)
    slow_share: Paired | None = None
    slow_entries: Paired | None = None
    in_wall: bool = False

    @property
    def ns(self) -> str:
        """Unit of the times as printed."""
        return "real ns" if self.in_wall else "virtual ns"


def _group(wait: Wait) -> tuple[str, str]:
    return (wait.callers[0] if wait.callers else "[unknown]", wait.flags)


def _phase(
    manifest: Manifest,
    twin: TwinRecord,
    case: CaseRecord,
    phase: PhaseRecord,
    blocks: Sequence[BothArms[_Run]],
) -> LockComparison:
    arms = [[block.base for block in blocks], [block.patched for block in blocks]]
    profiles = [profile for arm in arms for _, profile in arm if profile is not None]
    complete = len(profiles) == 2 * len(blocks)
    mode = manifest.experiment.mode
    unit, title = "", WITHOUT_PROFILE[mode]
    if complete:
        unit, title = counts.unit_of(phase, profiles, FAVOURITE_UNIT) or (unit, title)
    units = [
        [
            profile.units[unit] if unit and profile else locks.virtual_ns / 1e6
            for locks, profile in arm
        ]
        for arm in arms
    ]

    def table(of: Callable[[PhaseLocks, PhaseProfile | None], float]) -> list[list[float]]:
        return [[float(of(*run)) for run in arm] for arm in arms]

    chains: dict[tuple[str, str], dict[tuple[str, ...], int]] = {}
    for wait in (wait for arm in arms for locks, _ in arm for wait in locks.waits):
        of_group = chains.setdefault(_group(wait), {})
        of_group[wait.callers] = of_group.get(wait.callers, 0) + wait.count

    def total(group: tuple[str, str], field: str, scale: float) -> Paired:
        sums = table(
            lambda locks, _: sum(getattr(wait, field) for wait in locks.waits
                                 if _group(wait) == group)
        )  # fmt: skip
        return paired.per(sums, units, scale)

    # Grouped by innermost caller and kind of lock, the longest first.
    waits = [
        WaitRow(
            caller=group[0],
            flags=group[1],
            chain=min(of_group, key=lambda chain: (-of_group[chain], chain)),
            count=total(group, "count", MANY),
            wait=total(group, "total_ns", 1.0),
        )
        for group, of_group in chains.items()
    ]
    waits.sort(key=lambda row: (-(row.wait.base + row.wait.patched), row.caller, row.flags))

    def slow(field: str) -> list[list[float]]:
        return table(
            lambda _, profile: sum(getattr(function, field)
                                   for function in (profile.kernel if profile else ())
                                   if function.name in SLOW_PATHS)
        )  # fmt: skip

    share = entries = None
    if twin.guest.vcpus > 1 and complete and all(run.instructions for run in profiles):
        everything = table(lambda _, profile: profile.instructions if profile else 0.0)
        share = paired.ratio(slow("instructions"), everything)
        entries = paired.per(slow("calls"), units, MANY)
    dropped = [sum(locks.dropped for locks, _ in arm) for arm in arms]
    return LockComparison(
        twin=twin.name,
        vcpus=twin.guest.vcpus,
        jobs=twin.guest.jobs,
        metronome_ns=twin.guest.metronome_ns,
        case=case.name,
        phase=phase.name,
        unit_title=title,
        seeds=tuple(block.seed for block in blocks),
        virtual_ns=paired.per(table(lambda locks, _: locks.virtual_ns), units),
        waits=tuple(waits),
        dropped=(dropped[0], dropped[1]),
        slow_share=share,
        slow_entries=entries,
        in_wall=mode == "wall",
    )


def compare_locks(recorded: Recorded) -> tuple[LockComparison, ...]:
    """One comparison a twin, case and phase with waits on both arms, in the manifest's order.

    Units of work come from the profile of the same run; without one, counts are per
    millisecond of the guest's clock.
    """
    profiles = {each.run_id: {phase.phase: phase for phase in each.phases}
                for each in recorded.profiles}  # fmt: skip
    runs = {
        each.run_id: {
            locks.phase: (locks, profiles.get(each.run_id, {}).get(locks.phase))
            for locks in each.phases
            if locks.virtual_ns > 0
        }
        for each in recorded.locks
    }
    return tuple(
        _phase(recorded.manifest, twin, *here)
        for twin in recorded.manifest.twins
        for here in counts.paired_phases(recorded, runs, twin.name)
    )


EXPLANATION = Explanation("locks", "Waits for locks", 20, LockComparison, compare_locks)
