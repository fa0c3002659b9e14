"""Locks: of the measured kernel, counted in the judged runs, and as diagnostic runs found them."""

from __future__ import annotations

from analysis.counts import Paired
from analysis.explain.locks import EXPLANATION as MEASURED
from analysis.explain.locks import (
    WAITS,
    LockComparison,
    MeasuredLock,
    MeasuredLocks,
    TakerBy,
    WaitRow,
)
from analysis.model import Comparison
from analysis.verdict import Change
from reports import wording
from reports.charts import changes
from reports.charts.canvas import Chart
from reports.document import Block, Cell, Column, Fold, Paragraph, Row, Strong, Table, row
from reports.sections.view import (
    PARENTHESES,
    View,
    arms,
    by_phase,
    gallery,
    notes,
    only,
    shorts,
    titled,
)
from reports.sentences import upper_first
from text import counted, plural

COUNTED = (
    "Counted by a QEMU plugin in the measured runs, which it does not perturb: instructions "
    "of the CPU that holds the lock, from taking it to letting go, interrupts "
    "included. They explain a verdict and never make one.",
    "A lock has the name of its variable, of who alone takes it, or of its member; “taken in” "
    "names the function that takes an unknown one most. Locks in bits of other words (page lock, "
    "RCU, reference counts with a lock) are not counted.",
    "“Saturates at” is all instructions over those with the lock held: the number of CPUs that "
    "keep the instance that is held longest held all the time, if they share nothing else. It is "
    "an estimate: nothing here has a cache, or lines that move between CPUs.",
)
WAITED = (
    "Waiting is in virtual ns of all CPUs, under the turns that vCPUs take here, and divided among "
    "those who held the lock meanwhile. A handover is a spin lock that comes to who waited from "
    "who let go of it. Compare arms; they predict no machine."
)
SLEPT = (
    "A lock that is slept for is held while its holder sleeps and others run. Those that were "
    "found held are counted as waits, and not followed further."
)
# Rows of who waited for whom; who is named beside a lock, the longest holder first.
MOST_PAIRS, MOST_TAKERS = 12, 3
# The lock's name, and what is known of each of its takers.
SITE_COLUMNS = 8
UNKNOWN_BY: dict[TakerBy, str] = {"taker": "name not known"}
DIAGNOSTIC = "From diagnostic runs: more runs of both arms that explain and are never judged."
BANNER = "Diagnosis: another guest, no bandwidth"
TURNS = (
    "vCPUs take turns, so contention is a result of hold times and turns alone: exact and "
    "repeatable under the interleaving named above, and no prediction for a machine with as many "
    "CPUs. Hold times are not shown here, because they include the turns of other vCPUs."
)
REAL = (
    "Times are real nanoseconds of the guest's clock on this host, with its noise in them; "
    "diagnostic runs have no A/A arm and few blocks, so small differences mean nothing. "
    "Contention of vCPUs on this host, under tracing: it depends on where they ran and on what "
    "else ran there, and repeats only roughly."
)
# Callers of a wait that are named: the nearest say what was being done, the last how the
# kernel was entered.  The JSON form has them all.
NEAREST = 4
MOST_WAITS = 20
# Of these a page shows the first and folds the rest.
OPEN_WAITS = 8


def sentence(locks: MeasuredLocks) -> str:
    """``i_pages.xa_lock held 1072 -> 1038 instructions per folio added: -33.7 [...] (-3.1 %)``."""
    lock = locks.foremost
    if lock is None:
        return "No lock was taken"
    held = lock.held
    text = f"{lock.label} held {wording.both(held)} instructions per {locks.unit_title}"
    if held.equal:
        return f"{text}, equal in {counted(held.n, 'seed')}"
    parts = wording.signed(held.difference), wording.paired_bounds(held)
    moved = notes(*parts, f"({wording.paired_change(held)})", between=" ")
    mark = "" if locks.moved_most else "; no lock moved significantly"
    return f"{text}: {moved}, {counted(held.n, 'seed')}{mark}"


def brief(locks: MeasuredLocks) -> str:
    """``i_pages.xa_lock held 1072 -> 1038 instructions per folio added: -3.14 %``; may be empty."""
    lock = locks.foremost
    if lock is None:
        return ""
    values = f"{wording.few(lock.held)} instructions per {locks.unit_title}"
    return f"{lock.label} held {values}: {wording.moved(lock.held)}"


def waited(locks: MeasuredLocks) -> str:
    """``slow path entered 61.2 -> 47.1 times per 1,000 folios added (-23 %); most waited ...``."""
    entries = locks.slow_entries
    if entries is None:
        return ""
    text = (
        f"slow path of spin locks entered {wording.few(entries)} times per 1,000 "
        f"{plural(locks.unit_title)} ({wording.moved(entries).strip('()')})"
    )
    if locks.pairs:
        first = locks.pairs[0]
        text += f"; most waited {first.waiter} for {first.holder} ({first.label})"
    return text


