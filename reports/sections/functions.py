"""Which functions a change came from: instructions and calls per unit of work, by phase."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reports import wording
from reports.attribution import TOLERANCE
from reports.attribution_model import (
    Arm,
    Attribution,
    FunctionChange,
    FunctionRow,
    Hint,
    RatioRow,
)
from reports.charts import waterfall
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
from reports.model import Comparison, MetricComparison
from reports.paired import Paired
from reports.sections import measured_locks
from reports.sections.view import View, figure, titled
from reports.subsystems import programs
from reports.verdict import CALLED
from results.profile import PATH

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
    "at least 0.025 % of the phase, and Holm's correction over all functions tested leaves the "
    "t test significant at the level of the verdicts."
)
NOT_SIGNIFICANT = "not significant"
LETTER_FUNCTIONS = 2
# Changed functions in a table and in a sentence; functions.csv marks them all.
MOST_CHANGED, CHANGED_NAMED = 12, 4
# Of the significant ones; a page has more in a fold, and functions.csv has all.
MOST_FUNCTIONS = 10
MOST_FOLDED = 150
NAMED = 4
# How far a change in instructions may be from the change of a rate that it explains: a part
# of the rate's change goes with evictions that fall differently.
AGREES = 0.5


def _seeds(pair: Paired, decimals: int) -> str:
    """``8 seeds from -1.75 to -1.74``: the range of the differences."""
    low, high = (wording.signed(value, decimals) for value in pair.difference_range)
    count = wording.seeds(pair.n)
    return f"{count}, each {low}" if low == high else f"{count} from {low} to {high}"


def _mark(pair: Paired) -> str:
    return f"; {NOT_SIGNIFICANT}" if pair.within_scatter else ""


def total(found: Attribution) -> str:
    """``12870.4 -> 12716.6 instructions per I/O: -153.8 (-1.20 %), 8 seeds from ... to ...``."""
    pair = found.total
    return (
        f"{wording.both(pair)} instructions per {found.unit_title}: "
        f"{wording.signed(pair.difference)} ({wording.paired_change(pair)}), "
        f"{_seeds(pair, 1)}{_mark(pair)}"
    )


def share(found: Attribution) -> str:
    """How much of the whole change the listed functions are; empty where nothing moved."""
    if found.share is None or found.movement is None:
        return ""
    unexplained = abs(found.share - 1) > TOLERANCE
    return (
        f"{found.listed} of {len(found.functions)} functions are listed: "
        f"{100 * found.share:.0f} % of the change, and {100 * found.movement:.0f} % of all "
        "absolute differences" + ("; the change is spread over many functions" * unexplained)
    )


def ratio(row: RatioRow) -> str:
    """``Tree walks per folio added: 9.09 -> 7.34, -1.75 (-19.22 %), 8 seeds from ... to ...``."""
    title = f"{row.title[:1].upper()}{row.title[1:]}: {wording.both(row.calls, 2)}"
    if row.calls.equal:
        return f"{title}, equal in {wording.seeds(row.calls.n)}"
    moved = f"{wording.signed(row.calls.difference, 2)} ({wording.paired_change(row.calls)})"
    return f"{title}, {moved}, {_seeds(row.calls, 2)}{_mark(row.calls)}"


def absent(row: RatioRow) -> str:
    """A warning that a function counted for a ratio was not entered in some arm."""
    if not row.absent:
        return ""
    names = ", ".join(row.absent)
    return f"{row.title}: {names} never entered on one arm; inlined there, the count is too low"


def only(arm: Arm, one: Comparison) -> str:
    """``only in base``, in the arms' own names; empty for both."""
    return f"only in {one.manifest.base if arm == 'base' else one.manifest.patched}" if arm else ""


def place(row: FunctionRow) -> str:
    """Where the function is: its file and part of the kernel."""
    if row.user:
        return programs().get(row.name, "user code")
    return f"{row.file}, {row.subsystem}" if row.file else row.subsystem


def hint(found: Hint, base: str, patched: str) -> str:
    """One sentence on two functions that may be one."""
    said = {
        "variant": f"{found.name} and {found.other} may be one function, renamed by the compiler",
        "renamed": f"{found.name} (only in {base}) may be called {found.other} in {patched}",
        "inlined": f"{found.name} ran only in {base} and {found.other} grew: perhaps inlined",
        "split": f"{found.name} ran only in {patched} and {found.other} shrank: perhaps split off",
    }[found.kind]
    return f"{said}; together {wording.signed(found.together)}"


def significant(found: Attribution) -> list[FunctionRow]:
    """The listed functions whose difference is no chance, the largest first."""
    return [row for row in found.rows if not row.instructions.within_scatter]


