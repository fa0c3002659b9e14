"""From what one CPU counted to a range of what many may do: pure, an estimate, never judged.

One end is path length, which is exact; the other is a lock that is always held, whose
throughput is the reciprocal of the time that it is held for.  Between them CPUs queue.  How long a
lock is held on hardware is not known: instructions take half a cycle or two, and lines come from
other CPUs, and from memory.  So a machine's file has the least and the most of each, and the range
is what any choice of them gives, the same choice on both arms.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis import counts
from analysis.counts import FAVOURITE_UNIT, CountedPhase, Recorded
from analysis.explain import Explanation
from analysis.explain.lines import lines_held
from analysis.explain.locks import EXPLANATION as LOCKS
from analysis.explain.locks import MeasuredLock, MeasuredLocks
from analysis.explain.memory import weights
from analysis.lock_identity import TakerNames
from analysis.paired import Floats, ratio
from experiment.machine import MachineSpec, ManyCpus
from results.profile import IDLE_PROGRAM, PhaseProfile
from results.record import Record

Range = tuple[float, float]
CPUS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
# A lock that fewer than four times the most CPUs cannot fill has no part in this.
FARTHEST = 4 * CPUS[-1]
# Lines that move while a lock is held once, where nobody counted them: chosen.
LINES: Range = (0.0, 4.0)
# Who lets go writes the line that the next one waits at, and that one reads it.
HANDOVER_LINES = 2
# What of a counted miss's latency is waited for: nothing where other instructions and misses go on
# meanwhile, all of it where the next address is what comes.  With the lock and without it.
WAITED = (0.0, 0.5, 1.0)
# Values that a range is gone through in.
STEPS = 5


class ScalingPoint(Record):
    """So many CPUs: throughput against that of one CPU of base, and patched against base.

    Each is the least and the most of all assumptions; ``change`` is a fraction of base, above zero
    where patched is faster.
    """

    cpus: int
    base: Range
    patched: Range
    change: Range


class MissedEach(Record):
    """Misses of L2, of the last level, and page walks, on base and on patched.

    What is waited for: a line that is in L2 comes within what instructions are taken to need.
    """

    l2: Range
    llc: Range
    walks: Range


EVENTS = tuple(MissedEach.model_fields)


class PublishedPoint(Record):
    """A published throughput that the range can be held against.

    ``jobs`` are those of the document, taken for CPUs.
    """

    jobs: int
    change: float
    document: str


class Scaling(Record):
    """One phase of one case: what many CPUs of a machine may make of what one CPU counted.

    Of one CPU, per unit of work, base then patched: ``instructions`` in all, those with the lock
    ``held``, and its ``acquisitions``.  ``lock`` is the one that would saturate first, by
    its longest held instance.  ``at_one`` is the change of throughput of one CPU by path length;
    ``lines`` are lines that move while the lock is held once, from least to most, and
    ``lines_counted`` whether diagnostic runs have followed them.  ``missed`` is what the machine's
    model missed per unit of work, ``missed_held`` what of it with the lock held; both are None,
    and none of it in the range, where no diagnostic run has counted them.  Not
    ``significant`` is a range whose path length or hold time may as well not have changed.
    """

    case: str
    phase: str
    unit_title: str
    machine: str
    machine_title: str
    lock: str
    instructions: Range
    held: Range
    acquisitions: Range
    lines: Range
    lines_counted: bool
    missed: MissedEach | None = None
    missed_held: MissedEach | None = None
    at_one: float
    significant: bool
    points: tuple[ScalingPoint, ...]
    published: PublishedPoint | None

    def at(self, cpus: int) -> ScalingPoint | None:
        """The point of so many CPUs; None where none was computed."""
        return next((point for point in self.points if point.cpus == cpus), None)


class MissedInPhase(NamedTuple):
    """Events of base and patched in one phase, of a modelled machine.

    ``total`` is per unit of work, ``held`` by the label of a lock: per instruction with it held.
    """

    unit_title: str
    total: MissedEach
    held: Mapping[str, MissedEach]


def missed_in_phases(recorded: Recorded) -> dict[tuple[str, str], MissedInPhase]:
    """By case and phase, of the diagnostic runs that model the manifest's machine."""
    return {
        (here.case.name, here.phase.name): _missed(here)
        for twin in recorded.manifest.twins
        if twin.observe == "memory" and twin.machine == recorded.manifest.machine
        for here in counts.phases(
            recorded, lambda run: run.memory is not None and run.memory.by_lock, twin.name,
            FAVOURITE_UNIT,
        )
    }  # fmt: skip


