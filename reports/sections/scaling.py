"""What many CPUs may make of it: a line a phase, and a chart and tables behind it."""

from __future__ import annotations

from analysis.explain.locks import EXPLANATION as LOCKS
from analysis.explain.memory import weights
from analysis.explain.scaling import (
    EXPLANATION,
    MissedEach,
    Range,
    Scaling,
    ScalingPoint,
    speeds_of,
)
from analysis.model import Comparison
from experiment.machine import MachineSpec
from reports import wording
from reports.charts import scaling as scaling_charts
from reports.charts.canvas import identifier
from reports.document import Block, Column, Table, facts, row
from reports.sections.view import OfPhase, View, by_phase, gallery, titled

ESTIMATED = (
    "Estimated range, not measured. One end is path length, counted on one CPU; the other is the "
    "lock that fills up first, held all the time, by what the measured runs counted. Between them "
    "CPUs queue for it. What hardware does is not known, so each assumption below goes from its "
    "least to its most, alike on both arms. It is never judged."
)
LIMITS = (
    "One lock: others, lines that move outside of it, memory bandwidth and CPUs that share a core "
    "are in none of this, nor are misses where no diagnostic run has counted them: a change that "
    "saves some under the lock may then be larger."
)
SHOWN_CPUS = (1, 2, 4, 8, 16, 32, 64)
SOME_CPUS = 16


def _change(scaling: Scaling, point: ScalingPoint) -> str:
    low, high = (wording.percent(end) for end in point.change)
    text = low if low == high else f"{low} … {high}"
    return text if scaling.significant else f"({text})"


def verdict_of_published(scaling: Scaling) -> str:
    """Where the published change is: ``in the range``, ``above it`` or ``below it``."""
    published = scaling.published
    point = scaling.at(published.jobs) if published else None
    if published is None or point is None:
        return ""
    low, high = point.change
    return "above it" if published.change > high else (
        "below it" if published.change < low else "in the range"
    )  # fmt: skip


def sentence(scaling: Scaling) -> str:
    """``throughput of 16 CPUs +1.0 % … +4.9 %, estimated range, not measured, ...``."""
    published = scaling.published
    cpus = published.jobs if published else SOME_CPUS
    point = scaling.at(cpus)
    assert point is not None
    text = (
        f"throughput of {cpus} CPUs {_change(scaling, point)}, estimated range, not measured, "
        f"{'with' if scaling.missed else 'without'} misses; of one "
        f"{wording.percent(scaling.at_one)} by path length"
    )
    if published:
        text += (
            f"; published {wording.percent(published.change)} at {published.jobs} jobs is "
            f"{verdict_of_published(scaling)}"
        )
    return text


def blocks(view: View, comparison: Comparison) -> list[Block]:
    """The section: a line for each phase, and the charts and tables of all in a fold."""
    charts = view.charts(scaling_charts.draw, comparison=comparison)
    phases = []
    seeds = max((len(each.seeds) for each in LOCKS.of(comparison)), default=0)
    for each in EXPLANATION.of(comparison):
        kind = identifier("scaling", each.case, each.phase)
        drawn = gallery((chart for chart in charts if chart.kind == kind), 4)
        behind = (*drawn, *_tables(comparison, each))
        phases.append(OfPhase(each.case, each.phase, sentence(each), behind, seeds))
    body = by_phase(
        comparison, "From 1 to 64 CPUs, and what is assumed", phases, (ESTIMATED, LIMITS)
    )
    return titled("Many CPUs, an estimated range", "scaling", body)


def _speeds(ends: Range) -> str:
    low, high = (wording.figure(end, 3) for end in ends)
    return low if low == high else f"{low} … {high}"


def _tables(comparison: Comparison, scaling: Scaling) -> list[Block]:
    where = f"{scaling.case}, phase {scaling.phase}"
    manifest = comparison.manifest
    speed = f"times one CPU of {manifest.base}"
    columns = (
        Column("CPUs", left=True), Column("change"),
        Column(manifest.base, group=speed, drop=1), Column(manifest.patched, group=speed, drop=1),
    )  # fmt: skip
    published = scaling.published
    wanted_cpus = {*SHOWN_CPUS, *([published.jobs] if published else [])}
    rows = tuple(
        row(str(p.cpus), _change(scaling, p), _speeds(p.base), _speeds(p.patched))
        for p in scaling.points
        if p.cpus in wanted_cpus
    )
    return [
        Table(f"Estimated throughput, {where}", columns, rows),
        *facts(assumptions(scaling, manifest.machine)),
    ]


EVENTS = {"l2": "L2 misses", "llc": "LLC misses", "walks": "page walks"}


def _misses(scaling: Scaling, machine: MachineSpec) -> str:
    """What was counted of them and what each takes, or that nothing was."""
    if scaling.missed is None or scaling.missed_held is None:
        return "without: no diagnostic run has counted them by lock (--memory NAME makes it)"

    def each(missed: MissedEach) -> str:
        return ", ".join(
            f"{' -> '.join(map(wording.short, getattr(missed, name)))} {title}"
            for name, title in EVENTS.items()
        )

    cycles = weights(machine)
    latencies = ", ".join(f"{cycles[name]:g}" for name in EVENTS)
    return (
        f"counted by diagnostic runs per {scaling.unit_title}: {each(scaling.missed)}; with the "
        f"lock held {each(scaling.missed_held)}. Of their latencies ({latencies} cycles) from "
        "nothing to all is waited for, with the lock and without it each by itself"
    )


def assumptions(scaling: Scaling, machine: MachineSpec | None) -> list[tuple[str, str]]:
    """What the range rests on, as names and values; ``machine`` is that of its session."""
    assert machine is not None
    many = machine.many
    assert many is not None
    per_cycle = speeds_of(many, misses=scaling.missed is not None)
    assert per_cycle is not None
    unit = scaling.unit_title

    def both(ends: Range) -> str:
        return " -> ".join(map(wording.short, ends))

    def least_and_most(ends: Range) -> str:
        return " to ".join(f"{end:.3g}" for end in dict.fromkeys(ends))

    return [
        ("lock", f"{scaling.lock}, its longest held instance; a queue of waiters (MCS)"),
        (f"counted per {unit}", f"{both(scaling.instructions)} instructions, {both(scaling.held)} "
         f"of them with the lock held, taken {both(scaling.acquisitions)} times"),
        ("machine", scaling.machine_title),
        ("instructions per cycle", f"{least_and_most(per_cycle)} at "
         f"{many.ghz:g} GHz, with the lock and without it each by itself"),
        ("a line from another CPU", f"{least_and_most(many.transfer_ns)} ns, or nothing; two for a "
         "handover to a waiter"),
        ("lines that move while the lock is held once",
         f"{least_and_most(scaling.lines)} ({'counted' if scaling.lines_counted else 'chosen'})"),
        ("misses", _misses(scaling, machine)),
        ("sources", many.source),
    ]  # fmt: skip
