"""All metrics of a pair of arms, what is judged first, and every run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analysis.model import CaseComparison, Comparison, MetricComparison, Summary
from analysis.verdict import CALLED
from reports import charts, sentences, wording
from reports.charts.canvas import Chart
from reports.document import (
    Block,
    Cell,
    Column,
    Fold,
    Heading,
    Paragraph,
    Row,
    Table,
)
from reports.sections import arms
from reports.sections import view as shapes
from reports.sections.trust import VALUES, level
from reports.sections.view import View, figure, gallery, titled
from text import counted

# As many columns of verdicts as a table of arms may have before it is turned around.
MOST_COLUMNS = 4
# From here on a drawing for each case would be a wall of them.
MANY_CASES = 8


def _value(summary: Summary | None) -> Cell:
    spread = wording.spread(summary.stddev) if summary and summary.stddev is not None else ""
    return Cell(wording.figure(summary.mean if summary else None), small=spread)


def _table(
    comparison: Comparison, case: CaseComparison, metrics: Sequence[MetricComparison]
) -> Table:
    wall = any(metric.again for metric in case.metrics)
    published = any(metric.published for metric in metrics)
    base, patched = shapes.arms(comparison)
    heads = (
        *(Column("metric", left=True), Column("change"), Column("interval", drop=5)),
        *([Column("A/A", drop=4)] if wall else []),
        *(Column(base.head, drop=2), Column(patched.head, drop=3)),
        *([Column("published", drop=1)] if published else []),
        Column("verdict", left=True),
    )
    rows = []
    for metric in metrics:
        cells = [
            Cell(metric.name, small=wording.after(metric.unit).strip()),
            *(Cell(wording.change(metric)), Cell(wording.bounds(metric))),
            *([Cell(wording.again_size(metric))] if metric.again else []),
            *(_value(metric.base), _value(metric.patched)),
        ]
        if published:
            cells.append(Cell(", ".join(map(wording.reference_change, metric.published))))
        cells.append(Cell(sentences.judged(metric), tone=sentences.verdict(metric)))
        rows.append(Row(tuple(cells), strong=metric.primary))
    label = f"Metrics of {case.name}{'' if metrics[0].primary else ', not significant'}"
    return Table(label, heads, tuple(rows))


def _of_case(comparison: Comparison, case: CaseComparison, *, alone: bool) -> list[Block]:
    """What is judged, or differs beyond chance; the other metrics are folded.

    Forms that cannot fold have them only where the pair is ``alone``.
    """
    measured = [metric for metric in case.metrics if metric.base]
    first = [m for m in measured if m.primary or m.judgement.differs]
    rest = [metric for metric in measured if metric not in first]
    if not measured:
        return []
    blocks: list[Block] = [Heading(f"{case.name}: {case.title}", 3)]
    blocks += [_table(comparison, case, first)] if first else []
    if rest and first:
        summary = f"{counted(len(rest), 'other metric')}, not significant"
        blocks.append(Fold(summary, (_table(comparison, case, rest),), page_only=not alone))
    elif rest:
        blocks.append(_table(comparison, case, rest))
    return blocks


def note(comparison: Comparison) -> str:
    """What the values and intervals are."""
    judged = (
        "Primary metrics come first and alone have verdicts; of the others, what survives "
        "Benjamini-Hochberg at 10 % is better or worse"
    )
    if comparison.wall:
        intervals = f"{VALUES} Intervals are at {100 * level(comparison):g} %, in percent."
        withheld = any(comparison.withholds(metric) for metric in comparison.primary)
        return intervals if withheld else f"{intervals} {judged}."
    confidence = 100 - 100 * comparison.manifest.experiment.thresholds.alpha
    return (
        "Values are geometric means over the seeds with the spread between seeds as ± standard "
        f"deviation; intervals are at {confidence:g} %, in percent, those of percentages in "
        f"points. {judged}."
    )


def blocks(view: View, comparison: Comparison) -> list[Block]:
    """The changes of a pair, of many cases folded, and every run of it."""
    alone = view.session.is_pair
    tables = [
        block for case in comparison.cases for block in _of_case(comparison, case, alone=alone)
    ]
    changes = arms.changes(view) if alone else []
    called, shown, more = _runs(view, comparison)
    if tables and called and any(chart.kind == "forest" for chart in changes):
        # The seeds of what was called stand beside the changes.
        body, called = gallery([*changes, *called]), []
    else:
        body = [figure(chart) for chart in changes]
    if view.many_cases and tables:
        body.append(Fold("All metrics, case by case", tuple(tables)))
    else:
        body += tables
    # Of many pairs it is said once, below them all.
    notes = [Paragraph(note(comparison), "note")] if alone else []
    drawn = gallery([*called, *shown])
    if more:
        drawn.append(Fold("Other runs and phases", tuple(gallery(more)), page_only=True))
    return [
        *(titled("The change", "change", [*body, *notes]) if tables else []),
        *titled("Every run", "runs", drawn),
    ]


def _runs(view: View, comparison: Comparison) -> tuple[list[Chart], list[Chart], list[Chart]]:
    """Drawings of every run: seeds of what was called, of what else was judged, and the rest.

    The rest are other phases, which are there to look up.
    """
    wall, few = comparison.wall is not None, len(comparison.cases) < MANY_CASES
    # Runs of many arms beside each other are in a chart of their own.
    samples = wall or (few and view.session.is_pair)
    drawings = view.charts(comparison, charts.samples) if samples else []

    def of(metrics: Iterable[MetricComparison]) -> list[Chart]:
        names = tuple(f"-{charts.name_of(metric)}" for metric in metrics)
        return [chart for chart in drawings if names and f"-{chart.name}".endswith(names)]

    called = of(m for m in comparison.primary if m.judgement.verdict in CALLED)
    judged = [chart for chart in of(comparison.primary) if chart not in called]
    more = [chart for chart in drawings if chart not in (*called, *judged)]
    # Where something was called, what was not is there to look up, too.
    return (called, [], [*judged, *more]) if called and not wall else (called, judged, more)
