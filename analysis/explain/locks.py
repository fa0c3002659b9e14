"""Locks of the measured kernel, counted in the judged runs: pure.

The probe knows a lock by its address, and a profile has locks by the functions that took them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from analysis import counts, paired
from analysis.counts import FAVOURITE_UNIT, Arm, CountedPhase, Recorded
from analysis.explain import Explanation
from analysis.lock_identity import Instances, Taker, TakerBy, TakerNames
from analysis.paired import Paired
from results.profile import LockUse, PhaseProfile
from results.record import Record

MOST_LISTED = 10
# Of who waited for whom.
MOST_PAIRS = 40
# Counts that are small for one folio are given for a thousand.
MANY = 1000.0
# Shown first: what the series of the page cache are about.
FIRST = ("i_pages.xa_lock", "lruvec->lru_lock", "page-table locks")
# Less than this fraction is not "what moved most", however steady it is.
MOVED = 0.005
# Taken less than once in so many units, a lock is no part of the work: one long hold while a
# phase is set up would stand above all that matters.
RARE = 0.001
# Functions in which a vCPU waits for a spin lock.
SLOW_PATHS = (
    "native_queued_spin_lock_slowpath",
    "queued_spin_lock_slowpath",
    "__pv_queued_spin_lock_slowpath",
)


class TakenIn(Record):
    """A lock as one function takes it: per unit of work, and held each time; see MeasuredLock."""

    function: str
    taken: Paired
    held: Paired
    held_each: Paired | None


class MeasuredLock(Record):
    """One lock, or all locks of one label, in the judged runs.

    ``held`` is instructions from taking to letting go, of the vCPU that held it: per unit of
    work, and for each time.  Of a lock that ``sleeps`` they hold the sleep and whoever ran
    meanwhile.  ``waits`` are the times that it was held by another, ``waited`` the instructions of
    all vCPUs meanwhile, per unit; None where nobody waited.  ``saturation`` is the number of CPUs
    that keep the longest held instance held all the time.
    """

    label: str
    by: TakerBy
    instances: Instances
    sleeps: bool
    taken: Paired
    held: Paired
    held_each: Paired | None
    waits: Paired | None
    waited: Paired | None
    saturation: Paired | None
    sites: tuple[TakenIn, ...]
    only_in: Arm = ""


class WaitedFor(Record):
    """Who waited for whom for a lock of this label, per 1,000 units of work.

    ``waits`` are the times that ``waiter`` found what ``holder`` had taken, ``handovers`` those
    that the lock came to it from there.  ``waited`` are virtual ns of all vCPUs per unit.
    """

    label: str
    waiter: str
    holder: str
    waits: Paired
    handovers: Paired
    waited: Paired


class MeasuredLocks(Record):
    """Locks of one phase of one case, in the judged runs.

    ``busy`` is all instructions per unit, without idling.  The first ``listed`` rows are
    those to show; locks that are slept for come last.  ``moved_most`` is the label of
    the spinning lock whose time held moved most, empty where none did beyond the
    scatter.  ``lost`` counts locks on base and patched whose end was not seen.  ``slow_entries`` is
    how often the slow path of spin locks was entered per 1,000 units, None on one vCPU; ``pairs``
    are who waited for whom, the longest first.
    """

    case: str
    phase: str
    unit_title: str
    seeds: tuple[int, ...]
    vcpus: int
    busy: Paired
    rows: tuple[MeasuredLock, ...]
    listed: int
    moved_most: str
    lost: tuple[int, int]
    slow_entries: Paired | None = None
    pairs: tuple[WaitedFor, ...] = ()

    @property
    def shown(self) -> tuple[MeasuredLock, ...]:
        """The rows that are listed."""
        return self.rows[: self.listed]

    @property
    def foremost(self) -> MeasuredLock | None:
        """The lock that moved most, else the one that stands first among those that spin."""
        rows = [row for row in self.rows if not row.sleeps]
        return next(
            (row for row in rows if row.label == self.moved_most), rows[0] if rows else None
        )


class _Between(NamedTuple):
    label: str
    waiter: str
    holder: str


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


# The locks of each run with what each of their sites took, by the identity of the run.
_Uses = dict[int, list[tuple[LockUse, tuple[Taker, ...]]]]


def _longest_held(uses: Sequence[tuple[LockUse, tuple[Taker, ...]]]) -> Counter[str]:
    """By label, how long the instance that is held longest was held."""
    longest: Counter[str] = Counter()
    for use, takers in uses:
        if use.instances == 1:
            alone: Counter[str] = Counter()
            for site, taker in zip(use.sites, takers, strict=True):
                alone[taker.label] += 0 if site.shared else site.held
            for label, hold in alone.items():
                longest[label] = max(longest[label], hold)
    return longest


def _rows(here: CountedPhase, uses: _Uses) -> list[MeasuredLock]:
    """One for each label."""
    known: dict[str, Taker] = {}

    def by_label(run: PhaseProfile) -> Iterator[tuple[str, str, Sequence[float]]]:
        for use, takers in uses[id(run)]:
            for site, taker in zip(use.sites, takers, strict=True):
                known.setdefault(taker.label, taker)
                yield taker.label, "", (site.taken, site.held, site.waits, site.waited)

    def by_site(run: PhaseProfile) -> Iterator[tuple[tuple[str, str], str, Sequence[float]]]:
        for use, takers in uses[id(run)]:
            for site, taker in zip(use.sites, takers, strict=True):
                yield (taker.label, site.function), "", (site.taken, site.held)

    of_sites: dict[str, list[TakenIn]] = {}
    places = counts.table(here, by_site, 2)
    each_time = paired.ratios(places.raw[..., 1], places.raw[..., 0])
    for (label, function), (taken, held), each in zip(
        places.keys, places.rows(), each_time, strict=True
    ):
        site = TakenIn(function=function, taken=taken, held=held, held_each=each)
        of_sites.setdefault(label, []).append(site)
    single = [[_longest_held(uses[id(run)]) for run in arm] for arm in here.runs]
    table = counts.table(here, by_label, 4)
    held_each = paired.ratios(table.raw[..., 1], table.raw[..., 0])
    happened = np.asarray(table.raw.any(axis=(0, 1)), np.bool_)
    rows = []
    for at, (label, pairs) in enumerate(zip(table.keys, table.rows(), strict=True)):
        taker = known[label]
        # Of the instance that is held longest; none of locks of which there are many.
        longest = [[float(run[label]) for run in arm] for arm in single]
        cpus = None
        if taker.instances in ("one", "unknown") and not taker.sleeps and all(map(all, longest)):
            cpus = paired.pair(*(
                [saturation(run.busy, ns) for run, ns in zip(arm, of_arm, strict=True)]
                for arm, of_arm in zip(here.runs, longest, strict=True)
            ))  # fmt: skip
        rows.append(
            MeasuredLock(
                label=label,
                by=taker.by,
                instances=taker.instances,
                sleeps=taker.sleeps,
                taken=pairs[0],
                held=pairs[1],
                held_each=held_each[at],
                waits=pairs[2] if happened[at, 2] else None,
                waited=pairs[3] if happened[at, 3] else None,
                saturation=cpus,
                sites=tuple(
                    sorted(
                        of_sites[label],
                        key=lambda site: (-(site.held.base + site.held.patched), site.function),
                    )
                ),
                only_in=table.only_in[at],
            )
        )
    return rows


def _pairs(here: CountedPhase, uses: _Uses) -> tuple[WaitedFor, ...]:
    """Who waited for whom, the longest first."""

    def counted(run: PhaseProfile) -> Iterator[tuple[_Between, str, Sequence[float]]]:
        for use, takers in uses[id(run)]:
            labels = {
                (site.function, site.shared): taker.label
                for site, taker in zip(use.sites, takers, strict=True)
            }
            for wait in use.pairs:
                # Who waits on from the phase before has taken nothing in this one.
                label = labels.get((wait.waiter, wait.shared), next(iter(labels.values())))
                key = _Between(label, wait.waiter, wait.holder)
                yield key, "", (MANY * wait.waits, MANY * wait.handovers, wait.waited)

    table = counts.table(here, counted, 3)
    units = table.units[:, :, None]
    columns = [paired.pers(table.raw[..., column], units) for column in range(3)]
    numbers = zip(*columns, strict=True)
    rows = [
        WaitedFor(**key._asdict(), waits=waits, handovers=handovers, waited=waited)
        for key, (waits, handovers, waited) in zip(table.keys, numbers, strict=True)
    ]
    rows.sort(key=lambda row: (
        -(row.waited.base + row.waited.patched), -(row.waits.base + row.waits.patched),
        row.label, row.waiter, row.holder,
    ))  # fmt: skip
    return tuple(rows[:MOST_PAIRS])


def _moved(row: MeasuredLock) -> bool:
    change = row.held.change
    often = max(row.taken.base, row.taken.patched) >= RARE
    return often and not row.held.within_scatter and (change is None or abs(change) >= MOVED)


def _order(row: MeasuredLock) -> tuple[bool, int, float, str]:
    first = FIRST.index(row.label) if row.label in FIRST else len(FIRST)
    return row.sleeps, first, -(row.held.base + row.held.patched), row.label


def _phase(here: CountedPhase, vcpus: int) -> MeasuredLocks:
    runs = [run for block in here.blocks for run in (block.base, block.patched)]
    names = TakerNames([use for run in runs for use in run.locks or ()])
    uses = {id(run): [(use, names.of(use)) for use in run.locks or ()] for run in runs}
    rows = sorted(_rows(here, uses), key=_order)
    spinning = [row for row in rows if not row.sleeps]
    moved = max(filter(_moved, spinning), key=lambda row: abs(row.held.difference), default=None)
    # What moved most stands among the listed, wherever its hold time would put it.
    if moved is not None and moved not in spinning[:MOST_LISTED]:
        rows.remove(moved)
        rows.insert(len(FIRST), moved)

    def slow_entries(run: PhaseProfile) -> float:
        return float(sum(f.calls for f in run.kernel if f.name in SLOW_PATHS))

    lost = [sum(run.lost_locks for run in arm) for arm in here.runs]
    return MeasuredLocks(
        case=here.case.name,
        phase=here.phase.name,
        unit_title=here.unit_title,
        seeds=here.seeds,
        vcpus=vcpus,
        busy=here.per_unit(lambda run: run.busy),
        rows=tuple(rows),
        listed=min(len(spinning), MOST_LISTED),
        moved_most=moved.label if moved else "",
        lost=(lost[0], lost[1]),
        slow_entries=here.per_unit(slow_entries, MANY) if vcpus > 1 else None,
        pairs=_pairs(here, uses),
    )


def measured_locks(recorded: Recorded) -> tuple[MeasuredLocks, ...]:
    """One comparison a case and phase whose runs' locks were watched on both arms."""
    watched = counts.phases(recorded, lambda run: run.locks is not None, "", FAVOURITE_UNIT)
    return tuple(_phase(here, recorded.manifest.guest.vcpus) for here in watched)


EXPLANATION = Explanation("measured_locks", "Locks", 30, MeasuredLocks, measured_locks)
