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
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from experiment.spec import Direction, Thresholds
from history.change import Kind
from history.entry import PINNED, Entry
from history.values import Followed, courses_of, followed, moved_settings, same_code
from reports.statistics import Floats, pairs_needed
from reports.verdict import CALLED, Evidence, Judgement, Verdict, judge_primary
from reports.verdict import Change as Estimate

# Nights of different code that a baseline is the mean of.
BASELINE = 8
# Share of the threshold that a change has to reach; the verdict rule asks for half of it.
SHARE = 1.0
# A rise of fewer nights is a step that came in parts.
DRIFT_NIGHTS = 4


@dataclass(frozen=True)
class DetectedChange:
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
    detected: int
    verdict: Verdict | None = None
    estimate: Estimate | None = None
    lab: tuple[str, ...] = ()
    dates: tuple[int, int] | None = None
    nominated: int | None = None


Key = tuple[str, str, str]
Pair = tuple[Floats, Floats]


def find(
    entries: Sequence[Entry], *, baseline: int = BASELINE, share: float = SHARE
) -> list[DetectedChange]:
    """Every change of the followed arms of one exact track, in the order it was seen.

    ``entries`` are those of one track, the oldest first; a change counts from ``share`` of
    the threshold.
    """
    epochs = _epochs(entries)
    segments = [
        _Segment(entries, key, followed(entries, *key), epochs, baseline)
        for key in courses_of(entries)
    ]
    for arm in dict.fromkeys(segment.key[2] for segment in segments):
        mine = {each.key: each for each in segments if each.key[2] == arm}
        directions = {key: segment.direction for key, segment in mine.items()}
        for now, entry in enumerate(entries):
            for segment in mine.values():
                segment.add(now)
            pairs = {key: segment.pair for key, segment in mine.items() if segment.pair}
            for key, judgement in _called(pairs, directions, entry.thresholds, share).items():
                mine[key].change(now, judgement)
            across = {key: segment.across for key, segment in mine.items() if segment.across}
            for key, judgement in _called(across, directions, entry.thresholds, share).items():
                mine[key].change_across(now, judgement)
    changes = [change for segment in segments for change in segment.changes]
    changes += _pinned(entries)
    return sorted(changes, key=lambda f: (f.detected, f.arm, f.case, f.metric))


