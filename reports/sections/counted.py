"""What was counted or modelled: a line a phase, and tables behind it.

Any count whose rows are records with a name and a number a column is shown by :class:`Ranked`;
interrupts and faults, call stacks, caches and lines that move have tables of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.counts import Paired
from analysis.explain import Explanation
from analysis.explain import interruptions as counted_interruptions
from analysis.explain import kinds as counted_kinds
from analysis.explain import lines as moved_lines
from analysis.explain import memory as modelled
from analysis.explain import stacks as counted_stacks
from analysis.explain.interruptions import InterruptionComparison
from analysis.explain.lines import LinesComparison, MovedLines
from analysis.explain.memory import MemoryComparison, Missed
from analysis.explain.stacks import StackComparison, StackRow
from analysis.model import Comparison
from reports import wording
from reports.charts import functions as charts
from reports.document import Block, Cell, Column, Paragraph, Row, Strong, Table, row
from reports.sections.view import (
    MOST_SHOWN,
    View,
    arms,
    by_phase,
    change,
    figure,
    first_and_more,
    notes,
    only,
    shorts,
    titled,
    totals,
)
from text import counted

EXPLAINS = "Counts explain a verdict and never make one."


def _section(
    explanation: Explanation[Any],
    comparison: Comparison,
    behind: str,
    sentence: Callable[[Any], str],
    tables: Callable[[Any], Sequence[Block]],
    how: Sequence[str],
) -> list[Block]:
    body = by_phase(comparison, behind, explanation.of(comparison), sentence, tables, how)
    return titled(explanation.title, explanation.name, body)


@dataclass(frozen=True)
class Ranked:
    """How an explanation is shown that has a ``total``, and ``rows`` of which some are ``listed``.

    Its numbers are the fields that hold them.  Those of ``titles`` have another title than their
    name; only those of ``always`` are in the sentence where they did not move, all without any.
    """

    explanation: Explanation[Any]
    behind: str = ""
    how: Sequence[str] = (EXPLAINS,)
    what: str = "counts"
    titles: Mapping[str, str] = field(default_factory=dict)
    always: Sequence[str] = ()

    def numbers(self, record: Any) -> list[tuple[str, str, Paired]]:
        """Name, title and value of each number."""
        pairs = ((name, getattr(record, name)) for name in type(record).model_fields)
        return [
            (name, self.titles.get(name, name.replace("_", " ")), value)
            for name, value in pairs
            if isinstance(value, Paired)
        ]

    def sentence(self, each: Any) -> str:
        """``per I/O 201.2 -> 200.1 loads (-0.55 %), 90.3 -> 90.3 stores (unchanged) ...``."""
        parts = [
            f"{wording.few(pair)} {title} ({change(pair)})"
            for name, title, pair in self.numbers(each.total)
            if not self.always or name in self.always or not (pair.equal or pair.within_scatter)
        ]
        return f"per {each.unit_title} {', '.join(parts)}"

    def blocks(self, _view: View, comparison: Comparison) -> list[Block]:
        """The section: a line for each phase, and the tables of all in a fold."""
        behind = self.behind or f"{self.explanation.title} by function"

        def tables(each: Any) -> list[Block]:
            return self._tables(comparison, each)

        return _section(self.explanation, comparison, behind, self.sentence, tables, self.how)

    def _tables(self, comparison: Comparison, each: Any) -> list[Block]:
        where, title = f"{each.case}, phase {each.phase}", self.explanation.title
        numbers = self.numbers(each.total)
        columns = [Column("function", left=True)]
        decimals: dict[str, int] = {}
        for name, head, _ in numbers:
            drop = 0 if not self.always or name in self.always else 1
            columns.append(Column(head, group=f"difference per {each.unit_title}", drop=drop))
            differences = (getattr(row, name).difference for row in each.rows)
            decimals[name] = wording.decimals_of(*differences, digits=2)
        rows = []
        for of_row in each.rows[: each.listed]:
            cells = []
            for name, places in decimals.items():
                pair: Paired = getattr(of_row, name)
                text = wording.signed(pair.difference, places)
                cells.append(f"({text})" if pair.is_uncertain else text)
            note = notes("user" if of_row.user else of_row.file, only(of_row.only_in, comparison))
            rows.append(row(Cell(of_row.name, small=note, mono=True), *cells))
        label = f"{title} by function, {where}"
        sums = [(head, pair) for _, head, pair in numbers]
        return [
            totals(comparison, f"{title} per {each.unit_title}, {where}", self.what, sums),
            *first_and_more(label, f"{label}, more", "{} more functions", columns, rows),
        ]


KINDS = Ranked(
    counted_kinds.EXPLANATION,
    behind="Kinds of instructions by function",
    how=(
        "Counted in the judged runs: what each instruction is of, known when its block is "
        "translated, times the executions of the block. One that reads and writes memory is a load "
        "and a store, a locked one an atomic besides (on arm64 the store of an exclusive pair, and "
        "LSE). On one CPU the kernel patches its locks away; they are counted as the atomics that "
        "they are on more. A locked addition of nothing to the stack is a barrier.",
        EXPLAINS,
    ),
    what="instructions",
    titles={"system": "system instructions"},
    always=("loads", "stores", "atomics"),
)

INTERRUPTED = (
    "Virtual: counted in the judged runs, each where it came, by the handler that it went to. "
    "Exceptions are page faults for the most part. Interrupts come by the virtual clock, wherever "
    "that finds the guest: a shorter path has fewer of the timer's."
)


def interruptions_sentence(counts: InterruptionComparison) -> str:
    """``per I/O 0.0047 -> 0.0046 interrupts (-0.5 %), 1.02 -> 1.02 exceptions (unchanged)``."""
    parts = [f"{wording.few(pair)} {kind}s ({change(pair)})" for kind, pair in counts.kinds.items()]
    return f"per {counts.unit_title} {', '.join(parts) or 'no interrupts and faults'}, virtual"


def interruptions(_view: View, comparison: Comparison) -> list[Block]:
    """Interrupts and faults: a line for each phase, and the tables of all in a fold."""
    columns = Column("handler", left=True), *arms(comparison), Column("change")

    def tables(each: InterruptionComparison) -> list[Block]:
        where = f"per {each.unit_title}, virtual, {each.case}, phase {each.phase}"
        handlers, rows = [], []
        for handler in each.handlers:
            numbers = *shorts(handler.count), wording.moved_if_at_all(handler.count)
            handlers.append(row(Cell(handler.handler, small=handler.kind, mono=True), *numbers))
        for place in each.rows[: each.listed]:
            numbers = *shorts(place.count), wording.moved_if_at_all(place.count)
            note = notes("user" if place.user else "", only(place.only_in, comparison))
            function = Cell(place.function, small=note, mono=True)
            rows.append(row(function, Cell(place.handler, small=place.kind, mono=True), *numbers))
        heads, label = (Column("function", left=True), *columns), f"Faults by function {where}"
        return [
            Table(f"Interrupts and faults {where}", columns, tuple(handlers)),
            *first_and_more(label, f"{label}, more", "{} more", heads, rows),
        ]

    explanation, how = counted_interruptions.EXPLANATION, (INTERRUPTED, EXPLAINS)
    behind = "Interrupts and faults by handler and function"
    return _section(explanation, comparison, behind, interruptions_sentence, tables, how)


FOLLOWED = (
    "Virtual, and counted, not sampled: in diagnostic runs of the judged guests a QEMU plugin "
    "follows every call, jump and return of the kernel. A function's instructions are its own on "
    "this path, without what it called. A function that the compiler put into its caller is part "
    "of that, and a module's code of what called the module. stacks.csv beside this report has "
    "every path."
)
MOST_CALLERS = 3


def stacks_sentence(stacks: StackComparison) -> str:
    """``1204 -> 1196 ... per folio (-0.7 %); 93 % of what changed is in or below ...``."""
    where = "no single path has most of what changed"
    if stacks.focus:
        nearest = " < ".join(stacks.focus[::-1][:MOST_CALLERS])
        where = f"{stacks.focus_share * 100:.0f} % of what changed is in or below {nearest}"
    elif not stacks.listed:
        where = "no path changed"
    return (
        f"{wording.few(stacks.total)} virtual instructions of the kernel per {stacks.unit_title} "
        f"({change(stacks.total)}); {where}"
    )


def stacks(view: View, comparison: Comparison) -> list[Block]:
    """Call stacks: a line for each phase, the graph and the paths that changed in a fold."""
    judged = {(metric.case, metric.phase) for metric in comparison.primary}
    columns = (
        *(Column("function, and its callers", left=True), *arms(comparison)),
        *(Column("change"), Column("calls", drop=1)),
    )

    def tables(each: StackComparison) -> list[Block]:
        drawn: list[Block] = []
        if each.listed and (each.case, each.phase) in judged:
            draws = view.charts(lambda pair: charts.stacks(pair, each), comparison=comparison)
            drawn = [figure(chart, 4, wide=True) for chart in draws]
        where = f"per {each.unit_title}, virtual, {each.case}, phase {each.phase}"
        rows = [_path_row(each.rows[number]) for number in each.listed]
        label, more = f"Instructions by call path {where}", f"More call paths {where}"
        return [*drawn, *first_and_more(label, more, "{} more paths", columns, rows)]

    explanation, how = counted_stacks.EXPLANATION, (FOLLOWED, EXPLAINS)
    behind = "Call paths, and the paths that changed"
    return _section(explanation, comparison, behind, stacks_sentence, tables, how)


def _path_row(each: StackRow) -> Row:
    """A path from the nearest caller out, which stands everywhere, the next where there is room."""
    own, farther = each.instructions, each.callers[:-1][::-1]
    below = [*farther[: MOST_CALLERS - 1], *(["…"] if farther[MOST_CALLERS - 1 :] else [])]
    path = Cell(
        " < ".join(each.path[-2:][::-1]),
        under=f"< {' < '.join(below)}" if below else "",
        mono=True,
    )
    calls = wording.short(each.calls.base) if each.calls.equal else wording.few(each.calls)
    return row(path, *shorts(own), wording.signed(own.difference), calls)


MODELLED = (
    "Modelled, not measured: diagnostic runs of the judged guests, in which a QEMU plugin follows "
    "every access and every line of code through the caches and TLBs of one core of this machine, "
    "by the guest's own page tables. All numbers are virtual. They are never judged, and time in "
    "the guest does not depend on them.",
    "LLC misses are lines from memory that were waited for, lines prefetched those that a stream "
    "fetched ahead, in time. One core and its share of the last level; least recently used lines "
    "go first; what is written back, walks' own accesses and other CPUs are not modelled. "
    "Without process identifiers (PCID) a change of address space drops the user's translations.",
    "The estimate adds a cycle for each instruction and the machine's latencies for each event, as "
    "if nothing overlapped: it ranks, and is no time.",
)
# Title of each event, and when its columns go where there is no room; what decides first.
EVENTS = {
    "llc": ("LLC misses", 0),
    "walks": ("page walks", 0),
    "prefetched": ("lines prefetched", 3),
    "l2": ("L2 misses", 1),
    "tlb": ("L1 data TLB misses", 2),
}
IN_TOTAL = ("llc", "prefetched", "l2", "walks", "tlb")


def _misses(pair: Paired, title: str) -> str:
    if pair.equal:
        return f"{title} unchanged at {wording.short(pair.base)}"
    return f"{title} {wording.few(pair)} ({change(pair)})"


def memory_sentence(memory: MemoryComparison) -> str:
    """``LLC misses per folio added 144.5 -> 144.3 (-0.14 %); page walks unchanged at 2.1``."""
    total = memory.total
    misses = _misses(total.llc, f"LLC misses per {memory.unit_title}")
    of = f"{counted(total.llc.n, 'seed')} of a modelled {memory.machine}"
    return f"{misses}; {_misses(total.walks, 'page walks')}; {of}"


def memory_brief(memory: MemoryComparison) -> str:
    """The same for a line of a mail."""
    total = memory.total
    llc, walks = (wording.moved_if_at_all(each).strip("()") for each in (total.llc, total.walks))
    return (
        f"{memory.machine}: LLC misses {wording.few(total.llc)} per {memory.unit_title} "
        f"({llc}), page walks {walks}"
    )


def memory(_view: View, comparison: Comparison) -> list[Block]:
    """Caches and TLBs of a modelled machine."""

    def tables(each: MemoryComparison) -> list[Block]:
        return _memory_tables(comparison, each)

    explanation, behind = modelled.EXPLANATION, "Caches and TLBs by function"
    return _section(explanation, comparison, behind, memory_sentence, tables, MODELLED)


def _memory_tables(comparison: Comparison, memory: MemoryComparison) -> list[Block]:
    where, unit, total = f"{memory.case}, phase {memory.phase}", memory.unit_title, memory.total
    events = [(EVENTS[name][0], getattr(total, name)) for name in IN_TOTAL]
    events += [("instructions", memory.instructions), ("cycles (estimate)", memory.cycles)]
    blocks: list[Block] = [
        Paragraph((Strong(f"{memory.machine_title}."), f" Per {unit}."), "banner"),
        totals(comparison, f"Modelled events per {unit}, {where}", "virtual events", events),
        Paragraph(
            "L1 misses, which the layout of code and data moves: data "
            f"{wording.few(total.l1d)}, code {wording.few(total.l1i)}.",
            "note",
        ),
    ]
    if any(memory.unmapped):
        base, patched = memory.unmapped
        text = (
            f"No page was found for {base} accesses in {comparison.manifest.base} and {patched} in "
            f"{comparison.manifest.patched}: they are not counted."
        )
        blocks.append(Paragraph(text))
    columns, decimals = [Column("function", left=True)], {}
    for name, (title, drop) in EVENTS.items():
        columns += arms(comparison, f"{title} per {unit}", drop)
        # So many that the function with most of it has three digits that count.
        pairs = [getattr(each, name) for each in memory.rows]
        values = (value for pair in pairs for value in (pair.base, pair.patched))
        decimals[name] = wording.decimals_of(*values)

    def numbers(missed: Missed) -> list[str]:
        pairs = ((getattr(missed, name), places) for name, places in decimals.items())
        both = ((each, at) for pair, at in pairs for each in (pair.base, pair.patched))
        return [wording.amount(each, at) for each, at in both]

    rows = []
    for each in memory.rows:
        note = notes("user" if each.user else each.file, only(each.only_in, comparison))
        rows.append(row(Cell(each.name, small=note, mono=True), *numbers(each)))
    if memory.others and rows[MOST_SHOWN:]:
        label = f"the other {memory.other_count} functions"
        rows.append(row(label, *numbers(memory.others), faint=True, total=True))
    label, more = f"Modelled events by function, {where}", f"More functions, {where}"
    return [*blocks, *first_and_more(label, more, "{} more functions", columns, rows)]


MOVED = (
    "Modelled, not measured: in diagnostic runs of a guest with several vCPUs a QEMU plugin "
    "follows every access to memory through a private cache of each. A line moves where one reads "
    "what another wrote, or writes what another has. All numbers are virtual and are never judged.",
    "False sharing: until it loses the line again, who took it touches no byte that the other had "
    "written (or, where readers lost it, read).",
    "vCPUs take turns, and how long these are decides who meets: “turns” marks rows that differ by "
    "more than a quarter with turns of another length. Compare arms; they predict no machine.",
)


def _moved(comparison: LinesComparison) -> str:
    total = comparison.total.all_lines
    if total.equal:
        return f"unchanged at {wording.short(total.base)}"
    return f"{wording.few(total)} ({change(total)})"


def lines_sentence(lines: LinesComparison) -> str:
    """``lines that moved per folio added 34.2 -> 33.9 (-0.9 %); false sharing ...``."""
    parts = [f"lines that moved between {lines.vcpus} CPUs per {lines.unit_title} {_moved(lines)}"]
    if false := lines.falsest:
        most = "most false sharing" if false.apart.equal else "false sharing changed most"
        parts.append(f"{most}: {false.object} {wording.few(false.apart)}")
    else:
        parts.append("nothing known by name with false sharing")
    if lines.by_turns:
        parts.append("the number depends on the turns")
    return f"{'; '.join(parts)}; {counted(len(lines.seeds), 'seed')} of a modelled {lines.machine}"


def lines_brief(lines: LinesComparison) -> str:
    """What a mail has room for; where nothing moved more or less, nothing."""
    if lines.total.all_lines.equal:
        return ""
    where = f"lines between {lines.vcpus} virtual CPUs per {lines.unit_title}"
    return f"{where}: {_moved(lines)}"


def lines(_view: View, comparison: Comparison) -> list[Block]:
    """Lines that move between a modelled machine's CPUs."""

    def tables(each: LinesComparison) -> list[Block]:
        return _lines_tables(comparison, each)

    explanation, behind = moved_lines.EXPLANATION, "Lines by object and by function"
    return _section(explanation, comparison, behind, lines_sentence, tables, MOVED)


