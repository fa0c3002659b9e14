"""The sections of what was counted, in the order of reading, and those of what was executed.

Kinds of instructions, interrupts and faults, and call stacks: a line a phase, and tables behind it.
"""

from __future__ import annotations

from collections.abc import Callable

from analysis.counts import Paired
from analysis.explain import explanations
from analysis.explain import kinds as counted_kinds
from analysis.explain import stacks as counted_stacks
from analysis.explain.interruptions import EXPLANATION as INTERRUPTIONS
from analysis.explain.interruptions import InterruptionComparison
from analysis.explain.stacks import StackComparison, StackRow
from analysis.model import Comparison
from reports import wording
from reports.charts import stacks as charts
from reports.document import Block, Cell, Column, Row, Table, row
from reports.sections import functions, lines, locks, memory, scaling
from reports.sections.counted import Ranked, change, first_and_more, notes, of_phases, only
from reports.sections.view import View, by_phase, figure, titled

KINDS_HOW = (
    "Counted in the judged runs: what each instruction is of, known when its block is translated, "
    "times the executions of the block. One that reads and writes memory is a load and a store, a "
    "locked one an atomic besides (on arm64 the store of an exclusive pair, and LSE). On one CPU "
    "the kernel patches its locks away; they are counted as the atomics that they are on more. A "
    "locked addition of nothing to the stack is a barrier. Counts explain a verdict and never make "
    "one."
)
KINDS = Ranked(
    counted_kinds.EXPLANATION,
    behind="Kinds of instructions by function",
    how=(KINDS_HOW,),
    what="instructions",
    titles={"system": "system instructions"},
    always=("loads", "stores", "atomics"),
)
INTERRUPTED = (
    "Virtual: counted in the judged runs, each where it came, by the handler that it went to. "
    "Exceptions are page faults for the most part. Interrupts come by the virtual clock, wherever "
    "that finds the guest: a shorter path has fewer of the timer's. Counts explain a verdict and "
    "never make one."
)
FOLLOWED = (
    "Virtual, and counted, not sampled: in diagnostic runs of the judged guests a QEMU plugin "
    "follows every call, jump and return of the kernel. A function's instructions are its own on "
    "this path, without what it called. A function that the compiler put into its caller is part "
    "of that, and a module's code of what called the module. stacks.csv beside this report has "
    "every path. Counts explain a verdict and never make one."
)
MOST_CALLERS = 3


def interruptions_sentence(counts: InterruptionComparison) -> str:
    """``per I/O 0.0047 -> 0.0046 interrupts (-0.5 %), 1.02 -> 1.02 exceptions (unchanged)``."""
    parts = [f"{wording.few(pair)} {kind}s ({change(pair)})" for kind, pair in counts.kinds.items()]
    return f"per {counts.unit_title} {', '.join(parts) or 'no interrupts and faults'}, virtual"


def interruptions(_view: View, comparison: Comparison) -> list[Block]:
    """Interrupts and faults: a line for each phase, and the tables of all in a fold."""
    arms = Column(comparison.manifest.base), Column(comparison.manifest.patched)
    columns = Column("handler", left=True), *arms, Column("change")

    def numbers(count: Paired) -> tuple[str, str, str]:
        both = wording.short(count.base), wording.short(count.patched)
        return *both, wording.moved_if_at_all(count)

    def behind(each: InterruptionComparison) -> list[Block]:
        where = f"per {each.unit_title}, virtual, {each.case}, phase {each.phase}"
        label = f"Faults by function {where}"
        handlers = tuple(
            row(Cell(handler.handler, small=handler.kind, mono=True), *numbers(handler.count))
            for handler in each.handlers
        )
        rows = [
            row(
                Cell(
                    place.function,
                    small=notes("user" if place.user else "", only(place.only_in, comparison)),
                    mono=True,
                ),
                Cell(place.handler, small=place.kind, mono=True),
                *numbers(place.count),
            )
            for place in each.rows[: each.listed]
        ]
        heads = Column("function", left=True), *columns
        return [
            Table(f"Interrupts and faults {where}", columns, handlers),
            *first_and_more(label, f"{label}, more", "{} more", heads, rows),
        ]

    counted = INTERRUPTIONS.of(comparison)
    phases = of_phases(comparison, counted, interruptions_sentence, behind)
    body = by_phase(comparison, "Interrupts and faults by handler and function", phases,
                    (INTERRUPTED,))  # fmt: skip
    return titled(INTERRUPTIONS.title, INTERRUPTIONS.name, body)


