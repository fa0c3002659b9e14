"""Locks: those of the judged runs by who takes them, and waits in diagnostic runs.  Pure.

The probe knows a lock by its address, and a profile has locks by the functions that took them; so
a lock is named by its takers, alike in all runs.  Diagnostic runs read the kernel's own events of
waiting instead: with several vCPUs these are a deterministic result of hold times and of the order
in which vCPUs take turns.
"""

from __future__ import annotations

import functools
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from analysis import counts
from analysis.counts import FAVOURITE_UNIT, Arm, CountedPhase, OnePhase, Paired, Recorded, Row
from analysis.explain import Explanation
from results.profile import UNKNOWN, LockSite, LockUse, PhaseLocks, PhaseProfile, stem
from results.record import Record

FILE = Path(__file__).parent.parent / "lock_names.toml"
READ = " (read)"
Instances = Literal["one", "many", "cpu", "unknown"]
TakerBy = Literal["variable", "takers", "member", "taker"]
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


class KnownLock(Record):
    """One entry of the data file; ``taken_in`` are functions that take no other spin lock,
    or no other lock that is slept for.
    """

    label: str
    taken_in: tuple[str, ...]
    sleeps: bool = False
    instances: Instances


@functools.cache
def catalogue() -> tuple[KnownLock, ...]:
    """The well-known locks in the order of the data file."""
    rows = tomllib.loads(FILE.read_text(encoding="utf-8"))["locks"]
    return tuple(KnownLock.model_validate(row) for row in rows)


class Taker(NamedTuple):
    """What a function took; ``by`` says what the label rests on.

    ``variable``: the lock is in a variable of the kernel.  ``takers``: a function that
    takes it is known to take this lock.  ``member``: the lock is in an object whose type is
    known.  ``taker``: nothing is known but who takes it most.
    """

    label: str
    by: TakerBy
    instances: Instances
    sleeps: bool


@functools.cache
def _known_takers() -> dict[tuple[str, bool], KnownLock]:
    return {(name, entry.sleeps): entry for entry in catalogue() for name in entry.taken_in}


class TakerNames:
    """Names of locks that are known by who takes them, the same in all runs they are made of.

    A type's members cannot be told from an address, so a known function names the lock that it
    takes, and with it whatever else took the same one.  Memory is used again: where two
    known functions disagree, each has its own, and the others are counted for the one
    that took it most.
    """

    def __init__(self, uses: Iterable[LockUse]) -> None:
        self.taken: Counter[tuple[str, bool]] = Counter()
        for use in uses:
            for site in use.sites:
                self.taken[stem(site.function), use.sleeps] += site.taken

    def of(self, use: LockUse) -> tuple[Taker, ...]:
        """What each site of a lock took, in their order."""
        functions = [stem(site.function) for site in use.sites]
        entries = [_known_takers().get((function, use.sleeps)) for function in functions]
        by_label: Counter[str] = Counter()
        for site, entry in zip(use.sites, entries, strict=True):
            if entry:
                by_label[entry.label] += site.taken
        most = max(by_label, key=lambda label: (by_label[label], label), default="")
        common = next((entry for entry in entries if entry and entry.label == most), None)
        takers = []
        for site, entry in zip(use.sites, entries, strict=True):
            named_by = entry or common
            if use.symbol:
                taker = Taker(use.symbol, "variable", "one", use.sleeps)
            elif named_by:
                taker = Taker(named_by.label, "takers", named_by.instances, use.sleeps)
            elif use.member:
                taker = Taker(use.member, "member", "unknown", use.sleeps)
            else:
                known = {*functions} - {UNKNOWN} or {UNKNOWN}
                first = min(known, key=lambda name: (-self.taken[name, use.sleeps], name))
                taker = Taker(f"taken in {first}", "taker", "unknown", use.sleeps)
            takers.append(taker._replace(label=f"{taker.label}{READ}") if site.shared else taker)
        return tuple(takers)

    def in_run(self, run: PhaseProfile) -> Iterator[tuple[LockUse, LockSite, Taker]]:
        """Each site of each lock of a run, with what it took."""
        for use in run.locks or ():
            for site, taker in zip(use.sites, self.of(use), strict=True):
                yield use, site, taker


