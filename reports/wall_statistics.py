"""What an A/A arm says about a host: its noise, and what can be asked of it.

Pure functions over log ratios, beside those of ``reports.statistics`` and
``reports.wall_power``.  In wall mode the estimate is the Hodges-Lehmann one and the interval
the exact signed-rank one alone: noise of real time has tails and outliers, which the
mean follows and ranks do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scipy import stats

from reports import statistics, wall_power
from reports.statistics import Floats, Interval

# Fewer A/A pairs say nothing about a spread: with 8 its 90 % interval spans 0.7 to 1.8.
FEWEST_AGAIN = 8


class NoiseFloor(NamedTuple):
    """What the same kernel differs by from itself on this host; log ratios.

    ``floor`` is half the width of the A/A interval: a change below it is what chance
    shows.  ``interval`` is None with too few pairs for its level, ``sd`` with one pair.
    """

    pairs: int
    estimate: float
    interval: Interval | None
    sd: float | None

    @property
    def floor(self) -> float | None:
        """Half the width of the A/A interval."""
        return None if self.interval is None else self.interval.width / 2

    @property
    def differs(self) -> bool:
        """Whether A/A claims a change, which is false by construction."""
        return self.interval is not None and self.interval.excludes(0)


class Forecast(NamedTuple):
    """What ``blocks`` blocks will see on this host, and how many see the threshold.

    ``detectable`` is a log ratio; ``needed`` is None beyond :data:`wall_power.MOST_BLOCKS`.
    """

    sd: float
    blocks: int
    detectable: float | None
    needed: int | None


def noise_floor(differences: Sequence[float] | Floats, alpha: float) -> NoiseFloor:
    """The noise floor of A/A log ratios ``ln(again / base)``, shape (n,).

    Raises:
        ValueError: empty, not finite, or ``alpha`` outside (0, 1).
    """
    return NoiseFloor(
        pairs=len(differences),
        estimate=statistics.hodges_lehmann(differences),
        interval=statistics.signed_rank_interval(differences, 1 - alpha),
        sd=statistics.standard_deviation(differences),
    )


def forecast(again: Sequence[float] | Floats, *, change: float, alpha: float, blocks: int) -> (
    Forecast | None
):  # fmt: skip
    """Say from A/A log ratios, before the long run, whether the question can be answered.

    None with fewer than :data:`FEWEST_AGAIN` pairs.

    Raises:
        ValueError: as :func:`noise_floor`.
    """
    sd = statistics.standard_deviation(again)
    if sd is None or len(again) < FEWEST_AGAIN:
        return None
    return Forecast(
        sd=sd,
        blocks=blocks,
        detectable=wall_power.detectable_effect(sd, blocks, wall_power.DecisionRule(alpha)),
        needed=wall_power.blocks_to_detect(sd, change, wall_power.DecisionRule(alpha)),
    )


def rate_interval(calls: int, trials: int, level: float = 0.95) -> Interval:
    """Exact interval of a rate from ``calls`` in ``trials`` (Clopper, Pearson 1934).

    Raises:
        ValueError: no trials, or more calls than trials.
    """
    if not 0 <= calls <= trials or trials < 1:
        raise ValueError(f"{calls} of {trials} is no rate")
    tail = (1 - level) / 2
    low = 0.0 if calls == 0 else float(stats.beta.ppf(tail, calls, trials - calls + 1))
    high = 1.0 if calls == trials else float(stats.beta.ppf(1 - tail, calls + 1, trials - calls))
    return Interval(low, high, level)
