"""Steps and drifts in exact mode: each night against what its kernel was before; pure.

A night has no noise, but another kernel rolls the dice of evictions and timer ticks anew
(0.25 % a seed), so nights are judged on their ensembles in pairs, by the verdict rule,
with two differences.  The baseline is the mean of the first nights after the last change,
for a single night's dice would be in every comparison and a drift is never seen from one
night to the next.  And the change must reach the whole threshold and not half of it,
because a year has 365 chances (docs/history.md has the figures of both).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from experiment.spec import Direction, Thresholds
from history.change import Kind
from history.entry import PINNED, Entry
from history.values import Followed, courses_of, followed, moved_settings, same_code
from reports.statistics import Floats
from reports.verdict import CALLED, Evidence, Judgement, Verdict, judge_primary
from reports.verdict import Change as Estimate

# Nights of different code that a baseline is the mean of.
BASELINE = 8
# Share of the threshold that a change has to reach; the verdict rule asks for half of it.
SHARE = 1.0
# A rise of fewer nights is a step that came in parts.
DRIFT_NIGHTS = 4


@dataclass(frozen=True)
class Found:
    """A change by the numbers of its nights in the track; ``at`` is the first that shows it.

    ``dates`` are the earliest and the latest night that ``at`` may be; ``nominated`` is the
    night that first made it suspected, where that was before it was seen.
    """

    kind: Kind
    case: str
    metric: str
    arm: str
    before: int
    at: int
    seen: int
    verdict: Verdict | None = None
    estimate: Estimate | None = None
    lab: tuple[str, ...] = ()
    dates: tuple[int, int] | None = None
    nominated: int | None = None


@dataclass
class _Segment:
    """The nights of one course since its last change; ``nights`` are those with new code."""

    nights: list[int] = field(default_factory=list)
    last: int | None = None


def find(
    entries: Sequence[Entry], *, baseline: int = BASELINE, share: float = SHARE
) -> list[Found]:
    """Every change of the followed arms of one exact track, in the order it was seen.

    ``entries`` are those of one track, the oldest first; a change counts from ``share`` of
    the threshold.
    """
    courses = {key: followed(entries, *key) for key in courses_of(entries)}
    arms = list(dict.fromkeys(arm for _, _, arm in courses))
    found: list[Found] = []
    for arm in arms:
        mine = {key: values for key, values in courses.items() if key[2] == arm}
        found += _arm(entries, arm, mine, baseline, share)
    found += _pinned(entries)
    return sorted(found, key=lambda f: (f.seen, f.arm, f.case, f.metric))


def _arm(
    entries: Sequence[Entry], arm: str, courses: dict[tuple[str, str, str], Followed],
    baseline: int, share: float,
) -> list[Found]:  # fmt: skip
    segments = {key: _Segment() for key in courses}
    directions = {key: direction_of(entries, key[0], key[1]) for key in courses}
    found: list[Found] = []
    for now, entry in enumerate(entries):
        asked: dict[tuple[str, str, str], tuple[Floats, Floats]] = {}
        fresh: list[_Segment] = []
        for key, values in courses.items():
            segment, last = segments[key], segments[key].last
            if not np.isfinite(values.logs[now]).any():
                continue
            segment.last = now
            if last is None:
                segment.nights = [now]
                continue
            lab = moved_settings(entries[last], entry)
            kept = same_code(entries[last], entry, arm)
            if lab and not controlled(entries, values, last, now):
                found += _apart(entries, key, values, last, now, lab, kept, directions[key])
                segment.nights = [now]
            elif kept and lab:
                # The kernel is the one of last night; from here on the dice are others.
                segment.nights = [now]
            elif kept:
                if _differ(values.logs[last], values.logs[now]):
                    change = judged(values.logs[last], values.logs[now], entry, directions[key])
                    found.append(
                        Found("unexplained", *key, last, now, now, None, change.change)
                    )  # fmt: skip
                    segment.nights = [now]
            else:
                if lab:
                    segment.nights = [
                        night for night in segment.nights if controlled(entries, values, night, now)
                    ]
                rows = _rows(values, [*segment.nights[:baseline], now])
                if not (np.isfinite(rows[:-1]).any(axis=0) & np.isfinite(rows[-1])).any():
                    # Not one seed in common: nothing to be compared with.
                    segment.nights = [now]
                    continue
                asked[key] = _mean(rows[:-1]), rows[-1]
                segment.nights.append(now)
                if lab:
                    fresh.append(segment)
        for key, judgement in _judge(asked, directions, entry.thresholds, share).items():
            if judgement.verdict in CALLED:
                segment = segments[key]
                where, kind = _locate(_rows(courses[key], segment.nights))
                at = segment.nights[where]
                before = int(np.flatnonzero(np.isfinite(courses[key].logs[:at]).any(axis=1))[-1])
                found.append(
                    Found(kind, *key, before, at, now, judgement.verdict, judgement.change,
                          moved_settings(entries[before], entries[at]))
                )  # fmt: skip
                segment.nights = segment.nights[where:] if kind == "step" else [now]
        for segment in fresh:
            # The pinned arm's own dice were rolled anew: against an older baseline they
            # would be in every night to come.
            segment.nights = [now]
    return found


def controlled(entries: Sequence[Entry], values: Followed, before: int, now: int) -> bool:
    """Whether both nights have the same pinned kernel, built anew or not."""
    pins = [entries[night].setting.get(PINNED) for night in (before, now)]
    rows = values.control[[before, now]]
    return pins[0] == pins[1] and bool(np.isfinite(rows).any(axis=1).all())


def _rows(values: Followed, nights: Sequence[int]) -> Floats:
    """The nights' logarithms: relative to the pinned arm where all of them have one."""
    control = values.control[list(nights)]
    rows = values.logs[list(nights)]
    return np.asarray(rows - control if np.isfinite(control).any(axis=1).all() else rows)


