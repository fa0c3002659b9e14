"""Lines that moved between CPUs, per unit of work and paired by seed: pure.

They are counted in diagnostic runs of a guest with several vCPUs; nothing here reaches a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from reports.attribution import SeedProfiles, profiled_phases
from reports.lines_model import LinesComparison, MovedLines, MovedSum
from reports.lock_identity import TakerNames
from reports.lock_rows import unit_of
from reports.paired import Paired, pers
from results.profile import LineMove, PhaseProfile, Profile
from results.record import CaseRecord, Manifest, PhaseRecord, RunRecord, TwinRecord

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


_Ranges = tuple[tuple[int, int] | None, tuple[int, int] | None]


class _LineKey(NamedTuple):
    object: str
    named: bool
    taker: str = ""
    holder: str = ""


class _LineSum(NamedTuple):
    reads: float = 0.0
    writes: float = 0.0
    apart: float = 0.0

    def plus(self, move: LineMove) -> _LineSum:
        return _LineSum(self.reads + move.reads, self.writes + move.writes, self.apart + move.apart)


def _object(move: LineMove) -> _LineKey:
    title = f"{move.object} (of each CPU)" if move.kind == "of_cpu" else move.object
    return _LineKey(title if move.object else MEMORY_OF[move.kind], bool(move.object))


def _sums(phase: PhaseProfile, *, functions: bool) -> dict[_LineKey, _LineSum]:
    sums: dict[_LineKey, _LineSum] = {}
    for move in phase.lines or ():
        key = _object(move)
        if functions:
            key = key._replace(taker=move.taker, holder=move.holder)
        sums[key] = sums.get(key, _LineSum()).plus(move)
    return sums


class _LineRuns:
    """Both arms' runs with turns of one length: base first, seeds in the same order."""

    def __init__(self, blocks: Sequence[SeedProfiles], unit: str) -> None:
        self.arms = [[b.base for b in blocks], [b.patched for b in blocks]]
        self.units = [[phase.units[unit] for phase in arm] for arm in self.arms]
        self.objects = [[_sums(p, functions=False) for p in arm] for arm in self.arms]
        self.pairs = [[_sums(p, functions=True) for p in arm] for arm in self.arms]

    def moved(
        self, tables: Sequence[Sequence[Mapping[_LineKey, _LineSum]]], keys: Sequence[_LineKey]
    ) -> list[dict[str, Paired]]:
        """Each number per unit, by key, of tables by arm and run."""
        none = _LineSum()
        # Of shape (arms, runs, keys, numbers).
        sums = np.array([[[run.get(key, none) for key in keys] for run in arm] for arm in tables])
        reads, writes, apart = np.moveaxis(sums, -1, 0)
        units = np.asarray(self.units, dtype=np.float64)[:, :, None]
        numbers = {"all_lines": reads + writes, "reads": reads, "writes": writes, "apart": apart}
        by_name = [pers(each, units) for each in numbers.values()]
        return [dict(zip(numbers, each, strict=True)) for each in zip(*by_name, strict=True)]

    def total(self) -> MovedSum:
        key = _LineKey("", named=False)
        tables = [
            [{key: _LineSum(*map(sum, zip(_LineSum(), *run.values(), strict=True)))} for run in arm]
            for arm in self.objects
        ]
        return MovedSum(**self.moved(tables, [key])[0])


def _by_turns(here: Paired, other: tuple[float, float] | None) -> bool:
    if other is None:
        return False
    both = zip((here.base, here.patched), other, strict=True)
    return any(max(a, b) >= RARE and abs(a - b) > BY_TURNS * max(a, b) for a, b in both)


def _rows(
    runs: _LineRuns, beside: _LineRuns | None, which: str, ranges: Mapping[_LineKey, _Ranges]
) -> list[MovedLines]:
    tables: list[list[dict[_LineKey, _LineSum]]] = getattr(runs, which)
    keys = list({key for arm in tables for run in arm for key in run})
    others: list[tuple[float, float] | None] = [None] * len(keys)
    if beside is not None and keys:
        there = (each["all_lines"] for each in beside.moved(getattr(beside, which), keys))
        others = [(each.base, each.patched) for each in there]
    numbers = runs.moved(tables, keys) if keys else []
    rows = []
    for key, moved, other in zip(keys, numbers, others, strict=True):
        present = [any(key in run for run in arm) for arm in tables]
        mine, theirs = ranges.get(key, (None, None))
        rows.append(MovedLines(
            **moved, **key._asdict(), mine=mine, theirs=theirs, other=other,
            by_turns=_by_turns(moved["all_lines"], other),
            only_in="" if all(present) else "base" if present[0] else "patched",
        ))  # fmt: skip
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


