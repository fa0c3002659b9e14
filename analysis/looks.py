"""Error rates over several looks: what share of them each look has.  Pure.

A session that is judged again and again finds a change in the end, whether there is one or
not (Armitage, McPherson and Rowe, J. R. Stat. Soc. A 132, 1969).  So the error rates are spent
over the looks, by functions of the number of seeds alone (Lan and DeMets, Biometrika 70, 1983):

    spent after n seeds = asked for * n**2 / (n**2 + half**2)

No budget is in it, and with any number of seeds something is left, so that seeds may always be
added, whatever made somebody add them.  Little is spent early: what a handful of seeds shows of
a skewed distribution is not what it is (``statistics.mean_p``).  With ``half`` seeds half is
spent; "no change", which is what most comparisons end with, spends earlier than "change".

From the shares follow the levels of the tests at each look: increments of a sum are independent,
and the density of the sum among those that went on is integrated from look to look (Jennison and
Turnbull, Group Sequential Methods, 2000, chapter 19).  The levels are those of normal sums, used
as levels of t tests (Pocock, Biometrika 64, 1977).

Each metric has looks of its own: they are those of its case.  A level bounds the chance that a
metric's p value is below it at any of its looks, whatever made the session stop there, so a case
may stop while others go on; and Holm's correction asks no more of p values than that each is one,
however they depend on each other (Holm, Scand. J. Stat. 6, 1979).  A case that is not judged at a
look spends nothing there, which makes the levels stricter than they had to be.

scipy takes a second to import and is imported where it is called (as in ``statistics``).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from analysis.statistics import Floats
from experiment.spec import Looks

HALF_OF_CHANGE = 24.0
HALF_OF_EQUIVALENCE = 16.0
# Of the density; the levels of 6 looks are then good to 1 % of themselves.
POINTS = 301
# In standard errors: no bound of an error rate that a float can hold is as far.
FARTHEST = 12.0
# Error rates of which the levels are tabulated, to find the one that belongs to a p value.
SMALLEST, TABULATED = 1e-12, 49


def change_level(looks: Looks, alpha: float) -> float:
    """Two-sided level of the test for a change at the last look, for ``alpha`` over all looks."""
    if not looks.sequential:
        return alpha
    return _levels(looks.seeds, alpha, HALF_OF_CHANGE)[-1]


def equivalence_level(looks: Looks, alpha: float) -> float:
    """Level of each of the two one-sided tests of "no change" at the last look."""
    if not looks.sequential:
        return alpha
    # The bound on the other side is never near: two-sided at 2 alpha is one-sided at alpha.
    return _levels(looks.seeds, 2 * alpha, HALF_OF_EQUIVALENCE)[-1] / 2


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
    from scipy.optimize import brentq
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

        def over(z: float, mass: Floats = mass, at: Floats = at, now: int = now,
                 step: float = step, share: float = float(share)) -> float:  # fmt: skip
            edge = z * math.sqrt(now)
            return math.log(2 * float(mass @ ndtr((at - edge) / step))) - math.log(share)

        bound = float(brentq(over, 0.0, FARTHEST, xtol=1e-6))
        levels.append(2 * math.exp(float(log_ndtr(-bound))))
        reached = np.linspace(-bound, bound, POINTS) * math.sqrt(now)
        steps = np.exp(-((reached[:, None] - at[None, :]) ** 2) / (2 * step * step))
        density = steps @ mass / (step * math.sqrt(2 * math.pi))
        at = reached
    return tuple(levels)
