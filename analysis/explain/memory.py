"""Misses of a modelled machine's caches and TLBs, counted in diagnostic runs: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from analysis import counts
from analysis.counts import Arm, CountedPhase, Named, OnePhase, Paired, Recorded, Row
from analysis.explain import Explanation
from experiment.machine import MachineSpec
from results.profile import IDLE_PROGRAM, MemoryUse, Misses, PhaseProfile
from results.record import Record

EVENTS = tuple(Misses.model_fields)
MOST_ROWS = 60


class Missed(Record):
    """Events per unit of work; see ``results.profile.Misses``.

    ``cycles`` is an estimate: what these events take by the machine's weights, one after the
    other.
    """

    l1d: Paired
    l1i: Paired
    l2: Paired
    llc: Paired
    prefetched: Paired
    tlb: Paired
    walks: Paired
    cycles: Paired


class MissedIn(Missed):
    """Those of one function, or of one of the user's files."""

    name: str
    file: str
    user: bool
    only_in: Arm = ""


class MemoryComparison(OnePhase):
    """One phase of one case in the diagnostic run that models a machine.

    ``total`` is of everything but idling.  ``rows`` are the functions whose events moved most by
    the estimate, the most first; ``others`` the sum of the ``other_count`` that are not listed,
    None where all are.  ``cycles`` is the estimate of everything: an instruction is one, and events
    take what the machine's weights say.  ``unmapped`` counts accesses of the runs on base and
    patched that are in none of this.
    """

    twin: str
    machine: str
    machine_title: str
    instructions: Paired
    total: Missed
    cycles: Paired
    rows: tuple[MissedIn, ...]
    others: Missed | None
    other_count: int
    unmapped: tuple[int, int]


def weights(machine: MachineSpec) -> Mapping[str, float]:
    """Cycles that each event adds, of accesses that wait for each other.

    A miss of a level adds the way from there to the next one; what is prefetched is there when it
    is asked for, and a miss of the first TLB that the second has is hidden.
    """
    cycles = machine.cycles
    return {
        "l1d": cycles.l2,
        "l1i": cycles.l2,
        "l2": cycles.llc - cycles.l2,
        "llc": cycles.memory - cycles.llc,
        "walks": cycles.walk,
    }


def _phase(here: CountedPhase, twin: str, machine: MachineSpec) -> MemoryComparison:
    cycles_of = weights(machine)

    def counted(run: PhaseProfile) -> Iterator[Row[Named]]:
        memory = run.memory or MemoryUse(kernel=(), user={})
        kernel = ((Named(each.name, False), each.file, each) for each in memory.kernel)
        user = ((Named(name, True), "", each) for name, each in memory.user.items())
        for key, file, each in (*kernel, *user):
            numbers = [float(getattr(each, event)) for event in EVENTS]
            if any(numbers) and key != Named(IDLE_PROGRAM, True):
                cycles = sum(weight * getattr(each, event) for event, weight in cycles_of.items())
                yield key, file, (*numbers, cycles)

    def missed(pairs: Sequence[Paired]) -> dict[str, Paired]:
        return dict(zip((*EVENTS, "cycles"), pairs, strict=True))

    table = here.table(counted, len(EVENTS) + 1)
    rows = [
        MissedIn(**place, **missed(pairs))
        for place, pairs in zip(table.places(), table.rows(), strict=True)
    ]
    rows.sort(key=lambda row: (-abs(row.cycles.difference), -row.cycles.both, row.name))
    shown = {Named(row.name, row.user) for row in rows[:MOST_ROWS]}
    rest = [at for at, key in enumerate(table.keys) if key not in shown]
    base, patched = (sum(run.memory.unmapped for run in arm if run.memory) for arm in here.runs)
    return MemoryComparison(
        **here.where,
        twin=twin,
        machine=machine.name,
        machine_title=machine.title,
        instructions=here.per_unit(lambda run: run.busy),
        total=Missed(**missed(table.total())),
        cycles=here.per_unit(lambda run: run.busy + sum(each[-1] for _, _, each in counted(run))),
        rows=tuple(rows[:MOST_ROWS]),
        others=Missed(**missed(table.total(rest))) if rest else None,
        other_count=len(rest),
        unmapped=(base, patched),
    )


def compare_memory(recorded: Recorded) -> Iterator[MemoryComparison]:
    """One comparison a twin that models a machine, case and phase, where both arms have counts."""
    for twin in recorded.manifest.twins:
        for here in counts.phases(recorded, lambda run: run.memory is not None, twin.name):
            if twin.machine:
                yield _phase(here, twin.name, twin.machine)


EXPLANATION = Explanation(
    "memory", "Caches and TLBs, modelled", 40, MemoryComparison, compare_memory
)
