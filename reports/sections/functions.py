"""Which functions a change came from, and which lines: per unit of work, by phase."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from analysis.counts import Paired
from analysis.explain.annotated import EXPLANATION as ANNOTATED
from analysis.explain.annotated import AnnotatedHunk, AnnotatedLine, AnnotatedPhase
from analysis.explain.functions import (
    HEADLINES,
    MOST_CHANGED,
    TOLERANCE,
    Attribution,
    FunctionRow,
    RatioRow,
    programs,
)
from analysis.linked import Split
from analysis.model import Comparison, MetricComparison
from analysis.verdict import CALLED
from reports import wording
from reports.document import (
    Block,
    Cell,
    Code,
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
from reports.sections import (
    NOT_SIGNIFICANT,
    Instrument,
    Line,
    View,
    arms,
    at_most,
    line,
    mark,
    only,
    worth,
)
from reports.sentences import changed, upper_first
from results.units import INSTRUCTIONS
from text import counted, enumerated

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
NAMED = 4
# Of the significant ones; functions.csv has all.
MOST_FUNCTIONS = 20
# How far a change in instructions may be from the change of a rate that it explains: a part
# of the rate's change goes with evictions that fall differently.
AGREES = 0.5


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


def absent(row: RatioRow) -> str:
    """A warning that a function counted for a ratio was not entered in some arm."""
    if not row.absent:
        return ""
    names = ", ".join(row.absent)
    return f"{row.title}: {names} never entered on one arm; inlined there, the count is too low"


def significant(attribution: Attribution) -> list[FunctionRow]:
    """The listed functions whose difference is no chance, the largest first."""
    return [row for row in attribution.rows if not row.instructions.within_scatter]


def moved_most(attribution: Attribution, many: int) -> str:
    """``163.7 fewer instructions per I/O: xas_load -77.1, xas_start -20.6``."""
    moved = ", ".join(
        f"{row.shown_name} {wording.signed(row.instructions.difference)}"
        for row in significant(attribution)[:many]
    )
    pair = attribution.total
    more = "fewer" if pair.difference < 0 else "more"
    whole = f"{wording.amount(abs(pair.difference))} {more} instructions per "
    chance = f" ({mark(pair)})" * pair.is_uncertain
    return f"{whole}{attribution.unit_title}{chance}" + (f": {moved}" if moved else "")


def _percents(split: Split) -> tuple[str, ...]:
    parts = split.total, split.changed, split.linked, split.rest
    return tuple(wording.percent(split.share(part.difference)) for part in parts)


def split_words(split: Split) -> str:
    """``Of the change, -0.80 %: -0.03 % is in functions whose code differs, ...``."""
    of, own, linked, rest = _percents(split)
    names = ", ".join(f"{each.name} {wording.signed(each.difference)}" for each in split.functions)
    return (
        f"Of the change, {of}: {own} is in functions whose code differs, {linked} in their callers "
        f"and callees, {rest} in all other code{f' ({names})' * bool(names)}"
    )


def in_parts(split: Split) -> str:
    """``changed functions +0.48 %, their callers and callees -0.01 %, all other code -0.36 %``."""
    _, own, linked, rest = _percents(split)
    return f"changed functions {own}, their callers and callees {linked}, all other code {rest}"


def _of_phase(comparison: Comparison, metric: MetricComparison) -> Attribution | None:
    """What was counted in a metric's phase, where it is the first that is judged there."""
    here = (metric.case, metric.phase)
    of_phase = (m for m in comparison.primary if (m.case, m.phase) == here)
    if next(of_phase, metric) != metric:
        return None
    return next((each for each in comparison.headlines if (each.case, each.phase) == here), None)


def explained(comparison: Comparison, metric: MetricComparison) -> str:
    """The functions behind an improvement or a regression; empty where they are not behind it.

    A path is the instructions for one piece of work, and a rate their reciprocal, where nothing
    sleeps and one CPU does it all.  Functions are named beside a verdict only where the two changes
    agree that far; of several metrics of one phase the first has them.
    """
    attribution, change = _of_phase(comparison, metric), metric.judgement.change
    is_path = metric.name.partition(".")[2] == INSTRUCTIONS
    comparable = is_path or metric.direction == "higher"
    if attribution is None or metric.judgement.verdict not in CALLED or not comparable:
        return ""
    moved = attribution.total.change or 0.0
    if change is None or not change.estimate or min(moved, change.estimate) <= -1:
        return ""
    agreement = math.log1p(moved) / math.log1p(change.estimate) * (1 if is_path else -1)
    if abs(agreement - 1) > AGREES or attribution.total.within_scatter:
        return ""
    return moved_most(attribution, NAMED)


def lines(each: Attribution) -> list[Line]:
    """All instructions, and the ratios of the phase."""
    says = f"{len(each.changed) or 'none'} of {each.tested} changed" if each.tested else ""
    says = "every function identical" if each.identical else says
    lines = [line("instructions", each.unit_title, each.total, says)]
    for ratio in each.ratios:
        label, _, unit = ratio.title.partition(" per ")
        lines.append(line(label, unit, ratio.calls))
    return lines