def _missed(here: CountedPhase) -> MissedInPhase:
    names = TakerNames([use for arm in here.runs for run in arm for use in run.locks or ()])

    def in_all(event: str, run: PhaseProfile) -> float:
        assert run.memory is not None
        user = (missed for file, missed in run.memory.user.items() if file != IDLE_PROGRAM)
        return float(sum(getattr(each, event) for each in (*run.memory.kernel, *user)))

    def by_lock(run: PhaseProfile) -> Iterator[tuple[str, str, Sequence[float]]]:
        for use in run.locks or ():
            for site, taker in zip(use.sites, names.of(use), strict=True):
                yield taker.label, "", [getattr(site, field) for field in ("held", *EVENTS)]

    table = counts.table(here, by_lock, 1 + len(EVENTS))
    # A lock that some run never took is none that many CPUs meet at.
    taken = [
        {taker.label for use in run.locks or () for taker in names.of(use)}
        for arm in here.runs for run in arm
    ]  # fmt: skip
    held = {}
    for at, label in enumerate(table.keys):
        pairs = {
            event: ratio(table.raw[:, :, at, column], table.raw[:, :, at, 0])
            for column, event in enumerate(EVENTS, start=1)
        }
        if all(label in labels for labels in taken) and all(pairs.values()):
            each = {event: (pair.base, pair.patched) for event, pair in pairs.items() if pair}
            held[label] = MissedEach(**each)
    total = {event: here.per_unit(functools.partial(in_all, event)) for event in EVENTS}
    return MissedInPhase(
        here.unit_title,
        MissedEach(**{event: (pair.base, pair.patched) for event, pair in total.items()}),
        held,
    )


def cycles_of(machine: MachineSpec, missed: MissedEach) -> tuple[float, float]:
    """Cycles that events take on base and on patched, each waited for from its first to its last.

    A miss of L2 adds the way from there to the last level, and one of that the way to memory.
    """
    cycles = weights(machine)
    base, patched = (
        sum(cycles[event] * getattr(missed, event)[arm] for event in EVENTS) for arm in (0, 1)
    )
    return base, patched


def lock_throughput(
    cpus: int, apart: npt.ArrayLike, held: npt.ArrayLike, handover: npt.ArrayLike = 0.0
) -> Floats:
    """Acquisitions of one lock in a unit of time, by so many CPUs that do nothing else.

    The times are numbers or arrays of one shape, which is the result's.

    A CPU spends ``apart`` without the lock and ``held`` with it, on average, both exponentially
    distributed; a lock that is let go of while somebody waits takes ``handover`` more until that
    one has it.  That is a birth and death process of the CPUs at the lock: one leaves without it
    at the rate (cpus - k) / apart, and one is done with it at 1 / held while it is alone, at
    1 / (held + handover) while others wait.  A lock that hands over along a queue (MCS, and
    Linux's qspinlock) takes as long however many wait, so the rate falls no further: Aksenov,
    Bolotov and Kuznetsov, arXiv 2110.05545 (2021), where their model of MCS locks is checked
    against machines; the chain is that of Boyd-Wickizer, Kaashoek, Morris and Zeldovich,
    "Non-scalable locks are dangerous" (Linux Symposium 2012).

    Raises:
        ValueError: no CPU, a time below zero, or a lock that takes no time.
    """
    apart, held, handover = np.broadcast_arrays(
        *(np.asarray(times, np.float64) for times in (apart, held, handover))
    )
    if cpus < 1 or (apart < 0).any() or (held <= 0).any() or (handover < 0).any():
        raise ValueError(f"no queue: {cpus} CPUs, times {apart}, {held}, {handover}")
    alone, waited_for = 1 / held, 1 / (held + handover)
    never = apart == 0
    arriving = np.where(never, 1.0, apart)
    # Probabilities of k at the lock, relative to that of the one before it.
    weight, total = np.ones(held.shape), np.ones(held.shape)
    served = np.zeros(held.shape)
    for at_lock in range(1, cpus + 1):
        rate = alone if at_lock == 1 else waited_for
        weight = weight * ((cpus - at_lock + 1) / arriving / rate)
        total = total + weight
        served = served + weight * rate
        # Thousands of CPUs at a lock that is hardly left would overflow.
        large = total > 1e200
        if large.any():
            by = np.where(large, total, 1.0)
            weight, total, served = weight / by, total / by, served / by
    return np.where(never, alone if cpus == 1 else waited_for, served / total)