def _lines_tables(comparison: Comparison, lines: LinesComparison) -> list[Block]:
    where = f"{lines.case}, phase {lines.phase}"
    turns, other = (f"{ns / 1000:g} µs" for ns in (lines.metronome_ns, lines.other_ns))
    beside = f", and of {other} beside" if lines.other_ns else ""
    banner = f" Per {lines.unit_title}, {lines.vcpus} vCPUs, turns of {turns}{beside}."
    groups = [("lines that moved", 0), ("of these false sharing", 3), ("to be read", 1)]
    groups += [(f"turns of {other}", 2)] if lines.other_ns else []
    numbers = [Column("change", group=groups[0][0])]
    for group, drop in groups:
        numbers += arms(comparison, group, drop)
    section: list[Block] = [Paragraph((Strong(f"{lines.machine_title}."), banner), "banner")]
    for title, rows in (("object", lines.objects), ("function", lines.pairs)):
        heads = ["object"] if title == "object" else ["taken by", "from", "object"]
        section += first_and_more(
            f"Lines that moved by {title}, {where}",
            f"More lines by {title}, {where}",
            f"{{}} more rows by {title}",
            [*(Column(head, left=True) for head in heads), *numbers],
            [_line_row(comparison, lines, each) for each in rows],
        )
    return section


def _of_bytes(ends: tuple[int, int]) -> str:
    """The first and the last byte; those before the object are of what lies in the line, too."""
    first, last = ends
    if first >= 0:
        return f"{first}-{last}"
    return f"{-first} before it to {f'{-last} before it' if last < 0 else last}"


def _line_row(comparison: Comparison, lines: LinesComparison, each: MovedLines) -> Row:
    theirs = _of_bytes(each.theirs) if each.theirs else ""
    note = notes(
        f"bytes {_of_bytes(each.mine)}, theirs {theirs}" if each.mine else "",
        "turns" if each.by_turns else "",
        only(each.only_in, comparison),
    )
    first = [Cell(each.object, small=note, mono=each.named)]
    if each.taker:
        first = [Cell(name, mono=True) for name in (each.taker, each.holder)]
        first.append(Cell(each.object, under=note, mono=each.named))
    pairs = (each.all_lines, each.apart, each.reads)
    values = [value for pair in pairs for value in (pair.base, pair.patched)]
    values += (each.other or (0.0, 0.0)) if lines.other_ns else ()
    numbers = [wording.amount(value, 3) for value in values]
    return row(*first, wording.moved_if_at_all(each.all_lines), *numbers)
