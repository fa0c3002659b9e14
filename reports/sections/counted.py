"""Why: what every instrument counted, in one table, and the tables of each in a fold.

Any count whose rows are records with a name and a number a column is shown by :func:`ranked`;
interrupts and faults, call stacks, caches, lines that move and what many CPUs may make of it have
tables of their own, and functions and locks files of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from analysis.counts import Paired
from analysis.explain import Explanation, explanations, modelled
from analysis.explain import kinds as counted_kinds
from analysis.explain import scaling as estimated
from analysis.explain import stacks as counted_stacks
from analysis.explain.annotated import AnnotatedPhase
from analysis.explain.kinds import InterruptionComparison
from analysis.explain.modelled import (
    LinesComparison,
    MemoryComparison,
    Missed,
    MovedLines,
    weights,
)
from analysis.explain.scaling import Range, Scaling, ScalingPoint, speeds_of
from analysis.explain.stacks import StackComparison, StackRow
from analysis.model import Comparison
from analysis.verdict import CALLED
from experiment.machine import MachineSpec
from reports import charts, wording
from reports.charts import Chart
from reports.document import (
    Block,
    Cell,
    Column,
    Fold,
    Heading,
    Paragraph,
    Row,
    Strong,
    Table,
    facts,
    row,
)
from reports.sections import (
    PARENTHESES,
    Instrument,
    Line,
    View,
    arms,
    at_most,
    change,
    foremost,
    functions,
    gallery,
    line,
    locks,
    notes,
    only,
    shorts,
    titled,
    totals,
    worth,
)


def ranked(
    explanation: Explanation[Any],
    how: str = "",
    what: str = "counts",
    titles: Mapping[str, str] = MappingProxyType({}),
    always: Sequence[str] = (),
) -> Instrument:
    """Of an explanation that has a ``total``, and ``rows`` of which some are ``listed``.

    Its numbers are the fields that hold them.  Those of ``titles`` have another title than their
    name; those of ``always`` have a column where there is little room, all without any.
    """

    def numbers(record: Any) -> list[tuple[str, str, Paired]]:
        """Name, title and value of each number."""
        pairs = ((name, getattr(record, name)) for name in type(record).model_fields)
        return [
            (name, titles.get(name, name.replace("_", " ")), value)
            for name, value in pairs
            if isinstance(value, Paired)
        ]

    def lines(each: Any) -> list[Line]:
        return foremost([(title, pair) for _, title, pair in numbers(each.total)], each.unit_title)

    def tables(_: View, comparison: Comparison, each: Any) -> list[Block]:
        where, title = f"{each.case}, phase {each.phase}", explanation.title
        totalled = numbers(each.total)
        columns = [Column("function", left=True)]
        decimals: dict[str, int] = {}
        for name, head, _pair in totalled:
            drop = 0 if not always or name in always else 1
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
        sums = [(head, pair) for _, head, pair in totalled]
        return [
            totals(comparison, f"{title} per {each.unit_title}, {where}", what, sums),
            *at_most(f"{title} by function, {where}", columns, rows),
        ]

    return Instrument(explanation, lines, tables, how)


KINDS = ranked(
    counted_kinds.EXPLANATION,
    how="Counted in the judged runs: what each instruction is of, known when its block is "
    "translated, times the executions of the block. One that reads and writes memory is a load "
    "and a store, a locked one an atomic besides (on arm64 the store of an exclusive pair, and "
    "LSE). On one CPU the kernel patches its locks away; they are counted as the atomics that "
    "they are on more. A locked addition of nothing to the stack is a barrier.",
    what="instructions",
    titles={"system": "system instructions"},
    always=("loads", "stores", "atomics"),
)

INTERRUPTED = (
    "Virtual: counted in the judged runs, each where it came, by the handler that it went to. "
    "Exceptions are page faults for the most part. Interrupts come by the virtual clock, wherever "
    "that finds the guest: a shorter path has fewer of the timer's."
)


def interruption_tables(
    _: View, comparison: Comparison, each: InterruptionComparison
) -> list[Block]:
    """Handlers, and the functions that faulted."""
    columns = Column("handler", left=True), *arms(comparison), Column("change")
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
    heads = (Column("function", left=True), *columns)
    return [
        Table(f"Interrupts and faults {where}", columns, tuple(handlers)),
        *at_most(f"Faults by function {where}", heads, rows),
    ]


INTERRUPTIONS = Instrument(
    counted_kinds.INTERRUPTED,
    lambda each: foremost([(f"{k}s", pair) for k, pair in each.kinds.items()], each.unit_title),
    interruption_tables,
    INTERRUPTED,
)

FOLLOWED = (
    "Virtual, and counted, not sampled: in diagnostic runs of the judged guests a QEMU plugin "
    "follows every call, jump and return of the kernel. A function's instructions are its own on "
    "this path, without what it called. A function that the compiler put into its caller is part "
    "of that, and a module's code of what called the module. stacks.csv beside this report has "
    "every path, as tools that draw flame graphs read them."
)
MOST_CALLERS = 3


def stack_tables(_: View, comparison: Comparison, each: StackComparison) -> list[Block]:
    """The call paths that changed."""
    columns = (
        *(Column("function, and its callers", left=True), *arms(comparison)),
        *(Column("change"), Column("calls", drop=1)),
    )
    moved = (each.rows[number] for number in each.listed)
    rows = [_path_row(path) for path in moved if worth(path.instructions, each.total)]
    where = f"per {each.unit_title}, virtual, {each.case}, phase {each.phase}"
    return at_most(f"Instructions by call path {where}", columns, rows)


def stack_lines(each: StackComparison) -> list[Line]:
    """The kernel's instructions, and below which function most of their change is."""
    says = "on no single path" if each.listed else "no path changed"
    if each.focus:
        says = f"{each.focus_share * 100:.0f} % in and under {each.focus[-1]}"
    return [line("kernel instructions", each.unit_title, each.total, says)]


