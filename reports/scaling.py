"""From what one CPU counted to a range of what many may do: pure, an estimate, never judged.

One end is path length, which is exact; the other is a lock that is always held, whose
throughput is the reciprocal of the time that it is held for.  Between them CPUs queue
(``reports.queueing``).  How long a lock is held on hardware is not known: instructions take half a
cycle or two, and lines come from other CPUs, and from memory.  So a machine's file has the least
and the most of each, and the range is what any choice of them gives, the same choice on both arms.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from experiment.machine import MachineSpec, ManyCpus
from reports.lock_model import MeasuredLock, MeasuredLocks
from reports.missed import MissedInPhase, cycles_of
from reports.model import Reference
from reports.paired import Floats
from reports.queueing import lock_throughput
from reports.scaling_model import MissedEach, PublishedPoint, Range, Scaling, ScalingPoint
from results.record import Manifest

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


def _point(base: _Arm, patched: _Arm, cpus: int, assumptions: _Assumptions) -> ScalingPoint:
    alone = _throughput(base, 1, assumptions)
    before, after = (_throughput(arm, cpus, assumptions) for arm in (base, patched))
    return ScalingPoint(
        cpus=cpus,
        base=_ends(before / alone),
        patched=_ends(after / alone),
        change=_ends(after / before - 1),
    )


def _arms(locks: MeasuredLocks, lock: MeasuredLock) -> tuple[_Arm, _Arm]:
    """Of the instance that is held longest: its share of what is taken is that of what is held."""
    assert lock.saturation is not None
    busy, full, held, acquired = locks.busy, lock.saturation, lock.held, lock.taken
    return tuple(
        _Arm(all_of, all_of / cpus, of_label * all_of / cpus / time)
        for all_of, cpus, time, of_label in (
            (busy.base, full.base, held.base, acquired.base),
            (busy.patched, full.patched, held.patched, acquired.patched),
        )
    )  # type: ignore[return-value]


def _with_misses(
    arms: tuple[_Arm, _Arm], machine: MachineSpec, missed: MissedEach, held: MissedEach
) -> tuple[_Arm, _Arm]:
    """The latencies of what was missed per unit of work, and of that with the lock held."""
    assert machine.many is not None
    in_all, with_it = cycles_of(machine, missed), cycles_of(machine, held)
    ghz = machine.many.ghz
    base, patched = (
        arm._replace(missed_ns=max(every - part, 0.0) / ghz, missed_held_ns=part / ghz)
        for arm, every, part in zip(arms, in_all, with_it, strict=True)
    )
    return base, patched


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
    manifest: Manifest,
    locks: MeasuredLocks,
    references: Sequence[Reference],
    held_lines: Mapping[str, Range],
    missed: MissedInPhase | None,
) -> Scaling | None:
    machine, lock = manifest.machine, _first_full(locks)
    if machine is None or machine.many is None or lock is None or locks.vcpus > 1:
        return None
    base, patched = _arms(locks, lock)
    of_lock = missed.held.get(lock.label) if missed else None
    usable = speeds_of(machine.many, misses=True) is not None
    missed_held = None
    if missed and of_lock and usable and missed.unit_title == locks.unit_title:
        missed_held = of_lock.times(base.held, patched.held)
        base, patched = _with_misses((base, patched), machine, missed.total, missed_held)
    jobs = manifest.experiment.dataset.jobs
    # Bandwidths: bw, or those of reads or writes.
    bandwidths = [
        r for r in references if r.metric.startswith(f"{locks.phase}.") and r.metric.endswith("bw")
    ]
    reference = bandwidths[0] if bandwidths else None
    lines = held_lines.get(lock.label, LINES)
    assumptions = _assumptions(machine.many, lines, misses=missed_held is not None)
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
        points=tuple(
            _point(base, patched, cpus, assumptions)
            for cpus in sorted({*CPUS, *([jobs] if reference else [])})
        ),
        published=PublishedPoint(jobs=jobs, change=reference.change, document=reference.document)
        if reference
        else None,
    )


def estimate(
    manifest: Manifest,
    locks: Sequence[MeasuredLocks],
    published: Mapping[str, Sequence[Reference]],
    held_lines: Mapping[tuple[str, str], Mapping[str, Range]] = MappingProxyType({}),
    missed: Mapping[tuple[str, str], MissedInPhase] = MappingProxyType({}),
) -> tuple[Scaling, ...]:
    """A range for each phase of one vCPU that has a lock which few CPUs keep held.

    ``published`` has the published figures of each case, ``held_lines`` by case and phase the lines
    that came while a lock was held once, by its label (``reports.lines.lines_held``), ``missed``
    what a modelled machine missed (``reports.missed``).
    """
    ranges = (
        _scaling(
            manifest, each, published.get(each.case, ()),
            held_lines.get((each.case, each.phase), {}), missed.get((each.case, each.phase)),
        )
        for each in locks
    )  # fmt: skip
    return tuple(each for each in ranges if each is not None)
