"""One number for many cases: the geometric mean of their changes; it is not judged.

P. J. Fleming and J. J. Wallace, "How not to lie with statistics: the correct way to summarize
benchmark results", Communications of the ACM 29(3), 1986.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from reports import statistics
from reports.model import MetricComparison, is_share
from reports.verdict import Verdict


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