def _differ(before: Floats, after: Floats) -> bool:
    """Whether any seed that both nights have gave another number."""
    both = np.isfinite(before) & np.isfinite(after)
    return not np.array_equal(before[both], after[both])


def _mean(rows: Floats) -> Floats:
    """Mean of each column's known values; NaN for a column without any."""
    known = np.isfinite(rows)
    counts = known.sum(axis=0)
    total = np.where(known, rows, 0.0).sum(axis=0)
    return np.asarray(np.where(counts, total / np.maximum(counts, 1), np.nan))


def _apart(
    entries: Sequence[Entry], key: tuple[str, str, str], values: Followed, last: int, now: int,
    lab: tuple[str, ...], kept: bool, direction: Direction,
) -> list[Found]:  # fmt: skip
    """The lab moved and no pinned arm tells by how much."""
    judgement = judged(values.logs[last], values.logs[now], entries[now], direction)
    if judgement.verdict not in CALLED:
        return []
    repinned = all(line.startswith(f"{PINNED}: ") for line in lab)
    kind: Kind = "lab" if kept else "step" if repinned else "mixed"
    verdict = None if kept else judgement.verdict
    return [Found(kind, *key, last, now, now, verdict, judgement.change, lab)]


def _pinned(entries: Sequence[Entry]) -> list[Found]:
    """What the pinned arm moved by on nights on which the lab moved."""
    found = []
    primaries = dict.fromkeys((c, m) for c, m, _ in courses_of(entries))
    for case, metric in primaries:
        values = followed(entries, case, metric, PINNED)
        direction = direction_of(entries, case, metric)
        last: int | None = None
        for now, row in enumerate(values.logs):
            if not np.isfinite(row).any():
                continue
            if last is not None and _differ(values.logs[last], row):
                judgement = judged(values.logs[last], row, entries[now], direction)
                lab = moved_settings(entries[last], entries[now])
                kind: Kind = "lab" if lab else "unexplained"
                found.append(
                    Found(kind, case, metric, PINNED, last, now, now, None, judgement.change, lab)
                )  # fmt: skip
            last = now
    return found