def moved_most(found: Attribution, many: int) -> str:
    """``163.7 fewer instructions per I/O: xas_load -77.1, xas_start -20.6``."""
    moved = ", ".join(
        f"{row.shown_name} {wording.signed(row.instructions.difference)}"
        for row in significant(found)[:many]
    )
    difference = found.total.difference
    more = "fewer" if difference < 0 else "more"
    whole = f"{wording.amount(abs(difference))} {more} instructions per {found.unit_title}"
    mark = f" ({NOT_SIGNIFICANT})" if found.total.within_scatter else ""
    return f"{whole}{mark}" + (f": {moved}" if moved else "")


def changed(found: Attribution) -> str:
    """The functions of a phase that changed, as :func:`changed_words` has them."""
    largest = [(each.name, each.instructions.difference) for each in found.changed]
    return changed_words(found.tested, len(largest), largest)


def changed_per_unit(found: Attribution) -> str:
    """The same with what the numbers are of; empty where nothing was tested."""
    return f"{changed(found)}{f' instructions per {found.unit_title}' * bool(found.changed)}"


def changed_words(tested: int, count: int, largest: Sequence[tuple[str, float]]) -> str:
    """``3 of 512 functions changed: xas_load -3.9, xas_start -1.2``; or that none did.

    ``largest`` are names and differences in instructions per unit of work, of some or all of the
    ``count`` that changed.  Empty where none was tested.
    """
    if not tested:
        return ""
    if not count:
        return f"no function changed, of {tested} tested"
    named = [f"{name} {wording.signed(apart, 2)}" for name, apart in largest[:CHANGED_NAMED]]
    rest = f" and {count - len(named)} more" if count > len(named) else ""
    return f"{count} of {tested} functions changed: {', '.join(named)}{rest}"


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
    for found in comparison.headlines:
        counted = found.total.change or 0.0
        here = (found.case, found.phase) == (metric.case, metric.phase)
        if here and min(counted, change.estimate) > -1 and change.estimate:
            agreement = math.log1p(counted) / math.log1p(change.estimate) * (1 if is_path else -1)
            if abs(agreement - 1) <= AGREES and not found.total.within_scatter:
                return moved_most(found, NAMED)
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
            changed(found) for found in comparison.headlines
            if (found.case, found.phase) == (metric.case, metric.phase)
            and _first(comparison, metric) == metric and not found.identical
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
    found = comparison.headlines[0]
    if found.identical:
        return [IDENTICAL]
    said = [
        f"{ratio(row).partition(', ')[0]}{f' ({NOT_SIGNIFICANT})' * row.calls.within_scatter}."
        for row in found.ratios[:1]
    ]
    several = len(comparison.headlines) > 1
    where = f"{found.case}, {found.phase} phase. " if several else ""
    said.append(f"{moved_most(found, LETTER_FUNCTIONS)}.")
    held = map(measured_locks.brief, comparison.measured_locks[:1])
    said += [f"{line}." for line in held if line]
    return [f"{where}{said[0]}", *said[1:]]


def blocks(view: View, one: Comparison) -> list[Block]:
    """The section; phases in which nothing was called are folded."""
    found: list[Block] = []
    waterfalls = {chart.name: chart for chart in view.charts(waterfall.draw, one=one)}
    judged = {(m.case, m.phase) for m in one.primary}
    called = {(m.case, m.phase) for m in one.primary if m.judgement.verdict in CALLED} or judged
    drawn_once = False
    for each in one.headlines:
        title = f"{each.case}, phase {each.phase}"
        if each.identical:
            found += [Heading(title, 3), Paragraph((Strong(IDENTICAL),))]
            continue
        drawn = waterfalls.get("-".join(filter(None, (view.prefix(one), waterfall.name(each)))))
        inner: list[Block] = [*_ratios(each), *_changed(one, each)]
        # The first drawing is seen; where more phases changed, theirs stand with all functions.
        beside = [figure(drawn, 4)] if drawn else []
        shown = (each.case, each.phase) in called
        inner += [] if drawn_once or not shown else beside
        inner += [*_significant(one, each), *_hints(one, each), *_other_units(one, each)]
        inner += _all(one, each, beside if drawn_once or not shown else [])
        drawn_once = drawn_once or shown
        if shown:
            found += [Heading(title, 3), Paragraph(f"{total(each)}.", "lead"), *inner]
        else:
            found.append(Fold(f"{title}: {total(each)}", tuple(inner)))
    if any(each.changed for each in one.headlines):
        found.append(Paragraph(CHANGED, "note"))
    if found:
        found.append(Paragraph(EXPLAINS, "note"))
    return titled("Where it came from", "functions", found)


def _ratios(found: Attribution) -> list[Block]:
    blocks: list[Block] = [Paragraph(f"{ratio(each)}.", "lead") for each in found.ratios]
    warnings = tuple(Item(f"{absent(each)}.", "warning") for each in found.ratios if each.absent)
    return [*blocks, Listing(warnings)] if warnings else blocks


