"""Means of paired counts: one number an arm and seed, differences, and their scatter."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict

from results.record import Record

Floats = npt.NDArray[np.float64]
# One row of numbers an arm, base first; one number a seed.
Table = Sequence[Sequence[float]] | Floats
# Counts explain and gate nothing: a plain 95 % interval, without correction for their number.
LEVEL = 0.95


# No Record: a night's session has two million, each of which would be checked for some
# microseconds and take a kilobyte.  What makes them checks what it is given.
@dataclass(frozen=True, slots=True)
class Paired:
    """One quantity on both arms over n seeds; every value in the quantity's own unit.

    ``base``, ``patched`` and ``difference`` (patched minus base) are arithmetic means,
    so that means of parts add up to the mean of the whole.  Ranges are the smallest and
    the largest seed.  ``low`` and ``high`` are Student's 95 % interval of the mean
    difference, None for one seed.
    """

    __pydantic_config__: ClassVar[ConfigDict] = Record.model_config

    base: float
    patched: float
    difference: float
    base_range: tuple[float, float]
    patched_range: tuple[float, float]
    difference_range: tuple[float, float]
    low: float | None
    high: float | None
    n: int

    @property
    def change(self) -> float | None:
        """Difference as a fraction of base; None where base is zero."""
        return self.difference / self.base if self.base else None

    @property
    def equal(self) -> bool:
        """Whether every seed has the same value on both arms, to the last digit."""
        return self.difference_range == (0.0, 0.0)

    @property
    def within_scatter(self) -> bool:
        """Whether the seeds scatter so much that the mean difference may be zero."""
        if self.equal or self.low is None or self.high is None:
            return False
        return self.low <= 0 <= self.high

    @property
    def is_uncertain(self) -> bool:
        """Whether the arms differ by what may be chance: within the scatter, or of one seed."""
        return self.within_scatter or (self.n < 2 and not self.equal)

    @property
    def is_significant(self) -> bool:
        """Whether the arms differ, and beyond what the seeds scatter by."""
        return not self.equal and not self.within_scatter


@functools.lru_cache(maxsize=64)
def _quantile(n: int) -> float:
    from scipy import stats  # as in statistics.py

    return float(stats.t.ppf((1 + LEVEL) / 2, n - 1))


def columns(base: Floats, patched: Floats) -> list[Paired]:
    """One :class:`Paired` a column of two matrices of shape (seeds, columns).

    Raises:
        ValueError: shapes that differ, no seed, or a value that is not finite.
    """
    if base.ndim != 2 or base.shape != patched.shape or not base.shape[0]:
        raise ValueError(f"pairs need two equal matrices with rows: {base.shape}, {patched.shape}")
    n = base.shape[0]
    apart = patched - base
    if not np.isfinite(apart).all():
        raise ValueError("pairs need finite numbers")
    means = [matrix.mean(axis=0) for matrix in (base, patched, apart)]
    half = (
        _quantile(n) * apart.std(axis=0, ddof=1) / math.sqrt(n)
        if n > 1
        else np.zeros(base.shape[1])
    )
    # The mean of equal differences may be off by a last bit: exactly equal stays exact.
    constant = (apart == apart[0]).all(axis=0)
    means[2] = np.where(constant, apart[0], means[2])
    half = np.where(constant, 0.0, half)
    ends = [
        list(zip(matrix.min(axis=0).tolist(), matrix.max(axis=0).tolist(), strict=True))
        for matrix in (base, patched, apart)
    ]
    low, high = (means[2] - half).tolist(), (means[2] + half).tolist()
    # Numbers of Python's own: taking thousands out of arrays one by one takes longer than all else.
    rows = zip(*(mean.tolist() for mean in means), *ends, low, high, strict=True)
    return [
        Paired(
            base=before, patched=after, difference=difference,
            base_range=before_range, patched_range=after_range, difference_range=moved_range,
            low=least if n > 1 else None, high=most if n > 1 else None, n=n,
        )
        for (
            before, after, difference, before_range, after_range, moved_range, least, most,
        ) in rows
    ]  # fmt: skip


def pair(base: Sequence[float] | Floats, patched: Sequence[float] | Floats) -> Paired:
    """One quantity from its values by seed, in the same order on both arms.

    Raises:
        ValueError: lengths that differ, or no seed.
    """
    both = (np.asarray(row, dtype=np.float64).reshape(-1, 1) for row in (base, patched))
    return columns(*both)[0]


def ratios(above: Floats, below: Floats, scale: float = 1.0) -> list[Paired | None]:
    """``scale * above / below``, a column each, of two arrays of shape (2 arms, seeds, columns).

    None where a divisor is not above zero.  ``below`` may have one column for all.

    Raises:
        ValueError: shapes that differ, or no seed.
    """
    below = np.broadcast_to(below, above.shape)
    known = np.asarray((below > 0).all(axis=(0, 1)), dtype=np.bool_)
    both = scale * above[:, :, known] / below[:, :, known]
    pairs = iter(columns(both[0], both[1]))
    return [next(pairs) if is_known else None for is_known in known.tolist()]


def pers(above: Floats, below: Floats, scale: float = 1.0) -> list[Paired]:
    """:func:`ratios` where the divisors are known to be above zero.

    Raises:
        ValueError: one of them is not.
    """
    pairs = ratios(above, below, scale)
    known = [pair for pair in pairs if pair is not None]
    if len(known) < len(pairs):
        raise ValueError(f"not above zero: {below.tolist()}")
    return known


def ratio(above: Table, below: Table, scale: float = 1.0) -> Paired | None:
    """``scale * above / below`` by arm and seed; None where a divisor is not above zero."""
    top, bottom = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    return ratios(top[:, :, None], bottom[:, :, None], scale)[0]


def per(above: Table, below: Table, scale: float = 1.0) -> Paired:
    """:func:`ratio` where the divisors are known to be above zero.

    Raises:
        ValueError: one of them is not.
    """
    top, bottom = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    return pers(top[:, :, None], bottom[:, :, None], scale)[0]