def blocks(view: View, comparison: Comparison) -> list[Block]:
    """The section: what is held, a line a phase and all locks in a fold, and what contends."""
    body = by_phase(
        comparison,
        "Locks by time held, and who takes them",
        MEASURED.of(comparison),
        lambda each: notes(sentence(each), waited(each), between="; "),
        lambda each: _tables(comparison, each),
        COUNTED,
    )
    twins = [block for each in WAITS.of(comparison) for block in _of_guest(view, comparison, each)]
    diagnostic: list[Block] = [Paragraph(DIAGNOSTIC, "note"), *twins] if twins else []
    return titled("Locks", "locks", [*body, *diagnostic])


def _tables(comparison: Comparison, locks: MeasuredLocks) -> list[Block]:
    where = f"{locks.case}, phase {locks.phase}"
    held = f"held, instructions per {locks.unit_title}"
    heads = [
        *(Column("lock", left=True), Column("change", group=held), *arms(comparison, held)),
        *arms(comparison, "held, instructions each time", 2),
        *arms(comparison, f"taken per {locks.unit_title}", 1),
    ]
    if locks.vcpus > 1:
        heads += arms(comparison, f"waits per 1,000 {plural(locks.unit_title)}")
    heads += arms(comparison, "saturates at, CPUs (estimate)", 3)

    def table(label: str, rows: tuple[MeasuredLock, ...]) -> Table:
        return Table(label, tuple(heads), tuple(_lock(comparison, each) for each in rows))

    blocks: list[Block] = [table(f"Locks, measured runs, {where}", tuple(locks.shown))]
    if any(locks.lost):
        base, patched = locks.lost
        text = (
            f"Of {base} locks in {comparison.manifest.base} and {patched} in "
            f"{comparison.manifest.patched} the end was not seen: their time is missing."
        )
        blocks.append(Paragraph(text))
    blocks += _waits(comparison, locks, where)
    sites = tuple(
        row(
            each.label,
            Cell(site.function, mono=True),
            *_numbers(site.held, site.held_each, site.taken),
        )
        for each in locks.shown
        for site in each.sites
    )
    of_sites = (heads[0], Column("function", left=True), *heads[1:SITE_COLUMNS])
    inner: list[Block] = [Table(f"Locks by who takes them, {where}", of_sites, sites)]
    if others := locks.rows[locks.listed :]:
        more = table(f"Other locks, measured runs, {where}", others)
        inner = [more, Paragraph(SLEPT, "note"), *inner]
    return [*blocks, Fold(f"All {len(locks.rows)} locks, and who takes them", tuple(inner), True)]


def _waits(comparison: Comparison, locks: MeasuredLocks, where: str) -> list[Block]:
    if locks.slow_entries is None:
        return []
    many = f"per 1,000 {plural(locks.unit_title)}"
    time = f"waited, virtual ns per {locks.unit_title}"
    columns = (
        *(Column(head, left=True) for head in ("lock", "waited", "for")),
        *(Column("change", group=time), *arms(comparison, time)),
        *(*arms(comparison, f"waits {many}", 2), *arms(comparison, f"handovers {many}", 1)),
    )
    rows = []
    for each in locks.pairs[:MOST_PAIRS]:
        names = Cell(each.waiter, mono=True), Cell(each.holder, mono=True)
        numbers = [
            cell for pair in (each.waited, each.waits, each.handovers) for cell in shorts(pair)
        ]
        rows.append(row(each.label, *names, wording.moved(each.waited), *numbers))
    section: list[Block] = [Paragraph(f"{upper_first(waited(locks))}.")]
    if rows:
        section.append(Table(f"Who waited for whom, {where}", columns, tuple(rows)))
        section.append(Paragraph(WAITED, "note"))
    return section


def _numbers(held: Paired, each: Paired | None, taken: Paired) -> tuple[str, ...]:
    return (wording.moved(held), *shorts(held), *shorts(each), *shorts(taken))


def _lock(comparison: Comparison, each: MeasuredLock) -> Row:
    takers = ", ".join(site.function for site in each.sites[:MOST_TAKERS])
    note = notes(
        UNKNOWN_BY.get(each.by, ""), only(each.only_in, comparison), f"in {takers}", between="; "
    )
    cells = [*_numbers(each.held, each.held_each, each.taken)]
    cells += shorts(each.waits, 1000.0) if comparison.manifest.guest.vcpus > 1 else ()
    full = each.saturation
    cells += map(cpus, (full.base, full.patched)) if full else ("", "")
    return row(Cell(each.label, small=note), *cells)


def cpus(value: float) -> str:
    """A number of CPUs at which a lock saturates; beyond a thousand nobody counts."""
    return f"{value:.1f}" if value < 1000 else "> 1000"


def guest(locks: LockComparison) -> str:
    """``4 vCPUs, 4 jobs, a timer every 20 µs, 2 seeds``."""
    parts = [counted(locks.vcpus, "vCPU"), f"{locks.jobs} jobs"]
    if locks.metronome_ns and not locks.in_wall:
        parts.append(f"a timer every {locks.metronome_ns / 1000:g} µs")
    return ", ".join([*parts, counted(len(locks.seeds), "block" if locks.in_wall else "seed")])


