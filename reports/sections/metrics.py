"""All metrics of a pair of arms, case by case: what is judged or significant first."""

from __future__ import annotations

from collections.abc import Iterable

from analysis.model import CaseComparison, Comparison, MetricComparison, Summary
from analysis.verdict import CALLED
from reports import sentences, wording
from reports.charts import runs
from reports.charts.canvas import Chart
from reports.document import Block, Cell, Column, Fold, Heading, Paragraph, Row, Table, row
from reports.sections import arms
from reports.sections.trust import VALUES, level
from reports.sections.view import View, figure, gallery, titled

# From here on a drawing for each case would be a wall of them.
MANY_CASES = 8


def _value(summary: Summary | None) -> Cell:
    spread = wording.spread(summary.stddev) if summary and summary.stddev is not None else ""
    return Cell(wording.figure(summary.mean if summary else None), small=spread)


def _metric(metric: MetricComparison, *, published: bool) -> Row:
    word = sentences.verdict(metric)
    cells = [
        Cell(metric.name, small=wording.after(metric.unit).strip()),
        Cell(wording.change(metric)),
        Cell(wording.bounds(metric)),
        *([Cell(wording.again_size(metric))] if metric.again else []),
        _value(metric.base),
        _value(metric.patched),
        Cell(sentences.judged(metric), tone=word),
    ]
    if published:
        cells.insert(-1, Cell(", ".join(map(wording.reference_change, metric.published))))
    return Row(tuple(cells), strong=metric.primary)


def _table(comparison: Comparison, case: CaseComparison, metrics: list[MetricComparison]) -> Table:
    again = [Column("A/A", drop=4)] if any(metric.again for metric in case.metrics) else []
    published = any(metric.published for metric in metrics)
    heads = (
        Column("metric", left=True),
        Column("change"),
        Column("interval", drop=5),
        *again,
        Column(comparison.manifest.base, drop=2),
        Column(comparison.manifest.patched, drop=3),
        *([Column("published", drop=1)] if published else []),
        Column("verdict", left=True),
    )
    label = f"Metrics of {case.name}"
    label += "" if metrics[0].primary else ", not significant"
    return Table(label, heads, tuple(_metric(metric, published=published) for metric in metrics))


def of_case(comparison: Comparison, case: CaseComparison, *, alone: bool) -> list[Block]:
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
        many = "1 other metric" if len(rest) == 1 else f"{len(rest)} other metrics"
        inner = (_table(comparison, case, rest),)
        blocks.append(Fold(f"{many}, not significant", inner, page_only=not alone))
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
        block for case in comparison.cases for block in of_case(comparison, case, alone=alone)
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
    every = gallery([*called, *shown])
    if more:
        summary = "Other runs and phases, and bandwidth within a run"
        every.append(Fold(summary, tuple(gallery(more)), page_only=True))
    return [
        *(titled("The change", "change", [*body, *notes]) if tables else []),
        *titled("Every run", "runs", [*every, *_seeds(view, comparison)]),
    ]


def _runs(view: View, comparison: Comparison) -> tuple[list[Chart], list[Chart], list[Chart]]:
    """Drawings of every run: seeds of what was called, of what else was judged, and the rest.

    The rest are other phases, and the course within a run, which are there to look up.
    """
    wall, few = comparison.wall is not None, len(comparison.cases) < MANY_CASES
    # Runs of many arms beside each other are in a chart of their own.
    samples = wall or (few and view.session.is_pair)
    drawings = view.charts(runs.samples, comparison=comparison) if samples else []
    by_name = {f"-{chart.name}": chart for chart in drawings}

    def of(metrics: Iterable[MetricComparison]) -> list[Chart]:
        names = tuple(f"-{runs.name_of(metric)}" for metric in metrics)
        return [chart for name, chart in by_name.items() if names and name.endswith(names)]

    called = of(m for m in comparison.primary if m.judgement.verdict in CALLED)
    judged = [chart for chart in of(comparison.primary) if chart not in called]
    judged += view.charts(runs.drift, comparison=comparison)
    more = [chart for chart in drawings if chart not in (*called, *judged)]
    more += view.charts(runs.timelines, comparison=comparison) if few else []
    # Where something was called, what was not is there to look up, too.
    return (called, [], [*judged, *more]) if called and not wall else (called, judged, more)


def _seeds(view: View, comparison: Comparison) -> list[Block]:
    """Every seed, in wall mode every block: a table a case, all in a fold; only a page has them."""
    cases = [case for case in comparison.cases if case.blocks and case.primary]
    if not view.page or not cases:
        return []
    what = "block" if comparison.wall is not None else "seed"
    inner: list[Block] = []
    for case in cases:
        inner += [Heading(case.name, 3), _every_seed(comparison, case, what)]
    return [Fold(f"Every {what}", tuple(inner), page_only=True)]


def _every_seed(comparison: Comparison, case: CaseComparison, what: str) -> Table:
    wall, manifest = comparison.wall is not None, comparison.manifest
    heads = [Column(what, left=True)]
    for metric in case.primary:
        names = [manifest.base, manifest.patched, "change"]
        names += [manifest.arms[2].name, "A/A"] if wall else []
        heads += [Column(name, group=metric.name) for name in names]
    by_block = [{pair.block: pair for pair in metric.pairs} for metric in case.primary]
    rows = []
    for block in sorted({block for pairs in by_block for block in pairs}):
        pairs = [values.get(block) for values in by_block]
        number = block if wall else next(pair.seed for pair in pairs if pair)
        cells = [str(number)]
        for metric, pair in zip(case.primary, pairs, strict=True):
            if pair is None:
                cells += [wording.NOTHING] * (5 if wall else 3)
                continue
            for value in (pair.patched, *([pair.again] if wall else [])):
                base = [] if value is not pair.patched else [wording.figure(pair.base)]
                change = wording.pair_change(metric, pair.base, value)
                cells += [*base, wording.figure(value), change]
        rows.append(row(*cells))
    return Table(f"Every {what} of {case.name}", tuple(heads), tuple(rows))
