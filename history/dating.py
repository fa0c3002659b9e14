"""When a level changed and by how much, from all nights on both sides of the change; pure.

The date is the maximum of the likelihood of two levels with normal noise (Smith, Biometrika
62, 1975, has the posterior over the dates), with a bounded loss, so that a single night far
off decides nothing (Fearnhead and Rigaill, J. Am. Stat. Assoc. 114, 2019).  A small step in
noise has no certain date whatever the method: the range of dates says how uncertain it is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from reports.statistics import Floats, Interval

# A single night further off than this many deviations from the median of its neighbours is
# an outlier; the loss of a night is bounded there too.
OUTLYING = 3.5
# A level of one night cannot be told from an outlier.
FEWEST_NIGHTS = 2
# Dates that are considered, in nights from the one nominated.
NEAR = 10
# Confidence of the interval of the change and of the range of its dates.
LEVEL = 0.99
DATE_LEVEL = 0.95

Nights = npt.NDArray[np.bool_]


class Dates(NamedTuple):
    """The most likely first night of the new level, and the range that has it at 95 %."""

    at: int
    earliest: int
    latest: int


def date_probabilities(values: Floats, near: int, noise: float) -> Floats:
    """The probability of each night to be the first of the new level, shape (nights,).

    ``values`` are the nights of both levels and ``noise`` their standard deviation from
    night to night; nights more than ``NEAR`` from ``near`` have probability zero.
    """
    n = len(values)
    first, last = max(FEWEST_NIGHTS, near - NEAR), min(n - FEWEST_NIGHTS, near + NEAR)
    probabilities = np.zeros(n)
    if first > last:
        probabilities[near] = 1.0
        return probabilities
    losses = np.array([_loss(values, at, noise) for at in range(first, last + 1)])
    likelihoods = np.exp((losses.min() - losses) / 2)
    probabilities[first : last + 1] = likelihoods / likelihoods.sum()
    return probabilities


def _loss(values: Floats, at: int, noise: float) -> float:
    sides = values[:at], values[at:]
    residuals = np.concatenate([side - level(side, noise) for side in sides])
    return float(np.minimum((residuals / noise) ** 2, OUTLYING**2).sum())


def dates(probabilities: Floats) -> Dates:
    """The most likely date, and the span of the likeliest dates that make up 95 %."""
    order = np.argsort(-probabilities, kind="stable")
    enough = int(np.searchsorted(np.cumsum(probabilities[order]), DATE_LEVEL * probabilities.sum()))
    likely = order[: enough + 1]
    return Dates(int(order[0]), int(likely.min()), int(likely.max()))


def level(values: Floats, noise: float) -> float:
    """The mean of the nights of one level, without single nights that stand out."""
    return float(without_outliers(values, noise).mean())


def difference(before: Floats, after: Floats, noise: float) -> Interval:
    """The interval of the second level minus the first, by Student's t over the nights.

    Both levels have the same noise, which a new level of two or three nights cannot show by
    itself: the variance is that of all nights (Student, Biometrika 6, 1908).
    """
    sides = [without_outliers(side, noise) for side in (before, after)]
    apart = float(sides[1].mean() - sides[0].mean())
    freedom = len(before) + len(after) - 2
    variance = sum(float(((side - side.mean()) ** 2).sum()) for side in sides) / freedom
    error = math.sqrt(variance * (1 / len(before) + 1 / len(after)))
    half = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * error
    return Interval(apart - half, apart + half, LEVEL)


def without_outliers(values: Floats, noise: float) -> Floats:
    """Values with single nights that stand out alone put to their neighbours' median.

    The filter is Hampel's with three nights (J. Am. Stat. Assoc. 69, 1974); at an end the
    three are the last ones, so that a new level counts from its second night.
    """
    if len(values) < 3:
        return values
    before, mid, after = values[:-2], values[1:-1], values[2:]
    # The median of three, without sorting.
    medians = np.maximum(np.minimum(before, mid), np.minimum(np.maximum(before, mid), after))
    medians = np.concatenate([medians[:1], medians, medians[-1:]])
    return np.where(np.abs(values - medians) > OUTLYING * noise, medians, values)
