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


# A log ratio: 3e43 times as much, which may be multiplied by any value of a metric.
LARGEST = 100.0


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
    """Turn a log ratio into a change: ``patched / base - 1``, as a fraction.

    The bound of an interval of two pairs, 64 standard errors away, may be one whose change no
    floating-point number holds: above ``LARGEST`` it is that.
    """
    return math.expm1(min(log_ratio, LARGEST))


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


@functools.lru_cache(maxsize=64)
def _pairs(n: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The places of all pairs of n values, the first no later than the second."""
    return np.triu_indices(n)


def walsh_averages(differences: Sequence[float] | Floats) -> Floats:
    """Sorted means of all pairs ``(d_i + d_j) / 2`` with ``i <= j``, shape (n(n+1)/2,)."""
    values = _checked(differences)
    first, second = _pairs(values.size)
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


def signed_rank_bounds(samples: Floats, level: float) -> tuple[Floats, Floats]:
    """Bounds of :func:`signed_rank_interval` for each row of ``samples``, shape (rows, n)."""
    n = samples.shape[1]
    first, second = _pairs(n)
    k = signed_rank_order(n, level)
    averages = (samples[:, first] + samples[:, second]) / 2
    ends = np.partition(averages, (k - 1, averages.shape[1] - k), axis=1)
    return ends[:, k - 1], ends[:, -k]


def signed_rank_p(differences: Sequence[float] | Floats) -> float:
    """Two-sided exact p value of Wilcoxon's signed-rank test (Biometrics Bull. 1, 1945).

    Zeros are left out as Wilcoxon did; ties get mid-ranks and their own exact
    conditional distribution.  All differences zero: 1.
    """
    values = _checked(differences)
    values = values[values != 0]
    if values.size == 0:
        return 1.0
    # Twice the mean rank of each, which is whole: ties share theirs.
    _, places, ties = np.unique(np.abs(values), return_inverse=True, return_counts=True)
    doubled = (2 * ties.cumsum() - ties + 1)[places]
    observed = int(doubled[values > 0].sum())
    probabilities = _rank_sum_probabilities(tuple(sorted(int(rank) for rank in doubled)))
    below = float(probabilities[: observed + 1].sum())
    above = float(probabilities[observed:].sum())
    return min(1.0, 2 * min(below, above))


@functools.lru_cache(maxsize=256)
def student_quantile(level: float, freedom: float) -> float:
    """Half the width of Student's interval of this level, in standard errors."""
    from scipy import special

    return float(special.stdtrit(freedom, (1 + level) / 2))


def student_p(statistic: float, freedom: float) -> float:
    """The two-sided p value of Student's statistic."""
    from scipy import special

    return float(2 * special.stdtr(freedom, -abs(statistic)))


def t_interval(differences: Sequence[float] | Floats, level: float) -> Interval | None:
    """Student's interval of the mean difference (Biometrika 6, 1908); None for n = 1."""
    values = _checked(differences)
    _check_level(level)
    spread = standard_deviation(values)
    if spread is None:
        return None
    centre = float(np.mean(values))
    half = student_quantile(level, values.size - 1) * spread / math.sqrt(values.size)
    return Interval(centre - half, centre + half, level)


def t_p(differences: Sequence[float] | Floats) -> float | None:
    """Two-sided p value of the paired t test; None for n = 1.

    Differences that are all equal leave no doubt: 1 when they are zero, else 0.
    """
    values = _checked(differences)
    spread = standard_deviation(values)
    if spread is None:
        return None
    centre = float(np.mean(values))
    if spread == 0:
        return 1.0 if centre == 0 else 0.0
    statistic = abs(centre) / (spread / math.sqrt(values.size))
    return student_p(statistic, values.size - 1)


# The skewness of a sample is nearer to zero than that of what it is drawn from: eight draws of a
# lognormal distribution with a skewness of 3.3 have 0.9 on average.
SKEWNESS = 2.0
# A bound is at most that many times as far off as Student's: the transformation has a plateau, on
# which those of small samples would go any distance.
FARTHEST = 2.0


class Welch(NamedTuple):
    """The difference of two means of logarithms, its interval and p value, and its freedom."""

    estimate: float
    interval: Interval
    p: float
    freedom: float


def welch(base: Sequence[float], patched: Sequence[float], level: float) -> Welch | None:
    """Welch's t of the logarithms of two independent rows (Biometrika 34, 1947).

    Rows may differ in length and variance.  None: a row has fewer than two values, or no row has
    any spread.  Raises ValueError: a value that is not a finite number above zero.
    """
    _check_level(level)
    rows = [np.asarray(row, dtype=float) for row in (base, patched)]
    if any(not np.all(np.isfinite(row)) or np.any(row <= 0) for row in rows):
        raise ValueError("a ratio needs finite numbers above zero")
    if min(row.size for row in rows) < 2:
        return None
    logs = [np.log(row) for row in rows]
    parts = [float(np.var(row, ddof=1)) / row.size for row in logs]
    if sum(parts) <= 0:
        return None
    pairs = zip(parts, logs, strict=True)
    freedom = sum(parts) ** 2 / sum(part**2 / (row.size - 1) for part, row in pairs)
    estimate, error = float(np.mean(logs[1]) - np.mean(logs[0])), math.sqrt(sum(parts))
    half = student_quantile(level, freedom) * error
    interval = Interval(estimate - half, estimate + half, level)
    return Welch(estimate, interval, student_p(estimate / error, freedom), freedom)


def skewness(differences: Floats) -> Floats:
    """Skewness that is guarded against along the last axis: twice that of the sample, 0 for none.

    The sample's is its third central moment over the 3/2 power of its second.
    """
    apart = differences - differences.mean(axis=-1, keepdims=True)
    second = (apart**2).mean(axis=-1)
    third = (apart**3).mean(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(second > 0, third / second**1.5, 0.0)
    return np.asarray(SKEWNESS * ratio)


def unskewed(t: Floats, skew: Floats, n: int) -> Floats:
    """Hall's transformation of t statistics of skewed samples (J. R. Stat. Soc. B 54, 1992).

    Monotone, and nearer to Student's distribution than ``t`` where the mean of skewed numbers is
    tested; ``t`` itself without skew.
    """
    b = skew / (3 * math.sqrt(n))
    return np.asarray(t + b * t**2 + b**2 * t**3 / 3 + b / 2)


def skewed(t: Floats, skew: Floats, n: int) -> Floats:
    """The inverse of :func:`unskewed`."""
    b = skew / (3 * math.sqrt(n))
    # Below that the cube root has no digits left, and the transformation does nothing.
    some = np.where(np.abs(b) < 1e-9, 1.0, b)
    value = (np.cbrt(1 + 3 * some * (t - some / 2)) - 1) / some
    return np.asarray(np.where(np.abs(b) < 1e-9, t, value))


def mean_bounds(
    means: Floats, errors: Floats, skew: Floats, n: int, level: float
) -> tuple[Floats, Floats]:
    """Lowest and highest bound of Student's interval and of the one corrected for skewness.

    One a sample of ``n`` differences: its mean, the standard error of that, and its skewness
    (:func:`skewness`).
    """
    _check_level(level)
    t = np.full(np.shape(means), student_quantile(level, n - 1))
    below, above = (
        np.clip(each, t, FARTHEST * t) for each in (skewed(t, skew, n), -skewed(-t, skew, n))
    )
    return np.asarray(means - errors * below), np.asarray(means + errors * above)


def mean_interval(differences: Sequence[float] | Floats, level: float) -> Interval | None:
    """Interval of the mean that holds Student's and the one corrected for skewness.

    Student's interval of a skewed distribution misses its mean on the side of the long tail, of
    which a small sample has nothing (Johnson, J. Am. Stat. Assoc. 73, 1978).  None for n = 1.
    """
    values = _checked(differences)
    spread = standard_deviation(values)
    if spread is None:
        return None
    error = np.asarray(spread / math.sqrt(values.size))
    centre = np.asarray(values.mean())
    low, high = mean_bounds(centre, error, skewness(values), values.size, level)
    return Interval(float(low), float(high), level)


def mean_p(differences: Sequence[float] | Floats) -> float | None:
    """P value of the t test and of the one corrected for skewness, both; None for n = 1.

    At most ``1 - level`` just where :func:`mean_interval` excludes zero.
    """
    values = _checked(differences)
    plain, spread = t_p(values), standard_deviation(values)
    if plain is None or not spread:
        return plain
    t = np.asarray(values.mean() / (spread / math.sqrt(values.size)))
    corrected = float(unskewed(t, skewness(values), values.size))
    # A correction may carry a small t over zero, never a large one.
    tail = abs(corrected) if corrected * float(t) > 0 else 0.0
    both = max(plain, student_p(tail, values.size - 1))
    return min(both, student_p(float(t) / FARTHEST, values.size - 1))


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


class NoiseFloor(NamedTuple):
    """What the same kernel differs by from itself on this host; log ratios.

    ``interval`` is None with too few pairs for its level, ``sd`` with one pair.  ``differs`` says
    whether A/A claims a change, which is false by construction.
    """

    estimate: float
    interval: Interval | None
    sd: float | None
    differs: bool


def noise_floor(
    differences: Sequence[float] | Floats, alpha: float, change: float = 0.0
) -> NoiseFloor:
    """The noise floor of A/A log ratios ``ln(again / base)``, shape (n,).

    It differs by the rule for a change: where that of a series would not be called, since it is
    less than half of the threshold ``change``, nothing is wrong with the host.

    Raises:
        ValueError: empty, not finite, or ``alpha`` outside (0, 1).
    """
    estimate, interval = hodges_lehmann(differences), signed_rank_interval(differences, 1 - alpha)
    large = abs(as_change(estimate)) >= change / 2
    differs = large and interval is not None and interval.excludes(0)
    return NoiseFloor(estimate, interval, standard_deviation(differences), differs)
