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
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis import counts
from analysis.counts import FAVOURITE_UNIT, CountedPhase, Floats, Paired, Recorded
from analysis.explain import Explanation
from analysis.explain.locks import EXPLANATION as LOCKS
from analysis.explain.locks import MeasuredLocks, names_in
from analysis.explain.modelled import lines_held, weights
from experiment.machine import MachineSpec, ManyCpus
from results.profile import IDLE_PROGRAM, MemoryUse, PhaseProfile
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


def _of_both(pairs: Iterable[Paired]) -> MissedEach:
    return MissedEach(
        **{event: (each.base, each.patched) for event, each in zip(EVENTS, pairs, strict=True)}
    )


def missed_in_phases(recorded: Recorded) -> dict[tuple[str, str], MissedInPhase]:
    """By case and phase, of the diagnostic runs that model the manifest's machine."""

    def in_all(run: PhaseProfile, event: str) -> float:
        memory = run.memory or MemoryUse(kernel=(), user={})
        user = (missed for file, missed in memory.user.items() if file != IDLE_PROGRAM)
        return float(sum(getattr(each, event) for each in (*memory.kernel, *user)))

    manifest = recorded.manifest
    twins = [twin for twin in manifest.twins if twin.observe == "memory"]
    return {
        (here.case.name, here.phase.name): MissedInPhase(
            here.unit_title,
            _of_both(here.per_unit(functools.partial(in_all, event=event)) for event in EVENTS),
            _missed_held(here),
        )
        for twin in twins
        if twin.machine == manifest.machine
        for here in counts.phases(
            recorded,
            lambda run: run.memory is not None and run.memory.by_lock,
            twin.name,
            FAVOURITE_UNIT,
        )
    }


def _missed_held(here: CountedPhase) -> dict[str, MissedEach]:
    """Events of each instruction with a lock held, by the label of the lock."""
    names = names_in(here.every)
    table = here.table(
        lambda run: (
            (taker.label, "", [getattr(site, field) for field in ("held", *EVENTS)])
            for _, site, taker in names.in_run(run)
        ),
        1 + len(EVENTS),
    )
    # A lock that some run never took is none that many CPUs meet at.
    taken = [{taker.label for _, _, taker in names.in_run(run)} for run in here.every]
    held = table.raw[..., 0]
    each = [counts.ratios(table.raw[..., at], held) for at in range(1, 1 + len(EVENTS))]
    return {
        label: _of_both(pair for pair in pairs if pair)
        for label, *pairs in zip(table.keys, *each, strict=True)
        if all(pairs) and all(label in labels for labels in taken)
    }


def cycles_of(machine: MachineSpec, missed: MissedEach) -> Range:
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
    weight, total, served = np.ones(held.shape), np.ones(held.shape), np.zeros(held.shape)
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


def speeds_of(many: ManyCpus, *, misses: bool) -> Range | None:
    """Instructions of a cycle, from least to most, beside counted ``misses`` or with them in it.

    None where the machine has no such number.
    """
    return many.instructions_per_cycle_in_caches if misses else many.instructions_per_cycle


def _assumptions(many: ManyCpus, lines: Range, *, misses: bool) -> Floats:
    """Every range in steps, in all combinations: a change may be largest between two ends.

    Rows, a number of each for an assumption: ns of an instruction without and with the lock, ns of
    a transfer, lines of a hold, then the parts of misses' latencies that are waited for without the
    lock and with it.  What is counted, with no line that moves, no miss that is waited for and
    instructions that are all as fast, is among them.
    """
    per_cycle = speeds_of(many, misses=misses)
    assert per_cycle is not None
    speeds = 1 / (many.ghz * np.geomspace(*per_cycle, STEPS))
    waits = itertools.product(WAITED if misses else (0.0,), repeat=2)
    held_lines = np.linspace(*lines, STEPS)
    transfers = [(0.0, 0.0), *itertools.product(sorted({*many.transfer_ns}), held_lines)]
    combined = itertools.product(itertools.product(speeds, repeat=2), transfers, waits)
    return np.array([(*speed, *transfer, *waited) for speed, transfer, waited in combined]).T