class _Segment:
    """One metric of one arm: its nights with new code since the last change.

    ``nights`` are those of the present environment.  ``carried`` are those of former ones
    besides, as far back as the control arm is the same and has values: what that moved by was
    the environment's.  ``pair`` and ``across`` are a baseline and what is compared with it,
    one logarithm a seed; None where there is nothing to be compared.  ``former`` are the nights
    and what they carried before the seeds were others.
    """

    def __init__(
        self, entries: Sequence[Entry], key: Key, values: Followed, epochs: Sequence[int],
        baseline: int,
    ) -> None:  # fmt: skip
        self.entries, self.key, self.values = entries, key, values
        self.epochs, self.baseline = epochs, baseline
        self.direction = direction_of(entries, key[0], key[1])
        self.changes: list[DetectedChange] = []
        self.nights: list[int] = []
        self.carried: list[int] = []
        self.last: int | None = None
        self.pair: Pair | None = None
        self.across: Pair | None = None
        self.compared: list[int] = []
        self.gap: DetectedChange | None = None
        self.former: tuple[list[int], list[int]] | None = None

    def begin(self, *nights: int) -> None:
        """Forget all nights but these."""
        self.former = None
        self.nights = list(nights)
        self.carried = [night for night in nights if self._has_control(night)]

    def add(self, now: int) -> None:
        """Add a night: what it is compared with is in ``pair`` and ``across`` then."""
        self.pair = self.across = None
        if not np.isfinite(self.values.logs[now]).any():
            return
        last, self.last = self.last, now
        if last is None:
            self.begin(now)
            return
        environment = moved_settings(self.entries[last], self.entries[now])
        same = same_code(self.entries[last], self.entries[now], self.key[2])
        if environment and not controlled(self.entries, self.values, last, now):
            self._uncontrolled(last, now, environment, same=same)
        elif same and environment:
            # The kernel is the one of last night; from here on the dice are others.
            self.nights = [now]
            self.carried.append(now)
        elif same:
            self._must_be_equal(last, now)
        else:
            self._compare(last, now)

    def _compare(self, last: int, now: int) -> None:
        before, pair = self._against(self.nights, last, now)
        if _count(pair[1] - pair[0]) < _needed(self.entries[now]) and self.former:
            # A night or two had other seeds: back on the old ones the old baseline is good.
            nights, carried = self.former
            back, other = self._against(nights, nights[-1], now)
            if _count(other[1] - other[0]) >= _needed(self.entries[now]):
                self.former, self.carried = None, carried
                before, pair = back, other
        if not self._comparable(pair, last, now):
            return
        moved = self.epochs[before[-1]] != self.epochs[now]
        self.pair, self.compared = pair, [*before, now]
        # The control arm's own dice were rolled anew with the environment: against a baseline
        # of the former one they would be in every night to come as if they were the kernel's.
        self.nights = [now] if moved else self.compared
        if not self._has_control(now):
            return
        self.carried = [*self.carried, now]
        if self.epochs[self.carried[0]] == self.epochs[now] or not self._recent():
            return
        # Here those dice are a part of the scatter that the change is held against.
        relative = self.values.relative()
        across = (
            _mean(relative[self.carried[: self.baseline]]),
            _mean(relative[self._recent()]),
        )
        if _count(across[1] - across[0]) >= _needed(self.entries[now]):
            self.across = across

    def _against(self, nights: Sequence[int], last: int, now: int) -> tuple[list[int], Pair]:
        """The nights that tonight can be held against, and their mean and tonight's values."""
        before = list(nights)
        if self.epochs[before[-1]] != self.epochs[now]:
            before = [n for n in before if controlled(self.entries, self.values, n, now)] or [last]
        rows = _rows(self.values, [*before[: self.baseline], now])
        return before, (_mean(rows[:-1]), rows[-1])

    def _has_control(self, night: int) -> bool:
        return bool(np.isfinite(self.values.control[night]).any())

    def _recent(self) -> list[int]:
        """The newest nights that are not of the carried baseline, as many as that has."""
        return self.carried[self.baseline :][-self.baseline :]

    def _comparable(self, pair: Pair, last: int, now: int) -> bool:
        """Whether baseline and tonight have seeds enough in common; where not, it is recorded.

        A night with seeds enough of its own is the first of a new baseline.
        """
        needed = _needed(self.entries[now])
        common = _count(pair[1] - pair[0])
        if common >= needed:
            self.gap = None
            return True
        before, after = (self.values.names(row) for row in pair)
        change = self._judged(*pair, now).change if common else None
        gap = DetectedChange(
            "incomparable", *self.key, last, now, now, None, change,
            (f"seeds: {before} -> {after}, {common} in common, {needed} needed",),
        )  # fmt: skip
        if self.gap is not None:
            self.changes.remove(self.gap)
            gap = replace(self.gap, detected=now)
        self.changes.append(gap)
        self.gap = gap
        if _count(self.values.logs[now]) >= needed:
            self.gap = None
            former = self.nights, self.carried
            self.begin(now)
            self.former = former
        return False

    def _judged(self, before: Floats, after: Floats, now: int) -> Judgement:
        return judged(before, after, self.entries[now], self.direction, *self.key[:2])

    def _must_be_equal(self, last: int, now: int) -> None:
        logs = self.values.logs
        if _differ(logs[last], logs[now]):
            change = self._judged(logs[last], logs[now], now).change
            self.changes.append(
                DetectedChange("unexplained", *self.key, last, now, now, None, change)
            )
            self.begin(now)

    def _uncontrolled(
        self, last: int, now: int, environment: tuple[str, ...], *, same: bool
    ) -> None:
        """The environment changed and no control arm tells by how much."""
        pins = {self.entries[night].setting.get(PINNED) for night in (last, now)}
        pair = self.values.logs[last], self.values.logs[now]
        comparable = self._comparable(pair, last, now)
        judgement = self._judged(*pair, now)
        if comparable and judgement.verdict not in CALLED and len(pins) == 1:
            # The control arm may only have failed tonight: what was carried is good still.
            self.nights = [now]
            self.carried += [now] if self._has_control(now) else []
            return
        if comparable and judgement.verdict in CALLED:
            repinned = all(line.startswith(f"{PINNED}: ") for line in environment)
            kind: Kind = "lab" if same else "step" if repinned else "mixed"
            verdict = None if same else judgement.verdict
            self.changes.append(
                DetectedChange(
                    kind, *self.key, last, now, now, verdict, judgement.change, environment
                )
            )
        self.begin(now)

    def change(self, now: int, judgement: Judgement) -> None:
        """Tonight is another than the baseline of its own environment."""
        where, kind = self._locate(_rows(self.values, self.compared), self.compared)
        self._record(kind, self.compared[where], now, judgement)
        self.begin(*(self.compared[where:] if kind == "step" else [now]))
        self.nights = [night for night in self.nights if self.epochs[night] == self.epochs[now]]
        self.across = None

    def change_across(self, now: int, judgement: Judgement) -> None:
        """The newest nights are others than the baseline of a former environment."""
        where, kind = self._locate(self.values.relative()[self.carried], self.carried)
        self._record(kind, self.carried[where], now, judgement)
        # Of a drift the baseline to come is what was judged: nights after it would hide what
        # it went by until then.
        self.carried = self.carried[where:] if kind == "step" else self._recent()
        self.nights = [now]

    def _locate(self, rows: Floats, nights: Sequence[int]) -> tuple[int, Kind]:
        return locate(rows, [self.epochs[night] for night in nights])

    def _record(self, kind: Kind, at: int, now: int, judgement: Judgement) -> None:
        finite = np.isfinite(self.values.logs[:at]).any(axis=1)
        before = int(np.flatnonzero(finite)[-1])
        environment = moved_settings(self.entries[before], self.entries[at])
        self.changes.append(
            DetectedChange(kind, *self.key, before, at, now, judgement.verdict, judgement.change,
                  environment)
        )  # fmt: skip


