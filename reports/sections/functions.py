"""Which functions a change came from: instructions and calls per unit of work, by phase."""

from __future__ import annotations

import math
from collections.abc import Sequence

from analysis.counts import Paired
from analysis.explain.functions import (
    MOST_CHANGED,
    TOLERANCE,
    Attribution,
    FunctionChange,
    FunctionRow,
    Hint,
    RatioRow,
    programs,
)
from analysis.explain.locks import EXPLANATION as LOCKS
from analysis.linked import Split
from analysis.model import Comparison, MetricComparison
from analysis.verdict import CALLED
from reports import wording
from reports.charts import functions as charted
from reports.document import (
    Block,
    Cell,
    Column,
    Fold,
    Heading,
    Item,
    Listing,
    Paragraph,
    Row,
    Strong,
    Table,
    row,
)
from reports.repeat import source_address
from reports.sections import measured_locks
from reports.sections.counted import only
from reports.sections.view import View, gallery, titled
from reports.sentences import changed
from results.profile import PATH
from text import counted

IDENTICAL = "Identical: every function executed the same number of instructions."
EXPLAINS = (
    "Counted by a QEMU plugin in the measured runs, which it does not perturb. Counts explain a "
    "verdict and never make one; that a function changed is a finding of its own, which a CI "
    "policy may fail. Means over the seeds; the interval is Student's at 95 %, of the "
    "paired differences. “Not significant” means that it holds zero: other pages were evicted. "
    "About one row in twenty that did not move escapes that mark."
)
CHANGED = (
    "A function changed where its instructions or calls moved in one direction on every seed, by "
    "at least 0.025 % of the phase (more in phases whose boots differ by more), and Holm's "
    "correction over all functions tested leaves the t test significant at the level of the "
    "verdicts."
)
NOT_SIGNIFICANT = "not significant"
LETTER_FUNCTIONS = 2
# Of the significant ones; a page has more in a fold, and functions.csv has all.
MOST_FUNCTIONS = 10
MOST_FOLDED = 150
# With more phases than these each is a line that unfolds, significant or not.
MOST_OPEN = 6
NAMED = 4
# How far a change in instructions may be from the change of a rate that it explains: a part
# of the rate's change goes with evictions that fall differently.
AGREES = 0.5


def _seeds(pair: Paired, decimals: int) -> str:
    """``8 seeds from -1.75 to -1.74``: the range of the differences."""
    low, high = (wording.signed(value, decimals) for value in pair.difference_range)
    count = counted(pair.n, "seed")
    return f"{count}, each {low}" if low == high else f"{count} from {low} to {high}"


def _mark(pair: Paired) -> str:
    return f"; {NOT_SIGNIFICANT}" if pair.is_uncertain else ""


def total(attribution: Attribution) -> str:
    """``12870.4 -> 12716.6 instructions per I/O: -153.8 (-1.20 %), 8 seeds from ... to ...``."""
    pair = attribution.total
    return (
        f"{wording.both(pair)} instructions per {attribution.unit_title}: "
        f"{wording.signed(pair.difference)} ({wording.paired_change(pair)}), "
        f"{_seeds(pair, 1)}{_mark(pair)}"
    )


def share(attribution: Attribution) -> str:
    """How much of the whole change the listed functions are; empty where nothing moved."""
    if attribution.share is None or attribution.movement is None:
        return ""
    unexplained = abs(attribution.share - 1) > TOLERANCE
    return (
        f"{attribution.listed} of {len(attribution.functions)} functions are listed: "
        f"{100 * attribution.share:.0f} % of the change, and "
        f"{100 * attribution.movement:.0f} % of all absolute differences"
        + ("; the change is spread over many functions" * unexplained)
    )


def ratio(row: RatioRow) -> str:
    """``Tree walks per folio added: 9.09 -> 7.34, -1.75 (-19.22 %), 8 seeds from ... to ...``."""
    title = f"{row.title[:1].upper()}{row.title[1:]}: {wording.both(row.calls, 2)}"
    if row.calls.equal:
        return f"{title}, equal in {counted(row.calls.n, 'seed')}"
    moved = f"{wording.signed(row.calls.difference, 2)} ({wording.paired_change(row.calls)})"
    return f"{title}, {moved}, {_seeds(row.calls, 2)}{_mark(row.calls)}"


def absent(row: RatioRow) -> str:
    """A warning that a function counted for a ratio was not entered in some arm."""
    if not row.absent:
        return ""
    names = ", ".join(row.absent)
    return f"{row.title}: {names} never entered on one arm; inlined there, the count is too low"


def place(row: FunctionRow) -> str:
    """Where the function is: its file and part of the kernel."""
    if row.user:
        return programs().get(row.name, "user code")
    return f"{row.file}, {row.subsystem}" if row.file else row.subsystem


