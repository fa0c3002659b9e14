"""What many CPUs may make of it: an estimated range, and what it rests on."""

from __future__ import annotations

from analysis.explain.memory import weights
from analysis.explain.scaling import EXPLANATION, Range, Scaling, ScalingPoint, speeds_of
from analysis.model import Comparison
from experiment.machine import MachineSpec
from reports import wording
from reports.document import Block, Column, Table, facts, row
from reports.sections.view import Instrument, Line, View, arms

ESTIMATED = (
    "Estimated range, not measured. One end is path length, counted on one CPU; the other is the "
    "lock that fills up first, held all the time, by what the measured runs counted. Between them "
    "CPUs queue for it. What hardware does is not known, so each assumption below goes from its "
    "least to its most, alike on both arms. It is never judged.",
    "One lock: others, lines that move outside of it, memory bandwidth and CPUs that share a core "
    "are in none of this, nor are misses where no diagnostic run has counted them: a change that "
    "saves some under the lock may then be larger.",
)
SHOWN_CPUS = (1, 2, 4, 8, 16, 32, 64)
SOME_CPUS = 16
EVENTS = {"l2": "L2 misses", "llc": "LLC misses", "walks": "page walks"}


def _change(scaling: Scaling, point: ScalingPoint) -> str:
    low, high = (wording.percent(end, decimals=1) for end in point.change)
    text = low if low == high else f"{low.removesuffix(' %')}…{high}"
    return text if scaling.significant else f"({text})"


def lines(scaling: Scaling) -> list[Line]:
    """The range at the published number of CPUs, and where what is published lies."""
    published, says = scaling.published, "estimated"
    point = scaling.at(published.jobs if published else SOME_CPUS)
    assert point is not None
    if published:
        (low, high), change = point.change, published.change
        where = "holds" if low <= change <= high else "below" if change > high else "above"
        says = f"{where} published {wording.percent(change)}"
    label = f"throughput, {point.cpus} CPUs"
    return [
        Line(label, "estimated", "", "", _change(scaling, point), not scaling.significant, says)
    ]


def _speeds(ends: Range) -> str:
    low, high = (wording.figure(end, 3) for end in ends)
    return low if low == high else f"{low} … {high}"


def tables(_: View, comparison: Comparison, scaling: Scaling) -> list[Block]:
    """The range by CPUs, and what it rests on."""
    manifest, published = comparison.manifest, scaling.published
    speed = arms(comparison, f"times one CPU of {manifest.base}", 1)
    listed = {*SHOWN_CPUS, *([published.jobs] if published else [])}
    rows = tuple(
        row(str(p.cpus), _change(scaling, p), _speeds(p.base), _speeds(p.patched))
        for p in scaling.points
        if p.cpus in listed
    )
    label = f"Estimated throughput, {scaling.case}, phase {scaling.phase}"
    return [
        Table(label, (Column("CPUs", left=True), Column("change"), *speed), rows),
        *facts(assumptions(scaling, manifest.machine)),
    ]


def _misses(scaling: Scaling, machine: MachineSpec) -> str:
    """What was counted of them and what each takes, or that nothing was."""
    if scaling.missed is None or scaling.missed_held is None:
        return "without: no diagnostic run has counted them by lock (--memory NAME makes it)"
    everywhere, held = (
        ", ".join(f"{_both(getattr(missed, name))} {title}" for name, title in EVENTS.items())
        for missed in (scaling.missed, scaling.missed_held)
    )
    cycles = weights(machine)
    latencies = ", ".join(f"{cycles[name]:g}" for name in EVENTS)
    return (
        f"counted by diagnostic runs per {scaling.unit_title}: {everywhere}; with the lock held "
        f"{held}. Of their latencies ({latencies} cycles) from nothing to all is waited for, with "
        "the lock and without it each by itself"
    )


def _both(ends: Range) -> str:
    return " -> ".join(map(wording.short, ends))


def _least_and_most(ends: Range) -> str:
    return " to ".join(f"{end:.3g}" for end in dict.fromkeys(ends))


def assumptions(scaling: Scaling, machine: MachineSpec | None) -> list[tuple[str, str]]:
    """What the range rests on, as names and values; ``machine`` is that of its session."""
    assert machine is not None
    many = machine.many
    assert many is not None
    per_cycle = speeds_of(many, misses=scaling.missed is not None)
    assert per_cycle is not None
    executed = (
        f"{_both(scaling.instructions)} instructions, {_both(scaling.held)} of them with the lock "
        f"held, taken {_both(scaling.acquisitions)} times"
    )
    speed = f"{_least_and_most(per_cycle)} at {many.ghz:g} GHz, with the lock and without it each"
    transfer = f"{_least_and_most(many.transfer_ns)} ns, or nothing; two for a handover to a waiter"
    lines = f"{_least_and_most(scaling.lines)} ({'counted' if scaling.lines_counted else 'chosen'})"
    return [
        ("lock", f"{scaling.lock}, its longest held instance; a queue of waiters (MCS)"),
        (f"counted per {scaling.unit_title}", executed),
        ("machine", scaling.machine_title),
        ("instructions per cycle", f"{speed} by itself"),
        ("a line from another CPU", transfer),
        ("lines that move while the lock is held once", lines),
        ("misses", _misses(scaling, machine)),
        ("sources", many.source),
    ]


SCALING = Instrument(EXPLANATION.title, EXPLANATION.of, lines, tables, ESTIMATED)
