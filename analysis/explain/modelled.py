"""What a modelled machine does, counted in diagnostic runs: pure.

Misses of the caches and TLBs of one of its CPUs, and lines that move between several.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from analysis import counts
from analysis.counts import (
    FAVOURITE_UNIT,
    Arm,
    CountedPhase,
    CountTable,
    Named,
    OnePhase,
    Paired,
    Recorded,
    Row,
)
from analysis.explain import Explanation
from analysis.explain.locks import names_in
from experiment.machine import MachineSpec
from results.profile import IDLE_PROGRAM, LineMove, MemoryUse, Misses, PhaseProfile
from results.record import Record, TwinRecord

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


MEMORY = Explanation("memory", "Caches and TLBs, modelled", 40, MemoryComparison, compare_memory)


# Of base and patched, or the least and the most.
Both = tuple[float, float]
MOST_OBJECTS = 40
MOST_PAIRS = 60
# Farther apart than this part of the larger, and the turns have made the number ...
BY_TURNS = 0.25
# ... where it is at least so many in a thousand units.
RARE = 0.001
MEMORY_OF = {
    "pages": "page structures",
    "user": "user memory",
    "memory": "other kernel memory",
    # These two always have a name.
    "variable": "",
    "of_cpu": "",
    "slab": "objects of slab caches",
}
# Of all lines, those to be read, those to be written, and those of false sharing.
NUMBERS = ("all_lines", "reads", "writes", "apart")


class MovedSum(Record):
    """Lines that moved per unit of work: to be read, to be written, and those of false sharing.

    ``all_lines`` are both; see ``results.profile.LineMove``.
    """

    all_lines: Paired
    reads: Paired
    writes: Paired
    apart: Paired


class MovedLines(MovedSum):
    """Those of one object; with functions, those that came to ``taker`` from ``holder``.

    ``object`` is a variable or a structure's member by its name, else what the memory is of.
    ``mine`` and ``theirs`` are the bytes of the object that were touched (of rows with
    functions).  ``other`` are base and patched
    of ``all_lines`` with turns of the other length, None where there were none, and
    ``by_turns`` whether they are so far apart that the number is one of the turns.
    """

    object: str
    named: bool
    taker: str = ""
    holder: str = ""
    mine: tuple[int, int] | None = None
    theirs: tuple[int, int] | None = None
    other: Both | None = None
    by_turns: bool = False
    only_in: Arm = ""


class LinesComparison(OnePhase):
    """One phase of one case in the diagnostic runs that follow lines.

    ``metronome_ns`` is how long a vCPU's turn is at most, ``other_ns`` that of the runs beside, 0
    where there are none.  ``objects`` and ``pairs`` have what moved most first, and what the turns
    have made behind that.
    """

    twin: str
    machine: str
    machine_title: str
    vcpus: int
    metronome_ns: int
    other_ns: int
    total: MovedSum
    other: Both | None
    by_turns: bool
    objects: tuple[MovedLines, ...]
    pairs: tuple[MovedLines, ...]
    pair_count: int

    @property
    def falsest(self) -> MovedLines | None:
        """The named object whose false sharing changed most, else that with most of it; or None."""
        rows = [row for row in self.objects if row.named and row.apart.both]
        return max(rows, key=lambda row: (abs(row.apart.difference), row.apart.both), default=None)


class _LineKey(NamedTuple):
    object: str
    named: bool
    taker: str
    holder: str


def _key(move: LineMove) -> _LineKey:
    title = f"{move.object} (of each CPU)" if move.kind == "of_cpu" else move.object
    return _LineKey(title or MEMORY_OF[move.kind], bool(move.object), move.taker, move.holder)


def _moves(run: PhaseProfile) -> Iterator[Row[_LineKey]]:
    for move in run.lines or ():
        yield _key(move), "", (move.reads + move.writes, move.reads, move.writes, move.apart)


def _of_objects(table: CountTable[_LineKey]) -> CountTable[_LineKey]:
    return table.grouped(lambda key: key._replace(taker="", holder=""))


def _by_turns(here: Paired, other: Both | None) -> bool:
    both = zip((here.base, here.patched), other, strict=True) if other else ()
    return any(max(a, b) >= RARE and abs(a - b) > BY_TURNS * max(a, b) for a, b in both)


def _rows(
    table: CountTable[_LineKey],
    beside: CountTable[_LineKey] | None,
    ends: Mapping[_LineKey, LineMove],
) -> list[MovedLines]:
    """``beside`` is of the runs with other turns; ``ends`` has the bytes of objects."""
    there: dict[_LineKey, Both] = {}
    if beside:
        there = {
            at: (pairs[0].base, pairs[0].patched)
            for at, pairs in zip(beside.keys, beside.rows(), strict=True)
        }
    rows = []
    for at, only_in, pairs in zip(table.keys, table.only_in, table.rows(), strict=True):
        turns = there.get(at, (0.0, 0.0)) if beside else None
        touched = ends.get(at)
        rows.append(
            MovedLines(
                **at._asdict(),
                **dict(zip(NUMBERS, pairs, strict=True)),
                mine=touched.mine if touched else None,
                theirs=touched.theirs if touched else None,
                other=turns,
                by_turns=_by_turns(pairs[0], turns),
                only_in=only_in,
            )
        )
    rows.sort(
        key=lambda row: (
            row.by_turns,
            -abs(row.all_lines.difference),
            -row.all_lines.both,
            row.object,
            row.taker,
            row.holder,
        )
    )
    return rows


def _most(rows: Sequence[MovedLines], count: int) -> tuple[MovedLines, ...]:
    """Those of which most lines move on either arm, in the rows' order.

    A change is no larger than that, so a large one is among them; what depends on the turns, which
    is last in the order, stays where much of it moves.
    """
    ranks = sorted(
        range(len(rows)),
        key=lambda at: (-max(rows[at].all_lines.base, rows[at].all_lines.patched), at),
    )
    return tuple(rows[at] for at in sorted(ranks[:count]))


def _followed(recorded: Recorded, twin: TwinRecord) -> dict[tuple[str, str], CountedPhase]:
    followed = counts.phases(recorded, lambda run: run.lines is not None, twin.name, FAVOURITE_UNIT)
    return {(here.case.name, here.phase.name): here for here in followed}


def lines_held(recorded: Recorded) -> dict[tuple[str, str], dict[str, Both]]:
    """By case and phase: lines that came from other CPUs while each lock was held once.

    By the lock's label, the least and the most of all runs that followed lines.
    """
    ranges: dict[tuple[str, str], dict[str, Both]] = {}
    for twin in recorded.manifest.twins:
        for case, phase, blocks in counts.profiled_phases(recorded, twin.name):
            both = [run for block in blocks for run in block[1:] if run.lines is not None]
            if twin.observe != "lines":
                continue
            names = names_in(both)
            by_label = ranges.setdefault((case.name, phase.name), {})
            for run in both:
                sums: Counter[str] = Counter()
                times: Counter[str] = Counter()
                for _, site, taker in names.in_run(run):
                    sums[taker.label] += site.moved
                    times[taker.label] += site.taken
                for label in +times:
                    each = sums[label] / times[label]
                    low, high = by_label.get(label, (each, each))
                    by_label[label] = min(low, each), max(high, each)
    return ranges


def compare_lines(recorded: Recorded) -> Iterator[LinesComparison]:
    """One comparison a case and phase of each twin that follows lines.

    Twins that differ by how long a turn is alone are one: the second stands beside the first.
    """
    alike: dict[tuple[str, str], list[TwinRecord]] = {}
    for twin in recorded.manifest.twins:
        if twin.observe == "lines":
            guest = twin.guest.model_copy(update={"metronome_ns": 0})
            alike.setdefault((str(twin.machine), str(guest)), []).append(twin)
    for first, *others in alike.values():
        beside = _followed(recorded, others[0]) if others else {}
        for at, here in _followed(recorded, first).items():
            assert first.machine is not None
            table, turned, other = here.table(_moves, len(NUMBERS)), None, None
            if at in beside:
                there = dataclasses.replace(beside[at], unit=here.unit)
                turned = there.table(_moves, len(NUMBERS))
                all_lines = turned.total()[0]
                other = all_lines.base, all_lines.patched
            # The bytes of named objects by functions, over all runs: of base first.
            ends: dict[_LineKey, LineMove] = {}
            for move in (move for run in here.every for move in run.lines or ()):
                ends.setdefault(_key(move), move)
            total, pairs = table.total(), _rows(table, turned, ends)
            objects = _rows(_of_objects(table), turned and _of_objects(turned), {})
            yield LinesComparison(
                **here.where,
                twin=first.name,
                machine=first.machine.name,
                machine_title=first.machine.title,
                vcpus=first.guest.vcpus,
                metronome_ns=first.guest.metronome_ns,
                other_ns=others[0].guest.metronome_ns if turned else 0,
                total=MovedSum(**dict(zip(NUMBERS, total, strict=True))),
                other=other,
                by_turns=_by_turns(total[0], other),
                objects=_most(objects, MOST_OBJECTS),
                pairs=_most(pairs, MOST_PAIRS),
                pair_count=len(pairs),
            )


LINES = Explanation(
    "lines", "Lines that move between CPUs, modelled", 50, LinesComparison, compare_lines
)
