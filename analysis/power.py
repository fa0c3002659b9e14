"""What several looks cost of the error rates, and what a number of seeds or blocks can decide.

Pure.  *Looks.*  A session that is judged again and again finds a change in the end, whether there
is one or not (Armitage, McPherson and Rowe, J. R. Stat. Soc. A 132, 1969).  So the error rates are
spent over the looks, by functions of the number of seeds alone (Lan and DeMets, Biometrika 70,
1983):

    spent after n seeds = asked for * n**2 / (n**2 + half**2)

No budget is in it, and with any number of seeds something is left, so that seeds may always be
added, whatever made somebody add them.  Little is spent early: what a handful of seeds shows of
a skewed distribution is not what it is (``statistics.mean_p``).  With ``half`` seeds half is
spent; "no change", which is what most comparisons end with, spends earlier than "change".

From the shares follow the levels of the tests at each look: increments of a sum are independent,
and the density of the sum among those that went on is integrated from look to look (Jennison and
Turnbull, Group Sequential Methods, 2000, chapter 19).  The levels are those of normal sums, used
as levels of t tests (Pocock, Biometrika 64, 1977), and of signed ranks where time is real.

Each metric has looks of its own: they are those of its case.  A level bounds the chance that a
metric's p value is below it at any of its looks, whatever made the session stop there, so a case
may stop while others go on; and Holm's correction asks no more of p values than that each is one,
however they depend on each other (Holm, Scand. J. Stat. 6, 1979).  A case that is not judged at a
look spends nothing there, which makes the levels stricter than they had to be.

*Power.*  What is stated is that of the rule by which verdicts are given (``analysis.verdict``), on
normal differences of a fixed seed, over all looks of a session, which ends where it would.  Ranks
of more than :data:`MOST_RANKED` pairs are stood for by a t interval that is wider by the root of
their asymptotic efficiency, 3/pi (Hodges and Lehmann, Ann. Math. Stat. 27, 1956).

scipy takes a second to import and is imported where it is called (as in ``statistics``).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from analysis.statistics import (
    Floats,
    mean_bounds,
    pairs_needed,
    signed_rank_bounds,
    skewness,
)
from experiment.spec import SEED_LOOKS, Looks, looks_of

HALF_OF_CHANGE = 24.0
HALF_OF_EQUIVALENCE = 16.0
# Of the density; the levels of 6 looks are then good to 1 % of themselves.
POINTS = 301
# In standard errors: no bound of an error rate that a float can hold is as far.
FARTHEST = 12.0
# Of that distance: bounds are then good to 1e-11.
HALVINGS = 40
# Error rates of which the levels are tabulated, to find the one that belongs to a p value.
SMALLEST, TABULATED = 1e-12, 49

POWER = 0.95
MOST_SEEDS = SEED_LOOKS[-1]
# The 95 % point is then good to 1 % of itself.
SAMPLES = 4_000
SEED = 20_260_101
# With more pairs than that the rank interval never is the wider one under normal noise.
MOST_RANKED = 32
RANK_EFFICIENCY = 3 / math.pi
ROWS_AT_ONCE = 500
# In standard deviations: more than any session detects that detects something.
LARGEST = 64.0
# Fewer A/A pairs say nothing about a spread: with 8 its 90 % interval spans 0.7 to 1.8.
FEWEST_AGAIN = 8


def change_level(looks: Looks, alpha: float) -> float:
    """Two-sided level of the test for a change at the last look, for ``alpha`` over them all."""
    return _levels(looks.seeds, alpha, HALF_OF_CHANGE)[-1] if looks.sequential else alpha


def equivalence_level(looks: Looks, alpha: float) -> float:
    """Level of each of the two one-sided tests of "no change" at the last of these looks."""
    # The bound on the other side is never near: two-sided at 2 alpha is one-sided at alpha.
    levels = _levels(looks.seeds, 2 * alpha, HALF_OF_EQUIVALENCE) if looks.sequential else ()
    return levels[-1] / 2 if levels else alpha


def repeated_p(looks: Looks, p_value: float) -> float:
    """The error rate over all looks at which a p value of the last look is just significant.

    The repeated p value of Jennison and Turnbull (2000, 9.4): valid at whatever look a session
    ends, so that Holm's correction may be applied to it.
    """
    if not looks.sequential:
        return p_value
    levels, rates = _tabulated(looks.seeds)
    if p_value <= levels[0]:
        return float(p_value * rates[0] / levels[0])
    if p_value >= levels[-1]:
        return 1.0
    return float(np.exp(np.interp(math.log(p_value), np.log(levels), np.log(rates))))


def so_far(looks: Looks) -> tuple[Looks, ...]:
    """The looks up to the first, up to the second, and so on; those of one are themselves."""
    return tuple(Looks(looks.seeds[: k + 1], looks.sequential) for k in range(len(looks.seeds)))


@functools.lru_cache(maxsize=64)
def _tabulated(seeds: tuple[int, ...]) -> tuple[Floats, Floats]:
    rates = np.geomspace(SMALLEST, 1.0, TABULATED)
    levels = [_levels(seeds, float(rate), HALF_OF_CHANGE)[-1] for rate in rates]
    return np.asarray(levels), rates


@functools.lru_cache(maxsize=1024)
def _levels(seeds: tuple[int, ...], alpha: float, half: float) -> tuple[float, ...]:
    """Two-sided levels at each look, of which all together have the error rate spent by then.

    Raises:
        ValueError: ``alpha`` is not above 0, or is above 1.
    """
    from scipy.special import log_ndtr, ndtr, ndtri

    if not 0 < alpha <= 1:
        raise ValueError(f"alpha {alpha} is not between 0 and 1")
    spent = [alpha * n * n / (n * n + half * half) for n in seeds]
    bound = float(-ndtri(spent[0] / 2))
    levels = [spent[0]]
    # The sum of n standard normals among samples that went on, and the weights of its integral.
    at = np.linspace(-bound, bound, POINTS) * math.sqrt(seeds[0])
    density = np.exp(-(at**2) / (2 * seeds[0])) / math.sqrt(2 * math.pi * seeds[0])
    for before, now, share in zip(seeds, seeds[1:], np.diff(spent), strict=False):
        step = math.sqrt(now - before)
        mass = density * np.gradient(at)
        mass[[0, -1]] /= 2

        # What is beyond a bound only falls with it; scipy.optimize takes longer to import.
        nearer, farther = 0.0, FARTHEST
        for _ in range(HALVINGS):
            bound = (nearer + farther) / 2
            if 2 * float(mass @ ndtr((at - bound * math.sqrt(now)) / step)) > share:
                nearer = bound
            else:
                farther = bound
        levels.append(2 * math.exp(float(log_ndtr(-bound))))
        reached = np.linspace(-bound, bound, POINTS) * math.sqrt(now)
        steps = np.exp(-((reached[:, None] - at[None, :]) ** 2) / (2 * step * step))
        density = steps @ mass / (step * math.sqrt(2 * math.pi))
        at = reached
    return tuple(levels)


@dataclass(frozen=True)
class Question:
    """What is asked of one metric: log ratios, and error rates over all looks.

    ``change`` is the threshold, of which half is the least estimate that is called a change;
    ``alpha`` the error rate of a change, ``family`` the number of metrics that share it,
    ``equivalence_alpha`` that of "no change".  ``ranked`` is true in wall mode, where signed ranks
    alone judge: elsewhere they have a veto, and no share of the error rates.
    """

    change: float
    alpha: float
    equivalence_alpha: float
    family: int = 1
    ranked: bool = False

    def __post_init__(self) -> None:
        for alpha in (self.alpha, self.equivalence_alpha):
            if not 0 < alpha < 0.5:
                raise ValueError(f"alpha {alpha} is not between 0 and 0.5")


class Chances(NamedTuple):
    """How often a session ends called a change, called no change, and with how many seeds."""

    called: float
    same: float
    seeds: float


def _check(sd: float) -> None:
    if not math.isfinite(sd) or sd < 0:
        raise ValueError(f"a standard deviation of {sd} makes no sense")


def chances(effect: float, sd: float, looks: Looks, question: Question) -> Chances:
    """What a session with these looks ends with, for a true mean log ratio of ``effect``.

    ``sd`` is the standard deviation of the paired log ratio, above zero.  A change counts as
    called only in the direction of the effect.

    Raises:
        ValueError: ``sd`` negative or not finite.
    """
    _check(sd)
    shift, room = abs(effect) / sd, question.change / sd
    going = np.ones(SAMPLES, dtype=bool)
    significant = same = spent = 0.0
    for at in so_far(looks):
        means, low, equal_low, equal_high = _sampled(at, question)
        change = (low + shift > 0) & (means + shift >= room / 2)
        equal = (equal_low + shift > -room) & (equal_high + shift < room)
        significant += float((going & change).mean())
        same += float((going & ~change & equal).mean())
        ended = going & (change | equal)
        going &= ~ended
        spent += at.seeds[-1] * float(ended.mean())
    return Chances(significant, same, spent + looks.seeds[-1] * float(going.mean()))


def pairs_of_ranks(looks: Looks, question: Question) -> int:
    """Pairs without which signed ranks can call nothing at the last of these looks."""
    alpha = question.alpha
    if question.ranked:
        alpha = change_level(looks, alpha / question.family)
    return pairs_needed(1 - alpha)


def detectable_effect(sd: float, looks: Looks, question: Question) -> float | None:
    """Smallest true mean log ratio that a session with these looks calls with :data:`POWER`.

    None where its last look has too few pairs for a verdict at that level.

    Raises:
        ValueError: ``sd`` negative or not finite.
    """
    _check(sd)
    if looks.seeds[-1] < pairs_of_ranks(looks, question):
        return None
    if sd == 0:
        return question.change / 2
    low, high = 0.0, max(LARGEST, 2 * question.change / sd)
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        enough = chances(middle * sd, sd, looks, question).called >= POWER
        low, high = (low, middle) if enough else (middle, high)
    return high * sd


def seeds_to_decide(estimate: float, sd: float, looks: Looks, question: Question) -> int | None:
    """Seeds with which a session decides with :data:`POWER` if the truth is what it looks like.

    Of a session that adds seeds, those that it has reached by then; None for more than
    :data:`MOST_SEEDS`.

    Raises:
        ValueError: ``sd`` negative or not finite.
    """
    first = looks.seeds[0]
    if sd == 0:
        return max(first, pairs_of_ranks(looks, question))
    for seeds in dict.fromkeys((first, *(n for n in SEED_LOOKS if n > first))):
        with_them = looks_of(first, seeds) if looks.sequential else Looks((seeds,), False)
        chance = chances(estimate, sd, with_them, question)
        if chance.called + chance.same >= POWER:
            return seeds
    return None


@functools.lru_cache(maxsize=1)
def _normals() -> Floats:
    return np.random.default_rng(SEED).standard_normal((SAMPLES, MOST_SEEDS))


@functools.lru_cache(maxsize=256)
def _sampled(looks: Looks, question: Question) -> tuple[Floats, Floats, Floats, Floats]:
    """Samples at the last of these looks, judged by the rule there.

    Their means, the lower bound that a change has to have above zero, and both of equivalence.
    """
    n = looks.seeds[-1]
    if n <= MOST_SEEDS:
        samples = _normals()[:, :n]
    else:
        samples = np.random.default_rng(SEED + n).standard_normal((SAMPLES, n))
    means = samples.mean(axis=1)
    errors = samples.std(axis=1, ddof=1) / math.sqrt(n) if n > 1 else np.full(SAMPLES, np.inf)
    alpha = change_level(looks, question.alpha / question.family)
    level = 1 - 2 * equivalence_level(looks, question.equivalence_alpha)
    if question.ranked:
        wider = errors / math.sqrt(RANK_EFFICIENCY)
        (low, _), (equal_low, equal_high) = (
            _ranked(n, of)
            if n <= MOST_RANKED
            else mean_bounds(means, wider, np.zeros(SAMPLES), n, of)
            for of in (1 - alpha, level)
        )
        return means, low, equal_low, equal_high
    skew = skewness(samples) if looks.sequential else np.zeros(SAMPLES)
    change = mean_bounds(means, errors, skew, n, 1 - alpha)
    equal = mean_bounds(means, errors, skew, n, level)
    # The wider interval of each sample, as ``statistics.wider``.
    (low, _), (equal_low, equal_high) = (
        np.where(mean[1] - mean[0] >= ranked[1] - ranked[0], mean, ranked)
        for mean, ranked in (
            (change, _ranked(n, 1 - question.alpha)),
            (equal, _ranked(n, 1 - 2 * question.equivalence_alpha)),
        )
    )
    # The p value has to be small as well, which is to say that the first bound is above zero.
    return means, np.minimum(low, change[0]), equal_low, equal_high


@functools.lru_cache(maxsize=32)
def _ranked(n: int, level: float) -> tuple[Floats, Floats]:
    """Bounds of the signed-rank intervals; without bounds where there are too few pairs."""
    if n < pairs_needed(level):
        return np.full(SAMPLES, -np.inf), np.full(SAMPLES, np.inf)
    if n > MOST_RANKED:
        return np.zeros(SAMPLES), np.zeros(SAMPLES)
    # Some at a time: they take memory.
    rows = range(0, SAMPLES, ROWS_AT_ONCE)
    parts = [signed_rank_bounds(_normals()[at : at + ROWS_AT_ONCE, :n], level) for at in rows]
    low, high = (np.concatenate(bounds) for bounds in zip(*parts, strict=True))
    return low, high