def names_in(runs: Iterable[PhaseProfile]) -> TakerNames:
    """The names of the locks of these runs."""
    return TakerNames(use for run in runs for use in run.locks or ())


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


class MeasuredLocks(OnePhase):
    """Locks of one phase of one case, in the judged runs.

    ``busy`` is all instructions per unit, without idling.  The first ``listed`` rows are
    those to show; locks that are slept for come last.  ``moved_most`` is the label of
    the spinning lock whose time held moved most, empty where none did beyond the
    scatter.  ``lost`` counts locks on base and patched whose end was not seen.  ``slow_entries`` is
    how often the slow path of spin locks was entered per 1,000 units, None on one vCPU; ``pairs``
    are who waited for whom, the longest first.
    """

    vcpus: int
    busy: Paired
    rows: tuple[MeasuredLock, ...]
    listed: int
    moved_most: str
    lost: tuple[int, int]
    slow_entries: Paired | None = None
    pairs: tuple[WaitedFor, ...] = ()

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


# Each site of each lock of a run with what it took, by the identity of the run.
_Taken = dict[int, list[tuple[LockUse, LockSite, Taker]]]


def _rows(here: CountedPhase, taken: _Taken) -> list[MeasuredLock]:
    """One for each label."""
    known: dict[str, Taker] = {}
    # By run and label, how long the instance that is held longest was held.
    longest: dict[int, dict[str, int]] = {}
    for run in (run for arm in here.runs for run in arm):
        alone: Counter[tuple[int, str]] = Counter()
        for use, site, taker in taken[id(run)]:
            known.setdefault(taker.label, taker)
            if use.instances == 1 and not site.shared:
                alone[id(use), taker.label] += site.held
        of_run = longest.setdefault(id(run), {})
        for (_, label), spent in alone.items():
            of_run[label] = max(of_run.get(label, 0), spent)
    places = here.table(
        lambda run: (
            ((taker.label, site.function), "", (site.taken, site.held, site.waits, site.waited))
            for _, site, taker in taken[id(run)]
        ),
        4,
    )
    each_time = counts.ratios(places.raw[..., 1], places.raw[..., 0])
    of_sites: dict[str, list[TakenIn]] = {}
    for (label, function), (times, held, *_), each in zip(
        places.keys, places.rows(), each_time, strict=True
    ):
        site_row = TakenIn(function=function, taken=times, held=held, held_each=each)
        of_sites.setdefault(label, []).append(site_row)
    table = places.grouped(lambda key: key[0])
    held_each = counts.ratios(table.raw[..., 1], table.raw[..., 0])
    happened = np.asarray(table.raw.any(axis=(0, 1)), np.bool_)
    rows = []
    for at, (label, (times, held, waits, waited)) in enumerate(
        zip(table.keys, table.rows(), strict=True)
    ):
        taker = known[label]
        # Of the instance that is held longest; none of locks of which there are many.
        single = all(longest[id(run)].get(label) for run in here.every)
        cpus = None
        if taker.instances in ("one", "unknown") and not taker.sleeps and single:
            cpus = counts.pair(
                *(
                    [saturation(run.busy, longest[id(run)][label]) for run in arm]
                    for arm in here.runs
                )
            )
        rows.append(
            MeasuredLock(
                label=label,
                by=taker.by,
                instances=taker.instances,
                sleeps=taker.sleeps,
                taken=times,
                held=held,
                held_each=held_each[at],
                waits=waits if happened[at, 2] else None,
                waited=waited if happened[at, 3] else None,
                saturation=cpus,
                sites=tuple(sorted(of_sites[label], key=lambda s: (-s.held.both, s.function))),
                only_in=table.only_in[at],
            )
        )
    return rows


