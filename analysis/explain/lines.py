"""Lines that moved between CPUs, counted in diagnostic runs of a guest with several vCPUs: pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from analysis import counts
from analysis.counts import FAVOURITE_UNIT, Arm, CountedPhase, Recorded
from analysis.explain import Explanation
from analysis.lock_identity import TakerNames
from analysis.paired import Paired, pers
from results.profile import LineMove, PhaseProfile
from results.record import Record, TwinRecord

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
    other: tuple[float, float] | None = None
    by_turns: bool = False
    only_in: Arm = ""


class LinesComparison(Record):
    """One phase of one case in the diagnostic runs that follow lines.

    ``metronome_ns`` is how long a vCPU's turn is at most, ``other_ns`` that of the runs beside, 0
    where there are none.  ``objects`` and ``pairs`` have what moved most first, and what the turns
    have made behind that.
    """

    twin: str
    machine: str
    machine_title: str
    case: str
    phase: str
    unit_title: str
    seeds: tuple[int, ...]
    vcpus: int
    metronome_ns: int
    other_ns: int
    total: MovedSum
    other: tuple[float, float] | None
    by_turns: bool
    objects: tuple[MovedLines, ...]
    pairs: tuple[MovedLines, ...]
    pair_count: int

    @property
    def falsest(self) -> MovedLines | None:
        """The named object whose false sharing changed most, else that with most of it; or None."""
        rows = [row for row in self.objects if row.named and (row.apart.base or row.apart.patched)]
        return max(
            rows,
            key=lambda row: (abs(row.apart.difference), row.apart.base + row.apart.patched),
            default=None,
        )


class _LineKey(NamedTuple):
    object: str
    named: bool
    taker: str = ""
    holder: str = ""


def _key(move: LineMove, *, functions: bool) -> _LineKey:
    title = f"{move.object} (of each CPU)" if move.kind == "of_cpu" else move.object
    key = _LineKey(title if move.object else MEMORY_OF[move.kind], bool(move.object))
    return key._replace(taker=move.taker, holder=move.holder) if functions else key


def _table(here: CountedPhase, *, functions: bool) -> counts.CountTable[_LineKey]:
    def counted(run: PhaseProfile) -> Iterator[tuple[_LineKey, str, Sequence[float]]]:
        for move in run.lines or ():
            numbers = (move.reads + move.writes, move.reads, move.writes, move.apart)
            yield _key(move, functions=functions), "", numbers

    return counts.table(here, counted, len(NUMBERS))


def _moved(table: counts.CountTable[_LineKey]) -> list[tuple[Paired, ...]]:
    """For each key, each number per unit."""
    units = table.units[:, :, None]
    columns = (pers(table.raw[..., column], units) for column in range(len(NUMBERS)))
    return list(zip(*columns, strict=True)) if table.keys else []


def _by_turns(here: Paired, other: tuple[float, float] | None) -> bool:
    if other is None:
        return False
    both = zip((here.base, here.patched), other, strict=True)
    return any(max(a, b) >= RARE and abs(a - b) > BY_TURNS * max(a, b) for a, b in both)


def _rows(here: CountedPhase, beside: CountedPhase | None, *, functions: bool) -> list[MovedLines]:
    table = _table(here, functions=functions)
    there: dict[_LineKey, tuple[float, float]] = {}
    if beside:
        other = _table(beside, functions=functions)
        there = {
            key: (pairs[0].base, pairs[0].patched)
            for key, pairs in zip(other.keys, _moved(other), strict=True)
        }
    ranges: dict[_LineKey, tuple[tuple[int, int] | None, tuple[int, int] | None]] = {}
    # The bytes of named objects by functions, over all runs: of base first.
    for run in (run for block in here.blocks for run in (block.base, block.patched)):
        for move in run.lines or () if functions else ():
            ranges.setdefault(_key(move, functions=True), (move.mine, move.theirs))
    rows = []
    for key, only_in, pairs in zip(table.keys, table.only_in, _moved(table), strict=True):
        mine, theirs = ranges.get(key, (None, None))
        turns = there.get(key, (0.0, 0.0)) if beside else None
        rows.append(
            MovedLines(
                **dict(zip(NUMBERS, pairs, strict=True)),
                **key._asdict(),
                mine=mine,
                theirs=theirs,
                other=turns,
                by_turns=_by_turns(pairs[0], turns),
                only_in=only_in,
            )
        )
    rows.sort(key=lambda row: (
        row.by_turns, -abs(row.all_lines.difference), -(row.all_lines.base + row.all_lines.patched),
        row.object, row.taker, row.holder,
    ))  # fmt: skip
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


def _phase(
    twin: TwinRecord, here: CountedPhase, other_ns: int, beside: CountedPhase | None
) -> LinesComparison:
    assert twin.machine is not None
    total = _table(here, functions=False).total()
    other = None
    if beside:
        all_lines = _table(beside, functions=False).total()[0]
        other = all_lines.base, all_lines.patched
    pairs = _rows(here, beside, functions=True)
    return LinesComparison(
        twin=twin.name,
        machine=twin.machine.name,
        machine_title=twin.machine.title,
        case=here.case.name,
        phase=here.phase.name,
        unit_title=here.unit_title,
        seeds=here.seeds,
        vcpus=twin.guest.vcpus,
        metronome_ns=twin.guest.metronome_ns,
        other_ns=other_ns if beside else 0,
        total=MovedSum(**dict(zip(NUMBERS, total, strict=True))),
        other=other,
        by_turns=_by_turns(total[0], other),
        objects=_most(_rows(here, beside, functions=False), MOST_OBJECTS),
        pairs=_most(pairs, MOST_PAIRS),
        pair_count=len(pairs),
    )


def _followed(recorded: Recorded, twin: TwinRecord) -> dict[tuple[str, str], CountedPhase]:
    followed = counts.phases(recorded, lambda run: run.lines is not None, twin.name, FAVOURITE_UNIT)
    return {(here.case.name, here.phase.name): here for here in followed}


def lines_held(recorded: Recorded) -> dict[tuple[str, str], dict[str, tuple[float, float]]]:
    """By case and phase: lines that came from other CPUs while each lock was held once.

    By the lock's label, the least and the most of all runs that followed lines.
    """
    ranges: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    for twin in recorded.manifest.twins:
        if twin.observe != "lines":
            continue
        for case, phase, blocks in counts.profiled_phases(recorded, twin.name):
            both = [run for b in blocks for run in (b.base, b.patched) if run.lines is not None]
            names = TakerNames([use for run in both for use in run.locks or ()])
            by_label = ranges.setdefault((case.name, phase.name), {})
            for run in both:
                sums: dict[str, tuple[int, int]] = {}
                for use in run.locks or ():
                    for site, taker in zip(use.sites, names.of(use), strict=True):
                        moved, taken = sums.get(taker.label, (0, 0))
                        sums[taker.label] = moved + site.moved, taken + site.taken
                for label, (moved, taken) in sums.items():
                    if taken:
                        low, high = by_label.get(label, (moved / taken,) * 2)
                        by_label[label] = min(low, moved / taken), max(high, moved / taken)
    return ranges


def compare_lines(recorded: Recorded) -> tuple[LinesComparison, ...]:
    """One comparison a case and phase of each twin that follows lines.

    Twins that differ by how long a turn is alone are one: the second stands beside the first.
    """
    alike: dict[tuple[str, str], list[TwinRecord]] = {}
    for twin in recorded.manifest.twins:
        if twin.observe == "lines":
            guest = twin.guest.model_copy(update={"metronome_ns": 0})
            alike.setdefault((str(twin.machine), str(guest)), []).append(twin)
    comparisons = []
    for first, *others in alike.values():
        beside = _followed(recorded, others[0]) if others else {}
        for at, here in _followed(recorded, first).items():
            there = beside.get(at)
            if there:
                there = dataclasses.replace(there, unit=here.unit, unit_title=here.unit_title)
            comparisons.append(
                _phase(first, here, others[0].guest.metronome_ns if others else 0, there)
            )
    return tuple(comparisons)


EXPLANATION = Explanation(
    "lines", "Lines that move between CPUs, modelled", 50, LinesComparison, compare_lines
)
