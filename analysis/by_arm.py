"""A session's numbers by arm: arms, cases and metrics; computed once, when it is compared.

The comparisons of a session are pairs, each a view of two arms.  Here they are laid beside each
other: for each metric of each case one cell an arm, with the arm's own values and its change
from the session's base.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from analysis import statistics
from analysis.comparison import summarize
from analysis.model import (
    CaseComparison,
    Comparison,
    MetricComparison,
    Reference,
    Summary,
    is_share,
)
from analysis.statistics import as_change
from analysis.verdict import Change, Verdict
from experiment.plan import AGAIN
from experiment.spec import Direction, Thresholds
from results.units import shown_name

# Columns that a reader of such a table asks for beside what is judged, where they are there.
CHOSEN = ("runtime", "slowpath_share")
# From here on cases are read in a matrix, and drawn as a heat map.
MANY_CASES = 4


@dataclass(frozen=True)
class ArmCell:
    """One metric of one case on one arm.

    ``values`` are the arm's, by block.  ``against`` is its comparison with the session's
    base; None for the base itself, and where only steps are compared.  ``change`` is
    that of ``against``, or else computed in the same way without any verdict.  It is
    ``withheld`` where a wall session claims nothing of it, not even a size.
    """

    arm: str
    values: dict[int, float]
    summary: Summary | None
    against: MetricComparison | None
    change: Change | None
    published: tuple[Reference, ...] = ()
    withheld: bool = False

    @property
    def numbers(self) -> tuple[float, ...]:
        """The values in the order of their blocks."""
        return tuple(self.values[block] for block in sorted(self.values))


@dataclass(frozen=True)
class MetricRow:
    """One metric of one case on every arm, the base first."""

    case: str
    name: str
    title: str
    unit: str
    direction: Direction
    primary: bool
    cells: tuple[ArmCell, ...]

    @property
    def short(self) -> str:
        """The metric without its phase."""
        return self.name.rpartition(".")[2]

    @property
    def shown_name(self) -> str:
        """The name where no unit stands beside it: ``4k.virtual_bw`` in virtual time."""
        return shown_name(self.name, self.unit)

    @property
    def phase(self) -> str:
        """The phase that it was measured in."""
        return self.name.partition(".")[0]

    @property
    def base(self) -> ArmCell:
        """The base arm's cell."""
        return self.cells[0]

    @property
    def others(self) -> tuple[ArmCell, ...]:
        """The cells of all arms but the base."""
        return self.cells[1:]

    @property
    def measured(self) -> bool:
        """Whether any arm has a value."""
        return any(cell.values for cell in self.cells)

    @property
    def is_share(self) -> bool:
        """Whether the values are percentages, whose change is said as a difference."""
        return is_share(self.unit)

    def cell(self, arm: str) -> ArmCell:
        """The cell of this arm."""
        return next(cell for cell in self.cells if cell.arm == arm)


def pair_change(
    base: dict[int, float], other: dict[int, float], thresholds: Thresholds
) -> Change | None:
    """The change over the blocks that both have, as verdicts compute it; None without a ratio.

    It has an interval and no verdict: it is no member of the family that is judged.
    """
    blocks = sorted(base.keys() & other.keys())
    if not blocks:
        return None
    try:
        logs = statistics.log_ratios([base[b] for b in blocks], [other[b] for b in blocks])
    except ValueError:
        return None
    level = 1 - thresholds.alpha
    rank = statistics.signed_rank_interval(logs, level)
    within = statistics.wider(rank, statistics.t_interval(logs, level))
    return Change(
        estimate=as_change(statistics.mean(logs)),
        hodges_lehmann=as_change(statistics.hodges_lehmann(logs)),
        low=as_change(within.low) if within else None,
        high=as_change(within.high) if within else None,
        level=level,
    )


def values_of(
    arms: Sequence[str], comparisons: Sequence[Comparison], case: str, name: str
) -> dict[str, dict[int, float]]:
    """Every arm's values of one metric, by arm and block."""
    by_name: dict[str, dict[int, float]] = {arm: {} for arm in arms}
    for comparison in comparisons:
        metric = comparison.metric(case, name)
        for pair in metric.pairs if metric else ():
            by_name[comparison.manifest.base][pair.block] = pair.base
            by_name[comparison.manifest.patched][pair.block] = pair.patched
    return by_name


