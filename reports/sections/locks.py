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
from reports import wording
from reports.document import Block, Cell, Column, Paragraph, Row, Strong, row
from reports.sections import (
    PARENTHESES,
    Instrument,
    Line,
    View,
    arms,
    at_most,
    line,
    notes,
    only,
    shorts,
    worth,
)
from text import counted, plural

COUNTED = (
    "Counted by a QEMU plugin in the measured runs, which it does not perturb: instructions "
    "of the CPU that holds the lock, from taking it to letting go, interrupts "
    "included. They explain a verdict and never make one. "
    "A lock has the name of its variable, of who alone takes it, or of its member; “taken in” "
    "names the function that takes an unknown one most. Locks in bits of other words (page lock, "
    "RCU, reference counts with a lock) are not counted. "
    "“Saturates at” is all instructions over those with the lock held: the number of CPUs that "
    "keep the instance that is held longest held all the time, if they share nothing else. It is "
    "an estimate: nothing here has a cache, or lines that move between CPUs. "
    "A lock that is slept for is held while its holder sleeps and others run. Those that were "
    "found held are counted as waits, and not followed further."
)
WAITED = (
    "Waiting is in virtual ns of all CPUs, under the turns that vCPUs take here, and divided among "
    "those who held the lock meanwhile. A handover is a spin lock that comes to who waited from "
    "who let go of it. Compare arms; they predict no machine."
)
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
# Callers whose waits are shown and drawn.
MOST_DRAWN = 8


def brief(locks: MeasuredLocks) -> str:
    """``i_pages.xa_lock held 1072 -> 1038 instructions per folio added: -3.14 %``; may be empty."""
    lock = locks.foremost
    if lock is None:
        return ""
    values = f"{wording.few(lock.held)} instructions per {locks.unit_title}"
    return f"{lock.label} held {values}: {wording.moved(lock.held)}"


def lines(locks: MeasuredLocks) -> list[Line]:
    """The lock that moved most, and how often one waited."""
    lock, entries = locks.foremost, locks.slow_entries
    spinning = sum(not each.sleeps for each in locks.rows)
    says = f"largest change of {spinning}" if locks.moved_most else f"none of {spinning} changed"
    lines = [line(f"{lock.label} held", locks.unit_title, lock.held, says)] if lock else []
    if entries:
        most = f"most in {locks.pairs[0].waiter}" if locks.pairs else ""
        per = f"1,000 {plural(locks.unit_title)}"
        lines.append(line("spin lock slow path", per, entries, most))
    return lines


def tables(_: View, comparison: Comparison, locks: MeasuredLocks) -> list[Block]:
    """Locks by time held and by who takes them, and who waited."""
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

    kept = [each for each in locks.rows if worth(each.held, locks.busy)]
    rows = [_lock(comparison, each) for each in kept]
    blocks = at_most(f"Locks, measured runs, {where}", heads, rows)
    if any(locks.lost):
        base, patched = locks.lost
        text = (
            f"Of {base} locks in {comparison.manifest.base} and {patched} in "
            f"{comparison.manifest.patched} the end was not seen: their time is missing."
        )
        blocks.append(Paragraph(text))
    blocks += _waits(comparison, locks, where)
    sites = [
        row(
            each.label,
            Cell(site.function, mono=True),
            *_numbers(site.held, site.held_each, site.taken),
        )
        for each in kept
        for site in each.sites
        if worth(site.held, locks.busy)
    ]
    of_sites = (heads[0], Column("function", left=True), *heads[1:SITE_COLUMNS])
    return [*blocks, *at_most(f"Locks by who takes them, {where}", of_sites, sites)]


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
    for each in locks.pairs:
        names = Cell(each.waiter, mono=True), Cell(each.holder, mono=True)
        numbers = [
            cell for pair in (each.waited, each.waits, each.handovers) for cell in shorts(pair)
        ]
        rows.append(row(each.label, *names, wording.moved(each.waited), *numbers))
    table = at_most(f"Who waited for whom, {where}", columns, rows)
    return [*table, *([Paragraph(WAITED, "note")] if table else [])]


def _numbers(held: Paired, each: Paired | None, taken: Paired) -> tuple[str, ...]:
    return (wording.moved(held), *shorts(held), *shorts(each), *shorts(taken))


def _lock(comparison: Comparison, each: MeasuredLock) -> Row:
    note = notes(UNKNOWN_BY.get(each.by, ""), only(each.only_in, comparison), between="; ")
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


def wait_lines(locks: LockComparison) -> list[Line]:
    """How often one waited in a diagnostic run."""
    entries = locks.slow_entries or (locks.waits[0].count if locks.waits else None)
    if entries is None:
        return []
    says = f"most in {locks.waits[0].caller}" if locks.waits else "no lock waited for"
    return [line(f"waits, {locks.twin} run", f"1,000 {plural(locks.unit_title)}", entries, says)]


def wait_tables(_: View, comparison: Comparison, locks: LockComparison) -> list[Block]:
    """What a diagnostic run counted: its guest, and the longest waits by caller."""
    words = notes(f" {guest(locks)}", slow_path(locks), between=". ")
    blocks: list[Block] = [Paragraph((Strong(f"{BANNER}."), f"{words}."), "banner")]
    if any(locks.dropped):
        base, patched = comparison.manifest.base, comparison.manifest.patched
        text = (
            f"{locks.dropped[0]} events in {base} and {locks.dropped[1]} in {patched} were "
            "dropped: the waits are not complete."
        )
        blocks.append(Paragraph(text))
    blocks += _callers(comparison, locks)
    return [*blocks, Paragraph(limits(locks), "note")]


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
    for each in locks.waits[:MOST_DRAWN]:
        cells = [wording.moved(each.count), *shorts(each.count)]
        cells += [wording.moved(each.wait) if each.wait else "", *shorts(each.wait)]
        rows.append(row(Cell(each.caller, mono=True), each.flags, *cells, chain(each)))
    return at_most(f"Waits by caller, {label}", heads, rows)


LOCKS = Instrument(MEASURED, lines, tables, COUNTED)
WAITING = Instrument(WAITS, wait_lines, wait_tables, DIAGNOSTIC)
