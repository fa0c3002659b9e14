"""How counts, their origin and locks are said: the one place, so that forms agree."""

from __future__ import annotations

import math
from typing import NamedTuple

from reports import wording
from reports.attribution import TOLERANCE
from reports.attribution_model import Arm, Attribution, FunctionRow, Hint, RatioRow
from reports.model import Comparison, MetricComparison
from reports.paired import Paired
from reports.subsystems import programs
from reports.verdict import CALLED

IDENTICAL = "Identical: every function executed the same number of instructions."
EXPLAINS = (
    "Counted by the probe in the very runs whose numbers are judged, without being felt by them. "
    "Counts explain a verdict and never make one."
)
SCATTER = (
    "Means over the seeds; the interval is Student's at 95 %, of the paired differences. "
    "“Within scatter” means that it holds zero: other pages were evicted, and the row is no "
    "cause. About one row in twenty that did not move escapes that mark."
)
LETTER_FUNCTIONS = 2
# In the text and Markdown forms; the page and functions.csv have more.
MOST_FUNCTIONS = 20
NAMED = 4
# How far a change in instructions may be from the change of a rate that it explains: a part
# of the rate's change goes with evictions that fall differently.
AGREES = 0.5


class Sums(NamedTuple):
    """Sums over several functions per unit of work."""

    base: float
    patched: float
    difference: float


def amount(value: float | None, decimals: int = 1) -> str:
    """A count per unit with fixed decimals; exactly zero is ``0``, a dash for None."""
    if value is None:
        return wording.NOTHING
    return "0" if value == 0 else f"{value:.{decimals}f}"


def signed(value: float, decimals: int = 1) -> str:
    """A difference: ``-85.3``; what rounds to nothing and is not zero shows as ``±0.0``."""
    if value == 0:
        return "0"
    rounded = round(value, decimals)
    return f"±{abs(rounded):.{decimals}f}" if rounded == 0 else f"{rounded:+.{decimals}f}"


def bounds(pair: Paired, decimals: int = 1) -> str:
    """``[-88.0, -82.5]``, the 95 % interval of the difference; empty for one seed."""
    if pair.low is None or pair.high is None:
        return ""
    return f"[{signed(pair.low, decimals)}, {signed(pair.high, decimals)}]"


def both(pair: Paired, decimals: int = 1) -> str:
    """``9.09 -> 7.34``."""
    return f"{amount(pair.base, decimals)} -> {amount(pair.patched, decimals)}"


def few(pair: Paired | None) -> str:
    """Both values with four significant digits; empty for None."""
    return "" if pair is None else f"{short(pair.base)} -> {short(pair.patched)}"


def short(value: float | None) -> str:
    """A value with four significant digits."""
    return wording.figure(value, 4)


def change(pair: Paired | None) -> str:
    """The change in percent; where base is zero, that there was nothing."""
    if pair is None or (pair.change is None and not pair.patched):
        return wording.NOTHING
    return "from 0" if pair.change is None else wording.percent(pair.change)


def moved(pair: Paired | None) -> str:
    """:func:`change`, in parentheses where the seeds scatter so much that it may be zero."""
    said = change(pair)
    return f"({said})" if pair is not None and pair.within_scatter else said


def plural(title: str) -> str:
    """``I/Os``, ``folios added``, ``page faults``: a unit's title in the plural."""
    if title.split(" ")[-1] == "ms":
        return title
    words = title.split(" ")
    at = -2 if len(words) > 1 and words[-1].endswith("ed") else -1
    words[at] += "s"
    return " ".join(words)


def _seeds(pair: Paired, decimals: int) -> str:
    """``8 seeds from -1.75 to -1.74``: the range of the differences."""
    low, high = (signed(value, decimals) for value in pair.difference_range)
    count = wording.seeds(pair.n)
    return f"{count}, each {low}" if low == high else f"{count} from {low} to {high}"


