"""Locks, as diagnostic runs measured them, and what these runs can and cannot tell."""

from __future__ import annotations

from analysis.counts import Paired
from analysis.explain.locks import WAITS, LockComparison, WaitRow
from analysis.model import Comparison
from analysis.verdict import Change
from reports import wording
from reports.charts import forest
from reports.charts.canvas import Chart
from reports.document import (
    Block,
    Cell,
    Column,
    Fold,
    Paragraph,
    Row,
    Strong,
    Table,
    row,
)
from reports.sections import measured_locks
from reports.sections.view import PARENTHESES, View, gallery, titled
from text import counted, plural

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


def guest(locks: LockComparison) -> str:
    """``4 vCPUs, 4 jobs, a timer every 20 µs, 2 seeds``."""
    parts = [f"{locks.vcpus} vCPU{'s' * (locks.vcpus != 1)}", f"{locks.jobs} jobs"]
    if locks.metronome_ns and not locks.in_wall:
        parts.append(f"a timer every {locks.metronome_ns / 1000:g} µs")
    many = len(locks.seeds)
    return ", ".join([*parts, counted(many, "block") if locks.in_wall else counted(many, "seed")])


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


def blocks(view: View, comparison: Comparison) -> list[Block]:
    """The section: what contends or is held, by lock and by caller."""
    body: list[Block] = []
    for each in WAITS.of(comparison):
        body += _of_guest(view, comparison, each)
    if body:
        body.insert(0, Paragraph(DIAGNOSTIC, "note"))
    return titled("Locks", "locks", [*measured_locks.blocks(comparison), *body])


def _of_guest(view: View, comparison: Comparison, locks: LockComparison) -> list[Block]:
    where = f"{locks.case} {locks.phase}"
    label = f"diagnostic run {locks.twin}, {where}"
    words = slow_path(locks) or "waits by caller"
    run = f"{locks.case}, phase {locks.phase}, diagnostic run {locks.twin}"
    blocks: list[Block] = [Paragraph((Strong(f"{BANNER}."), f" {guest(locks)}."), "banner")]
    if any(locks.dropped):
        base, patched = comparison.manifest.base, comparison.manifest.patched
        blocks.append(Paragraph(
            f"{locks.dropped[0]} events in {base} and {locks.dropped[1]} in {patched} were "
            "dropped: the waits are not complete."
        ))  # fmt: skip
    blocks += gallery(view.charts(lambda _: _drawn(locks), comparison=comparison), 4)
    if not locks.waits:
        blocks.append(Paragraph("No lock was waited for."))
    blocks += _waits(comparison, locks, label)
    blocks.append(Paragraph(limits(locks), "note"))
    lead = Paragraph((Strong(f"{run}: "), f"{words}."), "lead")
    return [lead, Fold(f"What the diagnostic run {locks.twin} counted", tuple(blocks))]


def _drawn(locks: LockComparison) -> list[Chart]:
    """What the waits changed by, caller by caller: 1 % is seen beside a wait of any length."""
    lines = tuple(
        forest.ChangeLine(
            label=f"{each.caller} ({each.flags})",
            text=f"{wording.few(pair)}  {wording.moved(pair)}",
            change=Change(
                estimate=pair.difference / pair.base,
                hodges_lehmann=pair.difference / pair.base,
                low=None if pair.low is None else pair.low / pair.base,
                high=None if pair.high is None else pair.high / pair.base,
                level=0.95,
            ),
        )
        for each in locks.waits[:OPEN_WAITS]
        if (pair := each.count).base
    )
    head = f"waits per 1,000 {plural(locks.unit_title)}"
    names = ("locks", locks.twin, locks.case, locks.phase)
    return forest.draw([forest.ChangeGroup(head, 0.0, lines)], title="Waits by caller", names=names)


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


def _three(comparison: Comparison, group: str, *, drop: int = 0) -> tuple[Column, ...]:
    """Both arms and their change, which comes first: a phone shows the first columns alone."""
    return (
        Column("change", group=group, drop=drop),
        Column(comparison.manifest.base, group=group, drop=drop),
        Column(comparison.manifest.patched, group=group, drop=drop),
    )


def _numbers(pair: Paired | None) -> tuple[str, str, str]:
    if pair is None:
        return "", "", ""
    return wording.moved(pair), wording.short(pair.base), wording.short(pair.patched)


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
