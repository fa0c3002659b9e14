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
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from analysis.statistics import Floats, pairs_needed
from analysis.verdict import CALLED, Evidence, Judgement, Verdict, judge_primary
from analysis.verdict import Change as Estimate
from experiment.spec import Direction, Thresholds
from history.entry import PINNED, Entry

UNFIT = ("inexact",)
# ``step`` and ``drift`` are the kernel's, ``lab`` the lab's; ``mixed`` is a step on a
# night on which the lab moved too and no pinned arm tells them apart; ``unexplained``
# is the same code in the same setting with other numbers, which must not be.
# ``suspected`` is a change of a wall course whose interval still contains zero;
# ``incomparable`` is a stretch of nights that have too few seeds in common with those before.
Kind = Literal["step", "drift", "lab", "mixed", "unexplained", "suspected", "incomparable"]
Key = tuple[str, str, str]
Pair = tuple[Floats, Floats]


class Followed(NamedTuple):
    """One metric of one arm over the nights of a track.

    ``logs`` are natural logarithms of shape (nights, seeds), NaN where there is no valid
    run; ``control`` those of the pinned arm, NaN where the night had none.  ``seeds`` are
    those of the columns, in ascending order.
    """

    case: str
    metric: str
    logs: Floats
    control: Floats
    seeds: tuple[int, ...] = ()

    def relative(self) -> Floats:
        """Logarithms relative to the pinned arm."""
        return np.asarray(self.logs - self.control)

    def names(self, row: Floats) -> str:
        """The seeds that a row has values of: ``1..8``, or ``1, 3, 5`` where some are left out."""
        seeds = [seed for seed, value in zip(self.seeds, row, strict=True) if np.isfinite(value)]
        if len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
            return f"{seeds[0]}..{seeds[-1]}"
        return ", ".join(map(str, seeds)) or "none"


def fit(entry: Entry) -> bool:
    """Whether a night's numbers are evidence: an inexact session's are none."""
    return entry.exactness not in UNFIT


def courses_of(entries: Sequence[Entry]) -> list[tuple[str, str, str]]:
    """(case, metric, arm) of every primary metric of a followed arm, in order of appearance."""
    courses: dict[tuple[str, str, str], None] = {}
    for entry in entries:
        for case in entry.cases:
            for metric in case.primary:
                for arm in entry.followed:
                    courses[case.name, metric, arm.name] = None
    return list(courses)


def followed(entries: Sequence[Entry], case: str, metric: str, arm: str) -> Followed:
    """The values of one metric of one arm, night by night, and those of the pinned arm."""
    seeds = sorted({s for e in entries if (case_entry := e.case(case)) for s in case_entry.seeds})
    column = {seed: at for at, seed in enumerate(seeds)}
    logs = np.full((len(entries), len(seeds)), np.nan)
    control = logs.copy()
    for row, entry in enumerate(entries):
        if not fit(entry):
            continue
        _fill(logs[row], entry, case, metric, arm, column)
        if entry.pinned:
            _fill(control[row], entry, case, metric, entry.pinned.name, column)
    return Followed(case, metric, logs, control, tuple(seeds))


def _fill(
    row: Floats, entry: Entry, case: str, metric: str, arm: str, column: dict[int, int]
) -> None:
    case_entry = entry.case(case)
    measured = case_entry.arm(arm) if case_entry else None
    if case_entry is None or measured is None or metric not in measured.metrics:
        return
    # A value that is not above zero has no ratio to anything.
    for seed, value in zip(case_entry.seeds, measured.metrics[metric].values, strict=False):
        if value is not None and value > 0:
            row[column[seed]] = np.log(value)


def moved_settings(before: Entry, after: Entry) -> tuple[str, ...]:
    """A line for each thing of the setting that is another: ``qemu: 7.2.17 -> 8.0.2``."""
    names = sorted(before.setting.keys() | after.setting.keys())
    pairs = [(name, before.setting.get(name, ""), after.setting.get(name, "")) for name in names]
    return tuple(f"{name}: {a or 'none'} -> {b or 'none'}" for name, a, b in pairs if a != b)


def same_code(before: Entry, after: Entry, arm: str) -> bool:
    """Whether an arm ran the same machine code with the same settings on both nights."""
    first, second = before.arm(arm), after.arm(arm)
    if first is None or second is None:
        return False
    same = first.kernel.code_key == second.kernel.code_key
    return same and first.settings == second.settings


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


