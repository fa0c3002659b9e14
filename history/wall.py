"""Change points in wall mode: nightly ratios to the pinned kernel, with noise; pure.

The ratio of the followed arm to the pinned one, measured the same night in the same
blocks, has lost what moves the host.  Its course is watched by PELT (Killick, Fearnhead
and Eckley, J. Am. Stat. Assoc. 107, 2012; the library is ruptures) over the nights since
the last change: each night once, so that a change is told on the night on which it is
first seen and never again.  Change points nominate; an A/B of the two nights decides.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import ruptures

from analysis import statistics
from analysis.statistics import Floats, Interval, as_change
from analysis.verdict import Change as Estimate
from analysis.verdict import Verdict
from history.entry import PINNED, Entry
from history.exact import (
    DetectedChange,
    Key,
    Kind,
    courses_of,
    direction_of,
    followed,
    moved_settings,
    same_code,
)

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

# Nights that show the new level before it is told; nights before anything is told at all,
# for the noise has to be known; and the most that are looked back on.
LEAST = 3
FEWEST = 14
LONGEST = 120
# Cost of a change point in variances, times ln(nights).  With 4, a year of nothing has one
# false alarm; BIC would be 2 for the level alone (docs/notebook/nights.md has the figures).
PENALTY = 6.0
# Share of the threshold that the two levels must differ by.
SHARE = 0.75
# The deviation of a normal sample is 1.4826 times its median one.
MAD = 1.4826
# Dates on nights without new code are believed only where the others are less likely than this:
# the same code in the same environment gives the same numbers but for a fault of the lab.
UNLIKELY = 1e-4
# In place of no noise at all, which made-up nights have.
TINY = 1e-12

Nights = npt.NDArray[np.bool_]


class Dates(NamedTuple):
    """The most likely first night of the new level, and the range that has it at 95 %."""

    at: int
    earliest: int
    latest: int


def date_probabilities(values: Floats, near: int, noise: float) -> Floats:
    """The probability of each night to be the first of the new level, shape (nights,).

    ``noise`` is the standard deviation from night to night; nights more than ``NEAR`` from
    ``near`` have probability zero.
    """
    n = len(values)
    first, last = max(FEWEST_NIGHTS, near - NEAR), min(n - FEWEST_NIGHTS, near + NEAR)
    probabilities = np.zeros(n)
    if first > last:
        probabilities[near] = 1.0
        return probabilities
    losses = np.zeros(last + 1 - first)
    for number, at in enumerate(range(first, last + 1)):
        sides = values[:at], values[at:]
        residuals = np.concatenate([side - level(side, noise) for side in sides])
        losses[number] = np.minimum((residuals / noise) ** 2, OUTLYING**2).sum()
    likelihoods = np.exp((losses.min() - losses) / 2)
    probabilities[first : last + 1] = likelihoods / likelihoods.sum()
    return probabilities


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

    The variance is that of all nights (Biometrika 6, 1908): a new level cannot show it by itself.
    """
    sides = [without_outliers(side, noise) for side in (before, after)]
    apart = float(sides[1].mean() - sides[0].mean())
    freedom = len(before) + len(after) - 2
    variance = sum(float(((side - side.mean()) ** 2).sum()) for side in sides) / freedom
    error = math.sqrt(variance * (1 / len(before) + 1 / len(after)))
    half = statistics.student_quantile(LEVEL, freedom) * error
    return Interval(apart - half, apart + half, LEVEL)


def without_outliers(values: Floats, noise: float) -> Floats:
    """Values with single nights that stand out put to their neighbours' median.

    Hampel's filter of three nights (J. Am. Stat. Assoc. 69, 1974); at an end the three are the
    last.
    """
    if len(values) < 3:
        return values
    before, mid, after = values[:-2], values[1:-1], values[2:]
    # The median of three, without sorting.
    medians = np.maximum(np.minimum(before, mid), np.minimum(np.maximum(before, mid), after))
    medians = np.concatenate([medians[:1], medians, medians[-1:]])
    return np.where(np.abs(values - medians) > OUTLYING * noise, medians, values)