def _changed(one: Comparison, found: Attribution) -> list[Block]:
    """The functions that changed, each with what it takes and how often; or that none did."""
    words = changed(found)
    if not words:
        return []
    blocks: list[Block] = [Paragraph(f"{words[:1].upper()}{words[1:]}.", "lead")]
    if not found.changed:
        return blocks
    heads = (
        Column("function", left=True), Column("instructions"), Column("calls"),
        Column("instructions per call", drop=1), Column("changed", left=True, drop=2),
    )  # fmt: skip
    rows = tuple(
        row(Cell(each.name, small=each.file, mono=True), wording.both(each.instructions, 2),
            wording.both(each.calls, 3), _per_call(each), " and ".join(each.moved))
        for each in found.changed[:MOST_CHANGED]
    )  # fmt: skip
    label = f"Functions that changed, {found.case} {found.phase}"
    return [
        *blocks,
        Heading(f"Functions that changed, per {found.unit_title}", 4),
        Table(label, heads, rows),
    ]


def _per_call(each: FunctionChange) -> str:
    return " -> ".join(wording.amount(value, 2) for value in each.per_call)


def _heads(one: Comparison) -> tuple[Column, ...]:
    return (
        Column("function", left=True),
        Column("difference"),
        Column("95 %", drop=2),
        Column(one.manifest.base, drop=3),
        Column(one.manifest.patched, drop=4),
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


def _function(one: Comparison, row_: FunctionRow) -> Row:
    pair = row_.instructions
    note = only(row_.only_in, one) or (NOT_SIGNIFICANT if pair.within_scatter else "")
    calls = wording.both(row_.calls, 2) if row_.calls else ""
    return row(
        Cell(row_.shown_name, small=place(row_), mono=True), *_numbers(pair), calls, note,
        faint=pair.within_scatter,
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


def _significant(one: Comparison, found: Attribution) -> list[Block]:
    """The significant functions first, everything else in rows of sums that add up to all."""
    if not found.listed:
        return []
    clear = significant(found)
    shown, further = clear[:MOST_FUNCTIONS], clear[MOST_FUNCTIONS:]
    chance = [each for each in found.rows if each.instructions.within_scatter]
    rows = [_function(one, each) for each in shown]
    if further:
        rows.append(_sum(_many(len(further), "more significant function"), further))
    if chance:
        label = f"{_many(len(chance), 'listed function')}, {NOT_SIGNIFICANT}"
        rows.append(_sum(label, chance))
    if found.others:
        label = f"the other {_many(len(found.functions) - found.listed, 'function')}"
        note = NOT_SIGNIFICANT if found.others.within_scatter else ""
        rows.append(row(label, *_numbers(found.others), "", note, faint=True, total=True))
    note = NOT_SIGNIFICANT if found.total.within_scatter else ""
    rows.append(row("all", *_numbers(found.total), "", note, strong=True, total=True))
    label = f"Functions that moved most, {found.case} {found.phase}"
    return [
        Heading(f"Functions that moved most, per {found.unit_title}", 4),
        Table(label, _heads(one), tuple(rows)),
        Paragraph(f"{share(found)}.", "note"),
    ]


def _hints(one: Comparison, found: Attribution) -> list[Block]:
    arms = (one.manifest.base, one.manifest.patched)
    items = tuple(Item(hint(each, *arms), "note") for each in found.hints)
    return [Listing(items)] if items else []


def _other_units(one: Comparison, found: Attribution) -> list[Block]:
    """The same phase per other units of work, in a sentence."""
    others = [
        total(other)
        for other in one.attributions
        if not other.headline and (other.case, other.phase) == (found.case, found.phase)
    ]
    return [Paragraph(f"Per other units of work: {'; '.join(others)}.", "note")] if others else []


def _all(one: Comparison, found: Attribution, drawn: Sequence[Block]) -> list[Block]:
    """Parts of the kernel and all functions, where a form can fold them."""
    groups = [
        row(group.title, wording.signed(group.instructions.difference),
            wording.amount(group.instructions.base), wording.amount(group.instructions.patched),
            faint=group.instructions.within_scatter)
        for group in found.groups
        if visible(group.instructions)
    ]  # fmt: skip
    heads = (
        Column("part", left=True), Column("difference"), Column(one.manifest.base),
        Column(one.manifest.patched),
    )  # fmt: skip
    functions = found.functions[:MOST_FOLDED]
    of = f"{len(functions)} of {len(found.functions)} functions"
    where = f"{found.case} {found.phase}"
    inner: list[Block] = [
        *drawn,
        Table(f"Instructions by part of the kernel, {where}", heads, tuple(groups)),
        Table(f"All functions, {where}", _heads(one),
              tuple(_function(one, each) for each in functions)),
    ]  # fmt: skip
    if len(found.functions) > MOST_FOLDED:
        inner.append(Paragraph("functions.csv beside this page has all of them.", "note"))
    return [
        Fold(f"By part of the kernel, and {of}, per {found.unit_title}", tuple(inner),
             page_only=True)
    ]  # fmt: skip


def visible(pair: Paired, decimals: int = 1) -> bool:
    """Whether anything but zeros would be printed of it."""
    values = (pair.base, pair.patched, pair.difference)
    return any(round(value, decimals) != 0 for value in values)