def _pairs(here: CountedPhase, taken: _Taken) -> tuple[WaitedFor, ...]:
    """Who waited for whom, the longest first."""

    def counted(run: PhaseProfile) -> Iterator[Row[_Between]]:
        labels: dict[int, dict[tuple[str, bool], str]] = {}
        for use, site, taker in taken[id(run)]:
            labels.setdefault(id(use), {})[site.function, site.shared] = taker.label
        for use in run.locks or ():
            for wait in use.pairs:
                of_use = labels[id(use)]
                # Who waits on from the phase before has taken nothing in this one.
                label = of_use.get((wait.waiter, wait.shared), next(iter(of_use.values())))
                key = _Between(label, wait.waiter, wait.holder)
                yield key, "", (MANY * wait.waits, MANY * wait.handovers, wait.waited)

    table = here.table(counted, 3)
    rows = [
        WaitedFor(**key._asdict(), waits=waits, handovers=handovers, waited=waited)
        for key, (waits, handovers, waited) in zip(table.keys, table.rows(), strict=True)
    ]
    rows.sort(
        key=lambda row: (-row.waited.both, -row.waits.both, row.label, row.waiter, row.holder)
    )
    return tuple(rows[:MOST_PAIRS])


def _slow(run: PhaseProfile, field: str) -> float:
    """Instructions in, or calls of, the slow path of spin locks."""
    return float(sum(getattr(each, field) for each in run.kernel if each.name in SLOW_PATHS))


def _moved(row: MeasuredLock) -> bool:
    change = row.held.change
    often = max(row.taken.base, row.taken.patched) >= RARE
    return often and not row.held.within_scatter and (change is None or abs(change) >= MOVED)


def _order(row: MeasuredLock) -> tuple[bool, int, float, str]:
    first = FIRST.index(row.label) if row.label in FIRST else len(FIRST)
    return row.sleeps, first, -row.held.both, row.label


def measured_locks(recorded: Recorded) -> Iterator[MeasuredLocks]:
    """One comparison a case and phase whose runs' locks were watched on both arms."""
    vcpus = recorded.manifest.guest.vcpus
    for here in counts.phases(recorded, lambda run: run.locks is not None, "", FAVOURITE_UNIT):
        names = names_in(here.every)
        taken = {id(run): list(names.in_run(run)) for run in here.every}
        rows = sorted(_rows(here, taken), key=_order)
        spinning = [row for row in rows if not row.sleeps]
        moved = max(
            filter(_moved, spinning), key=lambda row: abs(row.held.difference), default=None
        )
        # What moved most stands among the listed, wherever its hold time would put it.
        if moved is not None and moved not in spinning[:MOST_LISTED]:
            rows.remove(moved)
            rows.insert(len(FIRST), moved)
        base, patched = (sum(run.lost_locks for run in arm) for arm in here.runs)
        yield MeasuredLocks(
            **here.where,
            vcpus=vcpus,
            busy=here.per_unit(lambda run: run.busy),
            rows=tuple(rows),
            listed=min(len(spinning), MOST_LISTED),
            moved_most=moved.label if moved else "",
            lost=(base, patched),
            slow_entries=here.per_unit(lambda run: _slow(run, "calls"), MANY)
            if vcpus > 1
            else None,
            pairs=_pairs(here, taken),
        )


EXPLANATION = Explanation("measured_locks", "Locks", 30, MeasuredLocks, measured_locks)


class WaitRow(Record):
    """Waits of one caller: events per 1,000 units, and virtual ns per unit.

    ``chain`` is the most frequent chain of callers, the innermost first.
    """

    caller: str
    flags: str
    chain: tuple[str, ...]
    count: Paired
    wait: Paired


class LockComparison(OnePhase):
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