def find(entries: Sequence[Entry]) -> list[DetectedChange]:
    """Every change of one wall track, in the order it was seen.

    Arms are followed as ratios to the pinned arm, or to the subject where no night has one.  What
    the pinned arm itself moves by is the lab's.
    """
    keys = courses_of(entries)
    changes: list[DetectedChange] = []
    for key in keys:
        if against := reference(entries, key[2]):
            logs = followed(entries, *key).logs - followed(entries, *key[:2], against).logs
            changes += _course(entries, key, logs)
    for case, metric in dict.fromkeys((case, metric) for case, metric, _ in keys):
        key = (case, metric, PINNED)
        changes += _course(entries, key, followed(entries, *key).logs)
    reported = {(each.case, each.metric, each.at) for each in changes if each.arm == PINNED}
    # A night on which the setting moved is told as it is, for one night's level says little.
    for now in range(1, len(entries)):
        lab = moved_settings(entries[now - 1], entries[now])
        for case_entry in entries[now].cases if lab else ():
            for metric in case_entry.primary:
                key = (case_entry.name, metric, PINNED)
                if (*key[:2], now) not in reported:
                    changes.append(DetectedChange("lab", *key, now - 1, now, now, lab=lab))
    return sorted(changes, key=lambda f: (f.detected, f.arm, f.case, f.metric))


def reference(entries: Sequence[Entry], arm: str) -> str:
    """The arm that another is given relative to: the pinned one, else the subject; empty for it."""
    if any(entry.pinned for entry in entries):
        return PINNED
    subject = entries[-1].subject.name
    return "" if arm == subject else subject


def _course(entries: Sequence[Entry], key: Key, logs: Floats) -> list[DetectedChange]:
    nights, estimates, errors = nightly(logs)
    threshold = entries[-1].thresholds.of(*key[:2]).change
    nominated = change_points(estimates, errors, change=threshold)
    if not nominated:
        return []
    pairs = [(entries[a], entries[b]) for a, b in itertools.pairwise(nights)]
    new = [key[2] != PINNED and not same_code(*pair, key[2]) for pair in pairs]
    moved = [bool(moved_settings(*pair)) for pair in pairs]
    levels = _Levels(
        entries, key, nights, estimates, errors, np.array([False, *new]), np.array([False, *moved])
    )
    ends = [*(at for _, at, _ in nominated[1:]), len(nights)]
    changes, begin = [], 0
    for (start, at, noticed), end in zip(nominated, ends, strict=True):
        change = levels.change(max(start, begin), at, noticed, end)
        if change is None:
            begin = min(begin or start, start)
            continue
        changes.append(change)
        begin = nights.index(change.at)
    return changes


@dataclass(frozen=True)
class _Levels:
    """One metric of one arm; by position among the nights that have values.

    ``new`` are the nights on which the arm had other code than before, ``moved`` those on which
    the environment was another.
    """

    entries: Sequence[Entry]
    key: Key
    nights: Sequence[int]
    estimates: Floats
    errors: Floats
    new: Nights
    moved: Nights

    def change(self, start: int, at: int, noticed: int, end: int) -> DetectedChange | None:
        """What all nights say of a nomination; None where they say that it was none.

        It is suspected until its interval excludes zero, and detected on the night on which it
        first does.
        """
        for known in range(noticed + 1, max(end, noticed + 1) + 1):
            first = self._known_by(start, at, noticed, known)
            if first.kind != "suspected":
                break
        change = self._known_by(start, at, noticed, end)
        if change.kind == "suspected":
            withdrawn = end - noticed > FEWEST
            return None if withdrawn else replace(change, detected=self.nights[noticed])
        return replace(change, detected=first.detected)

    def _known_by(self, start: int, at: int, noticed: int, end: int) -> DetectedChange:
        """The change as the nights before position ``end`` show it."""
        recent = slice(max(0, end - LONGEST), end)
        noise = night_noise(self.estimates[recent], self.errors[recent]) or TINY
        values = self.estimates[start:end]
        kind, date = self._whose(date_probabilities(values, at - start, noise), start, end)
        interval = difference(values[: date.at], values[date.at :], noise)
        apart = (interval.low + interval.high) / 2
        if kind != "lab" and not interval.excludes(0):
            kind = "suspected"
        better = (apart > 0) == (direction_of(self.entries, *self.key[:2]) == "higher")
        verdict = Verdict.IMPROVEMENT if better else Verdict.REGRESSION
        before, first, earliest, latest = (
            self.nights[start + position] for position in (date.at - 1, *date)
        )
        return DetectedChange(
            kind,
            *self.key,
            before=before,
            at=first,
            detected=self.nights[end - 1],
            verdict=verdict if kind == "step" else None,
            estimate=Estimate(
                estimate=as_change(apart),
                hodges_lehmann=as_change(apart),
                level=LEVEL,
                low=as_change(interval.low),
                high=as_change(interval.high),
            ),
            lab=moved_settings(self.entries[before], self.entries[first]),
            dates=(earliest, latest),
            nominated=self.nights[noticed],
        )

    def _whose(self, probabilities: Floats, start: int, end: int) -> tuple[Kind, Dates]:
        """Whose a change is, and its dates among the nights that can be so."""
        if self.key[2] == PINNED:
            return "lab", dates(probabilities)
        kinds: tuple[tuple[Kind, Nights], ...] = (("step", self.new), ("lab", self.moved))
        for kind, nights in kinds:
            possible = np.where(nights[start:end], probabilities, 0.0)
            if possible.sum() > UNLIKELY:
                return kind, dates(possible)
        date = dates(probabilities)
        # The night after may still show another date.
        early = end - start - date.at < LEAST
        return "suspected" if early else "unexplained", date


