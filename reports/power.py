"""What a number of blocks can and cannot see: pure functions of spread and n.

For many blocks the detectable effect tends to ``(z_0.995 + z_0.95) sd / sqrt(n)``,
which is 4.22 sd / sqrt(n) at 95 % power and alpha = 1 %.  With few blocks that is too
hopeful (8 blocks see 2.0 sd and not 1.5), so the non-central t distribution is
used throughout (Owen, Biometrika 52, 1965).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy import optimize, stats

from reports.statistics import pairs_needed

POWER = 0.95
MOST_BLOCKS = 1000


def _check(sd: float, alpha: float) -> None:
    if not math.isfinite(sd) or sd < 0:
        raise ValueError(f"a standard deviation of {sd} makes no sense")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha {alpha} is not between 0 and 1")


def _missed(shift: float, n: int, alpha: float) -> float:
    """Chance that a two-sided t test misses a mean of ``shift`` standard errors."""
    critical = float(stats.t.ppf(1 - alpha / 2, n - 1))
    return float(stats.nct.cdf(critical, n - 1, shift))


def detectable_effect(sd: float, n: int, alpha: float, power: float = POWER) -> float | None:
    """Smallest mean log ratio that n blocks detect with ``power``; None below two blocks.

    ``sd`` is the standard deviation of the paired log ratio.

    Raises:
        ValueError: ``sd`` negative or not finite, or ``alpha`` outside (0, 1).
    """
    _check(sd, alpha)
    if n < 2:
        return None
    if sd == 0:
        return 0.0
    guess = float(stats.t.ppf(1 - alpha / 2, n - 1) + stats.t.ppf(power, n - 1))
    shift = optimize.brentq(lambda x: _missed(x, n, alpha) - (1 - power), 0.0, 4 * guess)
    return float(shift) * sd / math.sqrt(n)


def _smallest(enough: Callable[[int], bool], least: int) -> int | None:
    """Smallest n in [least, MOST_BLOCKS] for which ``enough`` (monotone) holds."""
    low, high = max(2, least), MOST_BLOCKS
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def blocks_to_detect(sd: float, effect: float, alpha: float, power: float = POWER) -> int | None:
    """Blocks that detect a mean log ratio of ``effect``; None for more than MOST_BLOCKS.

    Never below what a signed-rank interval of level ``1 - alpha`` needs.
    """
    _check(sd, alpha)
    if effect <= 0:
        return None

    def enough(n: int) -> bool:
        return _missed(effect * math.sqrt(n) / sd, n, alpha) <= 1 - power

    least = pairs_needed(1 - alpha)
    return least if sd == 0 else _smallest(enough, least)


def blocks_to_exclude(sd: float, room: float, alpha: float, power: float = POWER) -> int | None:
    """Blocks after which an interval of level ``1 - 2 alpha`` fits into ``room`` on its near side.

    ``room`` is the distance from the estimate to the threshold.  The approximation
    of Schuirmann's two one-sided tests (J. Pharmacokinet. Biopharm. 15, 1987) by the
    nearer one; None for more than MOST_BLOCKS.
    """
    _check(sd, alpha)
    if room <= 0:
        return None

    def enough(n: int) -> bool:
        quantiles = float(stats.t.ppf(1 - alpha, n - 1) + stats.t.ppf(power, n - 1))
        return quantiles * sd / math.sqrt(n) <= room

    return _smallest(enough, pairs_needed(1 - 2 * alpha))


def blocks_to_decide(
    estimate: float, sd: float, *, change: float, alpha: float, equivalence_alpha: float
) -> int | None:
    """Blocks that would decide if the truth is what it looks like.

    An estimate of at least half the threshold has to be told from zero; a smaller
    one has to be shown to stay inside the threshold.  None for more than MOST_BLOCKS.
    """
    seen = abs(estimate)
    if seen >= change / 2:
        return blocks_to_detect(sd, seen, alpha)
    return blocks_to_exclude(sd, change - seen, equivalence_alpha)