def hint(each: Hint, base: str, patched: str) -> str:
    """One sentence on two functions that may be one."""
    sentences = {
        "variant": f"{each.name} and {each.other} may be one function, renamed by the compiler",
        "renamed": f"{each.name} (only in {base}) may be called {each.other} in {patched}",
        "inlined": f"{each.name} ran only in {base} and {each.other} grew: perhaps inlined",
        "split": f"{each.name} ran only in {patched} and {each.other} shrank: perhaps split off",
    }[each.kind]
    return f"{sentences}; together {wording.signed(each.together)}"


def significant(attribution: Attribution) -> list[FunctionRow]:
    """The listed functions whose difference is no chance, the largest first."""
    return [row for row in attribution.rows if not row.instructions.within_scatter]


def moved_most(attribution: Attribution, many: int) -> str:
    """``163.7 fewer instructions per I/O: xas_load -77.1, xas_start -20.6``."""
    moved = ", ".join(
        f"{row.shown_name} {wording.signed(row.instructions.difference)}"
        for row in significant(attribution)[:many]
    )
    difference = attribution.total.difference
    more = "fewer" if difference < 0 else "more"
    whole = f"{wording.amount(abs(difference))} {more} instructions per {attribution.unit_title}"
    mark = f" ({NOT_SIGNIFICANT})" if attribution.total.is_uncertain else ""
    return f"{whole}{mark}" + (f": {moved}" if moved else "")


def split_words(split: Split) -> str:
    """``Of -0.80 % -0.03 % are of ..., and -0.02 % of the rest (isolate -12.4)``."""
    of, own, linked, rest = (
        wording.percent(split.share(part.difference))
        for part in (split.total, split.changed, split.linked, split.rest)
    )
    names = ", ".join(f"{each.name} {wording.signed(each.difference)}" for each in split.functions)
    return (
        f"Of {of} {own} are of functions whose code differs, {linked} of what they call and are "
        f"called from, {rest} of the rest{f' ({names})' * bool(names)}"
    )


def explained(comparison: Comparison, metric: MetricComparison) -> str:
    """The functions behind an improvement or a regression; empty where they are not behind it.

    A path is the instructions for one piece of work, and a rate their reciprocal, where nothing
    sleeps and one CPU does it all.  Functions are named beside a verdict only where the two changes
    agree that far; of several metrics of one phase the first has them.
    """
    first = _first(comparison, metric)
    judged, change = metric.judgement.verdict, metric.judgement.change
    is_path = metric.name.partition(".")[2] == PATH
    comparable = is_path or metric.direction == "higher"
    if first != metric or judged not in CALLED or change is None or not comparable:
        return ""
    for attribution in comparison.headlines:
        total_change = attribution.total.change or 0.0
        here = (attribution.case, attribution.phase) == (metric.case, metric.phase)
        if here and min(total_change, change.estimate) > -1 and change.estimate:
            agreement = (
                math.log1p(total_change) / math.log1p(change.estimate) * (1 if is_path else -1)
            )
            if abs(agreement - 1) <= AGREES and not attribution.total.within_scatter:
                return moved_most(attribution, NAMED)
    return ""


def _first(comparison: Comparison, metric: MetricComparison) -> MetricComparison:
    """The first of the judged metrics of a metric's phase."""
    return next(
        (m for m in comparison.primary if (m.case, m.phase) == (metric.case, metric.phase)), metric
    )


def beside(comparison: Comparison, metric: MetricComparison) -> str:
    """Which functions changed, for the first verdict of a phase that nothing else explains."""
    return next(
        (
            changed(attribution) for attribution in comparison.headlines
            if (attribution.case, attribution.phase) == (metric.case, metric.phase)
            and _first(comparison, metric) == metric and not attribution.identical
        ),
        "",
    )  # fmt: skip


def letter(comparison: Comparison) -> list[str]:
    """Sentences for three lines of a mail, the most important first.

    Of the first phase that was counted: its ratio, and what moved most; then the lock whose
    hold time moved most.
    """
    if not comparison.headlines:
        return []
    attribution = comparison.headlines[0]
    if attribution.identical:
        return [IDENTICAL]
    lines = [
        f"{ratio(row).partition(', ')[0]}{f' ({NOT_SIGNIFICANT})' * row.calls.is_uncertain}."
        for row in attribution.ratios[:1]
    ]
    several = len(comparison.headlines) > 1
    where = f"{attribution.case}, {attribution.phase} phase. " if several else ""
    lines.append(f"{moved_most(attribution, LETTER_FUNCTIONS)}.")
    locks = map(measured_locks.brief, LOCKS.of(comparison)[:1])
    lines += [f"{line}." for line in locks if line]
    return [f"{where}{lines[0]}", *lines[1:]]