def _epochs(entries: Sequence[Entry]) -> list[int]:
    """The number of each night's environment: another from each change of it on."""
    numbers = [0] * len(entries)
    for now in range(1, len(entries)):
        numbers[now] = numbers[now - 1] + bool(moved_settings(entries[now - 1], entries[now]))
    return numbers


def _needed(entry: Entry) -> int:
    """The fewest seeds in common that can have a verdict at the night's level."""
    return pairs_needed(1 - entry.thresholds.alpha)


def _count(row: Floats) -> int:
    return int(np.isfinite(row).sum())


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
    finite = np.isfinite(rows)
    counts = finite.sum(axis=0)
    total = np.where(finite, rows, 0.0).sum(axis=0)
    return np.asarray(np.where(counts, total / np.maximum(counts, 1), np.nan))


def _pinned(entries: Sequence[Entry]) -> list[DetectedChange]:
    """What the pinned arm moved by on nights on which the lab moved."""
    changes = []
    primaries = dict.fromkeys((c, m) for c, m, _ in courses_of(entries))
    for case, metric in primaries:
        values = followed(entries, case, metric, PINNED)
        direction = direction_of(entries, case, metric)
        last: int | None = None
        for now, row in enumerate(values.logs):
            if not np.isfinite(row).any():
                continue
            if last is not None and _differ(values.logs[last], row):
                judgement = judged(values.logs[last], row, entries[now], direction, case, metric)
                lab = moved_settings(entries[last], entries[now])
                kind: Kind = "lab" if lab else "unexplained"
                changes.append(
                    DetectedChange(
                        kind, case, metric, PINNED, last, now, now, None, judgement.change, lab
                    )
                )
            last = now
    return changes


