"""Rows of locks: sums over the classes of one label, per unit of work, paired by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from reports import paired
from reports.lock_identity import ClassId, Identity, class_id
from reports.lock_model import LockRow, SiteRow
from reports.paired import Paired, Table, per, ratio
from results.locks import PhaseLocks
from results.profile import PhaseProfile
from results.record import PhaseRecord

FAVOURITE_UNIT = "folio"
# Counts that are small for one folio are given for a thousand.
MANY = 1000.0
# Shown first: what the series of the page cache are about.
FIRST = ("i_pages.xa_lock", "lruvec->lru_lock", "page-table locks")
# Less than this fraction is not "what moved most", however steady it is.
MOVED = 0.005
# Taken less than once in so many units, a lock is no part of the work: one long hold while a
# phase is set up would stand above all that matters.
RARE = 0.001
MOST_WAITERS = 3
# Functions in which a vCPU waits for a spin lock.
SLOW_PATHS = (
    "native_queued_spin_lock_slowpath",
    "queued_spin_lock_slowpath",
    "__pv_queued_spin_lock_slowpath",
)
READERS = " (read)"


class LockRun(NamedTuple):
    """One arm of one block: the phase's locks, and its profile where there is one."""

    locks: PhaseLocks
    profile: PhaseProfile | None


class SeedLocks(NamedTuple):
    """One seed on both arms."""

    seed: int
    base: LockRun
    patched: LockRun

    @property
    def arms(self) -> tuple[LockRun, LockRun]:
        """Base first."""
        return self.base, self.patched


class _Sum(NamedTuple):
    """Sums over the classes of one label in one run."""

    acquisitions: float
    hold_ns: float
    contentions: float
    wait_ns: float
    sites: Mapping[str, int]


NOTHING = _Sum(0.0, 0.0, 0.0, 0.0, {})
Identities = Mapping[ClassId, Identity]


def unit_of(phase: PhaseRecord, profiles: Sequence[PhaseProfile | None]) -> tuple[str, str] | None:
    """Name and title of the unit that counts are given per: folios, else the phase's first.

    Where folios are huge it is the first: how many folios there are is luck then.  None where
    some run counted none of them.
    """
    favourite = FAVOURITE_UNIT if phase.thp == "never" else ""
    for unit in sorted(phase.units, key=lambda unit: unit.name != favourite):
        if all(profile and profile.units.get(unit.name, 0.0) > 0 for profile in profiles):
            return unit.name, unit.title
    return None


def units_done(run: LockRun, unit: str) -> float:
    """Units of work of a run, above zero; without a unit's name, virtual milliseconds."""
    return run.profile.units[unit] if unit and run.profile else run.locks.virtual_ns / 1e6


def _sums(run: LockRun, identities: Identities) -> dict[str, _Sum]:
    sums: dict[str, _Sum] = {}
    for lock in run.locks.classes:
        label = identities[class_id(lock)].label
        so_far = sums.get(label, NOTHING)
        sites = dict(so_far.sites)
        for site in lock.waiters:
            sites[site.function] = sites.get(site.function, 0) + site.count
        sums[label] = _Sum(
            so_far.acquisitions + lock.acquisitions,
            so_far.hold_ns + lock.hold_total_ns,
            so_far.contentions + lock.contentions,
            so_far.wait_ns + lock.wait_total_ns,
            sites,
        )
    return sums


class _Rows:
    """The sums of every label by seed and arm, and the units of work to divide them by."""

    def __init__(
        self, blocks: Sequence[SeedLocks], unit: str, identities: tuple[Identities, Identities]
    ) -> None:
        self.units = [[units_done(run, unit) for run in arm] for arm in by_arm(blocks)]
        self.time = [[float(run.locks.virtual_ns) for run in arm] for arm in by_arm(blocks)]
        self.sums = [
            [_sums(run, identity) for run in arm]
            for arm, identity in zip(by_arm(blocks), identities, strict=True)
        ]
        self.labels = sorted({label for arm in self.sums for run in arm for label in run})

    def of(self, label: str, field: str) -> Table:
        return [[getattr(run.get(label, NOTHING), field) for run in arm] for arm in self.sums]

    def per_unit(self, label: str, field: str, scale: float = 1.0) -> Paired:
        return per(self.of(label, field), self.units, scale)

    def waiters(self, label: str) -> tuple[SiteRow, ...]:
        means: dict[str, list[float]] = {}
        for arm, (runs, units) in enumerate(zip(self.sums, self.units, strict=True)):
            for run, amount in zip(runs, units, strict=True):
                for function, count in run.get(label, NOTHING).sites.items():
                    both = means.setdefault(function, [0.0, 0.0])
                    both[arm] += MANY * count / amount / len(runs)
        rows = [SiteRow(function=f, base=b, patched=p) for f, (b, p) in means.items()]
        rows.sort(key=lambda row: (-(row.base + row.patched), row.function))
        return tuple(rows[:MOST_WAITERS])