STACKS = Instrument(counted_stacks.EXPLANATION, stack_lines, stack_tables, FOLLOWED)


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
    "the guest does not depend on them. "
    "LLC misses are lines from memory that were waited for, lines prefetched those that a stream "
    "fetched ahead, in time. One core and its share of the last level; least recently used lines "
    "go first; what is written back, walks' own accesses and other CPUs are not modelled. "
    "Without process identifiers (PCID) a change of address space drops the user's translations. "
    "The estimate adds a cycle for each instruction and the machine's latencies for each event, as "
    "if nothing overlapped: it ranks, and is no time."
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


def memory_brief(memory: MemoryComparison) -> str:
    """The same for a line of a mail."""
    total = memory.total
    llc, walks = (wording.moved_if_at_all(each).strip("()") for each in (total.llc, total.walks))
    return (
        f"{memory.machine}: LLC misses {wording.few(total.llc)} per {memory.unit_title} "
        f"({llc}), page walks {walks}"
    )


def memory_lines(each: MemoryComparison) -> list[Line]:
    """What was missed that moved most."""
    numbers = [(EVENTS[name][0], getattr(each.total, name)) for name in IN_TOTAL]
    return foremost(numbers, f"{each.unit_title}, modelled")


def memory_tables(_: View, comparison: Comparison, memory: MemoryComparison) -> list[Block]:
    """Events in all and by function."""
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
        if not any(worth(getattr(each, name), getattr(total, name)) for name in EVENTS):
            continue
        note = notes("user" if each.user else "", only(each.only_in, comparison))
        rows.append(row(Cell(each.name, small=note, mono=True), *numbers(each)))
    return [*blocks, *at_most(f"Modelled events by function, {where}", columns, rows)]


MEMORY = Instrument(modelled.MEMORY, memory_lines, memory_tables, MODELLED)


MOVED = (
    "Modelled, not measured: in diagnostic runs of a guest with several vCPUs a QEMU plugin "
    "follows every access to memory through a private cache of each. A line moves where one reads "
    "what another wrote, or writes what another has. All numbers are virtual and are never judged. "
    "False sharing: until it loses the line again, who took it touches no byte that the other had "
    "written (or, where readers lost it, read). "
    "vCPUs take turns, and how long these are decides who meets: “turns” marks rows that differ by "
    "more than a quarter with turns of another length. Compare arms; they predict no machine."
)


