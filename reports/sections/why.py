"""Why: what every instrument counted, in one table, and the tables of each in a fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from analysis.explain import explanations
from analysis.explain.annotated import EXPLANATION as ANNOTATED
from analysis.model import Comparison
from analysis.verdict import CALLED
from reports import charts
from reports.charts.canvas import Chart
from reports.document import Block, Cell, Column, Fold, Heading, Paragraph, Row, Table, row
from reports.sections import (
    PARENTHESES,
    Instrument,
    View,
    arms,
    counted,
    functions,
    gallery,
    locks,
    titled,
)

# Rows of the table, and phases whose tables are in a fold: fewer where nothing moved in any.
MOST_ROWS, MOST_PHASES, MOST_UNMOVED = 30, 3, 2
FILES = (
    "Counted under emulation or modelled; counts explain a verdict and never make one. Folds have "
    "the judged phases and what moved significantly or is 0.1 % of the whole; functions.csv, "
    "stacks.csv and counts.csv beside this report have every row of every phase."
)
INSTRUMENTS = {
    "attributions": functions.FUNCTIONS,
    "stacks": counted.STACKS,
    "kinds": counted.KINDS.instrument,
    "interruptions": counted.INTERRUPTIONS,
    "measured_locks": locks.LOCKS,
    "locks": locks.WAITING,
    "scaling": counted.SCALING,
    "memory": counted.MEMORY,
    "lines": counted.LINES,
}
At = tuple[str, str]


def _name(at: At, places: Sequence[At]) -> str:
    """The fewest words that tell a phase from the others."""
    cases, phases = ({place[part] for place in places} for part in (0, 1))
    short = at[1] if len(phases) == len(places) else at[0] if len(cases) == len(places) else ""
    return short or " ".join(at)


def blocks(view: View, comparison: Comparison) -> list[Block]:
    """The section: of the judged phases, those with a verdict first; of all where none is."""
    judged: dict[At, bool] = {}
    for metric in comparison.primary:
        at = metric.case, metric.phase
        judged[at] = judged.get(at, False) or metric.judgement.verdict in CALLED
    shown: list[tuple[Instrument, dict[At, list[Any]]]] = []
    # An explanation that has no instrument of its own is a count with rows; a diff is neither.
    own = {*INSTRUMENTS, ANNOTATED.name}
    others = (each for each in explanations() if each.name not in own)
    for instrument in (
        *INSTRUMENTS.values(),
        *(counted.Ranked(each).instrument for each in others),
    ):
        of: dict[At, list[Any]] = {}
        for record in instrument.records(comparison):
            of.setdefault((record.case, record.phase), []).append(record)
        # Where nothing is known of a judged phase, what is known of the others.
        shown += [(instrument, {at: of[at] for at in of if at in judged} or of)] if of else []
    counted_in = dict.fromkeys(at for _, of in shown for at in of)
    places = sorted(counted_in, key=lambda at: not judged.get(at, False))
    rows: list[Row] = []
    for at in places:
        lines = [
            line
            for instrument, of in shown
            for record in of.get(at, ())
            for line in instrument.lines(record)
        ]
        # The phase stands above its rows, where there are several, with what they are counted per.
        usual = lines[0].of if lines and len(places) > 1 else ""
        if len(places) > 1:
            head = Cell(f"{_name(at, places)}:", small=usual)
            rows.append(row(head, "", "", "", "", strong=True))
        rows += [
            row(
                Cell(line.label, small=line.of.removeprefix(usual).removeprefix(", ")),
                *(line.base, line.patched, Cell(line.change, tone="faint" * line.faint), line.says),
            )
            for line in lines
        ]
    if not any(of for _, of in shown):
        return []
    columns = (
        Column("counted", left=True),
        *(replace(arm, narrow=True) for arm in arms(comparison)),
        *(Column("change"), Column("what it says", left=True, wide=True)),
    )
    first = [each for each in comparison.headlines if (each.case, each.phase) == places[0]]

    def drawn(pair: Comparison) -> list[Chart]:
        """What is seen unfolded: the functions of the first phase."""
        return [chart for each in first for chart in charts.waterfall(pair, each)]

    more = f" {len(rows) - MOST_ROWS} more rows are of other phases." * (len(rows) > MOST_ROWS)
    return titled(
        "Why",
        "why",
        [
            Table("What each instrument counted", columns, tuple(rows[:MOST_ROWS])),
            *gallery(view.charts(comparison, drawn)),
            *(_fold(view, comparison, *each, places) for each in shown),
            Paragraph(f"{PARENTHESES} {FILES}{more}", "note"),
        ],
    )


def _fold(
    view: View,
    comparison: Comparison,
    instrument: Instrument,
    of: dict[At, list[Any]],
    places: Sequence[At],
) -> Fold:
    """An instrument's tables, phase by phase, and how to read them."""
    inner: list[Block] = []
    moved = [
        at for at in of if any(not line.faint for each in of[at] for line in instrument.lines(each))
    ]
    most = MOST_PHASES if moved else MOST_UNMOVED
    here = [at for at in places if at in (moved or of)][:most]
    for at in here:
        inner += [Heading(f"{at[0]}, phase {at[1]}", 3)] if here[1:] else []
        for record in of[at]:
            inner += instrument.tables(view, comparison, record)
    how = " ".join(instrument.how)
    return Fold(instrument.title, (*inner, *([Paragraph(how, "note")] if how else [])))
