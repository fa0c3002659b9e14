"""Locks of the measured kernel, in the judged runs, per unit of work and paired by seed: pure.

The probe knows a lock by its address, and a profile has locks by the functions that took them.
Counts explain, they do not gate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from reports import paired
from reports.attribution import SeedProfiles, profiled_phases
from reports.lock_identity import Taker, TakerNames
from reports.lock_model import MeasuredLock, MeasuredLocks, TakenIn, WaitedFor
from reports.lock_rows import FIRST, MANY, MOVED, RARE, SLOW_PATHS, saturation, unit_of
from reports.paired import Floats, Paired, per
from results.profile import LockUse, PhaseProfile, Profile
from results.record import CaseRecord, Manifest, PhaseRecord, RunRecord

MOST_LISTED = 10
# Of who waited for whom.
MOST_PAIRS = 40


class _Spent(NamedTuple):
    taken: int = 0
    held: int = 0
    waits: int = 0
    waited: int = 0


TAKEN, HELD = map(_Spent._fields.index, ("taken", "held"))
T = TypeVar("T")


class _Between(NamedTuple):
    label: str
    waiter: str
    holder: str


class _Run:
    """The locks of one run by their labels: sums, sums by site, and the longest held instance.

    ``pairs`` are waits, handovers and times waited of who waited for whom.
    """

    def __init__(self, phase: PhaseProfile, names: TakerNames) -> None:
        self.sums: dict[str, _Spent] = {}
        self.sites: dict[str, dict[str, _Spent]] = {}
        self.single: Counter[str] = Counter()
        self.known: dict[str, Taker] = {}
        self.pairs: dict[_Between, tuple[int, int, int]] = {}
        for use in phase.locks or ():
            alone: Counter[str] = Counter()
            for site, taker in zip(use.sites, names.of(use), strict=True):
                spent = _Spent(site.taken, site.held, site.waits, site.waited)
                by_site = self.sites.setdefault(taker.label, {})
                self.sums[taker.label] = _sum(self.sums.get(taker.label, _Spent()), spent)
                by_site[site.function] = _sum(by_site.get(site.function, _Spent()), spent)
                self.known.setdefault(taker.label, taker)
                alone[taker.label] += 0 if site.shared else site.held
            self._add_pairs(use, names)
            for label, hold in alone.items() if use.instances == 1 else ():
                self.single[label] = max(self.single[label], hold)

    def _add_pairs(self, use: LockUse, names: TakerNames) -> None:
        labels = {
            (site.function, site.shared): taker.label
            for site, taker in zip(use.sites, names.of(use), strict=True)
        }
        for wait in use.pairs:
            # Who waits on from the phase before has taken nothing in this one.
            label = labels.get((wait.waiter, wait.shared), next(iter(labels.values())))
            key = _Between(label, wait.waiter, wait.holder)
            waits, handovers, waited = self.pairs.get(key, (0, 0, 0))
            self.pairs[key] = (waits + wait.waits, handovers + wait.handovers, waited + wait.waited)


def _sum(first: _Spent, second: _Spent) -> _Spent:
    return _Spent(*(a + b for a, b in zip(first, second, strict=True)))


class _Phase:
    """Both arms' runs of one phase, base first, seeds in the same order."""

    def __init__(self, blocks: Sequence[SeedProfiles], unit: str, names: TakerNames) -> None:
        arms = [[b.base for b in blocks], [b.patched for b in blocks]]
        self.units = [[phase.units[unit] for phase in arm] for arm in arms]
        self.busy = [[float(phase.busy) for phase in arm] for arm in arms]
        self.runs = [[_Run(phase, names) for phase in arm] for arm in arms]
        self.labels = sorted({label for arm in self.runs for run in arm for label in run.sums})

    def _counts(self, keys: Sequence[T], spent: Callable[[_Run, T], _Spent]) -> Floats:
        """Of shape (2 arms, seeds, keys, fields of what is spent)."""
        rows = [[[spent(run, key) for key in keys] for run in arm] for arm in self.runs]
        shape = (len(rows), len(rows[0]), len(keys), len(_Spent._fields))
        return np.array(rows, dtype=np.float64).reshape(shape)

    def _per_unit(self, counts: Floats) -> Iterator[list[Paired]]:
        """A list a field of what is spent, a pair a key.

        All at once: a session has tens of thousands, and each array has a price.
        """
        for field in np.moveaxis(counts, -1, 0):
            yield paired.columns(*(
                arm / np.array(units)[:, None] for arm, units in zip(field, self.units, strict=True)
            ))  # fmt: skip

    def rows(self) -> list[MeasuredLock]:
        """One for each label."""
        counts = self._counts(self.labels, lambda run, label: run.sums.get(label, _Spent()))
        taken, held, waits, waited = self._per_unit(counts)
        held_each = paired.ratios(counts[..., HELD], counts[..., TAKEN])
        happened = [_Spent(*row) for row in np.any(counts, axis=(0, 1)).tolist()]
        sites = self._sites()
        rows = []
        for at, label in enumerate(self.labels):
            present = [any(label in run.sums for run in arm) for arm in self.runs]
            taker = next(run.known[label] for arm in self.runs for run in arm if label in run.known)
            rows.append(MeasuredLock(
                label=label,
                by=taker.by,
                instances=taker.instances,
                sleeps=taker.sleeps,
                taken=taken[at],
                held=held[at],
                held_each=held_each[at],
                waits=waits[at] if happened[at].waits else None,
                waited=waited[at] if happened[at].waited else None,
                saturation=self._saturation(label, taker),
                sites=sites[label],
                only_in="" if all(present) else "base" if present[0] else "patched",
            ))  # fmt: skip
        return rows

    def _saturation(self, label: str, taker: Taker) -> Paired | None:
        """Of the instance that is held longest; None of locks of which there are many."""
        held = [[float(run.single[label]) for run in arm] for arm in self.runs]
        if taker.instances not in ("one", "unknown") or taker.sleeps or not all(map(all, held)):
            return None
        cpus = [
            [saturation(time, ns) for time, ns in zip(times, arm, strict=True)]
            for times, arm in zip(self.busy, held, strict=True)
        ]
        return paired.pair(cpus[0], cpus[1])

    def pairs(self) -> tuple[WaitedFor, ...]:
        """Who waited for whom, the longest first."""
        rows = []
        for key in {key for arm in self.runs for run in arm for key in run.pairs}:
            waits, handovers, waited = (
                [[float(run.pairs.get(key, (0, 0, 0))[at]) for run in arm] for arm in self.runs]
                for at in range(3)
            )
            rows.append(WaitedFor(
                **key._asdict(), waits=per(waits, self.units, MANY),
                handovers=per(handovers, self.units, MANY), waited=per(waited, self.units),
            ))  # fmt: skip
        rows.sort(key=lambda row: (
            -(row.waited.base + row.waited.patched), -(row.waits.base + row.waits.patched),
            row.label, row.waiter, row.holder,
        ))  # fmt: skip
        return tuple(rows[:MOST_PAIRS])

    def _sites(self) -> dict[str, tuple[TakenIn, ...]]:
        """Where each lock is taken, the longest held first."""
        keys = sorted({
            (label, function) for arm in self.runs for run in arm
            for label, sites in run.sites.items() for function in sites
        })  # fmt: skip
        counts = self._counts(
            keys, lambda run, key: run.sites.get(key[0], {}).get(key[1], _Spent())
        )
        acquisitions, held = self._per_unit(counts[..., : HELD + 1])
        held_each = paired.ratios(counts[..., HELD], counts[..., TAKEN])
        sites: dict[str, list[TakenIn]] = {label: [] for label in self.labels}
        for at, (label, function) in enumerate(keys):
            sites[label].append(TakenIn(
                function=function, taken=acquisitions[at], held=held[at], held_each=held_each[at],
            ))  # fmt: skip
        for of_lock in sites.values():
            of_lock.sort(key=lambda site: (-(site.held.base + site.held.patched), site.function))
        return {label: tuple(of_lock) for label, of_lock in sites.items()}