def by_arm(blocks: Sequence[SeedLocks]) -> tuple[list[LockRun], list[LockRun]]:
    """The runs of base and of patched, seeds in the same order."""
    return [block.base for block in blocks], [block.patched for block in blocks]


def saturation(virtual_ns: float, hold_ns: float) -> float:
    """CPUs that keep one instance of a lock held all the time: virtual time over hold time.

    On one vCPU a unit of work takes T ns, S of them with the lock held.  N CPUs that
    share nothing else ask for N S / T of the lock's time (the utilisation law: Denning
    and Buzen, ACM Computing Surveys 10, 1978), and no more than all of it can be had.

    Raises:
        ValueError: a time that is not above zero.
    """
    if virtual_ns <= 0 or hold_ns <= 0:
        raise ValueError(f"times must be above zero: {virtual_ns}, {hold_ns}")
    return virtual_ns / hold_ns


def _saturation(rows: _Rows, label: str, identity: Identity) -> Paired | None:
    holds = rows.of(label, "hold_ns")
    shared = identity.instances in {"one", "unknown"} and not label.endswith(READERS)
    if not shared or not all(ns > 0 for arm in holds for ns in arm):
        return None
    cpus = [
        [saturation(time, ns) for time, ns in zip(times, arm, strict=True)]
        for times, arm in zip(rows.time, holds, strict=True)
    ]
    return paired.pair(cpus[0], cpus[1])


def _row(
    rows: _Rows, label: str, identity: Identity, printed: set[str], *, serial: bool
) -> LockRow:
    present = [any(label in run for run in arm) for arm in rows.sums]
    acquired, contended = rows.of(label, "acquisitions"), rows.of(label, "contentions")
    numbers: dict[str, object] = {}
    if serial:
        numbers["hold"] = rows.per_unit(label, "hold_ns")
        numbers["hold_each"] = ratio(rows.of(label, "hold_ns"), acquired)
        numbers["saturation"] = _saturation(rows, label, identity)
    else:
        numbers["contentions"] = rows.per_unit(label, "contentions", MANY)
        numbers["wait"] = rows.per_unit(label, "wait_ns")
        numbers["wait_each"] = ratio(rows.of(label, "wait_ns"), contended)
        numbers["waiters"] = rows.waiters(label)
    return LockRow.model_validate({
        "label": label,
        "printed": tuple(sorted(printed)),
        "by": identity.by,
        "instances": identity.instances,
        "acquisitions": rows.per_unit(label, "acquisitions"),
        "only_in": "" if all(present) else "base" if present[0] else "patched",
        **numbers,
    })  # fmt: skip


def _order(row: LockRow) -> tuple[int, float, float, str]:
    first = FIRST.index(row.label) if row.label in FIRST else len(FIRST)
    acquisitions = row.acquisitions
    if row.instances == "none" or max(acquisitions.base, acquisitions.patched) < RARE:
        first += 1
    extent = row.hold or row.wait or row.acquisitions
    moved = not extent.within_scatter and (extent.change is None or abs(extent.change) >= MOVED)
    size = extent.base + extent.patched
    return first, -abs(extent.difference) if moved else 0.0, -size, row.label


def lock_rows(
    blocks: Sequence[SeedLocks],
    unit: str,
    identities: tuple[Identities, Identities],
    *,
    serial: bool,
) -> tuple[LockRow, ...]:
    """Every lock seen on either arm; with ``serial`` its hold times, else its contention.

    The best known come first, then what moved most; on several vCPUs a lock that nobody
    waited for is left out.
    """
    rows = _Rows(blocks, unit, identities)
    agreed_on: dict[str, Identity] = {}
    spellings: dict[str, set[str]] = {}
    for arm, of_arm in zip(by_arm(blocks), identities, strict=True):
        for run in arm:
            for lock in run.locks.classes:
                identity = of_arm[class_id(lock)]
                agreed_on.setdefault(identity.label, identity)
                spellings.setdefault(identity.label, set()).add(lock.name)
    result = [_row(rows, label, agreed_on[label], spellings[label], serial=serial)
             for label in rows.labels]  # fmt: skip
    if not serial:
        result = [row for row in result if row.contended]
    return tuple(sorted(result, key=_order))
