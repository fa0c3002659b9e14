"""Interrupts and faults: a line a phase, and tables behind it."""

from __future__ import annotations

from reports import wording
from reports.document import Block, Cell, Column, Fold, Row, Table, row
from reports.interruptions_model import HandlerCount, InterruptionComparison, InterruptionCount
from reports.model import Comparison
from reports.paired import Paired
from reports.sections.functions import only
from reports.sections.view import OfPhase, View, by_phase, titled

COUNTED = (
    "Virtual: counted in the judged runs, each where it came, by the handler that it went to. "
    "Exceptions are page faults for the most part. Interrupts come by the virtual clock, wherever "
    "that finds the guest: a shorter path has fewer of the timer's. Counts explain a verdict and "
    "never make one."
)
MOST_SHOWN = 12


def sentence(counts: InterruptionComparison) -> str:
    """``per I/O 0.0047 -> 0.0046 interrupts (-0.5 %), 1.02 -> 1.02 exceptions (unchanged)``."""
    parts = [
        f"{wording.few(pair)} {kind}s ({wording.moved_if_at_all(pair).strip('()')}"
        f"{', not significant' if pair.is_uncertain else ''})"
        for kind, pair in counts.kinds.items()
    ]
    return f"per {counts.unit_title} {', '.join(parts) or 'no interrupts and faults'}, virtual"


def blocks(view: View, comparison: Comparison) -> list[Block]:
    """The section: a line for each phase, and the tables of all in a fold."""
    phases = [
        OfPhase(
            each.case, each.phase, sentence(each), tuple(_tables(comparison, each)), len(each.seeds)
        )
        for each in comparison.interruptions
    ]
    body = by_phase(comparison, "Interrupts and faults by handler and function", phases, (COUNTED,))
    return titled("Interrupts and faults", "interruptions", body)


def _tables(comparison: Comparison, counts: InterruptionComparison) -> list[Block]:
    where = f"per {counts.unit_title}, virtual, {counts.case}, phase {counts.phase}"
    figures = (
        Column(comparison.manifest.base), Column(comparison.manifest.patched), Column("change"),
    )  # fmt: skip
    columns = (Column("handler", left=True), *figures)
    tables: list[Block] = [
        Table(f"Interrupts and faults {where}", columns, tuple(map(_handler, counts.handlers)))
    ]
    columns_of_functions = (Column("function", left=True), *columns)
    label = f"Faults by function {where}"
    rows = tuple(_function(comparison, each) for each in counts.rows[: counts.listed])
    if rows:
        tables.append(Table(label, columns_of_functions, rows[:MOST_SHOWN]))
    if rows[MOST_SHOWN:]:
        rest = Table(f"{label}, more", columns_of_functions, rows[MOST_SHOWN:])
        tables.append(Fold(f"{len(rows) - MOST_SHOWN} more", (rest,), page_only=True))
    return tables


def _figures(count: Paired) -> tuple[str, str, str]:
    return wording.short(count.base), wording.short(count.patched), wording.moved_if_at_all(count)


def _handler(each: HandlerCount) -> Row:
    return row(Cell(each.handler, small=each.kind, mono=True), *_figures(each.count))


def _function(comparison: Comparison, each: InterruptionCount) -> Row:
    note = ", ".join(filter(None, ("user" if each.user else "", only(each.only_in, comparison))))
    handler = Cell(each.handler, small=each.kind, mono=True)
    return row(Cell(each.function, small=note, mono=True), handler, *_figures(each.count))
