"""Kinds of instructions: a line a phase, and tables behind it."""

from __future__ import annotations

from collections.abc import Sequence

from reports import wording
from reports.document import Block, Cell, Column, Fold, Row, Table, row
from reports.kinds_model import KindsComparison, KindsIn
from reports.model import Comparison
from reports.paired import Paired
from reports.sections.functions import only
from reports.sections.view import OfPhase, View, by_phase, titled, totals
from results.profile import KINDS

COUNTED = (
    "Counted in the judged runs: what each instruction is of, known when its block is translated, "
    "times the executions of the block. One that reads and writes memory is a load and a store, a "
    "locked one an atomic besides (on arm64 the store of an exclusive pair, and LSE). On one CPU "
    "the kernel patches its locks away; they are counted as the atomics that they are on more. A "
    "locked addition of nothing to the stack is a barrier. Counts explain a verdict and never make "
    "one."
)
# Named whether they moved or not; the others where they did.
ALWAYS = ("loads", "stores", "atomics")
TITLES = {"system": "system instructions"}
MOST_SHOWN = 12


def sentence(kinds: KindsComparison) -> str:
    """``Per I/O 201.2 -> 200.1 loads (-0.55 %), 90.3 -> 90.3 stores (unchanged) ...``."""
    parts = []
    for kind in KINDS:
        pair: Paired = getattr(kinds.total, kind)
        if kind in ALWAYS or not (pair.equal or pair.within_scatter):
            change = wording.moved_if_at_all(pair).strip("()")
            mark = ", not significant" if pair.is_uncertain else ""
            parts.append(f"{wording.few(pair)} {TITLES.get(kind, kind)} ({change}{mark})")
    return f"per {kinds.unit_title} {', '.join(parts)}"


def blocks(view: View, comparison: Comparison) -> list[Block]:
    """The section: a line for each phase, and the tables of all in a fold."""
    phases = [
        OfPhase(
            each.case, each.phase, sentence(each), tuple(_tables(comparison, each)), len(each.seeds)
        )
        for each in comparison.kinds
    ]
    notes = (COUNTED,)
    body = by_phase(comparison, "Kinds of instructions by function", phases, notes)
    return titled("Kinds of instructions", "kinds", body)


def _tables(comparison: Comparison, kinds: KindsComparison) -> list[Block]:
    where = f"{kinds.case}, phase {kinds.phase}"
    sums = [(TITLES.get(kind, kind), getattr(kinds.total, kind)) for kind in KINDS]
    per_unit = f"Kinds of instructions per {kinds.unit_title}, {where}"
    blocks: list[Block] = [totals(comparison, per_unit, "instructions", sums)]
    group = f"difference per {kinds.unit_title}"
    columns = (
        Column("function", left=True),
        *(Column(TITLES.get(kind, kind), group=group, drop=0 if kind in ALWAYS else 1)
          for kind in KINDS),
    )  # fmt: skip
    shown, more = kinds.rows[: kinds.listed][:MOST_SHOWN], kinds.rows[MOST_SHOWN : kinds.listed]
    label = f"Kinds of instructions by function, {where}"
    decimals = [
        wording.decimals_of(*(getattr(each, kind).difference for each in kinds.rows), digits=2)
        for kind in KINDS
    ]
    if shown:
        rows = tuple(_function(comparison, each, decimals) for each in shown)
        blocks.append(Table(label, columns, rows))
    if more:
        rows = tuple(_function(comparison, each, decimals) for each in more)
        rest = Table(f"{label}, more", columns, rows)
        blocks.append(Fold(f"{len(more)} more functions", (rest,), page_only=True))
    return blocks


def _difference(pair: Paired, decimals: int) -> str:
    text = wording.signed(pair.difference, decimals)
    return f"({text})" if pair.is_uncertain else text


def _function(comparison: Comparison, each: KindsIn, decimals: Sequence[int]) -> Row:
    note = ", ".join(
        filter(None, ("user" if each.user else each.file, only(each.only_in, comparison)))
    )
    numbers = [
        _difference(getattr(each, kind), places)
        for kind, places in zip(KINDS, decimals, strict=True)
    ]
    return row(Cell(each.name, small=note, mono=True), *numbers)