def tables(_: View, comparison: Comparison, each: Attribution) -> list[Block]:
    """What changed, what moved most, and parts of the kernel."""
    if each.identical:
        return [Paragraph((Strong(IDENTICAL),))]
    warnings = (Item(f"{text}.", "warning") for text in filter(None, map(absent, each.ratios)))
    items = tuple(warnings)
    return [
        *([Listing(items)] if items else []),
        *_changed(comparison, each),
        *_significant(comparison, each),
        *_parts(comparison, each),
    ]


def _changed(comparison: Comparison, attribution: Attribution) -> list[Block]:
    """The functions that changed, each with what it takes and how often; or that none did."""
    words = changed(attribution)
    if not words:
        return []
    blocks: list[Block] = [Paragraph(f"{upper_first(words)}.", "lead")]
    if attribution.split is not None:
        blocks.append(Paragraph(f"{split_words(attribution.split)}.", "lead"))
    if not attribution.changed:
        return blocks
    heads = (
        *(Column("function", left=True), Column("instructions"), Column("calls")),
        *(Column("instructions per call", drop=1), Column("changed", left=True, drop=2)),
    )
    rows = []
    for each in attribution.changed[:MOST_CHANGED]:
        to = source_address(comparison.manifest, each.name, each.file, each.lines)
        numbers = wording.both(each.instructions, 2), wording.both(each.calls, 3)
        per_call = " -> ".join(wording.amount(value, 2) for value in each.per_call)
        name = Cell(each.name, small=each.file, mono=True, to=to)
        rows.append(row(name, *numbers, per_call, " and ".join(each.moved)))
    label = f"Functions that changed, {attribution.case} {attribution.phase}"
    head = Heading(f"Functions that changed, per {attribution.unit_title}", 4)
    return [*blocks, head, Table(label, heads, tuple(rows))]


def _numbers(pair: Paired) -> tuple[str, str, str, str]:
    both = wording.amount(pair.base), wording.amount(pair.patched)
    return wording.signed(pair.difference), wording.paired_bounds(pair), *both


def _function(comparison: Comparison, each: FunctionRow, *, linked: bool = False) -> Row:
    """A function's row; in long lists without links, which would be most of their bytes."""
    pair, to = each.instructions, ""
    if linked and not each.user and each.only_in != "patched":
        to = source_address(comparison.manifest, each.name, each.file, each.lines)
    place = f"{each.file}, {each.subsystem}" if each.file else each.subsystem
    place = programs().get(each.name, "user code") if each.user else place
    calls = wording.both(each.calls, 2) if each.calls else ""
    note = only(each.only_in, comparison) or mark(pair)
    name = Cell(each.shown_name, small=place, mono=True, to=to)
    return row(name, *_numbers(pair), calls, note, faint=pair.is_uncertain)


def _sum(label: str, rows: Sequence[FunctionRow]) -> Row:
    pairs = [each.instructions for each in rows]
    numbers = (
        wording.signed(sum(pair.difference for pair in pairs)),
        "",
        wording.amount(sum(pair.base for pair in pairs)),
        wording.amount(sum(pair.patched for pair in pairs)),
    )
    return row(label, *numbers, "", "", faint=True, total=True)


def _significant(comparison: Comparison, attribution: Attribution) -> list[Block]:
    """The significant functions first, everything else in rows of sums that add up to all."""
    if not attribution.listed:
        return []
    clear, whole = significant(attribution), attribution.total
    rows = [_function(comparison, each, linked=True) for each in clear[:MOST_FUNCTIONS]]
    if further := clear[MOST_FUNCTIONS:]:
        rows.append(_sum(counted(len(further), "more significant function"), further))
    if chance := [each for each in attribution.rows if each.instructions.within_scatter]:
        label = f"{counted(len(chance), 'listed function')}, {NOT_SIGNIFICANT}"
        rows.append(_sum(label, chance))
    if others := attribution.others:
        many = counted(len(attribution.functions) - attribution.listed, "function")
        rows.append(
            row(f"the other {many}", *_numbers(others), "", mark(others), faint=True, total=True)
        )
    rows.append(row("all", *_numbers(whole), "", mark(whole), strong=True, total=True))
    label = f"Functions that moved most, {attribution.case} {attribution.phase}"
    title = f"Functions that moved most, per {attribution.unit_title}"
    base, patched = comparison.manifest.base, comparison.manifest.patched
    heads = (
        *(Column("function", left=True), Column("difference"), Column("95 %", drop=2)),
        *(Column(base, drop=3), Column(patched, drop=4), Column("calls", drop=1)),
        Column("", left=True, drop=5),
    )
    table = Table(label, heads, tuple(rows))
    return [Heading(title, 4), table, Paragraph(f"{share(attribution)}.", "note")]