def nightly(logs: Floats) -> tuple[list[int], Floats, Floats]:
    """The nights that have values, their Hodges-Lehmann estimates, and the standard errors.

    That is NaN for a single block.
    """
    nights, estimates, errors = [], [], []
    for night, row in enumerate(logs):
        finite = row[np.isfinite(row)]
        if finite.size:
            nights.append(night)
            estimates.append(statistics.hodges_lehmann(finite))
            spread = statistics.standard_deviation(finite)
            errors.append(math.nan if spread is None else spread / math.sqrt(finite.size))
    return nights, np.asarray(estimates), np.asarray(errors)


def change_points(
    estimates: Floats, errors: Floats, *, change: float
) -> list[tuple[int, int, int]]:
    """(start of the old level, first of the new level, where it was seen) of each change.

    ``estimates`` and ``errors`` are logarithms, shape (nights,); ``change`` is a fraction.
    """
    points, start = [], 0
    for now in range(FEWEST - 1, len(estimates)):
        first = max(0, now + 1 - LONGEST)
        noise = night_noise(estimates[first : now + 1], errors[first : now + 1])
        # Not of the nights since the last change: they are few at first, and a year has as many
        # chances after a change as without.
        price = PENALTY * math.log(now + 1 - first)
        first = max(start, first)
        window = without_outliers(estimates[first : now + 1], noise)
        # A pass of PELT takes milliseconds, and on nearly all nights there is nothing.
        if noise <= 0 or len(window) < 2 * LEAST or best_split(window / noise) <= price:
            continue
        search = ruptures.Pelt(model="l2", min_size=LEAST, jump=1)
        ends = search.fit((window / noise).reshape(-1, 1)).predict(pen=price)
        if len(ends) < 2:
            continue
        at, old = ends[-2], ends[-3] if len(ends) > 2 else 0
        if abs(window[at:].mean() - window[old:at].mean()) >= SHARE * math.log1p(change):
            # The search for it put the nights beside a step to its level: date it by the
            # nights as they were measured.
            raw = estimates[first + old : now + 1]
            at = old + dates(date_probabilities(raw, at - old, noise)).at
            points.append((first + old, first + at, now))
            start = first + at
    return points


def night_noise(estimates: Floats, errors: Floats) -> float:
    """The deviation from night to night: by the median difference of neighbours, within nights at
    least.
    """
    apart = np.diff(estimates)
    between = MAD * float(np.median(np.abs(apart - np.median(apart)))) / math.sqrt(2)
    finite = errors[np.isfinite(errors)]
    return max(between, float(np.median(finite)) if finite.size else 0.0)


def best_split(values: Floats) -> float:
    """What the best single change point takes off the sum of squares."""
    n = len(values)
    k = np.arange(LEAST, n - LEAST + 1)
    total = np.cumsum(values)
    apart = (total[-1] - total[k - 1]) / (n - k) - total[k - 1] / k
    return float((apart**2 * k * (n - k) / n).max())
