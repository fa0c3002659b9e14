"""Change points in wall mode: nightly ratios to the pinned kernel, with noise; pure.

The ratio of the followed arm to the pinned one, measured the same night in the same
blocks, has lost what moves the host.  Its course is watched by PELT (Killick, Fearnhead
and Eckley, J. Am. Stat. Assoc. 107, 2012; the library is ruptures) over the nights since
the last change: each night once, so that a change is told on the night on which it is
first seen and never again.  Change points nominate; an A/B of the two nights decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import ruptures
from scipy import stats

from history.change import Kind
from history.entry import PINNED, Entry
from history.exact import Found, direction_of
from history.values import courses_of, followed, moved_settings, same_code
from reports import statistics
from reports.statistics import Floats, as_change
from reports.verdict import Change as Estimate
from reports.verdict import Verdict

# Nights that show the new level before it is told; nights before anything is told at all,
# for the noise has to be known; and the most that are looked back on.
LEAST = 3
FEWEST = 14
LONGEST = 120
# Cost of a change point in variances, times ln(nights).  With 4, a year of nothing has one
# false alarm; BIC would be 2 for the level alone (docs/history.md has the figures).
PENALTY = 6.0
# Share of the threshold that the two levels must differ by.
SHARE = 0.75
# A single night further off than this many deviations from the median of its neighbours is
# an outlier; the deviation of a normal sample is 1.4826 times its median one.
OUTLYING = 3.5
MAD = 1.4826
LEVEL = 0.99


def find(entries: Sequence[Entry], *, penalty: float = PENALTY, least: int = LEAST) -> list[Found]:
    """Every change of one wall track, in the order it was seen.

    ``entries`` are those of one track, the oldest first.  Arms are watched as ratios to the
    pinned arm; where no night has one, the other arms as ratios to the subject.  What the
    pinned arm itself moves by is told as the lab's.
    """
    found: list[Found] = []
    for case, metric, arm in courses_of(entries):
        values = followed(entries, case, metric, arm)
        against = reference(entries, arm)
        if not against:
            continue
        control = followed(entries, case, metric, against).logs
        found += _course(entries, (case, metric, arm), values.logs - control, penalty, least)
    for case, metric in dict.fromkeys((c, m) for c, m, _ in courses_of(entries)):
        logs = followed(entries, case, metric, PINNED).logs
        found += _course(entries, (case, metric, PINNED), logs, penalty, least)
    found += _lab_moves(entries, {(f.case, f.metric, f.at) for f in found if f.arm == PINNED})
    return sorted(found, key=lambda f: (f.seen, f.arm, f.case, f.metric))


def _lab_moves(entries: Sequence[Entry], told: set[tuple[str, str, int]]) -> list[Found]:
    """Nights on which the setting moved: told as they are, for one night's level says little."""
    found = []
    for now in range(1, len(entries)):
        lab = moved_settings(entries[now - 1], entries[now])
        for case in entries[now].cases if lab else ():
            for metric in case.primary:
                if (case.name, metric, now) not in told:
                    found.append(
                        Found("lab", case.name, metric, PINNED, now - 1, now, now, lab=lab)
                    )
    return found


def reference(entries: Sequence[Entry], arm: str) -> str:
    """The arm that another is given relative to: the pinned one, else the subject.

    Empty for the subject itself where no night has a pinned arm: its level in real time is
    the host's as much as its own.
    """
    if any(entry.pinned for entry in entries):
        return PINNED
    subject = entries[-1].subject.name
    return "" if arm == subject else subject


def _course(
    entries: Sequence[Entry], key: tuple[str, str, str], logs: Floats, penalty: float, least: int
) -> list[Found]:
    nights, estimates, errors = nightly(logs)
    told = []
    for start, at, seen in change_points(
        estimates, errors, change=entries[-1].thresholds.change, penalty=penalty, least=least
    ):
        before, now = nights[at - 1], nights[at]
        estimate = _estimate(estimates[start:at], estimates[at : seen + 1])
        better = (estimate.estimate > 0) == (direction_of(entries, key[0], key[1]) == "higher")
        verdict = Verdict.IMPROVEMENT if better else Verdict.REGRESSION
        lab = moved_settings(entries[before], entries[now])
        kind: Kind = "step"
        if key[2] == PINNED or same_code(entries[before], entries[now], key[2]):
            kind = "lab" if lab or key[2] == PINNED else "unexplained"
        told.append(
            Found(kind, *key, before, now, nights[seen],
                  verdict if kind == "step" else None, estimate, lab)
        )  # fmt: skip
    return told