def limits(locks: LockComparison) -> str:
    """What this diagnostic run can tell of locks, and what it cannot."""
    text = REAL if locks.in_wall else TURNS
    return f"{text} {PARENTHESES}" if len(locks.seeds) > 1 else text


def slow_path(locks: LockComparison) -> str:
    """How much ran in the slow path of locks; empty where that was not counted."""
    if locks.slow_share is None or locks.slow_entries is None:
        return ""
    before, after = (100 * x for x in (locks.slow_share.base, locks.slow_share.patched))
    return (
        f"Spin-lock slow path: {before:.3f} % -> {after:.3f} % of all instructions; entered "
        f"{wording.few(locks.slow_entries)} times per 1,000 {plural(locks.unit_title)}"
    )


def chain(row: WaitRow) -> str:
    """The nearest callers from the inside out, and the outermost: ``a < b < c < d < ... < e``."""
    callers = row.chain[1:]
    if len(callers) > NEAREST + 2:
        callers = (*callers[:NEAREST], "...", callers[-1])
    return " < ".join(callers)


def _of_guest(view: View, comparison: Comparison, locks: LockComparison) -> list[Block]:
    """A diagnostic run in a line, and behind it the longest waits by caller."""
    words = slow_path(locks) or "waits by caller"
    run = f"{locks.case}, phase {locks.phase}, diagnostic run {locks.twin}"
    inner: list[Block] = [Paragraph((Strong(f"{BANNER}."), f" {guest(locks)}."), "banner")]
    if any(locks.dropped):
        base, patched = comparison.manifest.base, comparison.manifest.patched
        text = (
            f"{locks.dropped[0]} events in {base} and {locks.dropped[1]} in {patched} were "
            "dropped: the waits are not complete."
        )
        inner.append(Paragraph(text))
    inner += gallery(view.charts(lambda _: _drawn(locks), comparison=comparison), 4)
    if locks.waits:
        inner += _callers(comparison, locks)
    else:
        inner.append(Paragraph("No lock was waited for."))
    inner.append(Paragraph(limits(locks), "note"))
    lead = Paragraph((Strong(f"{run}: "), f"{words}."), "lead")
    return [lead, Fold(f"What the diagnostic run {locks.twin} counted", tuple(inner))]


def _drawn(locks: LockComparison) -> list[Chart]:
    """What the waits changed by, caller by caller: 1 % is seen beside a wait of any length."""
    lines = []
    for each in locks.waits[:OPEN_WAITS]:
        pair = each.count
        if pair.base:
            size = pair.difference / pair.base
            ends = (None if end is None else end / pair.base for end in (pair.low, pair.high))
            low, high = ends
            change = Change(estimate=size, hodges_lehmann=size, low=low, high=high, level=0.95)
            text = f"{wording.few(pair)}  {wording.moved(pair)}"
            lines.append(changes.ChangeLine(f"{each.caller} ({each.flags})", text, change))
    head = f"waits per 1,000 {plural(locks.unit_title)}"
    names = ("locks", locks.twin, locks.case, locks.phase)
    group = changes.ChangeGroup(head, 0.0, tuple(lines))
    return changes.draw([group], title="Waits by caller", names=names)


def _callers(comparison: Comparison, locks: LockComparison) -> list[Block]:
    """Waits by caller: both arms and their change, which comes first, as a phone shows it."""
    label = f"diagnostic run {locks.twin}, {locks.case} {locks.phase}"
    per_unit = f"waits per 1,000 {plural(locks.unit_title)}"
    time = f"{locks.ns} per {locks.unit_title}"
    heads = (
        *(Column("waiting function", left=True), Column("kind", left=True)),
        *(Column("change", group=per_unit), *arms(comparison, per_unit)),
        *(Column("change", group=time, drop=2), *arms(comparison, time, 2)),
        Column("mostly called by", left=True, wide=True, drop=1),
    )
    rows = []
    for each in locks.waits[:MOST_WAITS]:
        cells = [wording.moved(each.count), *shorts(each.count)]
        cells += [wording.moved(each.wait) if each.wait else "", *shorts(each.wait)]
        rows.append(row(Cell(each.caller, mono=True), each.flags, *cells, chain(each)))
    blocks: list[Block] = [Table(f"Waits by caller, {label}", heads, tuple(rows[:OPEN_WAITS]))]
    if further := tuple(rows[OPEN_WAITS:]):
        inner = (Table(f"More waits by caller, {label}", heads, further),)
        blocks.append(Fold(f"{len(further)} more waiting functions", inner, page_only=True))
    if len(locks.waits) > MOST_WAITS:
        blocks.append(Paragraph(f"The longest {MOST_WAITS} of {len(locks.waits)}.", "note"))
    return blocks
