"""How counts, their origin and locks are said: the one place, so that forms agree."""

from __future__ import annotations

from reports import wording
from reports.attribution import TOLERANCE
from reports.attribution_model import Arm, Attribution, FunctionRow, Hint, RatioRow
from reports.lock_model import LockComparison, LockRow, WaitRow
from reports.model import Comparison
from reports.paired import Paired

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
ON_ONE = (
    "One vCPU: hold times and acquisitions are counted exactly, and nobody waits. Lock debugging "
    "is part of these times: they compare the arms and are not those of a kernel without it."
)
ON_SEVERAL = (
    "vCPUs take turns, so contention is a result of hold times and turns alone: exact and "
    "repeatable under the interleaving named above, and no prediction for a machine with as many "
    "CPUs. Hold times are not shown here, because they include the turns of other vCPUs."
)
SATURATION = (
    "“Saturates at” is virtual time over hold time: the number of CPUs that keep the lock held "
    "all the time. It assumes one instance of the lock, CPUs that share nothing else, and the "
    "times of this kernel."
)
LETTER_FUNCTIONS = 2


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


def plural(title: str) -> str:
    """``I/Os``, ``folios added``, ``page faults``: a unit's title in the plural."""
    if title.endswith(" ms"):
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


def ratio(row: RatioRow) -> str:
    """``Tree walks per folio added: 9.09 -> 7.34, -1.75 (-19.22 %), 8 seeds from ... to ...``."""
    title = f"{row.title[:1].upper()}{row.title[1:]}"
    if row.calls.equal:
        return f"{title}: {both(row.calls, 2)}, equal in {wording.seeds(row.calls.n)}"
    moved = f"{signed(row.calls.difference, 2)} ({change(row.calls)})"
    return f"{title}: {both(row.calls, 2)}, {moved}, {_seeds(row.calls, 2)}"


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
        return "user code"
    return f"{row.file}, {row.subsystem}" if row.file else row.subsystem


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
    said = [f"{ratio(row).partition(', ')[0]}." for row in found.ratios[:1]]
    clear = [row for row in found.rows if not row.instructions.within_scatter]
    moved = ", ".join(
        f"{function(row)} {signed(row.instructions.difference)}" for row in clear[:LETTER_FUNCTIONS]
    )
    several = len(comparison.headlines) > 1
    where = f"{found.case}, {found.phase} phase. " if several else ""
    apart = found.total.difference
    more = "fewer" if apart < 0 else "more"
    whole = f"{amount(abs(apart))} {more} instructions per {found.unit_title}"
    scatter = " (within scatter)" if found.total.within_scatter else ""
    said.append(f"{whole}{scatter}" + (f": {moved}." if moved else "."))
    held = [(row, twin) for twin in comparison.locks for row in twin.rows[:1] if row.hold]
    said += [
        f"{row.label} held {few(row.hold)} ns per {twin.unit_title} (flavour {twin.flavour})."
        for row, twin in held[:1]
    ]
    return [f"{where}{said[0]}", *said[1:]]


def guest(found: LockComparison) -> str:
    """``flavour lockstat, 4 vCPUs, 4 jobs, metronome 20 µs, 2 seeds``."""
    parts = [
        f"flavour {found.flavour}",
        "1 vCPU" if found.serial else f"{found.vcpus} vCPUs",
        f"{found.jobs} jobs",
    ]
    if found.metronome_ns:
        parts.append(f"a timer every {found.metronome_ns / 1000:g} µs")
    return ", ".join([*parts, wording.seeds(len(found.seeds))])


def banner(found: LockComparison) -> str:
    """Why none of a twin's numbers stand beside the measured ones."""
    if found.other_kernel:
        return "Diagnosis: another kernel, no bandwidth"
    return "Diagnosis: another guest, no bandwidth"


def limits(found: LockComparison) -> str:
    """What this twin can say of locks, and what it cannot."""
    return ON_ONE if found.serial else ON_SEVERAL


def slow_path(found: LockComparison) -> str:
    """Instructions in the slow path of spin locks; empty where they were not counted."""
    if found.slow_share is None or found.slow_entries is None:
        return ""
    before, after = (100 * x for x in (found.slow_share.base, found.slow_share.patched))
    return (
        f"Spin-lock slow path: {before:.3f} % -> {after:.3f} % of all instructions; entered "
        f"{few(found.slow_entries)} times per 1,000 {plural(found.unit_title)}"
    )


def cpus(pair: Paired | None) -> str:
    """Both numbers of CPUs at which a lock saturates; empty where it cannot be said."""
    return "" if pair is None else f"{short_cpus(pair.base)} -> {short_cpus(pair.patched)}"


def short_cpus(value: float) -> str:
    """A number of CPUs; beyond a thousand nobody counts."""
    return f"{value:.1f}" if value < 1000 else "> 1000"


def waiters(row: LockRow) -> str:
    """``__filemap_add_folio 62.28 -> 46.61, ...``: where it was waited for."""
    return ", ".join(
        f"{site.function} {short(site.base)} -> {short(site.patched)}" for site in row.waiters
    )


def chain(row: WaitRow) -> str:
    """The callers from the inside out."""
    return " < ".join(row.chain[1:])


def identity(row: LockRow) -> str:
    """How the kernels print the lock, and a warning where nothing else identifies it."""
    said = ", ".join(row.printed)
    return f"{said}; paired by this number alone" if row.by == "number" else said


def lock(row: LockRow, found: LockComparison) -> str:
    """The main figure of a lock in one sentence."""
    if row.hold is not None:
        said = f"{row.label} held {few(row.hold)} virtual ns per {found.unit_title}"
        if row.saturation is not None:
            said += f", saturates at {cpus(row.saturation)} CPUs"
        return said
    return (
        f"{row.label} contended {few(row.contentions)} times per 1,000 {plural(found.unit_title)}, "
        f"{few(row.wait)} virtual ns waited per {found.unit_title}"
    )