def _throughput(arm: _Arm, cpus: int, assumptions: Floats) -> Floats:
    """Units of work in a nanosecond."""
    apart_ns, held_ns, transfer_ns, lines, apart_waited, held_waited = assumptions
    apart = (arm.instructions - arm.held) * apart_ns + arm.missed_ns * apart_waited
    held = arm.held * held_ns + arm.missed_held_ns * held_waited
    # What another CPU held last is fetched from there.
    fetched = lines * transfer_ns * (cpus - 1) / cpus
    times = apart / arm.acquisitions, held / arm.acquisitions + fetched
    return lock_throughput(cpus, *times, HANDOVER_LINES * transfer_ns) / arm.acquisitions


def _ends(values: Floats) -> Range:
    return float(values.min()), float(values.max())


def _scaling(
    recorded: Recorded,
    locks: MeasuredLocks,
    held_lines: Mapping[str, Range],
    missed: MissedInPhase | None,
) -> Scaling | None:
    machine = recorded.manifest.machine
    # The lock that the fewest CPUs keep held all the time.
    near = [
        (min(full.base, full.patched), row.label, row, full)
        for row in locks.rows
        if (full := row.saturation) and min(row.taken.base, row.taken.patched) > 0
    ]
    if machine is None or machine.many is None or locks.vcpus > 1 or not near:
        return None
    fewest, _, lock, full = min(near, key=lambda each: each[:2])
    if fewest >= FARTHEST:
        return None
    # Of the instance that is held longest: its share of what is taken is that of what is held.
    base, patched = (
        _Arm(busy, busy / cpus, taken * busy / cpus / held)
        for busy, cpus, held, taken in (
            (locks.busy.base, full.base, lock.held.base, lock.taken.base),
            (locks.busy.patched, full.patched, lock.held.patched, lock.taken.patched),
        )
    )
    of_lock = missed.held.get(lock.label) if missed else None
    usable = speeds_of(machine.many, misses=True) is not None
    missed_held = None
    if missed and of_lock and usable and missed.unit_title == locks.unit_title:
        each = {event: getattr(of_lock, event) for event in EVENTS}
        missed_held = MissedEach(
            **{event: (of[0] * base.held, of[1] * patched.held) for event, of in each.items()}
        )
        in_all, with_it = cycles_of(machine, missed.total), cycles_of(machine, missed_held)
        base, patched = (
            arm._replace(
                missed_ns=max(every - part, 0.0) / machine.many.ghz,
                missed_held_ns=part / machine.many.ghz,
            )
            for arm, every, part in zip((base, patched), in_all, with_it, strict=True)
        )
    # Bandwidths: bw, or those of reads or writes.
    figures = [
        PublishedPoint(
            jobs=recorded.manifest.experiment.dataset.jobs,
            change=figure.change,
            document=figure.document,
        )
        for figure in recorded.published(locks.case)
        if figure.metric.startswith(f"{locks.phase}.") and figure.metric.endswith("bw")
    ][:1]
    lines = held_lines.get(lock.label, LINES)
    assumptions = _assumptions(machine.many, lines, misses=missed_held is not None)
    alone = _throughput(base, 1, assumptions)
    points = []
    for cpus in sorted({*CPUS, *(figure.jobs for figure in figures)}):
        before, after = (_throughput(arm, cpus, assumptions) for arm in (base, patched))
        ends = {"base": _ends(before / alone), "patched": _ends(after / alone)}
        points.append(ScalingPoint(cpus=cpus, **ends, change=_ends(after / before - 1)))
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
        published=figures[0] if figures else None,
    )


def estimate(recorded: Recorded) -> Iterator[Scaling]:
    """A range for each phase of one vCPU that has a lock which few CPUs keep held.

    Lines that came while a lock was held once, and what a modelled machine missed, are those of
    diagnostic runs where there are any.
    """
    held_lines, missed = lines_held(recorded), missed_in_phases(recorded)
    for locks in LOCKS.made(recorded):
        at = locks.case, locks.phase
        if scaling := _scaling(recorded, locks, held_lines.get(at, {}), missed.get(at)):
            yield scaling


EXPLANATION = Explanation("scaling", "Many CPUs, an estimated range", 90, Scaling, estimate)
