"""Every seed, or in wall mode every block, of a pair of arms: all that verdicts are made of."""

from __future__ import annotations

from reports import wording
from reports.document import Block, Cell, Column, Fold, Heading, Table, row
from reports.model import CaseComparison, Comparison, MetricComparison, Pair
from reports.sections.view import View


def tables(view: View, comparison: Comparison) -> list[Block]:
    """One table a case, all in a fold; only a page has them."""
    wall = comparison.wall is not None
    cases = [case for case in comparison.cases if case.blocks and case.primary]
    if not view.drawn or not cases:
        return []
    inner: list[Block] = []
    for case in cases:
        inner += [Heading(case.name, 3), _table(comparison, case)]
    return [Fold(f"Every {'block' if wall else 'seed'}", tuple(inner), page_only=True)]


def _table(comparison: Comparison, case: CaseComparison) -> Table:
    wall, manifest = comparison.wall is not None, comparison.manifest
    heads = [Column("block" if wall else "seed", left=True)]
    for metric in case.primary:
        names = [manifest.base, manifest.patched, "change"]
        names += [manifest.arms[2].name, "A/A"] if wall else []
        heads += [Column(name, group=metric.name) for name in names]
    by_block = [{pair.block: pair for pair in metric.pairs} for metric in case.primary]
    rows = []
    for block in sorted({block for pairs in by_block for block in pairs}):
        pairs = [values.get(block) for values in by_block]
        number = block if wall else next(pair.seed for pair in pairs if pair)
        cells = [Cell(str(number))]
        for metric, pair in zip(case.primary, pairs, strict=True):
            cells += map(Cell, _values(metric, pair, again=wall))
        rows.append(row(*cells))
    label = f"Every {'block' if wall else 'seed'} of {case.name}"
    return Table(label, tuple(heads), tuple(rows))


def _values(metric: MetricComparison, pair: Pair | None, *, again: bool) -> list[str]:
    if pair is None:
        return [wording.NOTHING] * (5 if again else 3)
    lines = [
        wording.figure(pair.base),
        wording.figure(pair.patched),
        wording.pair_change(metric, pair.base, pair.patched),
    ]
    if again:
        lines += [wording.figure(pair.again), wording.pair_change(metric, pair.base, pair.again)]
    return lines
