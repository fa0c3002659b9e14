"""What a number of seeds can and cannot decide: pure functions of spread, looks and the rule.

The power that is stated is that of the rule by which verdicts of exact mode are given
(``analysis.verdict``), over all looks of a session: the rule itself is applied to normal
differences of a fixed seed, and a session ends where it would.  What numbers of blocks are worth
in wall mode is in ``analysis.wall_power``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from analysis import looks as rates
from analysis.statistics import (
    Floats,
    mean_bounds,
    pairs_needed,
    signed_rank_bounds,
    skewness,
)
from experiment.spec import SEED_LOOKS, Looks, looks_of

POWER = 0.95
MOST_SEEDS = SEED_LOOKS[-1]
# The 95 % point is then good to 1 % of itself.
SAMPLES = 4_000
SEED = 20_260_101
# With more pairs than that the rank interval never is the wider one under normal noise.
MOST_RANKED = 32
ROWS_AT_ONCE = 500
# In standard deviations: more than any session detects that detects something.
LARGEST = 64.0


@dataclass(frozen=True)
class Question:
    """What is asked of one metric: log ratios, and error rates over all looks.

    ``change`` is the threshold, of which half is the least estimate that is called a change;
    ``alpha`` the error rate of a change, ``family`` the number of metrics that share it,
    ``equivalence_alpha`` that of "no change".
    """

    change: float
    alpha: float
    equivalence_alpha: float
    family: int = 1

    def __post_init__(self) -> None:
        for alpha in (self.alpha, self.equivalence_alpha):
            if not 0 < alpha < 0.5:
                raise ValueError(f"alpha {alpha} is not between 0 and 0.5")


class Chances(NamedTuple):
    """How often a session ends called a change, called no change, and with how many seeds."""

    called: float
    same: float
    seeds: float


class _Sampled(NamedTuple):
    """Samples of n standard normals: means, and the bounds of the three intervals."""

    means: Floats
    low: Floats
    equal_low: Floats
    equal_high: Floats


def chances(effect: float, sd: float, looks: Looks, question: Question) -> Chances:
    """What a session with these looks ends with, for a true mean log ratio of ``effect``.

    ``sd`` is the standard deviation of the paired log ratio, above zero.  A change counts as
    called only in the direction of the effect.

    Raises:
        ValueError: ``sd`` not above zero or not finite.
    """
    if not math.isfinite(sd) or sd <= 0:
        raise ValueError(f"a standard deviation of {sd} makes no sense")
    shift, room = abs(effect) / sd, question.change / sd
    going = np.ones(SAMPLES, dtype=bool)
    significant = same = spent = 0.0
    for so_far in rates.so_far(looks):
        here = _sampled(so_far, question)
        change = (here.low + shift > 0) & (here.means + shift >= room / 2)
        equal = (here.equal_low + shift > -room) & (here.equal_high + shift < room)
        significant += float((going & change).mean())
        same += float((going & ~change & equal).mean())
        ended = going & (change | equal)
        going &= ~ended
        spent += so_far.seeds[-1] * float(ended.mean())
    return Chances(significant, same, spent + looks.seeds[-1] * float(going.mean()))


def detectable_effect(
    sd: float, looks: Looks, question: Question, power: float = POWER
) -> float | None:
    """Smallest true mean log ratio that a session with these looks calls with ``power``.

    None where its last look has too few pairs for a verdict at that level.

    Raises:
        ValueError: ``sd`` negative or not finite.
    """
    if not math.isfinite(sd) or sd < 0:
        raise ValueError(f"a standard deviation of {sd} makes no sense")
    if looks.seeds[-1] < pairs_needed(1 - question.alpha):
        return None
    if sd == 0:
        return question.change / 2
    low, high = 0.0, max(LARGEST, 2 * question.change / sd)
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        enough = chances(middle * sd, sd, looks, question).called >= power
        low, high = (low, middle) if enough else (middle, high)
    return high * sd


def seeds_to_decide(
    estimate: float, sd: float, looks: Looks, question: Question, power: float = POWER
) -> int | None:
    """Seeds with which a session decides with ``power`` if the truth is what it looks like.

    Of a session that adds seeds, those that it has reached by then; None for more than
    :data:`MOST_SEEDS`.

    Raises:
        ValueError: ``sd`` negative or not finite.
    """
    first = looks.seeds[0]
    if sd == 0:
        return max(first, pairs_needed(1 - question.alpha))
    for seeds in dict.fromkeys((first, *(n for n in SEED_LOOKS if n > first))):
        with_them = looks_of(first, seeds) if looks.sequential else Looks((seeds,), False)
        chance = chances(estimate, sd, with_them, question)
        if chance.called + chance.same >= power:
            return seeds
    return None


@functools.lru_cache(maxsize=1)
def _normals() -> Floats:
    return np.random.default_rng(SEED).standard_normal((SAMPLES, MOST_SEEDS))


@functools.lru_cache(maxsize=256)
def _sampled(looks: Looks, question: Question) -> _Sampled:
    """Samples at the last of these looks, judged by the rule there."""
    n = looks.seeds[-1]
    samples = _normals()[:, :n] if n <= MOST_SEEDS else _more(n)
    means = samples.mean(axis=1)
    errors = samples.std(axis=1, ddof=1) / math.sqrt(n) if n > 1 else np.full(SAMPLES, np.inf)
    skew = skewness(samples) if looks.sequential else np.zeros(SAMPLES)
    alpha = rates.change_level(looks, question.alpha / question.family)
    level = 1 - 2 * rates.equivalence_level(looks, question.equivalence_alpha)
    change = mean_bounds(means, errors, skew, n, 1 - alpha)
    equal = mean_bounds(means, errors, skew, n, level)
    low, _ = _wider(change, _ranked(n, 1 - question.alpha))
    # The p value has to be small as well, which is to say that the first bound is above zero.
    return _Sampled(
        means,
        np.minimum(low, change[0]),
        *_wider(equal, _ranked(n, 1 - 2 * question.equivalence_alpha)),
    )


def _wider(mean: tuple[Floats, Floats], ranked: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """The wider interval of each sample, as ``statistics.wider``."""
    first = mean[1] - mean[0] >= ranked[1] - ranked[0]
    return np.where(first, mean[0], ranked[0]), np.where(first, mean[1], ranked[1])


def _more(n: int) -> Floats:
    return np.random.default_rng(SEED + n).standard_normal((SAMPLES, n))


@functools.lru_cache(maxsize=32)
def _ranked(n: int, level: float) -> tuple[Floats, Floats]:
    """Bounds of the signed-rank intervals; without bounds where there are too few pairs."""
    if n < pairs_needed(level):
        return np.full(SAMPLES, -np.inf), np.full(SAMPLES, np.inf)
    if n > MOST_RANKED:
        return np.zeros(SAMPLES), np.zeros(SAMPLES)
    samples = _normals()[:, :n]
    rows = range(0, SAMPLES, ROWS_AT_ONCE)
    parts = [signed_rank_bounds(samples[at : at + ROWS_AT_ONCE], level) for at in rows]
    low, high = (np.concatenate(bounds) for bounds in zip(*parts, strict=True))
    return low, high