def moved_line(each: LinesComparison) -> list[Line]:
    """All lines that moved, and what is known of false sharing."""
    says = f"false sharing: {each.falsest.object}" if each.falsest else "no false sharing"
    says = "depends on the turns" if each.by_turns else says
    return [line("lines that moved", f"{each.unit_title}, modelled", each.total.all_lines, says)]


def lines_brief(lines: LinesComparison) -> str:
    """What a mail has room for; where nothing moved more or less, nothing."""
    total, falsest = lines.total.all_lines, lines.falsest
    if total.equal:
        return ""
    where = f"cache lines moved between {lines.vcpus} vCPUs per {lines.unit_title}"
    turns = ", depends on the turns" * lines.by_turns
    text = f"{where}: {wording.few(total)} ({change(total)}{turns})"
    if falsest is None or falsest.by_turns or falsest.apart.equal:
        return text
    return f"{text}; false sharing: {falsest.object} {wording.few(falsest.apart)}"


def moved_tables(_: View, comparison: Comparison, lines: LinesComparison) -> list[Block]:
    """Lines by object and by function."""
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
        kept = [each for each in rows if worth(each.all_lines, lines.total.all_lines)]
        section += at_most(
            f"Lines that moved by {title}, {where}",
            [*(Column(head, left=True) for head in heads), *numbers],
            [_line_row(comparison, lines, each) for each in kept],
        )
    return section


LINES = Instrument(modelled.LINES, moved_line, moved_tables, MOVED)


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


ESTIMATED = (
    "Estimated range, not measured. One end is path length, counted on one CPU; the other is the "
    "lock that fills up first, held all the time, by what the measured runs counted. Between them "
    "CPUs queue for it. What hardware does is not known, so each assumption below goes from its "
    "least to its most, alike on both arms. It is never judged. "
    "One lock: others, lines that move outside of it, memory bandwidth and CPUs that share a core "
    "are in none of this, nor are misses where no diagnostic run has counted them: a change that "
    "saves some under the lock may then be larger."
)
SHOWN_CPUS = (1, 2, 4, 8, 16, 32, 64)
SOME_CPUS = 16
# Events that an instruction waits for.
WAITED_FOR = ("l2", "llc", "walks")


def _range(scaling: Scaling, point: ScalingPoint) -> str:
    low, high = (wording.percent(end, decimals=1) for end in point.change)
    text = low if low == high else f"{low.removesuffix(' %')}…{high}"
    return text if scaling.significant else f"({text})"


def scaling_lines(scaling: Scaling) -> list[Line]:
    """The range at the published number of CPUs, and where what is published lies."""
    published, says = scaling.published, "estimated"
    point = scaling.at(published.jobs if published else SOME_CPUS)
    assert point is not None
    if published:
        (low, high), change = point.change, published.change
        where = "holds" if low <= change <= high else "below" if change > high else "above"
        says = f"{where} published {wording.percent(change)}"
    label = f"throughput, {point.cpus} CPUs"
    return [Line(label, "estimated", "", "", _range(scaling, point), not scaling.significant, says)]


def _speeds(ends: Range) -> str:
    low, high = (wording.figure(end, 3) for end in ends)
    return low if low == high else f"{low} … {high}"


def scaling_tables(_: View, comparison: Comparison, scaling: Scaling) -> list[Block]:
    """The range by CPUs, and what it rests on."""
    manifest, published = comparison.manifest, scaling.published
    speed = arms(comparison, f"times one CPU of {manifest.base}", 1)
    listed = {*SHOWN_CPUS, *([published.jobs] if published else [])}
    rows = tuple(
        row(str(p.cpus), _range(scaling, p), _speeds(p.base), _speeds(p.patched))
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
        ", ".join(f"{_both(getattr(missed, name))} {EVENTS[name][0]}" for name in WAITED_FOR)
        for missed in (scaling.missed, scaling.missed_held)
    )
    cycles = weights(machine)
    latencies = ", ".join(f"{cycles[name]:g}" for name in WAITED_FOR)
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


SCALING = Instrument(estimated.EXPLANATION, scaling_lines, scaling_tables, ESTIMATED)