def _ranges(phases: Sequence[PhaseProfile]) -> dict[_LineKey, _Ranges]:
    """The bytes of named objects by functions, over all runs: of base first."""
    ranges: dict[_LineKey, _Ranges] = {}
    for phase in phases:
        for move in phase.lines or ():
            key = _object(move)._replace(taker=move.taker, holder=move.holder)
            ranges.setdefault(key, (move.mine, move.theirs))
    return ranges


def _phase(
    twin: TwinRecord,
    case: CaseRecord,
    phase: PhaseRecord,
    blocks: Sequence[SeedProfiles],
    beside: tuple[int, Sequence[SeedProfiles]] | None,
) -> LinesComparison | None:
    profiles = [run for b in blocks for run in (b.base, b.patched)]
    unit = unit_of(phase, profiles)
    if unit is None or twin.machine is None or any(run.lines is None for run in profiles):
        return None
    runs = _LineRuns(blocks, unit[0])
    other = _LineRuns(beside[1], unit[0]) if beside else None
    total, there = runs.total(), other.total().all_lines if other else None
    other_total = (there.base, there.patched) if there else None
    pairs = _rows(runs, other, "pairs", _ranges(profiles))
    return LinesComparison(
        twin=twin.name,
        machine=twin.machine.name,
        machine_title=twin.machine.title,
        case=case.name,
        phase=phase.name,
        unit_title=unit[1],
        seeds=tuple(block.seed for block in blocks),
        vcpus=twin.guest.vcpus,
        metronome_ns=twin.guest.metronome_ns,
        other_ns=beside[0] if beside else 0,
        total=total,
        other=other_total,
        by_turns=_by_turns(total.all_lines, other_total),
        objects=_most(_rows(runs, other, "objects", {}), MOST_OBJECTS),
        pairs=_most(pairs, MOST_PAIRS),
        pair_count=len(pairs),
    )


def lines_held(
    manifest: Manifest, records: Sequence[RunRecord], profiles: Sequence[Profile]
) -> dict[tuple[str, str], dict[str, tuple[float, float]]]:
    """By case and phase: lines that came from other CPUs while each lock was held once.

    By the lock's label, the least and the most of all runs that followed lines.
    """
    ranges: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    for twin in manifest.twins:
        if twin.observe != "lines":
            continue
        for case, phase, blocks in profiled_phases(manifest, records, profiles, twin.name):
            both = [run for b in blocks for run in (b.base, b.patched) if run.lines is not None]
            names = TakerNames([use for run in both for use in run.locks or ()])
            by_label = ranges.setdefault((case.name, phase.name), {})
            for run in both:
                for label, moved in _held_in(run, names).items():
                    low, high = by_label.get(label, (moved, moved))
                    by_label[label] = min(low, moved), max(high, moved)
    return ranges


def _held_in(run: PhaseProfile, names: TakerNames) -> dict[str, float]:
    sums: dict[str, tuple[int, int]] = {}
    for use in run.locks or ():
        for site, taker in zip(use.sites, names.of(use), strict=True):
            moved, taken = sums.get(taker.label, (0, 0))
            sums[taker.label] = moved + site.moved, taken + site.taken
    return {label: moved / taken for label, (moved, taken) in sums.items() if taken}


def _without_turns(twin: TwinRecord) -> tuple[object, ...]:
    return twin.machine, twin.guest.model_copy(update={"metronome_ns": 0})


def compare_lines(
    manifest: Manifest, records: Sequence[RunRecord], profiles: Sequence[Profile]
) -> tuple[LinesComparison, ...]:
    """One comparison a case and phase of each twin that follows lines.

    Twins that differ by how long a turn is alone are one: the second stands beside the first.
    """
    twins = [twin for twin in manifest.twins if twin.observe == "lines"]
    firsts = [
        twin for n, twin in enumerate(twins)
        if all(_without_turns(twin) != _without_turns(before) for before in twins[:n])
    ]  # fmt: skip
    comparisons = []
    for twin in firsts:
        second = next(
            (t for t in twins if t is not twin and _without_turns(t) == _without_turns(twin)), None
        )
        beside = {
            (case.name, phase.name): blocks
            for case, phase, blocks in (
                profiled_phases(manifest, records, profiles, second.name) if second else ()
            )
            if all(run.lines is not None for b in blocks for run in (b.base, b.patched))
        }
        for case, phase, blocks in profiled_phases(manifest, records, profiles, twin.name):
            others = beside.get((case.name, phase.name))
            turns = (second.guest.metronome_ns, others) if second and others else None
            compared = _phase(twin, case, phase, blocks, turns)
            comparisons += [compared] if compared else []
    return tuple(comparisons)