def _called(
    pairs: dict[Key, Pair], directions: dict[Key, Direction], thresholds: Thresholds, share: float
) -> dict[Key, Judgement]:
    """The improvements and regressions of a night's metrics, judged as one family.

    Changes below a share of the threshold are none.
    """
    own = {key: thresholds.of(*key[:2]) for key in pairs}
    if not any(_may_differ(*pair, own[key], share) for key, pair in pairs.items()):
        return {}
    family = [_evidence(*pair, directions[key], *key[:2]) for key, pair in pairs.items()]
    judgements = dict(zip(pairs, judge_primary(family, thresholds), strict=True))
    return {
        key: judgement
        for key, judgement in judgements.items()
        if judgement.verdict in CALLED
        and judgement.change
        and abs(judgement.change.estimate) >= share * own[key].change
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


def judged(
    before: Floats, after: Floats, entry: Entry, direction: Direction, case: str, metric: str
) -> Judgement:
    """The verdict of one metric between two nights' logarithms, in pairs."""
    return judge_primary([_evidence(before, after, direction, case, metric)], entry.thresholds)[0]


def _evidence(
    before: Floats, after: Floats, direction: Direction, case: str, metric: str
) -> Evidence:
    both = np.isfinite(before) & np.isfinite(after)
    return Evidence(
        direction=direction,
        base=tuple(np.exp(before[both]).tolist()),
        patched=tuple(np.exp(after[both]).tolist()),
        blocks_planned=len(before),
        case=case,
        metric=metric,
    )


def direction_of(entries: Sequence[Entry], case: str, metric: str) -> Direction:
    """Which way is better, as the newest night that has the metric says."""
    for entry in reversed(entries):
        case_entry = entry.case(case)
        metric_entry = case_entry.metric(metric) if case_entry else None
        if metric_entry:
            return metric_entry.direction
    return "higher"


def locate(rows: Floats, epochs: Sequence[int]) -> tuple[int, Kind]:
    """Where nights that end in a change changed, and whether at once or by and by.

    ``rows`` are logarithms of shape (nights, seeds), relative to the control arm where the
    nights are of several ``epochs``.  Generalized least squares (Aitken 1935) over the means
    of the seeds that all nights have: two levels against a level and a slope, with the same
    number of parameters.  The control arm's dice are those of a kernel like any other, and
    the same in all nights of an epoch.  The answer is the position of the first night that
    shows the change.
    """
    n = len(rows)
    shared = np.isfinite(rows).all(axis=0)
    if not shared.any():
        return n - 1, "step"
    level = rows[:, shared].mean(axis=1)
    covariance = np.eye(n) + np.equal.outer(np.asarray(epochs), np.asarray(epochs))
    nights = np.arange(n)
    first = np.arange(1, n)[:, np.newaxis]
    steps = _squares(level, (nights >= first).astype(float), covariance)
    slopes = _squares(level, np.maximum(nights - first + 1.0, 0.0), covariance)
    # A slope of fewer nights is a step that came in parts.
    slopes = slopes[: max(0, n - DRIFT_NIGHTS)]
    if slopes.size and slopes.min() < steps.min():
        return int(slopes.argmin()) + 1, "drift"
    return int(steps.argmin()) + 1, "step"


def _squares(level: Floats, shapes: Floats, covariance: Floats) -> Floats:
    """The residual sum of squares of a level and each of the shapes, of shape (shapes, nights)."""
    whitening = np.linalg.inv(np.linalg.cholesky(covariance))
    ones = whitening.sum(axis=1)
    ones /= np.linalg.norm(ones)
    values, lines = whitening @ level, shapes @ whitening.T
    values = values - (values @ ones) * ones
    lines = lines - np.outer(lines @ ones, ones)
    return np.asarray(values @ values - (lines @ values) ** 2 / (lines**2).sum(axis=1))