# Rows of the table, and phases whose tables are in a fold: fewer where nothing moved in any.
MOST_ROWS, MOST_PHASES, MOST_UNMOVED = 30, 3, 2
FILES = (
    "Counted under emulation or modelled; counts explain a verdict and never make one. Folds have "
    "the judged phases and what moved significantly or is 0.1 % of the whole; functions.csv, "
    "stacks.csv and counts.csv beside this report have every row of every phase."
)
INSTRUMENTS = (
    *(functions.FUNCTIONS, STACKS, KINDS, INTERRUPTIONS),
    *(locks.LOCKS, locks.WAITING, SCALING, MEMORY, LINES),
)
At = tuple[str, str]


def blocks(view: View, comparison: Comparison) -> list[Block]:
    """The section: of the judged phases, those with a verdict first; of all where none is."""
    judged: dict[At, bool] = {}
    for metric in comparison.primary:
        at = metric.case, metric.phase
        judged[at] = judged.get(at, False) or metric.judgement.verdict in CALLED
    shown: list[tuple[Instrument, dict[At, list[Any]]]] = []
    # An explanation that has no instrument of its own is a count with rows; a diff is neither.
    own = {each.explanation.record for each in INSTRUMENTS} | {AnnotatedPhase}
    others = (ranked(each) for each in explanations() if each.record not in own)
    for instrument in (*INSTRUMENTS, *others):
        of: dict[At, list[Any]] = {}
        for record in instrument.explanation.of(comparison):
            of.setdefault((record.case, record.phase), []).append(record)
        # Where nothing is known of a judged phase, what is known of the others.
        shown += [(instrument, {at: of[at] for at in of if at in judged} or of)] if of else []
    counted_in = dict.fromkeys(at for _, of in shown for at in of)
    places = sorted(counted_in, key=lambda at: not judged.get(at, False))
    cases, phases = (len({place[part] for place in places}) for part in (0, 1))
    rows: list[Row] = []
    for at in places:
        lines = [
            line
            for instrument, of in shown
            for record in of.get(at, ())
            for line in instrument.lines(record)
        ]
        # The phase stands above its rows, where there are several, with what they are counted per.
        usual = lines[0].of if lines and len(places) > 1 else ""
        if len(places) > 1:
            # The fewest words that tell it from the others.
            name = at[1] if phases == len(places) else at[0] if cases == len(places) else ""
            head = Cell(f"{name or ' '.join(at)}:", small=usual)
            rows.append(row(head, "", "", "", "", strong=True))
        rows += [
            row(
                Cell(line.label, small=line.of.removeprefix(usual).removeprefix(", ")),
                *(line.base, line.patched, Cell(line.change, tone="faint" * line.faint), line.says),
            )
            for line in lines
        ]
    if not any(of for _, of in shown):
        return []
    columns = (
        Column("counted", left=True),
        *(replace(arm, narrow=True) for arm in arms(comparison)),
        *(Column("change"), Column("what it says", left=True, wide=True)),
    )
    first = [each for each in comparison.headlines if (each.case, each.phase) == places[0]]

    def drawn(pair: Comparison) -> list[Chart]:
        """What is seen unfolded: the functions of the first phase."""
        return [chart for each in first for chart in charts.waterfall(pair, each)]

    more = f" {len(rows) - MOST_ROWS} more rows are of other phases." * (len(rows) > MOST_ROWS)
    return titled(
        "Why",
        "why",
        [
            Table("What each instrument counted", columns, tuple(rows[:MOST_ROWS])),
            *gallery(view.charts(comparison, drawn)),
            *(_fold(view, comparison, *each, places) for each in shown),
            Paragraph(f"{PARENTHESES} {FILES}{more}", "note"),
        ],
    )


def _fold(
    view: View,
    comparison: Comparison,
    instrument: Instrument,
    of: dict[At, list[Any]],
    places: Sequence[At],
) -> Fold:
    """An instrument's tables, phase by phase, and how to read them."""
    inner: list[Block] = []
    moved = [
        at for at in of if any(not line.faint for each in of[at] for line in instrument.lines(each))
    ]
    most = MOST_PHASES if moved else MOST_UNMOVED
    here = [at for at in places if at in (moved or of)][:most]
    for at in here:
        inner += [Heading(f"{at[0]}, phase {at[1]}", 3)] if here[1:] else []
        for record in of[at]:
            inner += instrument.tables(view, comparison, record)
    how = [Paragraph(instrument.how, "note")] if instrument.how else []
    return Fold(instrument.explanation.title, (*inner, *how))