def _path(path: tuple[str, ...], most: int) -> str:
    """``a < b < c``: from the nearest caller out."""
    nearest = path[::-1][:most]
    return " < ".join([*nearest, *(["…"] if len(path) > most else [])])


def stacks_sentence(stacks: StackComparison) -> str:
    """``1204 -> 1196 ... per folio (-0.7 %); 93 % of what changed is in or below ...``."""
    total = stacks.total
    parts = [
        f"{wording.few(total)} virtual instructions of the kernel per {stacks.unit_title} "
        f"({change(total)})"
    ]
    if stacks.focus:
        where = " < ".join(stacks.focus[::-1][:MOST_CALLERS])
        parts.append(f"{stacks.focus_share * 100:.0f} % of what changed is in or below {where}")
    elif not stacks.listed:
        parts.append("no path changed")
    else:
        parts.append("no single path has most of what changed")
    return "; ".join(parts)


def stacks(view: View, comparison: Comparison) -> list[Block]:
    """Call stacks: a line for each phase, the graph and the paths that changed in a fold."""
    judged = {(metric.case, metric.phase) for metric in comparison.primary}
    columns = (
        Column("function, and its callers", left=True), Column(comparison.manifest.base),
        Column(comparison.manifest.patched), Column("change"), Column("calls", drop=1),
    )  # fmt: skip

    def behind(each: StackComparison) -> list[Block]:
        drawn: list[Block] = []
        if each.listed and (each.case, each.phase) in judged:
            draws = view.charts(lambda pair: charts.draw(pair, each), comparison=comparison)
            drawn = [figure(chart, 4, wide=True) for chart in draws]
        where = f"per {each.unit_title}, virtual, {each.case}, phase {each.phase}"
        rows = [_path_row(each.rows[number]) for number in each.listed]
        label, more = f"Instructions by call path {where}", f"More call paths {where}"
        return [*drawn, *first_and_more(label, more, "{} more paths", columns, rows)]

    explanation = counted_stacks.EXPLANATION
    phases = of_phases(comparison, explanation.of(comparison), stacks_sentence, behind)
    body = by_phase(comparison, "Call paths, and the paths that changed", phases, (FOLLOWED,))
    return titled(explanation.title, explanation.name, body)


def _path_row(each: StackRow) -> Row:
    own = each.instructions
    # The nearest caller stands everywhere, the next ones where there is room.
    farther = _path(each.callers[:-1], MOST_CALLERS - 1)
    return row(
        Cell(_path(each.path[-2:], 2), under=f"< {farther}" if farther else "", mono=True),
        wording.short(own.base), wording.short(own.patched), wording.signed(own.difference),
        wording.few(each.calls) if not each.calls.equal else wording.short(each.calls.base),
    )  # fmt: skip


# In the order of reading; an explanation that is not among them stands behind them as its rows.
OWN: dict[tuple[str, ...], Callable[[View, Comparison], list[Block]]] = {
    ("attributions",): functions.blocks,
    ("stacks",): stacks,
    ("kinds",): KINDS.blocks,
    ("interruptions",): interruptions,
    ("locks", "measured_locks"): locks.blocks,
    ("scaling",): scaling.blocks,
    ("memory",): memory.blocks,
    ("lines",): lines.blocks,
}


def sections() -> list[Callable[[View, Comparison], list[Block]]]:
    """The section of every explanation."""
    own = {name for names in OWN for name in names}
    others = [Ranked(each).blocks for each in explanations() if each.name not in own]
    return [*OWN.values(), *others]