def _moved(row: MeasuredLock) -> bool:
    change = row.held.change
    often = max(row.taken.base, row.taken.patched) >= RARE
    return often and not row.held.within_scatter and (change is None or abs(change) >= MOVED)


def _order(row: MeasuredLock) -> tuple[bool, int, float, str]:
    first = FIRST.index(row.label) if row.label in FIRST else len(FIRST)
    return row.sleeps, first, -(row.held.base + row.held.patched), row.label


def _uses(blocks: Iterable[SeedProfiles]) -> list[LockUse]:
    return [use for block in blocks for phase in (block.base, block.patched)
            for use in phase.locks or ()]  # fmt: skip


def _phase(
    case: CaseRecord, phase: PhaseRecord, blocks: Sequence[SeedProfiles], vcpus: int
) -> MeasuredLocks | None:
    both = [run for block in blocks for run in (block.base, block.patched)]
    unit = unit_of(phase, both)
    if unit is None or not both or any(run.locks is None for run in both):
        return None
    table = _Phase(blocks, unit[0], TakerNames(_uses(blocks)))
    rows = sorted(table.rows(), key=_order)
    spinning = [row for row in rows if not row.sleeps]
    moved = max(filter(_moved, spinning), key=lambda row: abs(row.held.difference), default=None)
    # What moved most stands among the listed, wherever its hold time would put it.
    listed = spinning[:MOST_LISTED]
    if moved is not None and moved not in listed:
        rows.remove(moved)
        rows.insert(len(FIRST), moved)
    entries = [
        [float(sum(f.calls for f in run.kernel if f.name in SLOW_PATHS)) for run in arm]
        for arm in ([b.base for b in blocks], [b.patched for b in blocks])
    ]
    return MeasuredLocks(
        case=case.name,
        phase=phase.name,
        unit_title=unit[1],
        seeds=tuple(block.seed for block in blocks),
        vcpus=vcpus,
        busy=per(table.busy, table.units),
        rows=tuple(rows),
        listed=min(len(spinning), MOST_LISTED),
        moved_most=moved.label if moved else "",
        lost=(sum(b.base.lost_locks for b in blocks), sum(b.patched.lost_locks for b in blocks)),
        slow_entries=per(entries, table.units, MANY) if vcpus > 1 else None,
        pairs=table.pairs(),
    )


def measured_locks(
    manifest: Manifest, records: Sequence[RunRecord], profiles: Sequence[Profile]
) -> tuple[MeasuredLocks, ...]:
    """One comparison a case and phase whose runs' locks were watched on both arms."""
    result = []
    for case, phase, blocks in profiled_phases(manifest, records, profiles):
        measured = _phase(case, phase, blocks, manifest.guest.vcpus)
        result += [measured] if measured else []
    return tuple(result)