def total(found: Attribution) -> str:
    """``12870.4 -> 12716.6 instructions per I/O: -153.8 (-1.20 %), seeds from ... to ...``."""
    pair = found.total
    said = (
        f"{both(pair)} instructions per {found.unit_title}: {signed(pair.difference)} "
        f"({change(pair)}), {_seeds(pair, 1)}"
    )
    return f"{said}; within scatter" if pair.within_scatter else said


def share(found: Attribution) -> str:
    """How much of the whole change the listed functions are; empty where nothing moved."""
    if found.share is None or found.movement is None:
        return ""
    unexplained = abs(found.share - 1) > TOLERANCE
    listed = f"{found.listed} of {len(found.functions)} functions are listed"
    return (
        f"{listed}: {signed(found.listed_difference)} of {signed(found.total.difference)}, "
        f"{100 * found.share:.0f} % of the change, and {100 * found.movement:.0f} % of all "
        "absolute differences" + ("; no few functions explain it" if unexplained else "")
    )


def beyond_scatter(found: Attribution) -> str:
    """What is left of the listed functions without those within scatter; empty where all are left.

    With few seeds the whole change may be lost in evictions while some functions are not.
    """
    clear = [row for row in found.rows if not row.instructions.within_scatter]
    if len(clear) == found.listed:
        return ""
    if not clear:
        return "None of the listed functions stands out of the scatter of the seeds"
    named = ", ".join(
        f"{function(row)} {signed(row.instructions.difference)}" for row in clear[:NAMED]
    )
    rest = ", ..." if len(clear) > NAMED else ""
    together = signed(sum(row.instructions.difference for row in clear))
    return (
        f"Beyond the scatter of the seeds: {len(clear)} of {found.listed} listed functions, "
        f"together {together} ({named}{rest})"
    )


def ratio(row: RatioRow) -> str:
    """``Tree walks per folio added: 9.09 -> 7.34, -1.75 (-19.22 %), 8 seeds from ... to ...``."""
    title = f"{row.title[:1].upper()}{row.title[1:]}"
    if row.calls.equal:
        return f"{title}: {both(row.calls, 2)}, equal in {wording.seeds(row.calls.n)}"
    moved = f"{signed(row.calls.difference, 2)} ({change(row.calls)})"
    said = f"{title}: {both(row.calls, 2)}, {moved}, {_seeds(row.calls, 2)}"
    return f"{said}; within scatter" if row.calls.within_scatter else said


def absent(row: RatioRow) -> str:
    """A warning that a function counted for a ratio was not entered in some arm."""
    if not row.absent:
        return ""
    names = ", ".join(row.absent)
    return f"{row.title}: {names} never entered on one arm; inlined there, the count is too low"


def only(arm: Arm, base: str, patched: str) -> str:
    """``only in base``, in the arms' own names; empty for both."""
    return f"only in {base if arm == 'base' else patched}" if arm else ""


def note(row: FunctionRow, base: str, patched: str) -> str:
    """What has to be known of a row."""
    if row.only_in:
        return only(row.only_in, base, patched)
    return "within scatter" if row.instructions.within_scatter else ""


def function(row: FunctionRow) -> str:
    """The function's name; a file of user code says so."""
    return f"{row.name} (user)" if row.user else row.name


def place(row: FunctionRow) -> str:
    """Where the function is: its file and part of the kernel."""
    if row.user:
        return programs().get(row.name, "user code")
    return f"{row.file}, {row.subsystem}" if row.file else row.subsystem


def shown(found: Attribution) -> tuple[FunctionRow, ...]:
    """The listed functions that the text and Markdown forms print."""
    return found.rows[:MOST_FUNCTIONS]


def further(found: Attribution) -> tuple[str, Sums] | None:
    """Label and sums of the listed functions that those forms leave out; None for none."""
    rest = [row.instructions for row in found.rows[MOST_FUNCTIONS:]]
    if not rest:
        return None
    label = "1 more function" if len(rest) == 1 else f"{len(rest)} more functions"
    return label, Sums(
        sum(pair.base for pair in rest),
        sum(pair.patched for pair in rest),
        sum(pair.difference for pair in rest),
    )