def find(
    entries: Sequence[Entry], *, baseline: int = BASELINE, share: float = SHARE
) -> list[DetectedChange]:
    """Every change of the followed arms of one exact track, in the order it was seen.

    ``entries`` are those of one track, the oldest first; a change counts from ``share`` of
    the threshold.
    """
    # The number of each night's environment: another from each change of it on.
    epochs = [0] * len(entries)
    for now in range(1, len(entries)):
        epochs[now] = epochs[now - 1] + bool(moved_settings(entries[now - 1], entries[now]))
    courses = [
        _Course(entries, key, followed(entries, *key), epochs, baseline)
        for key in courses_of(entries)
    ]
    changes = _pinned(entries)
    for arm in dict.fromkeys(course.key[2] for course in courses):
        mine = {course.key: course for course in courses if course.key[2] == arm}
        directions = {key: direction_of(entries, *key[:2]) for key in mine}
        states = dict.fromkeys(mine, _State())
        for now, entry in enumerate(entries):
            nights = {key: course.night(states[key], now) for key, course in mine.items()}
            pairs = {key: night.pair for key, night in nights.items() if night.pair}
            for key, judgement in _called(pairs, directions, entry.thresholds, share).items():
                nights[key] = mine[key].changed(nights[key], now, judgement)
            across = {key: night.across for key, night in nights.items() if night.across}
            for key, judgement in _called(across, directions, entry.thresholds, share).items():
                nights[key] = mine[key].changed_across(nights[key], now, judgement)
            states = {key: night.state for key, night in nights.items()}
            changes += [change for night in nights.values() for change in night.changes]
        changes += [state.gap for state in states.values() if state.gap]
    return sorted(changes, key=lambda f: (f.detected, f.arm, f.case, f.metric))


@dataclass(frozen=True)
class _State:
    """Nights of one metric of one arm with new code since its last change.

    ``nights`` are those of the present environment.  ``carried`` are those of former ones
    besides, as far back as the control arm is the same and has values: what that moved by was
    the environment's.  ``former`` are the nights and what they carried before the seeds were
    others.  ``gap`` is the record of nights that cannot be compared, while it goes on.
    """

    nights: tuple[int, ...] = ()
    carried: tuple[int, ...] = ()
    former: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    last: int | None = None
    gap: DetectedChange | None = None


@dataclass(frozen=True)
class _Night:
    """What a night makes of a state: the next one, what it is compared with, what it shows.

    ``pair`` and ``across`` are a baseline and what is compared with it, one logarithm a seed:
    the former of the ``compared`` nights and tonight, the latter of what is carried.
    """

    state: _State
    changes: tuple[DetectedChange, ...] = ()
    pair: Pair | None = None
    compared: tuple[int, ...] = ()
    across: Pair | None = None