def blocks(view: View, comparison: Comparison) -> list[Block]:
    """The section; phases in which nothing was called are folded, as are all of many phases."""
    body: list[Block] = []
    many = len(comparison.headlines) > MOST_OPEN
    kinds = {"waterfall": charted.waterfalls, "icicle": charted.icicles}
    draws = (charted.waterfalls,) if many else tuple(kinds.values())
    charts = {chart.name: chart for chart in view.charts(*draws, comparison=comparison)}
    judged = {(m.case, m.phase) for m in comparison.primary}
    judged_phases = {
        (m.case, m.phase) for m in comparison.primary if m.judgement.verdict in CALLED
    } or judged
    judged_phases = set() if many else judged_phases
    drawn_once = False
    for each in comparison.headlines:
        title = f"{each.case}, phase {each.phase}"
        if each.identical:
            body += [Heading(title, 3), Paragraph((Strong(IDENTICAL),))]
            continue
        names = [charted.name_of(kind, each) for kind in kinds]
        if prefix := view.prefix(comparison):
            names = [f"{prefix}-{name}" for name in names]
        inner: list[Block] = [*_ratios(each), *_changed(comparison, each)]
        # The first drawing is seen; where more phases changed, theirs stand with all functions.
        beside = gallery((charts[name] for name in names if name in charts), 4)
        open_at_once = (each.case, each.phase) in judged_phases
        inner += [] if drawn_once or not open_at_once else beside
        inner += [
            *_significant(comparison, each),
            *_hints(comparison, each),
            *_other_units(comparison, each),
        ]
        inner += _all(comparison, each, beside if drawn_once or not open_at_once else [])
        drawn_once = drawn_once or open_at_once
        if open_at_once:
            body += [Heading(title, 3), Paragraph(f"{total(each)}.", "lead"), *inner]
        else:
            body.append(Fold(f"{title}: {total(each)}", tuple(inner)))
    if body:
        notes = [CHANGED] if any(each.changed for each in comparison.headlines) else []
        how = tuple(Paragraph(text, "note") for text in (*notes, EXPLAINS))
        body.append(Fold("How functions are counted and compared", how))
    return titled("Where it came from", "functions", body)


def _ratios(attribution: Attribution) -> list[Block]:
    blocks: list[Block] = [Paragraph(f"{ratio(each)}.", "lead") for each in attribution.ratios]
    warnings = tuple(
        Item(f"{absent(each)}.", "warning") for each in attribution.ratios if each.absent
    )
    return [*blocks, Listing(warnings)] if warnings else blocks


def _changed(comparison: Comparison, attribution: Attribution) -> list[Block]:
    """The functions that changed, each with what it takes and how often; or that none did."""
    words = changed(attribution)
    if not words:
        return []
    blocks: list[Block] = [Paragraph(f"{words[:1].upper()}{words[1:]}.", "lead")]
    if attribution.split is not None:
        blocks.append(Paragraph(f"{split_words(attribution.split)}.", "lead"))
    if not attribution.changed:
        return blocks
    heads = (
        Column("function", left=True), Column("instructions"), Column("calls"),
        Column("instructions per call", drop=1), Column("changed", left=True, drop=2),
    )  # fmt: skip
    rows = tuple(
        row(Cell(each.name, small=each.file, mono=True,
                 to=source_address(comparison.manifest, each.name, each.file, each.lines)),
            wording.both(each.instructions, 2),
            wording.both(each.calls, 3), _per_call(each), " and ".join(each.moved))
        for each in attribution.changed[:MOST_CHANGED]
    )  # fmt: skip
    label = f"Functions that changed, {attribution.case} {attribution.phase}"
    return [
        *blocks,
        Heading(f"Functions that changed, per {attribution.unit_title}", 4),
        Table(label, heads, rows),
    ]


def _per_call(each: FunctionChange) -> str:
    return " -> ".join(wording.amount(value, 2) for value in each.per_call)


def _heads(comparison: Comparison) -> tuple[Column, ...]:
    return (
        Column("function", left=True),
        Column("difference"),
        Column("95 %", drop=2),
        Column(comparison.manifest.base, drop=3),
        Column(comparison.manifest.patched, drop=4),
        Column("calls", drop=1),
        Column("", left=True, drop=5),
    )


def _numbers(pair: Paired) -> tuple[str, str, str, str]:
    return (
        wording.signed(pair.difference),
        wording.paired_bounds(pair),
        wording.amount(pair.base),
        wording.amount(pair.patched),
    )


