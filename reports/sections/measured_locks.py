"""Locks of the measured kernel, counted in the judged runs: a line, and a table behind it."""

from __future__ import annotations

from analysis.counts import Paired
from analysis.explain.locks import EXPLANATION, MeasuredLock, MeasuredLocks, TakenIn, TakerBy
from analysis.model import Comparison
from reports import wording
from reports.document import Block, Cell, Column, Fold, Paragraph, Row, Table, row
from reports.sections.view import OfPhase, by_phase
from text import counted, plural

COUNTED = (
    "Counted by a QEMU plugin in the measured runs, which it does not perturb: instructions "
    "(virtual ns) of the CPU that holds the lock, from taking it to letting go, interrupts "
    "included. They explain a verdict and never make one."
)
NAMED = (
    "A lock has the name of its variable, of who alone takes it, or of its member; “taken in” "
    "names the function that takes an unknown one most. Locks in bits of other words (page lock, "
    "RCU, reference counts with a lock) are not counted."
)
SATURATION = (
    "“Saturates at” is all instructions over those with the lock held: the number of CPUs that "
    "keep the instance that is held longest held all the time, if they share nothing else. It is "
    "an estimate: nothing here has a cache, or lines that move between CPUs."
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
# Rows of who waited for whom.
MOST_PAIRS = 12
# Named beside a lock: who takes it, the longest holder first.
MOST_TAKERS = 3
# The lock's name, and what is known of each of its takers.
SITE_COLUMNS = 8
UNKNOWN_BY: dict[TakerBy, str] = {
    "variable": "", "takers": "", "member": "", "taker": "name not known",
}  # fmt: skip


def sentence(locks: MeasuredLocks) -> str:
    """``i_pages.xa_lock held 1072 -> 1038 virtual ns per folio added: -33.7 [...] (-3.1 %)``."""
    lock = locks.foremost
    if lock is None:
        return "No lock was taken"
    held = lock.held
    text = f"{lock.label} held {wording.both(held)} virtual ns per {locks.unit_title}"
    if held.equal:
        return f"{text}, equal in {counted(held.n, 'seed')}"
    moved = " ".join(filter(None, (
        wording.signed(held.difference), wording.paired_bounds(held),
        f"({wording.paired_change(held)})",
    )))  # fmt: skip
    mark = "" if locks.moved_most else "; no lock moved significantly"
    return f"{text}: {moved}, {counted(held.n, 'seed')}{mark}"


def brief(locks: MeasuredLocks) -> str:
    """``i_pages.xa_lock held 1072 -> 1038 virtual ns per folio added: -3.14 %``; may be empty."""
    lock = locks.foremost
    if lock is None:
        return ""
    values = f"{wording.few(lock.held)} virtual ns per {locks.unit_title}"
    return f"{lock.label} held {values}: {wording.moved(lock.held)}"


def blocks(comparison: Comparison) -> list[Block]:
    """A line for each phase, and the locks of all in a fold."""
    phases = []
    for each in EXPLANATION.of(comparison):
        line = "; ".join(filter(None, (sentence(each), waited(each))))
        phases.append(
            OfPhase(each.case, each.phase, line, tuple(_tables(comparison, each)), len(each.seeds))
        )
    notes = (COUNTED, NAMED, SATURATION)
    return by_phase(comparison, "Locks by time held, and who takes them", phases, notes)


def _tables(comparison: Comparison, locks: MeasuredLocks) -> list[Block]:
    where = f"{locks.case}, phase {locks.phase}"
    heads = _heads(comparison, locks)
    blocks: list[Block] = [
        Table(
            f"Locks, measured runs, {where}",
            heads,
            tuple(_lock(comparison, each) for each in locks.shown),
        )
    ]
    if any(locks.lost):
        base, patched = locks.lost
        blocks.append(
            Paragraph(
                f"Of {base} locks in {comparison.manifest.base} and {patched} in "
                f"{comparison.manifest.patched} the end was not seen: their time is missing."
            )
        )
    blocks += _waits(comparison, locks, where)
    others = tuple(_lock(comparison, each) for each in locks.rows[locks.listed :])
    sites = Table(
        f"Locks by who takes them, {where}",
        (heads[0], Column("function", left=True), *heads[1:SITE_COLUMNS]),
        tuple(_site(each.label, site) for each in locks.shown for site in each.sites),
    )  # fmt: skip
    inner: list[Block] = [sites]
    if others:
        more = f"Other locks, measured runs, {where}"
        inner = [Table(more, heads, others), Paragraph(SLEPT, "note"), sites]
    blocks.append(Fold(f"All {len(locks.rows)} locks, and who takes them", tuple(inner), True))
    return blocks


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


def _waits(comparison: Comparison, locks: MeasuredLocks, where: str) -> list[Block]:
    if locks.slow_entries is None:
        return []
    base, patched = comparison.manifest.base, comparison.manifest.patched
    many = f"per 1,000 {plural(locks.unit_title)}"
    time = f"waited, virtual ns per {locks.unit_title}"
    groups = (time, f"waits {many}", f"handovers {many}")
    columns = (
        Column("lock", left=True), Column("waited", left=True), Column("for", left=True),
        Column("change", group=time),
        *(Column(arm, group=group, drop=drop)
          for group, drop in zip(groups, (0, 2, 1), strict=True) for arm in (base, patched)),
    )  # fmt: skip
    rows = tuple(
        row(
            each.label, Cell(each.waiter, mono=True), Cell(each.holder, mono=True),
            wording.moved(each.waited),
            *_two(each.waited), *_two(each.waits), *_two(each.handovers),
        )
        for each in locks.pairs[:MOST_PAIRS]
    )  # fmt: skip
    section: list[Block] = [Paragraph(f"{waited(locks)[:1].upper()}{waited(locks)[1:]}.")]
    if rows:
        section += [
            Table(f"Who waited for whom, {where}", columns, rows),
            Paragraph(WAITED, "note"),
        ]
    return section


def _heads(comparison: Comparison, locks: MeasuredLocks) -> tuple[Column, ...]:
    base, patched = comparison.manifest.base, comparison.manifest.patched
    held = f"held, virtual ns per {locks.unit_title}"
    each, taken = "held, virtual ns each time", f"taken per {locks.unit_title}"
    columns = [
        Column("lock", left=True),
        Column("change", group=held), Column(base, group=held), Column(patched, group=held),
        Column(base, group=each, drop=2), Column(patched, group=each, drop=2),
        Column(base, group=taken, drop=1), Column(patched, group=taken, drop=1),
    ]  # fmt: skip
    if locks.vcpus > 1:
        waits = f"waits per 1,000 {plural(locks.unit_title)}"
        columns += [Column(base, group=waits), Column(patched, group=waits)]
    full = "saturates at, CPUs (estimate)"
    columns += [Column(base, group=full, drop=3), Column(patched, group=full, drop=3)]
    return tuple(columns)


def _two(pair: Paired | None, scale: float = 1.0) -> tuple[str, str]:
    if pair is None:
        return "", ""
    return wording.short(scale * pair.base), wording.short(scale * pair.patched)


def cpus(value: float) -> str:
    """A number of CPUs at which a lock saturates; beyond a thousand nobody counts."""
    return f"{value:.1f}" if value < 1000 else "> 1000"


def _numbers(held: Paired, each: Paired | None, taken: Paired) -> tuple[str, ...]:
    return (wording.moved(held), *_two(held), *_two(each), *_two(taken))


def _lock(comparison: Comparison, each: MeasuredLock) -> Row:
    arm = {"base": comparison.manifest.base, "patched": comparison.manifest.patched}.get(
        each.only_in
    )
    takers = ", ".join(site.function for site in each.sites[:MOST_TAKERS])
    notes = (UNKNOWN_BY[each.by], f"only in {arm}" if arm else "", f"in {takers}")
    waits: tuple[str, ...] = ()
    if comparison.manifest.guest.vcpus > 1:
        waits = _two(each.waits, 1000.0)
    full = each.saturation
    return row(
        Cell(each.label, small="; ".join(filter(None, notes))),
        *_numbers(each.held, each.held_each, each.taken), *waits,
        *((cpus(full.base), cpus(full.patched)) if full else ("", "")),
    )  # fmt: skip


def _site(label: str, site: TakenIn) -> Row:
    numbers = _numbers(site.held, site.held_each, site.taken)
    return row(label, Cell(site.function, mono=True), *numbers)