def lay_out(arms: Sequence[str], comparisons: Sequence[Comparison]) -> tuple[MetricRow, ...]:
    """Every metric of every case on every arm, the base first.

    Primary metrics come first in each case; also those without values are there.
    """
    first = comparisons[0]
    return tuple(
        _row(arms, comparisons, case, metric) for case in first.cases for metric in case.metrics
    )


def of_case(rows: Sequence[MetricRow], case: str) -> tuple[MetricRow, ...]:
    """The rows of one case."""
    return tuple(row for row in rows if row.case == case)


def columns(rows: Sequence[MetricRow]) -> tuple[MetricRow, ...]:
    """What a table with a row an arm has columns for: what is judged, and what is chosen."""
    primary = [row for row in rows if row.primary]
    published = [row for row in rows if any(cell.published for cell in row.cells)]
    preferred = [row for short in CHOSEN for row in rows if row.short == short and row.measured]
    return tuple({(row.case, row.name): row for row in (*primary, *preferred, *published)}.values())


def failures(comparisons: Sequence[Comparison]) -> dict[tuple[str, str], tuple[int, int]]:
    """Failed and recorded runs, by case and arm; in wall mode those of the A/A arm, too."""
    counts = {}
    for comparison in comparisons:
        for count in comparison.failure_counts:
            counts[count.case, comparison.manifest.base] = (count.base_failed, count.base_runs)
            counts[count.case, comparison.manifest.patched] = (
                count.patched_failed,
                count.patched_runs,
            )
            if count.again is not None:
                counts[count.case, AGAIN] = count.again
    return counts


def _row(
    arms: Sequence[str],
    comparisons: Sequence[Comparison],
    case: CaseComparison,
    metric: MetricComparison,
) -> MetricRow:
    base, first = arms[0], comparisons[0]
    values = values_of(arms, comparisons, case.name, metric.name)
    thresholds = {
        comparison.manifest.patched: comparison.metric(case.name, metric.name)
        for comparison in comparisons
        if comparison.manifest.base == base
    }
    cells = []
    for arm, own in values.items():
        against = thresholds.get(arm)
        change = against.judgement.change if against else None
        if against is None and arm != base:
            change = pair_change(values[base], own, first.manifest.experiment.thresholds)
        cells.append(
            ArmCell(
                arm=arm,
                values=own,
                summary=summarize(list(own.values())),
                against=against,
                change=change,
                published=against.published if against else (),
                withheld=against is not None and first.withholds(against),
            )
        )
    return MetricRow(
        case=case.name,
        name=metric.name,
        title=metric.title,
        unit=metric.unit,
        direction=metric.direction,
        primary=metric.primary,
        cells=tuple(cells),
    )


# P. J. Fleming and J. J. Wallace, "How not to lie with statistics: the correct way to summarize
# benchmark results", Communications of the ACM 29(3), 1986.
class Overall(NamedTuple):
    """The geometric mean of ``n`` changes of metrics of one unit; ``change`` is a fraction."""

    unit: str
    change: float
    n: int


def geometric_means(metrics: Iterable[MetricComparison]) -> tuple[Overall, ...]:
    """One for each unit and direction of which there are two changes or more.

    Shares are left out: what changes in them is points.  So is what was not tested.
    """
    ratios: dict[tuple[str, str], list[float]] = {}
    for metric in metrics:
        change = metric.judgement.change
        if metric.judgement.verdict is Verdict.NOT_TESTED:
            continue
        if change is not None and change.estimate > -1 and not is_share(metric.unit):
            ratios.setdefault((metric.unit, metric.direction), []).append(change.estimate)
    return tuple(
        Overall(unit, statistics.as_change(statistics.mean(np.log1p(changes))), len(changes))
        for (unit, _), changes in ratios.items()
        if len(changes) > 1
    )
