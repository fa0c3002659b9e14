"""Locks, as diagnostic runs measured them, and what these runs can and cannot tell."""

from __future__ import annotations

from reports import wording
from reports.charts import locks as lock_charts
from reports.document import (
    Block,
    Cell,
    Column,
    Fact,
    Facts,
    Fold,
    Mono,
    Paragraph,
    Row,
    Strong,
    Table,
    row,
)
from reports.lock_identity import By
from reports.lock_model import LockComparison, LockRow, WaitRow
from reports.model import Comparison
from reports.paired import Paired
from reports.sections import measured_locks
from reports.sections.functions import only
from reports.sections.measured_locks import cpus
from reports.sections.view import PARENTHESES, View, gallery, titled
from text import plural

DIAGNOSTIC = "From diagnostic runs: more runs of both arms that explain and are never judged."
ON_ONE = (
    "One vCPU: hold times and acquisitions are counted exactly, and nothing contends. Lock "
    "debugging is part of these times: they compare the arms and are not those of a kernel without "
    "it. A lock whose holder may sleep counts the sleep, and other tasks that ran meanwhile."
)
ON_SEVERAL = (
    "vCPUs take turns, so contention is a result of hold times and turns alone: exact and "
    "repeatable under the interleaving named above, and no prediction for a machine with as many "
    "CPUs. Hold times are not shown here, because they include the turns of other vCPUs."
)
REAL = (
    "Times are real nanoseconds of the guest's clock on this host, with its noise in them; "
    "diagnostic runs have no A/A arm and few blocks, so small differences mean nothing."
)
REAL_ON_ONE = (
    "One vCPU: nothing contends. Lock debugging is part of these times, and so is whatever else "
    "the host did while a lock was held: they compare the arms, roughly."
)
REAL_ON_SEVERAL = (
    "Contention of vCPUs on this host, under lock debugging or tracing: it depends on where they "
    "ran and on what else ran there, and repeats only roughly. Hold times are not shown here."
)
SATURATION = (
    "“Saturates at” is virtual time over hold time: the number of CPUs that keep the lock held "
    "all the time. It assumes one instance of the lock, CPUs that share nothing else, and the "
    "times of this kernel."
)
# Callers of a wait that are named: the nearest say what was being done, the last how the
# kernel was entered.  The JSON form has them all.
NEAREST = 4
MOST_WAITS = 20
# Of these a page shows the first and folds the rest.
OPEN_WAITS = 8
# What an identity rests on, where that has to be said.
BY: dict[By, str] = {
    "name": "",
    "sites": "; known by where it was waited for",
    "use": "; taken to be it, because no other of this name is taken nearly as often",
    "number": "; paired by this number alone",
}
SHORT_BY: dict[By, str] = {"name": "", "sites": "", "use": "by use", "number": "by number alone"}


def guest(locks: LockComparison) -> str:
    """``flavour lockstat, 4 vCPUs, 4 jobs, a timer every 20 µs, 2 seeds``."""
    parts = [
        f"flavour {locks.flavour}",
        "1 vCPU" if locks.serial else f"{locks.vcpus} vCPUs",
        f"{locks.jobs} jobs",
    ]
    if locks.metronome_ns and not locks.in_wall:
        parts.append(f"a timer every {locks.metronome_ns / 1000:g} µs")
    many = len(locks.seeds)
    return ", ".join([*parts, wording.blocks(many) if locks.in_wall else wording.seeds(many)])


def banner(locks: LockComparison) -> str:
    """Why none of a diagnostic run's numbers stand beside the measured ones."""
    return f"Diagnosis: another {'kernel' if locks.other_kernel else 'guest'}, no bandwidth"


def limits(locks: LockComparison) -> str:
    """What this diagnostic run can tell of locks, and what it cannot."""
    text = ON_ONE if locks.serial else ON_SEVERAL
    if locks.in_wall:
        text = f"{REAL} {REAL_ON_ONE if locks.serial else REAL_ON_SEVERAL}"
    return f"{text} {PARENTHESES}" if len(locks.seeds) > 1 else text