def elsewhere(found: Attribution) -> str:
    """Where the functions are that the text and Markdown forms leave out; empty for none."""
    left_out = len(found.rows) - MOST_FUNCTIONS
    if left_out <= 0:
        return ""
    return (
        f"The first {MOST_FUNCTIONS} of {len(found.rows)} listed functions; the HTML page and "
        f"functions.csv have {left_out} more"
    )


def visible(pair: Paired, decimals: int = 1) -> bool:
    """Whether anything but zeros would be printed of it."""
    values = (pair.base, pair.patched, pair.difference)
    return any(round(value, decimals) != 0 for value in values)


def others(found: Attribution) -> str:
    """``the other 63 functions``."""
    count = len(found.functions) - found.listed
    return "the other function" if count == 1 else f"the other {count} functions"


def hint(found: Hint, base: str, patched: str) -> str:
    """One sentence on two functions that may be one."""
    said = {
        "variant": f"{found.name} and {found.other} may be one function, renamed by the compiler",
        "renamed": f"{found.name} (only in {base}) may be called {found.other} in {patched}",
        "inlined": f"{found.name} ran only in {base} and {found.other} grew: perhaps inlined",
        "split": f"{found.name} ran only in {patched} and {found.other} shrank: perhaps split off",
    }[found.kind]
    return f"{said}; together {signed(found.together)}"


def moved_most(found: Attribution, many: int) -> str:
    """``163.7 fewer instructions per I/O: xas_load -77.1, xas_start -20.6``."""
    clear = [row for row in found.rows if not row.instructions.within_scatter]
    moved = ", ".join(
        f"{function(row)} {signed(row.instructions.difference)}" for row in clear[:many]
    )
    apart = found.total.difference
    more = "fewer" if apart < 0 else "more"
    whole = f"{amount(abs(apart))} {more} instructions per {found.unit_title}"
    scatter = " (within scatter)" if found.total.within_scatter else ""
    return f"{whole}{scatter}" + (f": {moved}" if moved else "")


def explained(comparison: Comparison, metric: MetricComparison) -> str:
    """The functions behind an improvement or a regression; empty where they are not behind it.

    A rate is the reciprocal of the instructions for one piece of work, where nothing sleeps
    and one CPU does it all.  Functions are named beside a verdict only where the two changes
    agree that far; of several metrics of one phase the first has them.
    """
    first = next(
        (m for m in comparison.primary if (m.case, m.phase) == (metric.case, metric.phase)), metric
    )
    judged, change = metric.judgement.verdict, metric.judgement.change
    if first != metric or judged not in CALLED or change is None or metric.direction != "higher":
        return ""
    for found in comparison.headlines:
        counted = found.total.change or 0.0
        here = (found.case, found.phase) == (metric.case, metric.phase)
        if here and min(counted, change.estimate) > -1 and change.estimate:
            share = -math.log1p(counted) / math.log1p(change.estimate)
            if abs(share - 1) <= AGREES and not found.total.within_scatter:
                return moved_most(found, NAMED)
    return ""


def letter(comparison: Comparison) -> list[str]:
    """Sentences for three lines, the most important first.

    Of the first phase that was counted: its ratio, and what moved most; then the first
    lock whose hold time a twin saw.
    """
    if not comparison.headlines:
        return []
    found = comparison.headlines[0]
    if found.identical:
        return [IDENTICAL]
    said = [
        f"{ratio(row).partition(', ')[0]}{' (within scatter)' * row.calls.within_scatter}."
        for row in found.ratios[:1]
    ]
    several = len(comparison.headlines) > 1
    where = f"{found.case}, {found.phase} phase. " if several else ""
    said.append(f"{moved_most(found, LETTER_FUNCTIONS)}.")
    held = [(row, twin) for twin in comparison.locks for row in twin.rows[:1] if row.hold]
    said += [
        f"{row.label} held {few(row.hold)} {twin.ns} per {twin.unit_title} ({twin.flavour})."
        for row, twin in held[:1]
    ]
    return [f"{where}{said[0]}", *said[1:]]
