"""Synthetic profiles and waits for locks: counts close to those of a 4K page-cache load."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from experiment.load import load_machine
from experiment.spec import Observed
from results.profile import (
    FunctionCount,
    Locks,
    LockSite,
    LockUse,
    PhaseLocks,
    PhaseProfile,
    Profile,
    Wait,
)
from results.record import (
    CaseRecord,
    Manifest,
    PhaseRecord,
    RatioRecord,
    RunRecord,
    TwinRecord,
    UnitRecord,
)
from results.session import MeasuredSession
from tests.analysis.factory import PHASES, ExactSession
from tests.analysis.measured import measured
from tests.values import but, data

UNITS = (
    UnitRecord(name="io", title="I/O"),
    UnitRecord(name="folio", title="folio added"),
    UnitRecord(name="fault", title="page fault"),
)
RATIOS = (
    RatioRecord(
        name="tree_walks_per_folio",
        title="tree walks per folio added",
        functions=("xas_load",),
        unit="folio",
    ),
)
# Instructions and calls per folio added: base, then patched; 0 is "not there".
MOVED: dict[tuple[str, str], tuple[float, float, float, float]] = {
    ("xas_load", "lib/xarray.c"): (634.6, 494.9, 9.09, 7.34),
    ("xas_start", "lib/xarray.c"): (163.6, 132.1, 9.09, 7.34),
    ("xas_descend", "lib/xarray.c"): (241.0, 192.3, 18.2, 14.7),
    ("__filemap_add_folio", "mm/filemap.c"): (402.7, 431.2, 1.0, 1.0),
    ("filemap_range_has_entry", "mm/filemap.c"): (58.0, 0.0, 1.0, 0.0),
    ("xas_get_order", "lib/xarray.c"): (0.0, 21.7, 0.0, 0.61),
    ("xa_get_order.constprop.0", "lib/xarray.c"): (36.4, 0.0, 0.9, 0.0),
    ("xa_get_order", "lib/xarray.c"): (0.0, 2.9, 0.0, 0.07),
}
# (file, instructions and calls per folio, how much evictions move it)
STEADY: dict[str, tuple[str, float, float, float]] = data(__file__, "steady")
USER = {"fio": 5400.0, "libc.so.6": 260.0, "ld-linux.so.2": 3.0}
FOLIOS_PER_IO = 0.612
# A patch moves what stands below it.
LINE = {"base": 240, "patched": 243}
MACHINE = load_machine(Path("ice-lake-sp"))


def counted(manifest: Manifest) -> Manifest:
    """The manifest with units and ratios in every phase, and a machine to estimate for."""

    def phase(record: PhaseRecord) -> PhaseRecord:
        return but(record, units=UNITS, ratios=RATIOS)

    def case(record: CaseRecord) -> CaseRecord:
        return but(record, phases=tuple(map(phase, record.phases)))

    return but(manifest, cases=tuple(map(case, manifest.cases)), machine=MACHINE)


@cache
def phase_profile(
    phase: str, seed: int, arm: str, *, ios: float = 160_000.0, vcpus: int = 1, slow: float = 0.0
) -> PhaseProfile:
    """One phase: evictions fall a little differently with each seed and arm."""
    shared = np.random.default_rng([seed, len(phase)])
    own = np.random.default_rng([seed, len(phase), arm == "patched"])
    ios = float(round(ios * math.exp(0.002 * shared.standard_normal())))
    folios = float(round(ios * FOLIOS_PER_IO * math.exp(0.0003 * own.standard_normal())))
    evictions = 0.5 * shared.standard_normal() + 0.5 * own.standard_normal()
    kernel = []
    for (name, file), (before, after, calls_before, calls_after) in MOVED.items():
        instructions, calls = (before, calls_before) if arm == "base" else (after, calls_after)
        if instructions:
            wobble = math.exp(0.0005 * own.standard_normal())
            kernel.append((name, file, instructions * wobble, calls * wobble))
    for name, (file, instructions, calls, moved) in STEADY.items():
        wobble = math.exp(moved * evictions * 0.3 + 0.0003 * own.standard_normal())
        if name == "native_queued_spin_lock_slowpath":
            instructions, calls = 40 * slow / 1000, slow / 1000
        if instructions:
            kernel.append((name, file, instructions * wobble, calls * wobble))
    functions = tuple(
        FunctionCount(
            name=name,
            file=file,
            instructions=round(instructions * folios),
            calls=round(calls * folios),
            line=LINE.get(arm, 0),
        )
        for name, file, instructions, calls in sorted(kernel)
    )
    user = {name: round(each * ios) for name, each in USER.items()}
    total = sum(f.instructions for f in functions) + sum(user.values())
    parts = [total // vcpus] * vcpus
    parts[0] += total - sum(parts)
    return PhaseProfile(
        phase=phase,
        instructions=total,
        kernel=functions,
        user=user,
        by_vcpu=tuple(parts),
        units={"io": ios, "folio": folios, "fault": float(round(1.02 * ios))},
    )


# Locks of a folio added: instances, whether they sleep, their variable, and who takes them:
# (shared, times taken, instructions held each time on base and on patched).
LOCKS: tuple[tuple[int, bool, str, dict[str, tuple[bool, float, int, int]]], ...] = data(
    __file__, "locks"
)


def lock_uses(phase: PhaseProfile, seed: int, arm: str) -> tuple[LockUse, ...]:
    """The locks of a phase: evictions move those that reclaim takes, a series its own."""
    wobble = math.exp(0.002 * np.random.default_rng([seed, arm == "patched", 9]).standard_normal())
    folios = phase.units["folio"]

    def site(function: str, taken: tuple[bool, float, int, int]) -> LockSite:
        shared, per_folio, before, after = taken
        times = round(per_folio * folios * (1 if function == "__filemap_add_folio" else wobble))
        return LockSite(
            function=function,
            file="",
            shared=shared,
            taken=times,
            held=times * (before if arm == "base" else after),
        )

    return tuple(
        LockUse(
            instances=instances,
            sleeps=sleeps,
            symbol=symbol,
            sites=tuple(site(*item) for item in sites.items()),
        )
        for instances, sleeps, symbol, sites in LOCKS
    )


@cache
def with_locks(phase: str, seed: int, arm: str) -> PhaseProfile:
    """The phase with the locks that were taken in it."""
    counted = phase_profile(phase, seed, arm)
    return but(counted, locks=lock_uses(counted, seed, arm))


def profiles(session: ExactSession, *, same: bool = False, locks: bool = True) -> list[Profile]:
    """A profile of every measured run; with ``same`` the patched arm counts what base does."""
    phase = with_locks if locks else phase_profile
    return [
        Profile(
            run_id=f"{case}-{block:03d}-{arm}",
            phases=tuple(phase(name, seed, "base" if same else arm) for name in PHASES[case]),
        )
        for case in PHASES
        for block, seed in enumerate(session.seeds)
        for arm in ("base", "patched")
    ]


def measured_with_counts(*, same: bool = False) -> MeasuredSession:
    """A session whose runs were counted; with ``same`` no function changed."""
    session = ExactSession()
    manifest = counted(session.manifest())
    return measured(manifest, session.records(), profiles(session, same=same))


def of_runs(
    session: ExactSession,
    change: Callable[[PhaseProfile, str, int], dict[str, object]],
    *,
    same: bool = False,
) -> list[Profile]:
    """The profiles of the judged runs with what ``change`` gives of a phase, arm and block."""
    changed = []
    for profile in profiles(session, same=same):
        _, block, arm = profile.run_id.rsplit("-", 2)
        phases = tuple(
            but(phase, **change(phase, "base" if same else arm, int(block)))
            for phase in profile.phases
        )
        changed.append(but(profile, phases=phases))
    return changed


FOLIOS = 1000.0


def twin(manifest: Manifest, name: str, observe: Observed, **guest: int) -> TwinRecord:
    """A diagnostic run of two seeds of the first case that models a machine."""
    return TwinRecord(
        name=name,
        observe=observe,
        machine=MACHINE,
        guest=but(manifest.guest, **guest),
        cases=("filemap-4k",),
        blocks=2,
    )


def twin_run(manifest: Manifest, name: str, arm: str, block: int) -> RunRecord:
    """A run of a diagnostic run in the first case."""
    run_id = f"filemap-4k-{block:03d}-{arm}-{name}"
    return RunRecord(
        run_id=run_id,
        case="filemap-4k",
        arm=arm,
        block=block,
        seed=manifest.seeds[block],
        twin=name,
        kernel_key="x",
        samples={"4k.bw": 50.0},
        fingerprint=run_id,
    )


def of_twin(
    manifest: Manifest, name: str, arms: Mapping[str, Sequence[dict[str, object]]], vcpus: int = 1
) -> tuple[list[RunRecord], list[Profile]]:
    """Its runs of a thousand folios, with what is counted in each by arm and seed."""
    records, profiles = [], []
    for arm, runs in arms.items():
        for block, counts in enumerate(runs):
            records.append(record := twin_run(manifest, name, arm, block))
            phase = phase_profile("4k", record.seed, "base", vcpus=vcpus)
            update = {"units": {"folio": FOLIOS}, **counts}
            profiles.append(Profile(run_id=record.run_id, phases=(but(phase, **update),)))
    return records, profiles


def with_twins(manifest: Manifest) -> Manifest:
    """The manifest with a twin of the first case, on several vCPUs."""
    guest = but(manifest.guest, vcpus=8, jobs=8, metronome_ns=20_000)
    twin = TwinRecord(
        name="callers", observe="contention", guest=guest, cases=("filemap-4k",), blocks=2
    )
    return but(manifest, twins=(twin,))


def _waits(arm: str, seed: int, folios: float) -> tuple[Wait, ...]:
    rng = np.random.default_rng([seed, arm == "patched", 7])
    rows = (
        (
            ("__filemap_add_folio", "filemap_add_folio", "page_cache_ra_unbounded"),
            "SPIN",
            (81.0, 63.0),
        ),
        (("__remove_mapping", "shrink_folio_list", "evict_folios"), "SPIN", (24.0, 19.5)),
        (("folio_lruvec_lock_irqsave", "folio_batch_move_lru"), "SPIN", (13.0, 13.1)),
        (("rmqueue_bulk", "get_page_from_freelist"), "SPIN", (4.0, 4.1)),
        (("do_fault_around", "do_fault", "__handle_mm_fault"), "READ", (0.4, 0.3)),
    )
    waits = []
    for callers, flags, (before, after) in rows:
        count = round(
            (after if arm == "patched" else before)
            / 1000
            * folios
            * math.exp(0.05 * rng.standard_normal())
        )
        waits.append(Wait(callers=callers, flags=flags, count=count, total_ns=count * 1450.0))
    return tuple(waits)


def twin_runs(
    manifest: Manifest, *, same: bool = False
) -> tuple[list[RunRecord], list[Profile], list[Locks]]:
    """Records, profiles and waits of all twins of the manifest."""
    records, counts, locks = [], [], []
    for twin in manifest.twins:
        for block in range(twin.blocks):
            for arm in ("base", "patched"):
                records.append(record := twin_run(manifest, twin.name, arm, block))
                run_id, seed = record.run_id, record.seed
                like = "base" if same else arm
                slow = 932.0 if like == "base" else 772.0
                profile = phase_profile(
                    "4k", seed, like, ios=40_000, vcpus=twin.guest.vcpus, slow=slow
                )
                counts.append(Profile(run_id=run_id, phases=(profile,)))
                waits = _waits(like, seed, profile.units["folio"])
                phase = PhaseLocks(phase="4k", virtual_ns=profile.instructions, waits=waits)
                locks.append(Locks(run_id=run_id, twin=twin.name, phases=(phase,)))
    return records, counts, locks