# A phase's waits, and its profile where there is one.
_Run = tuple[PhaseLocks, PhaseProfile | None]


def compare_locks(recorded: Recorded) -> Iterator[LockComparison]:
    """One comparison a twin, case and phase with waits on both arms, in the manifest's order.

    Units of work come from the profile of the same run; without one, counts are per
    millisecond of the guest's clock.
    """
    profiles = {
        (each.run_id, phase.phase): phase for each in recorded.profiles for phase in each.phases
    }
    runs: dict[str, dict[str, _Run]] = {
        each.run_id: {
            locks.phase: (locks, profiles.get((each.run_id, locks.phase)))
            for locks in each.phases
            if locks.virtual_ns > 0
        }
        for each in recorded.locks
    }
    in_wall = recorded.manifest.experiment.mode == "wall"
    for twin in recorded.manifest.twins:
        for case, phase, blocks in counts.paired_phases(recorded, runs, twin.name):
            arms = [[block.base for block in blocks], [block.patched for block in blocks]]
            counted = [profile for arm in arms for _, profile in arm if profile is not None]
            whole = counted if len(counted) == 2 * len(blocks) else []
            # Without a profile counts are given per time of the guest's clock.
            unit, title = (counts.unit_of(phase, whole, FAVOURITE_UNIT) if whole else None) or (
                "",
                "ms" if in_wall else "virtual ms",
            )
            units = np.array(
                [
                    [
                        profile.units[unit] if unit and profile else locks.virtual_ns / 1e6
                        for locks, profile in arm
                    ]
                    for arm in arms
                ]
            )
            share = entries = None
            if twin.guest.vcpus > 1 and whole and all(run.instructions for run in whole):
                watched = [[run for _, run in arm if run] for arm in arms]
                slow = [[_slow(run, "instructions") for run in arm] for arm in watched]
                share = counts.ratio(slow, [[run.instructions for run in arm] for arm in watched])
                slow = [[_slow(run, "calls") for run in arm] for arm in watched]
                entries = counts.per(slow, units, MANY)
            base, patched = (sum(locks.dropped for locks, _ in arm) for arm in arms)
            yield LockComparison(
                case=case.name,
                phase=phase.name,
                unit_title=title,
                seeds=tuple(block.seed for block in blocks),
                twin=twin.name,
                vcpus=twin.guest.vcpus,
                jobs=twin.guest.jobs,
                metronome_ns=twin.guest.metronome_ns,
                virtual_ns=counts.per(
                    [[float(locks.virtual_ns) for locks, _ in arm] for arm in arms], units
                ),
                waits=_waits(arms, units),
                dropped=(base, patched),
                slow_share=share,
                slow_entries=entries,
                in_wall=in_wall,
            )


def _waits(arms: Sequence[Sequence[_Run]], units: counts.Floats) -> tuple[WaitRow, ...]:
    """Waits by innermost caller and kind of lock, the longest first."""
    chains: dict[tuple[str, str], Counter[tuple[str, ...]]] = {}

    def counted(run: _Run) -> Iterator[Row[tuple[str, str]]]:
        for wait in run[0].waits:
            key = wait.callers[0] if wait.callers else UNKNOWN, wait.flags
            chains.setdefault(key, Counter())[wait.callers] += wait.count
            yield key, "", (MANY * wait.count, wait.total_ns)

    table = counts.table(arms, units, counted, 2)
    waits = [
        WaitRow(
            caller=key[0],
            flags=key[1],
            chain=min(chains[key], key=lambda chain: (-chains[key][chain], chain)),
            count=count,
            wait=wait,
        )
        for key, (count, wait) in zip(table.keys, table.rows(), strict=True)
    ]
    return tuple(sorted(waits, key=lambda row: (-row.wait.both, row.caller, row.flags)))


WAITS = Explanation("locks", "Waits for locks, diagnostic runs", 20, LockComparison, compare_locks)