@dataclass(frozen=True)
class _Course:
    """One metric of one arm over the nights of a track; ``epochs`` number its environments."""

    entries: Sequence[Entry]
    key: Key
    values: Followed
    epochs: Sequence[int]
    baseline: int

    def night(self, state: _State, now: int) -> _Night:
        """Hold a night against what came before it."""
        if not np.isfinite(self.values.logs[now]).any():
            return _Night(state)
        last, state = state.last, replace(state, last=now)
        if last is None:
            return _Night(self._begin(state, now))
        environment = moved_settings(self.entries[last], self.entries[now])
        same = same_code(self.entries[last], self.entries[now], self.key[2])
        if environment and not controlled(self.entries, self.values, last, now):
            return self._uncontrolled(state, last, now, environment, same=same)
        if same and environment:
            # The kernel is the one of last night; from here on the dice are others.
            return _Night(replace(state, nights=(now,), carried=(*state.carried, now)))
        if not same:
            return self._compare(state, last, now)
        logs = self.values.logs
        if not _differ(logs[last], logs[now]):
            return _Night(state)
        change = self._judged(logs[last], logs[now], now).change
        unexplained = DetectedChange("unexplained", *self.key, last, now, now, None, change)
        return _Night(self._begin(state, now), (unexplained,))

    def changed(self, night: _Night, now: int, judgement: Judgement) -> _Night:
        """Tonight is another than the baseline of its own environment."""
        compared = night.compared
        where, kind = self._locate(_rows(self.values, compared), compared)
        change = self._record(kind, compared[where], now, judgement)
        state = self._begin(night.state, *(compared[where:] if kind == "step" else (now,)))
        nights = tuple(each for each in state.nights if self.epochs[each] == self.epochs[now])
        return _Night(replace(state, nights=nights), (*night.changes, change))

    def changed_across(self, night: _Night, now: int, judgement: Judgement) -> _Night:
        """The newest nights are others than the baseline of a former environment."""
        carried = night.state.carried
        where, kind = self._locate(self.values.relative()[list(carried)], carried)
        change = self._record(kind, carried[where], now, judgement)
        # Of a drift the baseline to come is what was judged: nights after it would hide what
        # it went by until then.
        carried = carried[where:] if kind == "step" else self._recent(carried)
        state = replace(night.state, carried=carried, nights=(now,))
        return _Night(state, (*night.changes, change))

    def _begin(self, state: _State, *nights: int) -> _State:
        """Forget all nights but these."""
        carried = tuple(night for night in nights if self._has_control(night))
        return replace(state, nights=nights, carried=carried, former=None)

    def _compare(self, state: _State, last: int, now: int) -> _Night:
        needed = _needed(self.entries[now])
        before, pair = self._against(state.nights, last, now)
        if _count(pair[1] - pair[0]) < needed and state.former:
            # A night or two had other seeds: back on the old ones the old baseline is good.
            nights, carried = state.former
            back, other = self._against(nights, nights[-1], now)
            if _count(other[1] - other[0]) >= needed:
                state = replace(state, former=None, carried=carried)
                before, pair = back, other
        state, comparable, changes = self._comparable(state, pair, last, now)
        if not comparable:
            return _Night(state, changes)
        compared = (*before, now)
        # The control arm's own dice were rolled anew with the environment: against a baseline
        # of the former one they would be in every night to come as if they were the kernel's.
        moved = self.epochs[before[-1]] != self.epochs[now]
        state = replace(state, nights=(now,) if moved else compared)
        if not self._has_control(now):
            return _Night(state, changes, pair, compared)
        state = replace(state, carried=(*state.carried, now))
        night = _Night(state, changes, pair, compared)
        recent = self._recent(state.carried)
        if self.epochs[state.carried[0]] == self.epochs[now] or not recent:
            return night
        # Here those dice are a part of the scatter that the change is held against.
        relative = self.values.relative()
        across = (
            _mean(relative[list(state.carried[: self.baseline])]),
            _mean(relative[list(recent)]),
        )
        return replace(night, across=across) if _count(across[1] - across[0]) >= needed else night

    def _against(
        self, nights: tuple[int, ...], last: int, now: int
    ) -> tuple[tuple[int, ...], Pair]:
        """The nights that tonight can be held against, and their mean and tonight's values."""
        if self.epochs[nights[-1]] != self.epochs[now]:
            pinned = (n for n in nights if controlled(self.entries, self.values, n, now))
            nights = tuple(pinned) or (last,)
        rows = _rows(self.values, [*nights[: self.baseline], now])
        return nights, (_mean(rows[:-1]), rows[-1])

    def _has_control(self, night: int) -> bool:
        return bool(np.isfinite(self.values.control[night]).any())

    def _recent(self, carried: tuple[int, ...]) -> tuple[int, ...]:
        """The newest nights that are not of the carried baseline, as many as that has."""
        return carried[self.baseline :][-self.baseline :]

    def _comparable(
        self, state: _State, pair: Pair, last: int, now: int
    ) -> tuple[_State, bool, tuple[DetectedChange, ...]]:
        """Whether baseline and tonight have seeds enough in common; where not, it is recorded.

        A night with seeds enough of its own is the first of a new baseline.
        """
        needed = _needed(self.entries[now])
        common = _count(pair[1] - pair[0])
        if common >= needed:
            return replace(state, gap=None), True, (state.gap,) if state.gap else ()
        if state.gap is None:
            before, after = (self.values.names(row) for row in pair)
            change = self._judged(*pair, now).change if common else None
            words = f"seeds: {before} -> {after}, {common} in common, {needed} needed"
            gap = DetectedChange("incomparable", *self.key, last, now, now, None, change, (words,))
        else:
            gap = replace(state.gap, detected=now)
        if _count(self.values.logs[now]) < needed:
            return replace(state, gap=gap), False, ()
        begun = self._begin(replace(state, gap=None), now)
        return replace(begun, former=(state.nights, state.carried)), False, (gap,)

    def _judged(self, before: Floats, after: Floats, now: int) -> Judgement:
        direction = direction_of(self.entries, *self.key[:2])
        return judged(before, after, self.entries[now], direction, *self.key[:2])

    def _uncontrolled(
        self, state: _State, last: int, now: int, environment: tuple[str, ...], *, same: bool
    ) -> _Night:
        """The environment changed and no control arm tells by how much."""
        pins = {self.entries[night].setting.get(PINNED) for night in (last, now)}
        pair = self.values.logs[last], self.values.logs[now]
        state, comparable, changes = self._comparable(state, pair, last, now)
        judgement = self._judged(*pair, now)
        if comparable and judgement.verdict not in CALLED and len(pins) == 1:
            # The control arm may only have failed tonight: what was carried is good still.
            carried = (*state.carried, now) if self._has_control(now) else state.carried
            return _Night(replace(state, nights=(now,), carried=carried), changes)
        if comparable and judgement.verdict in CALLED:
            repinned = all(line.startswith(f"{PINNED}: ") for line in environment)
            kind: Kind = "lab" if same else "step" if repinned else "mixed"
            verdict = None if same else judgement.verdict
            change = DetectedChange(
                kind, *self.key, last, now, now, verdict, judgement.change, environment
            )
            changes = (*changes, change)
        return _Night(self._begin(state, now), changes)

    def _locate(self, rows: Floats, nights: Sequence[int]) -> tuple[int, Kind]:
        return locate(rows, [self.epochs[night] for night in nights])

    def _record(self, kind: Kind, at: int, now: int, judgement: Judgement) -> DetectedChange:
        finite = np.isfinite(self.values.logs[:at]).any(axis=1)
        before = int(np.flatnonzero(finite)[-1])
        environment = moved_settings(self.entries[before], self.entries[at])
        return DetectedChange(
            kind, *self.key, before, at, now, judgement.verdict, judgement.change, environment
        )


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
