"""Statistics of paired samples: pure functions over log ratios.

A pair is one block: the same seed on both arms.  Everything is done on
``ln(patched / base)``; estimates and intervals are log ratios until someone prints
them (:func:`as_change`).  A statistic that needs more pairs than there are is
``None``, never a number that looks like an answer.

scipy takes a second to import and is imported where it is called: verdicts are also named by
what only lists them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Interval(NamedTuple):
    """A confidence interval of a log ratio; ``level`` is a fraction (0.99)."""

    low: float
    high: float
    level: float

    @property
    def width(self) -> float:
        """High minus low, in log units."""
        return self.high - self.low

    def excludes(self, value: float) -> bool:
        """Whether ``value`` lies strictly outside; a bound that touches it does not exclude."""
        return value < self.low or value > self.high


def as_change(log_ratio: float) -> float:
    """Turn a log ratio into a change: ``patched / base - 1``, as a fraction."""
    return math.expm1(log_ratio)


def log_ratios(base: Sequence[float], patched: Sequence[float]) -> Floats:
    """Return ``ln(patched / base)`` for each pair, shape (n,).

    Raises:
        ValueError: no pairs, lengths that differ, or a value that is not a finite
            positive number.
    """
    before, after = np.asarray(base, dtype=float), np.asarray(patched, dtype=float)
    if before.ndim != 1 or before.shape != after.shape:
        raise ValueError(f"pairs need two equal rows of numbers: {before.shape}, {after.shape}")
    if before.size == 0:
        raise ValueError("no pairs")
    for row in (before, after):
        if not np.all(np.isfinite(row)) or np.any(row <= 0):
            raise ValueError("a ratio needs finite numbers above zero")
    # Equal values give exactly 0, which ln(b) - ln(a) and ln(b / a) both promise.
    return np.asarray(np.log(after) - np.log(before))


def _checked(differences: Sequence[float] | Floats) -> Floats:
    values = np.asarray(differences, dtype=float)
    if values.ndim != 1 or values.size == 0:
        raise ValueError("no differences")
    if not np.all(np.isfinite(values)):
        raise ValueError("a difference is not a finite number")
    return values


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level {level} is not between 0 and 1")


def mean(differences: Sequence[float] | Floats) -> float:
    """Arithmetic mean of the differences, shape (n,); of log ratios, the geometric change.

    Raises:
        ValueError: empty, or not finite.
    """
    return float(np.mean(_checked(differences)))


def standard_deviation(differences: Sequence[float] | Floats) -> float | None:
    """Sample standard deviation (n - 1); None for a single difference."""
    values = _checked(differences)
    return float(np.std(values, ddof=1)) if values.size > 1 else None


def walsh_averages(differences: Sequence[float] | Floats) -> Floats:
    """Sorted means of all pairs ``(d_i + d_j) / 2`` with ``i <= j``, shape (n(n+1)/2,)."""
    values = _checked(differences)
    first, second = np.triu_indices(values.size)
    return np.asarray(np.sort((values[first] + values[second]) / 2))


def hodges_lehmann(differences: Sequence[float] | Floats) -> float:
    """Median of the Walsh averages (Hodges and Lehmann, Ann. Math. Stat. 34, 1963)."""
    return float(np.median(walsh_averages(differences)))


@functools.lru_cache(maxsize=64)
def _rank_sum_probabilities(doubled_ranks: tuple[int, ...]) -> Floats:
    """P(2 W+ = k) when each rank counts or not by a fair coin (Streitberg, Roehmel 1986)."""
    total = np.zeros(sum(doubled_ranks) + 1)
    total[0] = 1.0
    reached = 0
    for rank in doubled_ranks:
        shifted = total[: reached + 1].copy()
        total[: reached + 1] /= 2
        total[rank : rank + reached + 1] += shifted / 2
        reached += rank
    return total


def signed_rank_probabilities(n: int) -> Floats:
    """Exact null distribution of Wilcoxon's W+ for n untied pairs, shape (n(n+1)/2 + 1,)."""
    if n < 1:
        raise ValueError(f"n {n} is below 1")
    return _rank_sum_probabilities(tuple(range(1, n + 1)))


def pairs_needed(level: float) -> int:
    """Smallest n for which a signed-rank interval of this level exists (8 for 99 %).

    The widest one spans all Walsh averages and misses with probability 2 / 2**n.
    """
    _check_level(level)
    return math.ceil(math.log2(2 / (1 - level)) - 1e-9)