def _judge(
    asked: dict[tuple[str, str, str], tuple[Floats, Floats]],
    directions: dict[tuple[str, str, str], Direction], thresholds: Thresholds, share: float,
) -> dict[tuple[str, str, str], Judgement]:  # fmt: skip
    """Judge a night's metrics as one family; changes below a share of the threshold are none."""
    if not any(_may_differ(*pair, thresholds, share) for pair in asked.values()):
        return {}
    family = [_evidence(*pair, directions[key]) for key, pair in asked.items()]
    judgements = dict(zip(asked, judge_primary(family, thresholds), strict=True))
    return {
        key: judgement
        for key, judgement in judgements.items()
        if judgement.change and abs(judgement.change.estimate) >= share * thresholds.change
    }


def _may_differ(before: Floats, after: Floats, thresholds: Thresholds, share: float = 1.0) -> bool:
    """Whether the verdict rule could call this pair a change: cheap, and never too strict."""
    apart = after - before
    apart = apart[np.isfinite(apart)]
    if apart.size < 2 or abs(np.expm1(apart.mean())) < share * thresholds.change:
        return False
    half = _quantile(thresholds.alpha, apart.size) * apart.std(ddof=1) / np.sqrt(apart.size)
    return bool(abs(apart.mean()) >= half)


def _quantile(alpha: float, n: int) -> float:
    if (alpha, n) not in _QUANTILES:
        _QUANTILES[alpha, n] = float(stats.t.ppf(1 - alpha / 2, n - 1))
    return _QUANTILES[alpha, n]


_QUANTILES: dict[tuple[float, int], float] = {}


def judged(before: Floats, after: Floats, entry: Entry, direction: Direction) -> Judgement:
    """The verdict of one metric between two nights' logarithms, in pairs."""
    return judge_primary([_evidence(before, after, direction)], entry.thresholds)[0]


def _evidence(before: Floats, after: Floats, direction: Direction) -> Evidence:
    both = np.isfinite(before) & np.isfinite(after)
    return Evidence(
        direction=direction,
        base=tuple(np.exp(before[both]).tolist()),
        patched=tuple(np.exp(after[both]).tolist()),
        blocks_planned=len(before),
    )


def direction_of(entries: Sequence[Entry], case: str, metric: str) -> Direction:
    """Which way is better, as the newest night that has the metric says."""
    for entry in reversed(entries):
        found = entry.case(case)
        known = found.metric(metric) if found else None
        if known:
            return known.direction
    return "higher"


def _locate(rows: Floats) -> tuple[int, Kind]:
    """Where a segment that ends in a change changed, and whether at once or by and by.

    Least squares over the nights' means of the seeds that all have: two levels against a
    level and a slope, with the same number of parameters.  The answer is the position of
    the first night that shows it.
    """
    n = len(rows)
    shared = np.isfinite(rows).all(axis=0)
    if not shared.any():
        return n - 1, "step"
    level = rows[:, shared].mean(axis=1)
    steps = [_squares(level[:k]) + _squares(level[k:]) for k in range(1, n)]
    at = int(np.argmin(steps)) + 1
    slopes = {
        k: _slope_squares(level, k) for k in range(1, n - DRIFT_NIGHTS + 1)
    }  # fmt: skip
    if slopes:
        hinge = min(slopes, key=lambda k: slopes[k])
        if slopes[hinge] < min(steps):
            return hinge, "drift"
    return at, "step"


def _squares(values: Floats) -> float:
    return float(((values - values.mean()) ** 2).sum())


def _slope_squares(level: Floats, k: int) -> float:
    """Residual of a level up to night k - 1 and a straight line from there."""
    time = np.maximum(np.arange(len(level)) - (k - 1), 0.0)
    design = np.column_stack([np.ones(len(level)), time])
    fitted = design @ np.linalg.lstsq(design, level, rcond=None)[0]
    return float(((level - fitted) ** 2).sum())