def slow_path(locks: LockComparison) -> str:
    """How much ran in the slow path of locks; empty where that was not counted."""
    if locks.slow_share is None:
        return ""
    before, after = (100 * x for x in (locks.slow_share.base, locks.slow_share.patched))
    if locks.slow_entries is None:
        return (
            f"Slow paths of locks: {before:.2f} % -> {after:.2f} % of all samples of busy CPUs "
            "(perf, by the CPUs' clock)"
        )
    return (
        f"Spin-lock slow path: {before:.3f} % -> {after:.3f} % of all instructions; entered "
        f"{wording.few(locks.slow_entries)} times per 1,000 {plural(locks.unit_title)}"
    )


def waiters(row: LockRow) -> str:
    """``__filemap_add_folio 62.28 -> 46.61, ...``: where it was waited for."""
    return ", ".join(
        f"{site.function} {wording.short(site.base)} -> {wording.short(site.patched)}"
        for site in row.waiters
    )


def chain(row: WaitRow) -> str:
    """The nearest callers from the inside out, and the outermost: ``a < b < c < d < ... < e``."""
    callers = row.chain[1:]
    if len(callers) > NEAREST + 2:
        callers = (*callers[:NEAREST], "...", callers[-1])
    return " < ".join(callers)


def identity(row: LockRow) -> str:
    """How the kernels print the lock, and a warning where nothing else identifies it."""
    return f"{', '.join(row.printed)}{BY[row.by]}"


def blocks(view: View, comparison: Comparison) -> list[Block]:
    """The section: what contends or is held, by lock and by caller."""
    body: list[Block] = []
    for each in comparison.locks:
        body += _of_guest(view, comparison, each)
    if body:
        body.insert(0, Paragraph(DIAGNOSTIC, "note"))
    return titled("Locks", "locks", [*measured_locks.blocks(comparison), *body])


def _of_guest(view: View, comparison: Comparison, locks: LockComparison) -> list[Block]:
    where = f"{locks.case} {locks.phase}"
    label = f"diagnostic run {locks.twin}, {where}"
    words = slow_path(locks) or _held_most(locks) or "waits by lock and by caller"
    run = f"{locks.case}, phase {locks.phase}, diagnostic run {locks.twin}"
    blocks: list[Block] = [Paragraph((Strong(f"{banner(locks)}."), f" {guest(locks)}."), "banner")]
    if any(locks.dropped):
        base, patched = comparison.manifest.base, comparison.manifest.patched
        blocks.append(Paragraph(
            f"{locks.dropped[0]} events in {base} and {locks.dropped[1]} in {patched} were "
            "dropped: the waits are not complete."
        ))  # fmt: skip
    kind = lock_charts.kind(locks)
    blocks += gallery(
        (c for c in view.charts(lock_charts.draw, comparison=comparison) if c.kind == kind), 4
    )
    if locks.rows:
        rows = tuple(_lock(comparison, locks, each) for each in locks.shown)
        blocks.append(Table(f"Locks, {label}", _heads(comparison, locks), rows))
        if locks.serial:
            text = SATURATION.replace("virtual time", "time") if locks.in_wall else SATURATION
            blocks.append(Paragraph(text, "note"))
    elif not locks.waits:
        blocks.append(Paragraph("No lock was waited for."))
    blocks += _waits(comparison, locks, label)
    blocks.append(Paragraph(limits(locks), "note"))
    behind = (*blocks, *_all(comparison, locks, label))
    lead = Paragraph((Strong(f"{run}: "), f"{words}."), "lead")
    return [lead, Fold(f"What the diagnostic run {locks.twin} counted", behind)]


def _held_most(locks: LockComparison) -> str:
    """``i_pages.xa_lock held 642.4 -> 529.2 virtual ns per folio added (-17.61 %)``; or empty."""
    first = next((each for each in locks.shown if each.hold is not None), None)
    if first is None or first.hold is None:
        return ""
    values = f"{wording.few(first.hold)} {locks.ns} per {locks.unit_title}"
    return f"{first.label} held {values} ({wording.moved(first.hold).strip('()')})"