class _Arm(NamedTuple):
    """Instructions per unit of work, those of them with the lock held, and acquisitions of it.

    ``missed_ns`` and ``missed_held_ns`` are latencies of misses per unit, without the lock and
    with it.
    """

    instructions: float
    held: float
    acquisitions: float
    missed_ns: float = 0.0
    missed_held_ns: float = 0.0


class _Assumptions(NamedTuple):
    """ns of an instruction without and with the lock, of a transfer; and lines of a hold.

    Then the parts of misses' latencies that are waited for without the lock and with it.  Arrays
    of one length, a number of each for an assumption.
    """

    apart_ns: Floats
    held_ns: Floats
    transfer_ns: Floats
    lines: Floats
    apart_waited: Floats
    held_waited: Floats


def speeds_of(many: ManyCpus, *, misses: bool) -> Range | None:
    """Instructions of a cycle, from least to most, beside counted ``misses`` or with them in it.

    None where the machine has no such number.
    """
    return many.instructions_per_cycle_in_caches if misses else many.instructions_per_cycle


def _assumptions(many: ManyCpus, lines: Range, *, misses: bool) -> _Assumptions:
    """Every range in steps, in all combinations: a change may be largest between two ends.

    What is counted, with no line that moves, no miss that is waited for and instructions that are
    all as fast, is among them.
    """
    per_cycle = speeds_of(many, misses=misses)
    assert per_cycle is not None
    speeds = 1 / (many.ghz * np.geomspace(*per_cycle, STEPS))
    waits = itertools.product(WAITED if misses else (0.0,), repeat=2)
    held_lines = np.linspace(*lines, STEPS)
    transfers = [(0.0, 0.0), *itertools.product(sorted({*many.transfer_ns}), held_lines)]
    combined = itertools.product(itertools.product(speeds, repeat=2), transfers, waits)
    rows = [(*speed, *transfer, *waited) for speed, transfer, waited in combined]
    return _Assumptions(*np.array(rows, np.float64).T)


def _throughput(arm: _Arm, cpus: int, by: _Assumptions) -> Floats:
    """Units of work in a nanosecond."""
    apart = (arm.instructions - arm.held) * by.apart_ns + arm.missed_ns * by.apart_waited
    apart = apart / arm.acquisitions
    # What another CPU held last is fetched from there.
    fetched = by.lines * by.transfer_ns * (cpus - 1) / cpus
    held = arm.held * by.held_ns + arm.missed_held_ns * by.held_waited
    held = held / arm.acquisitions + fetched
    return lock_throughput(cpus, apart, held, HANDOVER_LINES * by.transfer_ns) / arm.acquisitions


def _ends(values: Floats) -> Range:
    return float(values.min()), float(values.max())


def _arm(busy: float, cpus: float, held: float, taken: float) -> _Arm:
    """Of the instance that is held longest: its share of what is taken is that of what is held."""
    return _Arm(busy, busy / cpus, taken * busy / cpus / held)