def _parts(comparison: Comparison, attribution: Attribution) -> list[Block]:
    """Parts of the kernel with their files."""
    parts = []
    for group in attribution.groups:
        files = [(Cell(f.file, mono=True), f.instructions) for f in group.files if f.file]
        parts += [
            row(label, *_numbers(pair), faint=pair.is_uncertain)
            for label, pair in ((Cell(group.title), group.instructions), *files)
            if worth(pair, attribution.total)
        ]
    heads = (
        *(Column("part, and its files", left=True), Column("difference"), Column("95 %", drop=1)),
        *arms(comparison),
    )
    where = f"{attribution.case} {attribution.phase}"
    return at_most(f"Instructions by part of the kernel, {where}", heads, parts)


FUNCTIONS = Instrument(HEADLINES, lines, tables, f"{CHANGED} {EXPLAINS}")


# The diff has a margin: how often each line ran, on base to the left and on patched to the right.
# A line that has code and never ran is marked as gcov does it; one without code has no number.
NEVER = "#####"
WIDE = 8
TAB = 4
HOW = (
    "Where the compiler made copies of a line, inlined or not, they are added up; a line without a "
    "number has no code, and one with a ~ left none of its own, so that it ran about as often."
)


def lines_that_ran(comparison: Comparison) -> str:
    """``31 of 44 changed lines ran``, in some phase; empty where lines were not counted."""
    phases = ANNOTATED.of(comparison)
    every = set[tuple[str, str, int]]().union(*(each.changed() for each in phases))
    ran = set[tuple[str, str, int]]().union(*(each.changed(ran=True) for each in phases))
    return f"{len(ran)} of {counted(len(every), 'changed line')} ran" if every else ""


def diffs(_: View, comparison: Comparison) -> list[Block]:
    """A fold for each phase that ran any; forms of characters have it by a verb of its own."""
    executed, rest = _executed(comparison)
    folds = [
        Fold(f"{_where(each)}: the diff by lines, {_ran(each)}", tuple(_diff(each)), True)
        for each in executed
    ]
    return [*folds, *rest]


def diffs_shown(comparison: Comparison, pair: str = "") -> list[Block]:
    """The diff for each phase of a pair of arms, for those who ask for nothing else."""
    executed, rest = _executed(comparison)
    blocks: list[Block] = []
    for each in executed:
        blocks.append(Heading(": ".join(filter(None, (pair, _where(each), _ran(each)))), 2))
        blocks += _diff(each)
    return [*blocks, *rest, Paragraph(HOW, "note")] if blocks else []


def _executed(comparison: Comparison) -> tuple[list[AnnotatedPhase], list[Block]]:
    """The phases in which a changed line ran, or the first, and a sentence that names the rest."""
    phases = ANNOTATED.of(comparison)
    executed = [each for each in phases if each.changed(ran=True)] or list(phases[:1])
    rest = [_where(each) for each in phases if each not in executed]
    text = f"No changed line ran in {enumerated(rest)}."
    return executed, [Paragraph(text, "note")] if rest else []


def _diff(phase: AnnotatedPhase) -> list[Block]:
    """The hunks of each file, behind what the numbers are."""
    lead = (
        f"How often each line ran per {phase.unit_title}, over "
        f"{counted(len(phase.seeds), 'seed')}: on base to the left, on patched to the right; "
        f"{NEVER} never."
    )
    files = groupby(phase.hunks, key=lambda hunk: hunk.file)
    return [
        Paragraph(lead, "note"),
        *(Code("\n".join([file, *_margins(hunks)]), "diff") for file, hunks in files),
    ]


def _margins(hunks: Iterable[AnnotatedHunk]) -> Iterator[str]:
    """The lines of some hunks with their margin, each hunk behind what ran of it."""
    for hunk in hunks:
        changed = [each.runs for each in hunk.lines if each.runs is not None]
        ran = sum(map(bool, changed))
        executed = (
            f"{ran} of {counted(len(changed), 'changed line')} ran" if ran else "not executed"
        )
        share = f"{100 * hunk.base:.2g} -> {100 * hunk.patched:.2g} % of the phase"
        yield f"{'':{2 * WIDE + 2}}{hunk.header}"
        says = f"{executed if changed else 'no code changed'}; {share}"
        says = f"not counted: {hunk.without}" if hunk.without and not changed else says
        yield f"{'':{2 * WIDE + 2}}[{says}]"
        for each in hunk.lines:
            margin = f"{_times(each.base, each)} {_times(each.patched, each)}"
            yield f"{margin} {each.sign}{each.text.expandtabs(TAB)}".rstrip()


def _times(ran: float | None, line: AnnotatedLine) -> str:
    if ran is None:
        return f"{'':{WIDE}}"
    text = wording.figure(ran, 3) if ran else NEVER
    text = text if len(text) < WIDE else f"{ran:.1e}"
    return f"{'' if line.exact else '~'}{text}".rjust(WIDE)


def _where(phase: AnnotatedPhase) -> str:
    return f"{phase.case} {phase.phase}"


def _ran(phase: AnnotatedPhase) -> str:
    return f"{len(phase.changed(ran=True))} of {counted(len(phase.changed()), 'changed line')} ran"
