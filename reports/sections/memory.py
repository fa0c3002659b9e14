"""Caches and TLBs of a modelled machine: a line a phase, and tables behind it."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.counts import Paired
from analysis.explain.memory import EXPLANATION, MemoryComparison, Missed, MissedIn
from analysis.model import Comparison
from reports import wording
from reports.document import Block, Cell, Column, Paragraph, Row, Strong, row
from reports.sections.counted import MOST_SHOWN, change, first_and_more, notes, of_phases, only
from reports.sections.view import View, by_phase, titled, totals
from text import counted

MODELLED = (
    "Modelled, not measured: diagnostic runs of the judged guests, in which a QEMU plugin follows "
    "every access and every line of code through the caches and TLBs of one core of this machine, "
    "by the guest's own page tables. All numbers are virtual. They are never judged, and time in "
    "the guest does not depend on them."
)
LIMITS = (
    "LLC misses are lines from memory that were waited for, lines prefetched those that a stream "
    "fetched ahead, in time. One core and its share of the last level; least recently used lines "
    "go first; what is written back, walks' own accesses and other CPUs are not modelled. "
    "Without process identifiers (PCID) a change of address space drops the user's translations."
)
ESTIMATE = (
    "The estimate adds a cycle for each instruction and the machine's latencies for each event, as "
    "if nothing overlapped: it ranks, and is no time."
)
# In the order of the table: what decides first.
TITLES = {
    "llc": "LLC misses",
    "prefetched": "lines prefetched",
    "l2": "L2 misses",
    "walks": "page walks",
    "tlb": "L1 data TLB misses",
}


def _short(pair: Paired, title: str) -> str:
    if pair.equal:
        return f"{title} unchanged at {wording.short(pair.base)}"
    return f"{title} {wording.few(pair)} ({change(pair)})"


def sentence(memory: MemoryComparison) -> str:
    """``LLC misses per folio added 144.5 -> 144.3 (-0.14 %); page walks unchanged at 2.1``."""
    total = memory.total
    parts = [_short(total.llc, f"LLC misses per {memory.unit_title}")]
    parts.append(_short(total.walks, "page walks"))
    return f"{'; '.join(parts)}; {counted(total.llc.n, 'seed')} of a modelled {memory.machine}"


def brief(memory: MemoryComparison) -> str:
    """The same for a line of a mail."""
    total = memory.total
    return (
        f"Modelled {memory.machine}: LLC misses {wording.few(total.llc)} per {memory.unit_title} "
        f"({wording.moved_if_at_all(total.llc).strip('()')}), "
        f"page walks {wording.moved_if_at_all(total.walks).strip('()')}"
    )


def blocks(_view: View, comparison: Comparison) -> list[Block]:
    """The section: a line for each phase, and the tables of all in a fold."""
    phases = of_phases(
        comparison, EXPLANATION.of(comparison), sentence, lambda each: _tables(comparison, each)
    )
    body = by_phase(comparison, "Caches and TLBs by function", phases, (MODELLED, LIMITS, ESTIMATE))
    return titled(EXPLANATION.title, EXPLANATION.name, body)


def _tables(comparison: Comparison, memory: MemoryComparison) -> list[Block]:
    where = f"{memory.case}, phase {memory.phase}"
    unit = memory.unit_title
    events = [(title, getattr(memory.total, name)) for name, title in TITLES.items()]
    events += [("instructions", memory.instructions), ("cycles (estimate)", memory.cycles)]
    first = memory.total
    blocks: list[Block] = [
        Paragraph((Strong(f"{memory.machine_title}."), f" Per {unit}."), "banner"),
        totals(comparison, f"Modelled events per {unit}, {where}", "virtual events", events),
        Paragraph(
            f"L1 misses, which the layout of code and data moves: data {wording.few(first.l1d)}, "
            f"code {wording.few(first.l1i)}.",
            "note",
        ),
    ]
    if any(memory.unmapped):
        base, patched = memory.unmapped
        blocks.append(Paragraph(
            f"No page was found for {base} accesses in {comparison.manifest.base} and {patched} in "
            f"{comparison.manifest.patched}: they are not counted."
        ))  # fmt: skip
    columns, decimals = _heads(comparison, memory), _decimals(memory)
    rows = [_function(comparison, each, decimals) for each in memory.rows]
    if memory.others and rows[MOST_SHOWN:]:
        label = f"the other {memory.other_count} functions"
        rows.append(row(Cell(label), *_numbers(memory.others, decimals), faint=True, total=True))
    label, more = f"Modelled events by function, {where}", f"More functions, {where}"
    return [*blocks, *first_and_more(label, more, "{} more functions", columns, rows)]


def _heads(comparison: Comparison, memory: MemoryComparison) -> tuple[Column, ...]:
    base, patched = comparison.manifest.base, comparison.manifest.patched
    columns = [Column("function", left=True)]
    for name, drop in (("llc", 0), ("walks", 0), ("prefetched", 3), ("l2", 1), ("tlb", 2)):
        group = f"{TITLES[name]} per {memory.unit_title}"
        columns += [Column(base, group=group, drop=drop), Column(patched, group=group, drop=drop)]
    return tuple(columns)


def _pairs(missed: Missed) -> tuple[Paired, ...]:
    return (missed.llc, missed.walks, missed.prefetched, missed.l2, missed.tlb)


def _decimals(memory: MemoryComparison) -> tuple[int, ...]:
    """Of each event, so that the function with most of it has three digits that count."""
    by_event = zip(*(_pairs(each) for each in memory.rows), strict=True)
    return tuple(
        wording.decimals_of(*(value for pair in pairs for value in (pair.base, pair.patched)))
        for pairs in by_event
    )


def _numbers(missed: Missed, decimals: Sequence[int]) -> tuple[str, ...]:
    return tuple(
        wording.amount(value, places)
        for pair, places in zip(_pairs(missed), decimals, strict=True)
        for value in (pair.base, pair.patched)
    )


def _function(comparison: Comparison, each: MissedIn, decimals: Sequence[int]) -> Row:
    note = notes("user" if each.user else each.file, only(each.only_in, comparison))
    return row(Cell(each.name, small=note, mono=True), *_numbers(each, decimals))