@functools.lru_cache(maxsize=1024)
def signed_rank_order(n: int, level: float) -> int:
    """Which Walsh averages bound the interval: the kth smallest and the kth largest, k >= 1.

    The largest k with P(W+ < k) <= (1 - level) / 2.  Exact; n at least ``pairs_needed``.
    """
    cumulated = np.cumsum(signed_rank_probabilities(n))
    return int(np.searchsorted(cumulated, (1 - level) / 2 * (1 + 1e-12), side="right"))


def signed_rank_interval(differences: Sequence[float] | Floats, level: float) -> Interval | None:
    """Exact interval of the median difference from the Walsh averages (Tukey 1949).

    Its coverage is at least ``level`` for any symmetric distribution (Hollander,
    Wolfe and Chicken, Nonparametric Statistical Methods, 3rd ed., section 3.3).
    None when n is below :func:`pairs_needed`.

    Raises:
        ValueError: empty, not finite, or a level outside (0, 1).
    """
    averages = walsh_averages(differences)
    n = _checked(differences).size
    if n < pairs_needed(level):
        return None
    k = signed_rank_order(n, level)
    return Interval(float(averages[k - 1]), float(averages[-k]), level)


def signed_rank_p(differences: Sequence[float] | Floats) -> float:
    """Two-sided exact p value of Wilcoxon's signed-rank test (Biometrics Bull. 1, 1945).

    Zeros are left out as Wilcoxon did; ties get mid-ranks and their own exact
    conditional distribution.  All differences zero: 1.
    """
    from scipy import stats

    values = _checked(differences)
    values = values[values != 0]
    if values.size == 0:
        return 1.0
    doubled = np.rint(2 * stats.rankdata(np.abs(values))).astype(int)
    observed = int(doubled[values > 0].sum())
    probabilities = _rank_sum_probabilities(tuple(sorted(int(rank) for rank in doubled)))
    below = float(probabilities[: observed + 1].sum())
    above = float(probabilities[observed:].sum())
    return min(1.0, 2 * min(below, above))


def t_interval(differences: Sequence[float] | Floats, level: float) -> Interval | None:
    """Student's interval of the mean difference (Biometrika 6, 1908); None for n = 1."""
    from scipy import stats

    values = _checked(differences)
    _check_level(level)
    spread = standard_deviation(values)
    if spread is None:
        return None
    centre = float(np.mean(values))
    half = float(stats.t.ppf((1 + level) / 2, values.size - 1)) * spread / math.sqrt(values.size)
    return Interval(centre - half, centre + half, level)


def t_p(differences: Sequence[float] | Floats) -> float | None:
    """Two-sided p value of the paired t test; None for n = 1.

    Differences that are all equal leave no doubt: 1 when they are zero, else 0.
    """
    from scipy import stats

    values = _checked(differences)
    spread = standard_deviation(values)
    if spread is None:
        return None
    centre = float(np.mean(values))
    if spread == 0:
        return 1.0 if centre == 0 else 0.0
    statistic = abs(centre) / (spread / math.sqrt(values.size))
    return float(2 * stats.t.sf(statistic, values.size - 1))


def wider(first: Interval | None, second: Interval | None) -> Interval | None:
    """The wider of two intervals; the other one where one cannot be computed."""
    if first is None or second is None:
        return first or second
    return first if first.width >= second.width else second


def _check_p(p_values: Sequence[float]) -> Floats:
    values = np.asarray(p_values, dtype=float)
    if values.ndim != 1 or not np.all((values >= 0) & (values <= 1)):
        raise ValueError("a p value is not between 0 and 1")
    return values


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values that bound the chance of any false alarm (Holm, Scand. J. Stat. 6, 1979).

    Same order as given; an empty family gives an empty list.
    """
    values = _check_p(p_values)
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(values.size, 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1) if values.size else steps
    return [float(value) for value in adjusted]


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values that bound the share of false discoveries (J. R. Stat. Soc. B 57, 1995)."""
    values = _check_p(p_values)
    order = np.argsort(values, kind="stable")[::-1]
    steps = values[order] * values.size / np.arange(values.size, 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.minimum.accumulate(steps), 1) if values.size else steps
    return [float(value) for value in adjusted]