def _waits(comparison: Comparison, locks: LockComparison, label: str) -> list[Block]:
    """The longest waits by caller; those that a form can fold, and where the list was cut."""
    if not locks.waits:
        return []
    heads, rows = _wait_heads(comparison, locks), tuple(map(_wait, locks.waits[:MOST_WAITS]))
    blocks: list[Block] = [Table(f"Waits by caller, {label}", heads, rows[:OPEN_WAITS])]
    if further := rows[OPEN_WAITS:]:
        many = f"{len(further)} more waiting functions"
        inner = (Table(f"More waits by caller, {label}", heads, further),)
        blocks.append(Fold(many, inner, page_only=True))
    if len(locks.waits) > MOST_WAITS:
        note = f"The longest {MOST_WAITS} of {len(locks.waits)}."
        blocks.append(Paragraph(note, "note"))
    return blocks


def _all(comparison: Comparison, locks: LockComparison, label: str) -> list[Block]:
    """The other locks, and how the kernels print all of them."""
    if not locks.rows:
        return []
    others = tuple(_lock(comparison, locks, each) for each in locks.rows[locks.listed :])
    inner: list[Block] = []
    inner += [Table(f"All locks, {label}", _heads(comparison, locks), others)] if others else []
    inner.append(Facts(tuple(Fact(r.label, (Mono(identity(r)),)) for r in locks.rows)))
    summary = f"All {len(locks.rows)} locks, and how the kernels print them"
    return [Fold(summary, tuple(inner), page_only=True)]


def _three(comparison: Comparison, group: str, *, drop: int = 0) -> tuple[Column, ...]:
    """Both arms and their change, which comes first: a phone shows the first columns alone."""
    return (
        Column("change", group=group, drop=drop),
        Column(comparison.manifest.base, group=group, drop=drop),
        Column(comparison.manifest.patched, group=group, drop=drop),
    )


def _heads(comparison: Comparison, locks: LockComparison) -> tuple[Column, ...]:
    lock = Column("lock", left=True)
    many = f"1,000 {plural(locks.unit_title)}"
    if not locks.serial:
        return (
            lock, *_three(comparison, f"contentions per {many}"),
            *_three(comparison, f"waited, {locks.ns} per {locks.unit_title}", drop=2),
            Column(f"waited in, per {many}", left=True, wide=True, drop=1),
        )  # fmt: skip
    each = f"held, {locks.ns} each time"
    taken, full = f"taken per {locks.unit_title}", "saturates at, CPUs"
    return (
        lock,
        *_three(comparison, f"held, {locks.ns} per {locks.unit_title}"),
        *_three(comparison, each, drop=2),
        *_three(comparison, taken, drop=1)[1:],
        *_three(comparison, full, drop=3)[1:],
    )


def _numbers(pair: Paired | None) -> tuple[str, str, str]:
    if pair is None:
        return "", "", ""
    return wording.moved(pair), wording.short(pair.base), wording.short(pair.patched)


def _lock(comparison: Comparison, locks: LockComparison, each: LockRow) -> Row:
    note = ", ".join(text for text in (SHORT_BY[each.by], only(each.only_in, comparison)) if text)
    label = Cell(each.label, small=note)
    if not locks.serial:
        return row(label, *_numbers(each.contentions), *_numbers(each.wait), waiters(each))
    full = each.saturation
    return row(
        label, *_numbers(each.hold), *_numbers(each.hold_each), *_numbers(each.acquisitions)[1:],
        cpus(full.base) if full else "", cpus(full.patched) if full else "",
    )  # fmt: skip


def _wait_heads(comparison: Comparison, locks: LockComparison) -> tuple[Column, ...]:
    return (
        Column("waiting function", left=True),
        Column("kind", left=True),
        *_three(comparison, f"waits per 1,000 {plural(locks.unit_title)}"),
        *_three(comparison, f"{locks.ns} per {locks.unit_title}", drop=2),
        Column("mostly called by", left=True, wide=True, drop=1),
    )


def _wait(each: WaitRow) -> Row:
    return row(
        Cell(each.caller, mono=True), each.flags, *_numbers(each.count), *_numbers(each.wait),
        chain(each),
    )  # fmt: skip
