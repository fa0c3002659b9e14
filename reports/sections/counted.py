"""What was counted by function: a line a phase, and tables behind it; of any count whose rows are
records with a name and a number a column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.counts import Arm, Paired
from analysis.explain import Explanation
from analysis.model import Comparison
from reports import wording
from reports.document import Block, Cell, Column, Fold, Row, Table, row
from reports.sections.view import OfPhase, View, by_phase, titled, totals

MOST_SHOWN = 12
EXPLAINS = "Counts explain a verdict and never make one."


def only(arm: Arm, comparison: Comparison) -> str:
    """``only in base``, in the arms' own names; empty for both."""
    names = {"base": comparison.manifest.base, "patched": comparison.manifest.patched}
    return f"only in {names[arm]}" if arm else ""


def notes(*each: str) -> str:
    """What there is to note of a row, in one line."""
    return ", ".join(filter(None, each))


def change(pair: Paired) -> str:
    """``-0.55 %``, ``unchanged``, and whether it is significant: what stands in parentheses."""
    mark = ", not significant" if pair.is_uncertain else ""
    return f"{wording.moved_if_at_all(pair).strip('()')}{mark}"


def first_and_more(
    label: str, more: str, summary: str, columns: Sequence[Column], rows: Sequence[Row]
) -> list[Block]:
    """The first rows in a table, those behind them in a fold; ``{}`` in ``summary`` is how many."""
    blocks: list[Block] = []
    if rows:
        blocks.append(Table(label, tuple(columns), tuple(rows[:MOST_SHOWN])))
    if rows[MOST_SHOWN:]:
        rest = Table(more, tuple(columns), tuple(rows[MOST_SHOWN:]))
        blocks.append(Fold(summary.format(len(rows) - MOST_SHOWN), (rest,), page_only=True))
    return blocks


def of_phases(
    comparison: Comparison,
    records: Iterable[Any],
    sentence: Callable[[Any], str],
    behind: Callable[[Any], Sequence[Block]],
) -> list[OfPhase]:
    """What a section says of each phase: a sentence, and what is behind it."""
    return [
        OfPhase(each.case, each.phase, sentence(each), tuple(behind(each)), len(each.seeds))
        for each in records
    ]


@dataclass(frozen=True)
class Ranked:
    """How an explanation is shown that has a ``total``, and ``rows`` of which some are ``listed``.

    Its numbers are the fields that hold them.  Those of ``titles`` have another title than their
    name; only those of ``always`` are in the sentence where they did not move, all without any.
    """

    explanation: Explanation[Any]
    behind: str = ""
    how: Sequence[str] = (EXPLAINS,)
    what: str = "counts"
    titles: Mapping[str, str] = field(default_factory=dict)
    always: Sequence[str] = ()

    def numbers(self, record: Any) -> list[tuple[str, str, Paired]]:
        """Name, title and value of each number."""
        fields = type(record).model_fields
        pairs = ((name, getattr(record, name)) for name in fields)
        return [
            (name, self.titles.get(name, name.replace("_", " ")), value)
            for name, value in pairs
            if isinstance(value, Paired)
        ]

    def sentence(self, each: Any) -> str:
        """``per I/O 201.2 -> 200.1 loads (-0.55 %), 90.3 -> 90.3 stores (unchanged) ...``."""
        parts = [
            f"{wording.few(pair)} {title} ({change(pair)})"
            for name, title, pair in self.numbers(each.total)
            if not self.always or name in self.always or not (pair.equal or pair.within_scatter)
        ]
        return f"per {each.unit_title} {', '.join(parts)}"

    def blocks(self, view: View, comparison: Comparison) -> list[Block]:
        """The section: a line for each phase, and the tables of all in a fold."""
        phases = of_phases(
            comparison, self.explanation.of(comparison), self.sentence,
            lambda each: self._tables(comparison, each),
        )  # fmt: skip
        title = self.explanation.title
        behind = self.behind or f"{title} by function"
        body = by_phase(comparison, behind, phases, self.how)
        return titled(title, self.explanation.name, body)

    def _tables(self, comparison: Comparison, each: Any) -> list[Block]:
        where = f"{each.case}, phase {each.phase}"
        title = self.explanation.title
        sums = [(title, pair) for _, title, pair in self.numbers(each.total)]
        group = f"difference per {each.unit_title}"
        columns = [Column("function", left=True)]
        decimals: dict[str, int] = {}
        for name, head, _ in self.numbers(each.total):
            drop = 0 if not self.always or name in self.always else 1
            columns.append(Column(head, group=group, drop=drop))
            differences = (getattr(row, name).difference for row in each.rows)
            decimals[name] = wording.decimals_of(*differences, digits=2)
        rows = []
        for of_row in each.rows[: each.listed]:
            place = "user" if of_row.user else of_row.file
            numbers = []
            for name, places in decimals.items():
                pair: Paired = getattr(of_row, name)
                text = wording.signed(pair.difference, places)
                numbers.append(f"({text})" if pair.is_uncertain else text)
            note = notes(place, only(of_row.only_in, comparison))
            rows.append(row(Cell(of_row.name, small=note, mono=True), *numbers))
        label = f"{title} by function, {where}"
        per_unit = f"{title} per {each.unit_title}, {where}"
        return [
            totals(comparison, per_unit, self.what, sums),
            *first_and_more(label, f"{label}, more", "{} more functions", columns, rows),
        ]