def _function(comparison: Comparison, row_: FunctionRow, *, linked: bool = False) -> Row:
    """A function's row; in long lists without links, which would be most of their bytes."""
    pair = row_.instructions
    note = only(row_.only_in, comparison) or (NOT_SIGNIFICANT if pair.is_uncertain else "")
    calls = wording.both(row_.calls, 2) if row_.calls else ""
    in_base = linked and not row_.user and row_.only_in != "patched"
    to = source_address(comparison.manifest, row_.name, row_.file, row_.lines) if in_base else ""
    return row(
        Cell(row_.shown_name, small=place(row_), mono=True, to=to), *_numbers(pair), calls, note,
        faint=pair.is_uncertain,
    )  # fmt: skip


def _sum(label: str, rows: Sequence[FunctionRow], note: str = "") -> Row:
    pairs = [each.instructions for each in rows]
    return row(
        label, wording.signed(sum(pair.difference for pair in pairs)), "",
        wording.amount(sum(pair.base for pair in pairs)),
        wording.amount(sum(pair.patched for pair in pairs)), "", note, faint=True, total=True,
    )  # fmt: skip


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _significant(comparison: Comparison, attribution: Attribution) -> list[Block]:
    """The significant functions first, everything else in rows of sums that add up to all."""
    if not attribution.listed:
        return []
    clear = significant(attribution)
    first, further = clear[:MOST_FUNCTIONS], clear[MOST_FUNCTIONS:]
    chance = [each for each in attribution.rows if each.instructions.within_scatter]
    rows = [_function(comparison, each, linked=True) for each in first]
    if further:
        rows.append(_sum(_many(len(further), "more significant function"), further))
    if chance:
        label = f"{_many(len(chance), 'listed function')}, {NOT_SIGNIFICANT}"
        rows.append(_sum(label, chance))
    if attribution.others:
        label = f"the other {_many(len(attribution.functions) - attribution.listed, 'function')}"
        note = NOT_SIGNIFICANT if attribution.others.is_uncertain else ""
        rows.append(row(label, *_numbers(attribution.others), "", note, faint=True, total=True))
    note = NOT_SIGNIFICANT if attribution.total.is_uncertain else ""
    rows.append(row("all", *_numbers(attribution.total), "", note, strong=True, total=True))
    label = f"Functions that moved most, {attribution.case} {attribution.phase}"
    title = f"Functions that moved most, per {attribution.unit_title}"
    body = (
        Table(label, _heads(comparison), tuple(rows)),
        Paragraph(f"{share(attribution)}.", "note"),
    )
    # Where some changed, their table comes first and says most of the same.
    return [Fold(title, body)] if attribution.changed else [Heading(title, 4), *body]


def _hints(comparison: Comparison, attribution: Attribution) -> list[Block]:
    arms = (comparison.manifest.base, comparison.manifest.patched)
    items = tuple(Item(hint(each, *arms), "note") for each in attribution.hints)
    return [Listing(items)] if items else []


def _other_units(comparison: Comparison, attribution: Attribution) -> list[Block]:
    """The same phase per other units of work, in a sentence."""
    others = [
        total(other)
        for other in comparison.attributions
        if not other.headline and (other.case, other.phase) == (attribution.case, attribution.phase)
    ]
    return [Paragraph(f"Per other units of work: {'; '.join(others)}.", "note")] if others else []


def _all(comparison: Comparison, attribution: Attribution, charts: Sequence[Block]) -> list[Block]:
    """Parts of the kernel with their files, and all functions, where a form can fold them."""
    groups = []
    for group in attribution.groups:
        if visible(group.instructions):
            groups.append(_part(Cell(group.title), group.instructions))
            groups += [
                _part(Cell(each.file, mono=True), each.instructions)
                for each in group.files
                if each.file and visible(each.instructions)
            ]
    heads = (
        Column("part, and its files", left=True), Column("difference"), Column("95 %", drop=1),
        Column(comparison.manifest.base), Column(comparison.manifest.patched),
    )  # fmt: skip
    functions = attribution.functions[:MOST_FOLDED]
    of = f"{len(functions)} of {len(attribution.functions)} functions"
    where = f"{attribution.case} {attribution.phase}"
    inner: list[Block] = [
        *charts,
        Table(f"Instructions by part of the kernel, {where}", heads, tuple(groups)),
        Table(f"All functions, {where}", _heads(comparison),
              tuple(_function(comparison, each) for each in functions)),
    ]  # fmt: skip
    if len(attribution.functions) > MOST_FOLDED:
        inner.append(Paragraph("functions.csv beside this page has all of them.", "note"))
    return [
        Fold(f"By part of the kernel, and {of}, per {attribution.unit_title}", tuple(inner),
             page_only=True)
    ]  # fmt: skip


def _part(label: Cell, pair: Paired) -> Row:
    return row(label, *_numbers(pair), faint=pair.is_uncertain)


def visible(pair: Paired, decimals: int = 1) -> bool:
    """Whether anything but zeros would be printed of it."""
    values = (pair.base, pair.patched, pair.difference)
    return any(round(value, decimals) != 0 for value in values)