def nightly(logs: Floats) -> tuple[list[int], Floats, Floats]:
    """The nights that have values, their estimates, and the estimates' standard errors.

    The estimate of a night is the Hodges-Lehmann one of its blocks, as of a wall session;
    its error is NaN for a single block.
    """
    nights, estimates, errors = [], [], []
    for night, row in enumerate(logs):
        known = row[np.isfinite(row)]
        if known.size:
            nights.append(night)
            estimates.append(statistics.hodges_lehmann(known))
            spread = statistics.standard_deviation(known)
            errors.append(math.nan if spread is None else spread / math.sqrt(known.size))
    return nights, np.asarray(estimates), np.asarray(errors)


def change_points(
    estimates: Floats, errors: Floats, *, change: float, penalty: float = PENALTY,
    least: int = LEAST,
) -> list[tuple[int, int, int]]:  # fmt: skip
    """(start of the old level, first of the new level, where it was seen) of each change.

    ``estimates`` and ``errors`` are logarithms, shape (nights,); ``change`` is the
    threshold as a fraction.
    """
    found, start = [], 0
    for now in range(FEWEST - 1, len(estimates)):
        first = max(0, now + 1 - LONGEST)
        noise = night_noise(estimates[first : now + 1], errors[first : now + 1])
        first = max(start, first)
        window = without_outliers(estimates[first : now + 1], noise)
        price = penalty * math.log(max(len(window), 2))
        # A pass of PELT takes milliseconds, and on nearly all nights there is nothing.
        if noise <= 0 or len(window) < 2 * least or best_split(window / noise, least) <= price:
            continue
        search = ruptures.Pelt(model="l2", min_size=least, jump=1)
        ends = search.fit((window / noise).reshape(-1, 1)).predict(pen=price)
        if len(ends) < 2:
            continue
        at, old = ends[-2], ends[-3] if len(ends) > 2 else 0
        if abs(window[at:].mean() - window[old:at].mean()) >= SHARE * math.log1p(change):
            found.append((first + old, first + at, now))
            start = first + at
    return found


def night_noise(estimates: Floats, errors: Floats) -> float:
    """The deviation from night to night: robust against steps and outliers.

    From the median difference of neighbours, and at least the median error within nights.
    """
    apart = np.diff(estimates)
    between = MAD * float(np.median(np.abs(apart - np.median(apart)))) / math.sqrt(2)
    known = errors[np.isfinite(errors)]
    return max(between, float(np.median(known)) if known.size else 0.0)


def without_outliers(values: Floats, noise: float) -> Floats:
    """Values with single nights that stand out alone put to their neighbours' median.

    The filter is Hampel's with three nights (J. Am. Stat. Assoc. 69, 1974); at an end the
    three are the last ones, so that a new level counts from its second night.
    """
    if len(values) < 3:
        return values
    medians = np.median(np.lib.stride_tricks.sliding_window_view(values, 3), axis=1)
    medians = np.concatenate([medians[:1], medians, medians[-1:]])
    return np.where(np.abs(values - medians) > OUTLYING * noise, medians, values)


def best_split(values: Floats, least: int) -> float:
    """What the best single change point takes off the sum of squares."""
    n = len(values)
    k = np.arange(least, n - least + 1)
    total = np.cumsum(values)
    apart = (total[-1] - total[k - 1]) / (n - k) - total[k - 1] / k
    return float((apart**2 * k * (n - k) / n).max())


def _estimate(before: Floats, after: Floats) -> Estimate:
    """Difference of two levels of nights with Welch's interval (Biometrika 34, 1947)."""
    apart = float(np.median(after) - np.median(before))
    sizes = np.array([len(before), len(after)])
    squares = np.array([before.var(ddof=1), after.var(ddof=1)]) / sizes if sizes.min() > 1 else None
    low = high = None
    if squares is not None and squares.sum() > 0:
        freedom = float(squares.sum() ** 2 / (squares**2 / (sizes - 1)).sum())
        half = float(stats.t.ppf((1 + LEVEL) / 2, freedom) * math.sqrt(squares.sum()))
        low, high = as_change(apart - half), as_change(apart + half)
    return Estimate(
        estimate=as_change(apart), hodges_lehmann=as_change(apart), low=low, high=high, level=LEVEL
    )
