"""The sections of a report: one file each, written once for every form and any number of arms.

A section is a function of a :class:`View` (and of a pair of arms, where it is of one) that returns
blocks; which of them a form has stands in ``reports.forms``.  Here is what they are made from: the
session, how much a form can show, and shapes they share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from analysis.counts import Arm, Paired
from analysis.explain import Explanation
from analysis.many import MANY_CASES, SessionComparison
from analysis.model import Comparison
from reports import wording
from reports.charts import Chart, within
from reports.document import (
    Block,
    Column,
    Figure,
    Fold,
    Gallery,
    Heading,
    Row,
    Table,
    nested,
    row,
)
from reports.sentences import pair_counts

# Beyond these pairs a page would grow by tens of megabytes.
MOST_PAIRS = 15
# Rows of a table of what was counted, and the share of the whole that is worth a row.
MOST_SHOWN, LEAST_SHARE = 10, 0.001
PARENTHESES = (
    "A change in parentheses is not significant: it may as well be none (Student's interval at "
    "95 %)."
)
NOT_SIGNIFICANT = "not significant"


@dataclass(frozen=True)
class View:
    """A session as a form shows it.

    A page is ``drawn`` where it has its charts, which take seconds.
    ``folder`` is where the session lies, empty where that is not known; ``of_others`` is for those
    who have neither it nor the sender's files.
    """

    session: SessionComparison
    drawn: bool = False
    folder: str = ""
    of_others: bool = False

    @property
    def first(self) -> Comparison:
        """The first pair of arms; its cases are those of all."""
        return self.session.comparisons[0]

    @property
    def many_cases(self) -> bool:
        """Whether there are so many cases that they are read in one table."""
        return len(self.first.cases) >= MANY_CASES

    def prefix(self, comparison: Comparison) -> str:
        """What keeps the anchors of a pair apart; empty where it is the only one."""
        if self.session.is_pair:
            return ""
        return f"pair{self.session.comparisons.index(comparison) + 1}"

    def charts(
        self, comparison: Comparison, draw: Callable[[Comparison], list[Chart]]
    ) -> list[Chart]:
        """Drawings of a pair of arms; none in a form of characters."""
        prefix, charts = self.prefix(comparison), draw(comparison) if self.drawn else []
        return [within(chart, prefix) for chart in charts] if prefix else charts


def figure(chart: Chart, level: int = 3) -> Figure:
    """A drawing as a block."""
    return Figure(chart.title, chart.caption, chart.alt, chart.svg, level)


def gallery(charts: Iterable[Chart]) -> list[Block]:
    """Drawings beside each other; nothing for none."""
    figures = tuple(figure(chart) for chart in charts)
    return [Gallery(figures)] if figures else []


def titled(title: str, anchor: str, blocks: Sequence[Block]) -> list[Block]:
    """A section under its heading; nothing for none."""
    return [Heading(title, 2, anchor), *blocks] if blocks else []


def only(arm: Arm, comparison: Comparison) -> str:
    """``only in base``, in the arms' own names; empty for both."""
    names = {"base": comparison.manifest.base, "patched": comparison.manifest.patched}
    return f"only in {names[arm]}" if arm else ""


def notes(*each: str, between: str = ", ") -> str:
    """What there is to note of a row, in one line."""
    return between.join(filter(None, each))


def mark(pair: Paired) -> str:
    """``not significant``, where it is not."""
    return NOT_SIGNIFICANT if pair.is_uncertain else ""


def change(pair: Paired) -> str:
    """``-0.55 %``, ``unchanged``, and whether it is significant: what stands in parentheses."""
    return notes(wording.moved_if_at_all(pair).strip("()"), mark(pair))


def arms(comparison: Comparison, group: str = "", drop: int = 0) -> tuple[Column, Column]:
    """A column for each arm."""
    names = comparison.manifest.base, comparison.manifest.patched
    first, second = (Column(name, group=group, drop=drop) for name in names)
    return first, second


def shorts(pair: Paired | None, scale: float = 1.0) -> tuple[str, str]:
    """The cells of :func:`arms`; empty where nothing was counted."""
    if pair is None:
        return "", ""
    return wording.short(scale * pair.base), wording.short(scale * pair.patched)


def at_most(label: str, columns: Sequence[Column], rows: Sequence[Row]) -> list[Block]:
    """The first rows in a table; nothing for none.  Files beside the report have them all."""
    return [Table(label, tuple(columns), tuple(rows[:MOST_SHOWN]))] if rows else []


def worth(pair: Paired, whole: Paired) -> bool:
    """Whether a row is worth its place: it moved significantly, or is a thousandth of the whole."""
    return pair.is_significant or pair.both >= LEAST_SHARE * whole.both > 0


class Line(NamedTuple):
    """What an instrument counted of a phase: both arms, the change, and what it says in few words.

    ``of`` is what it is counted per; ``faint`` is what is not significant.
    """

    label: str
    of: str
    base: str
    patched: str
    change: str
    faint: bool
    says: str = ""


def line(label: str, per: str, pair: Paired, says: str = "") -> Line:
    """The line of one quantity."""
    values, moved = wording.sides(pair.base, pair.patched), wording.moved_if_at_all(pair)
    faint = pair.equal or pair.is_uncertain
    return Line(label, f"per {per}" * bool(per), *values, moved, faint, says)


def foremost(numbers: Sequence[tuple[str, Paired]], per: str) -> list[Line]:
    """The line of the number that moved most, of some: the first where none moved significantly."""
    if not numbers:
        return []
    moved = [each for each in numbers if each[1].is_significant]
    title, pair = max(moved, key=lambda each: abs(each[1].change or 0.0), default=numbers[0])
    many = f"of {len(numbers)}"
    return [line(title, per, pair, f"largest change {many}" if moved else f"none {many} changed")]


@dataclass(frozen=True)
class Instrument:
    """How an explanation is shown.

    ``lines`` are a record's rows in the table of all instruments, and ``tables`` what is behind
    these.  ``how`` says how to read it.
    """

    explanation: Explanation[Any]
    lines: Callable[[Any], list[Line]]
    tables: Callable[[View, Comparison, Any], Sequence[Block]]
    how: str = ""


def totals(
    comparison: Comparison, label: str, head: str, pairs: Iterable[tuple[str, Paired]]
) -> Table:
    """What a phase has of each number, by title: both arms, and how far they are apart."""
    apart = Column("change"), Column("difference, 95 %", drop=1)
    rows = (
        row(title, *shorts(each), wording.moved_if_at_all(each), wording.apart(each))
        for title, each in pairs
    )
    return Table(label, (Column(head, left=True), *arms(comparison), *apart), tuple(rows))


def of_each_pair(
    view: View, sections: Sequence[Callable[[View, Comparison], list[Block]]]
) -> list[Block]:
    """The sections of a pair: as they are where there is one, else each pair in its fold."""
    if view.session.is_pair:
        return [block for section in sections for block in section(view, view.first)]
    body: list[Block] = []
    for comparison in view.session.comparisons[:MOST_PAIRS]:
        blocks = [block for section in sections for block in section(view, comparison)]
        summary = f"{comparison.name}, {pair_counts(comparison)}"
        body.append(Fold(summary, nested(blocks, view.prefix(comparison))))
    return titled("Pair by pair", "pairs", body)
