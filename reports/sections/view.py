"""What a section is made from: the session, and how much of it a form can show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from analysis.counts import Paired
from analysis.many import MANY_CASES, SessionComparison
from analysis.model import Comparison
from reports.charts.canvas import Chart, rem, within
from reports.document import (
    Block,
    Column,
    Figure,
    Fold,
    Gallery,
    Heading,
    Paragraph,
    Strong,
    Table,
    nested,
    row,
)
from reports.sentences import pair_counts
from reports.wording import apart, moved_if_at_all, short

# Beyond these pairs a page would grow by tens of megabytes.
MOST_PAIRS = 15
PARENTHESES = (
    "A change in parentheses is not significant: it may as well be none (Student's interval at "
    "95 %)."
)


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
    return Figure(
        title=chart.title, caption=chart.caption, alt=chart.alt, svg=chart.svg,
        wide_rem=rem(chart) if wide else 0.0, level=level,
    )  # fmt: skip


def gallery(charts: Iterable[Chart], level: int = 3) -> list[Block]:
    """Drawings beside each other; nothing for none."""
    figures = tuple(figure(chart, level) for chart in charts)
    return [Gallery(figures)] if figures else []


def titled(title: str, anchor: str, blocks: Sequence[Block]) -> list[Block]:
    """A section under its heading; nothing for none."""
    return [Heading(title, 2, anchor), *blocks] if blocks else []


@dataclass(frozen=True)
class OfPhase:
    """What a section says of one phase of a case: a line, and what is behind it, of some seeds."""

    case: str
    phase: str
    sentence: str
    behind: tuple[Block, ...]
    seeds: int


def by_phase(
    comparison: Comparison, behind: str, phases: Sequence[OfPhase], notes: Sequence[str]
) -> list[Block]:
    """A line for each judged phase, then all that is behind them in one fold, and how to read it.

    Lines of phases that are not judged are in the fold; where none is, all are seen.
    """
    if not phases:
        return []
    judged = {(metric.case, metric.phase) for metric in comparison.primary}
    shown = [each for each in phases if (each.case, each.phase) in judged] or phases
    lines = [
        Paragraph((Strong(f"{each.case}, phase {each.phase}: "), f"{each.sentence}."), "lead")
        for each in shown
    ]
    inner: list[Block] = []
    for each in phases:
        inner += [Heading(f"{each.case}, phase {each.phase}", 3)] if phases[1:] else []
        if each not in shown:
            inner.append(Paragraph(f"{each.sentence[:1].upper()}{each.sentence[1:]}.", "lead"))
        inner += each.behind
    scattered = any(each.seeds > 1 for each in phases)
    inner.append(Paragraph(" ".join([*notes, *([PARENTHESES] if scattered else [])]), "note"))
    return [*lines, Fold(behind, tuple(inner))]


def totals(
    comparison: Comparison, label: str, head: str, pairs: Iterable[tuple[str, Paired]]
) -> Table:
    """What a phase has of each number, by title: both arms, and how far they are apart."""
    heads = (
        Column(head, left=True), Column(comparison.manifest.base),
        Column(comparison.manifest.patched), Column("change"), Column("difference, 95 %", drop=1),
    )  # fmt: skip
    return Table(label, heads, tuple(
        row(title, short(each.base), short(each.patched), moved_if_at_all(each), apart(each))
        for title, each in pairs
    ))  # fmt: skip


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