def _first_full(locks: MeasuredLocks) -> MeasuredLock | None:
    """The lock that the fewest CPUs keep held all the time, None where none is near."""
    rows = [
        (min(row.saturation.base, row.saturation.patched), row)
        for row in locks.rows
        if row.saturation is not None and row.taken.base > 0 and row.taken.patched > 0
    ]
    full, row = min(rows, key=lambda each: (each[0], each[1].label), default=(FARTHEST, None))
    return row if full < FARTHEST else None


def _scaling(
    recorded: Recorded,
    locks: MeasuredLocks,
    held_lines: Mapping[str, Range],
    missed: MissedInPhase | None,
) -> Scaling | None:
    machine, lock = recorded.manifest.machine, _first_full(locks)
    if machine is None or machine.many is None or lock is None or locks.vcpus > 1:
        return None
    full = lock.saturation
    assert full is not None
    base = _arm(locks.busy.base, full.base, lock.held.base, lock.taken.base)
    patched = _arm(locks.busy.patched, full.patched, lock.held.patched, lock.taken.patched)
    of_lock = missed.held.get(lock.label) if missed else None
    usable = speeds_of(machine.many, misses=True) is not None
    missed_held = None
    if missed and of_lock and usable and missed.unit_title == locks.unit_title:
        missed_held = MissedEach(
            **{
                event: (each[0] * base.held, each[1] * patched.held)
                for event in EVENTS
                for each in [getattr(of_lock, event)]
            }
        )
        in_all, with_it = cycles_of(machine, missed.total), cycles_of(machine, missed_held)
        base, patched = (
            arm._replace(
                missed_ns=max(every - part, 0.0) / machine.many.ghz,
                missed_held_ns=part / machine.many.ghz,
            )
            for arm, every, part in zip((base, patched), in_all, with_it, strict=True)
        )
    jobs = recorded.manifest.experiment.dataset.jobs
    # Bandwidths: bw, or those of reads or writes.
    reference = next(
        (
            figure
            for figure in recorded.published(locks.case)
            if figure.metric.startswith(f"{locks.phase}.") and figure.metric.endswith("bw")
        ),
        None,
    )
    lines = held_lines.get(lock.label, LINES)
    assumptions = _assumptions(machine.many, lines, misses=missed_held is not None)
    alone = _throughput(base, 1, assumptions)
    points = []
    for cpus in sorted({*CPUS, *([jobs] if reference else [])}):
        before, after = (_throughput(arm, cpus, assumptions) for arm in (base, patched))
        points.append(ScalingPoint(
            cpus=cpus, base=_ends(before / alone), patched=_ends(after / alone),
            change=_ends(after / before - 1),
        ))  # fmt: skip
    return Scaling(
        case=locks.case,
        phase=locks.phase,
        unit_title=locks.unit_title,
        machine=machine.name,
        machine_title=machine.title,
        lock=lock.label,
        instructions=(base.instructions, patched.instructions),
        held=(base.held, patched.held),
        acquisitions=(base.acquisitions, patched.acquisitions),
        lines=lines,
        lines_counted=lock.label in held_lines,
        missed=missed.total if missed and missed_held else None,
        missed_held=missed_held,
        at_one=base.instructions / patched.instructions - 1,
        significant=not (locks.busy.within_scatter or lock.held.within_scatter),
        points=tuple(points),
        published=PublishedPoint(jobs=jobs, change=reference.change, document=reference.document)
        if reference
        else None,
    )


def estimate(recorded: Recorded) -> tuple[Scaling, ...]:
    """A range for each phase of one vCPU that has a lock which few CPUs keep held.

    Lines that came while a lock was held once, and what a modelled machine missed, are those of
    diagnostic runs where there are any.
    """
    held_lines, missed = lines_held(recorded), missed_in_phases(recorded)
    ranges = []
    for locks in LOCKS.of(recorded):
        at = locks.case, locks.phase
        ranges.append(_scaling(recorded, locks, held_lines.get(at, {}), missed.get(at)))
    return tuple(each for each in ranges if each is not None)


EXPLANATION = Explanation("scaling", "Many CPUs, an estimated range", 90, Scaling, estimate)
