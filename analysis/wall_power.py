"""What a number of blocks can and cannot detect: pure functions of spread, n and the rank rule.

The power that is stated is that of the rule by which verdicts of wall mode are given
(``analysis.verdict``).  It is computed on normal differences.  Up to
:data:`MOST_SIMULATED` pairs the rule itself is applied to samples of a fixed seed; beyond that
the non-central t distribution is used (Owen, Biometrika 52, 1965) with the rank test's
asymptotic efficiency, 3/pi (Hodges and Lehmann, Ann. Math. Stat. 27, 1956).

scipy takes a second to import and is imported where it is called: verdicts are also named by
what only lists them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from analysis.statistics import Floats, pairs_needed, signed_rank_bounds, standard_deviation

POWER = 0.95
MOST_BLOCKS = 1000
MOST_SIMULATED = 32
RANK_EFFICIENCY = 3 / math.pi
# Samples for few and for many pairs: the 95 % point is then good to 1 % of itself.
SAMPLES, SAMPLES_OF_MANY, FEW = 20_000, 5_000, 16
SEED = 20_260_101
ROWS_AT_ONCE = 1_000
# Fewer A/A pairs say nothing about a spread: with 8 its 90 % interval spans 0.7 to 1.8.
FEWEST_AGAIN = 8


@dataclass(frozen=True)
class DecisionRule:
    """What has to hold before a change is called.

    ``alpha``: the signed-rank interval of level ``1 - alpha`` excludes zero.  ``least``: the
    estimate (a log ratio) is at least this far from zero.
    """

    alpha: float
    least: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha {self.alpha} is not between 0 and 1")


def _check(sd: float) -> None:
    if not math.isfinite(sd) or sd < 0:
        raise ValueError(f"a standard deviation of {sd} makes no sense")


@functools.lru_cache(maxsize=64)
def _sampled(n: int, level: float) -> tuple[Floats, Floats]:
    """Means and lower interval bounds of samples of n standard normals.

    Shifting a sample shifts its mean and bounds alike.
    """
    rows = SAMPLES if n <= FEW else SAMPLES_OF_MANY
    values = np.random.default_rng(SEED + n).standard_normal((rows, n))
    low = np.empty(rows)
    for start in range(0, rows, ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        low[part] = signed_rank_bounds(values[part], level)[0]
    return values.mean(axis=1), low


def _t_missed(shift: float, n: int, alpha: float) -> float:
    """Chance that a two-sided t test misses a mean of ``shift`` standard errors."""
    from scipy import stats

    critical = float(stats.t.ppf(1 - alpha / 2, n - 1))
    return float(stats.nct.cdf(critical, n - 1, shift))


def _t_effect(n: int, alpha: float, power: float) -> float:
    """Smallest mean, in standard deviations, that a two-sided t test detects."""
    from scipy import optimize, stats

    guess = float(stats.t.ppf(1 - alpha / 2, n - 1) + stats.t.ppf(power, n - 1))
    shift = optimize.brentq(lambda x: _t_missed(x, n, alpha) - (1 - power), 0.0, 4 * guess)
    return float(shift) / math.sqrt(n)


def detectable_effect(sd: float, n: int, rule: DecisionRule, power: float = POWER) -> float | None:
    """Smallest true mean log ratio that the rule calls with ``power``, in the right direction.

    ``sd`` is the standard deviation of the paired log ratio.  None where n pairs are too few
    for the rule's interval.

    Raises:
        ValueError: ``sd`` negative or not finite.
    """
    from scipy import stats

    _check(sd)
    if n < max(2, pairs_needed(1 - rule.alpha)):
        return None
    if sd == 0:
        return rule.least
    if n > MOST_SIMULATED:
        effect = sd * _t_effect(n, rule.alpha, power) / math.sqrt(RANK_EFFICIENCY)
        reached = rule.least + sd * float(stats.norm.ppf(power)) / math.sqrt(n)
        return max(effect, reached if rule.least else 0.0)
    means, low = _sampled(n, 1 - rule.alpha)
    # The smallest shift with which each sample is called; the effect is their 95 % point.
    needed = np.maximum(-low, rule.least / sd - means)
    return sd * float(np.quantile(needed, power))


def _smallest(enough: Callable[[int], bool], least: int) -> int | None:
    """Smallest n in [least, MOST_BLOCKS] for which ``enough`` (monotone) holds."""
    low, high = max(2, least), MOST_BLOCKS
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def blocks_to_detect(
    sd: float, effect: float, rule: DecisionRule, power: float = POWER
) -> int | None:
    """Pairs with which the rule calls a mean log ratio of ``effect``; None for too many.

    Too many are more than :data:`MOST_BLOCKS`.

    Raises:
        ValueError: as :func:`detectable_effect`.
    """
    _check(sd)
    if effect <= 0:
        return None

    def enough(n: int) -> bool:
        reached = detectable_effect(sd, n, rule, power)
        return reached is not None and reached <= effect

    return _smallest(enough, pairs_needed(1 - rule.alpha))


def blocks_to_exclude(sd: float, room: float, alpha: float, power: float = POWER) -> int | None:
    """Pairs after which an interval of level ``1 - 2 alpha`` fits into ``room`` on its near side.

    ``room`` is the distance from the estimate to the threshold.  The approximation of
    Schuirmann's two one-sided tests (J. Pharmacokinet. Biopharm. 15, 1987) by the nearer
    one.  None for more than :data:`MOST_BLOCKS`.
    """
    from scipy import stats

    _check(sd)
    if room <= 0:
        return None
    level = 1 - 2 * alpha

    def enough(n: int) -> bool:
        if n > MOST_SIMULATED:
            quantiles = float(stats.t.ppf(1 - alpha, n - 1) + stats.t.ppf(power, n - 1))
            return quantiles * sd / math.sqrt(n * RANK_EFFICIENCY) <= room
        # Normal samples are symmetric: the upper bound lies as far off as the lower one.
        return sd * float(np.quantile(-_sampled(n, level)[1], power)) <= room

    return _smallest(enough, pairs_needed(level))


def blocks_to_decide(
    estimate: float, sd: float, *, change: float, rule: DecisionRule, equivalence_alpha: float
) -> int | None:
    """Pairs that would decide if the truth is what it looks like.

    An estimate of at least half the threshold has to be told from zero; a smaller
    one has to be shown to stay inside the threshold.  None for more than MOST_BLOCKS.
    """
    size = abs(estimate)
    if size >= change / 2:
        # Whether the estimate stays beyond half the threshold is not asked: a smaller one
        # is decided the other way.
        return blocks_to_detect(sd, size, DecisionRule(rule.alpha))
    return blocks_to_exclude(sd, change - size, equivalence_alpha)


class Forecast(NamedTuple):
    """What ``blocks`` blocks will see on this host, and how many see the threshold.

    ``detectable`` is a log ratio; ``needed`` is None beyond :data:`MOST_BLOCKS`.
    """

    sd: float
    blocks: int
    detectable: float | None
    needed: int | None


def forecast(again: Sequence[float] | Floats, *, change: float, alpha: float, blocks: int) -> (
    Forecast | None
):  # fmt: skip
    """Say from A/A log ratios, before the long run, whether the question can be answered.

    None with fewer than :data:`FEWEST_AGAIN` pairs.

    Raises:
        ValueError: empty, not finite, or ``alpha`` outside (0, 1).
    """
    sd = standard_deviation(again)
    if sd is None or len(again) < FEWEST_AGAIN:
        return None
    return Forecast(
        sd=sd,
        blocks=blocks,
        detectable=detectable_effect(sd, blocks, DecisionRule(alpha)),
        needed=blocks_to_detect(sd, change, DecisionRule(alpha)),
    )
