"""What a section is made from: the session, how much a form can show, and shapes they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.counts import Arm, Paired
from analysis.many import MANY_CASES, SessionComparison
from analysis.model import Comparison
from reports import wording
from reports.charts.canvas import Chart, rem, within
from reports.document import (
    Block,
    Column,
    Figure,
    Fold,
    Gallery,
    Heading,
    Paragraph,
    Row,
    Strong,
    Table,
    nested,
    row,
)
from reports.sentences import pair_counts, upper_first

# Beyond these pairs a page would grow by tens of megabytes.
MOST_PAIRS = 15
# Rows of a table of what was counted; those behind them are in a fold.
MOST_SHOWN = 12
PARENTHESES = (
    "A change in parentheses is not significant: it may as well be none (Student's interval at "
    "95 %)."
)
NOT_SIGNIFICANT = "not significant"


@dataclass(frozen=True)
class View:
    """A session as a form shows it.

    ``page`` is false for forms of characters alone; a page is ``drawn`` where it has its charts,
    which take seconds.
    ``folder`` is where the session lies, empty where that is not known.
    """

    session: SessionComparison
    page: bool = False
    drawn: bool = False
    folder: str = ""

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
        self, *draws: Callable[[Comparison], list[Chart]], comparison: Comparison
    ) -> list[Chart]:
        """Drawings of a pair of arms; none in a form of characters."""
        prefix = self.prefix(comparison)
        charts = [chart for draw in draws for chart in draw(comparison)] if self.drawn else []
        return [within(chart, prefix) for chart in charts] if prefix else charts


def figure(chart: Chart, level: int = 3, *, wide: bool = False) -> Figure:
    """A drawing as a block; a ``wide`` one keeps its own width and scrolls."""
    own = rem(chart) if wide else 0.0
    return Figure(chart.title, chart.caption, chart.alt, chart.svg, own, level)


def gallery(charts: Iterable[Chart], level: int = 3) -> list[Block]:
    """Drawings beside each other; nothing for none."""
    figures = tuple(figure(chart, level) for chart in charts)
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


def by_phase(
    comparison: Comparison,
    behind: str,
    records: Iterable[Any],
    sentence: Callable[[Any], str],
    tables: Callable[[Any], Sequence[Block]],
    how: Sequence[str],
    seeds: int = 0,
) -> list[Block]:
    """A line for each judged phase, then all that is behind them in one fold, and how to read it.

    Lines of phases that are not judged are in the fold; where none is, all are seen.  ``records``
    have a case, a phase and, unless these are given, the seeds that they are of.
    """
    judged = {(metric.case, metric.phase) for metric in comparison.primary}
    phases = [
        (f"{each.case}, phase {each.phase}", (each.case, each.phase) in judged, each)
        for each in records
    ]
    if not phases:
        return []
    every = not any(is_judged for _, is_judged, _ in phases)
    lines: list[Block] = []
    inner: list[Block] = []
    for where, is_judged, each in phases:
        text = sentence(each)
        inner += [Heading(where, 3)] if phases[1:] else []
        if is_judged or every:
            lines.append(Paragraph((Strong(f"{where}: "), f"{text}."), "lead"))
        else:
            inner.append(Paragraph(f"{upper_first(text)}.", "lead"))
        inner += tables(each)
    scattered = any((seeds or len(each.seeds)) > 1 for _, _, each in phases)
    inner.append(Paragraph(" ".join([*how, *([PARENTHESES] if scattered else [])]), "note"))
    return [*lines, Fold(behind, tuple(inner))]


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
