"""Steps and drifts in exact mode: each night against what its kernel was before; pure.

A night has no noise, but another kernel rolls the dice of evictions and timer ticks anew (0.25 % a
seed), so nights are judged in pairs of ensembles, by the verdict rule, with two differences
(docs/notebook/nights.md): the baseline is the mean of the first nights after the last change, and
a change must reach the whole threshold, for a year has 365 chances.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from analysis.statistics import Floats, pairs_needed, student_quantile
from analysis.verdict import CALLED, Evidence, Judgement, Verdict, judge_primary
from analysis.verdict import Change as Estimate
from experiment.spec import Direction, Thresholds
from history.entry import PINNED, Ensemble, Entry

# ``step`` and ``drift`` are the kernel's, ``lab`` the lab's; ``mixed`` is a step on a
# night on which the lab moved too and no pinned arm tells them apart; ``unexplained``
# is the same code in the same setting with other numbers, which must not be.
# ``incomparable`` is a stretch of nights that have too few seeds in common with those before.
Kind = Literal["step", "drift", "lab", "mixed", "unexplained", "incomparable"]
Key = tuple[str, str, str]
Pair = tuple[Floats, Floats]

# Nights of different code that a baseline is the mean of.
BASELINE = 8
# Share of the threshold that a change has to reach; the verdict rule asks for half of it.
SHARE = 1.0
# A rise of fewer nights is a step that came in parts.
DRIFT_NIGHTS = 4


class Followed(NamedTuple):
    """One metric of one arm over the nights of a track.

    ``logs`` are natural logarithms, shape (nights, seeds), NaN where there is no valid run;
    ``control`` those of the pinned arm; ``seeds`` are those of the columns, ascending.
    """

    logs: Floats
    control: Floats
    seeds: tuple[int, ...]

    def relative(self) -> Floats:
        """Logarithms relative to the pinned arm."""
        return np.asarray(self.logs - self.control)

    def names(self, row: Floats) -> str:
        """The seeds that a row has values of: ``1..8``, or ``1, 3, 5`` where some are left out."""
        seeds = [seed for seed, value in zip(self.seeds, row, strict=True) if np.isfinite(value)]
        if len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
            return f"{seeds[0]}..{seeds[-1]}"
        return ", ".join(map(str, seeds)) or "none"


def courses_of(entries: Sequence[Entry]) -> list[Key]:
    """(case, metric, arm) of every primary metric of a followed arm, in order of appearance."""
    courses = (
        (case.name, metric, arm.name)
        for entry in entries
        for case in entry.cases
        for metric in case.primary
        for arm in entry.followed
    )
    return list(dict.fromkeys(courses))


def followed(entries: Sequence[Entry], case: str, metric: str, arm: str) -> Followed:
    """The values of one metric of one arm, night by night, and those of the pinned arm."""
    seeds = sorted({s for e in entries if (of_case := e.case(case)) for s in of_case.seeds})
    column = {seed: at for at, seed in enumerate(seeds)}
    logs = np.full((2, len(entries), len(seeds)), np.nan)
    for row, entry in enumerate(entries):
        of_case = entry.case(case)
        if of_case is None or not entry.is_fit:
            continue
        for which, name in enumerate((arm, entry.pinned.name if entry.pinned else "")):
            ensemble = entry.ensemble(case, metric, name) or Ensemble()
            for seed, value in zip(of_case.seeds, ensemble.values, strict=False):
                # A value that is not above zero has no ratio to anything.
                if value is not None and value > 0:
                    logs[which, row, column[seed]] = np.log(value)
    return Followed(logs[0], logs[1], tuple(seeds))


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


def direction_of(entries: Sequence[Entry], case: str, metric: str) -> Direction:
    """Which way is better, as the newest night that has the metric says."""
    for entry in reversed(entries):
        of_case = entry.case(case)
        of_metric = of_case.metric(metric) if of_case else None
        if of_metric:
            return of_metric.direction
    return "higher"


@dataclass(frozen=True)
class DetectedChange:
    """A change by the numbers of its nights in the track; ``at`` is the first that shows it."""

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


def find(entries: Sequence[Entry]) -> list[DetectedChange]:
    """Every change of the followed arms of one exact track, the oldest entry first."""
    # The number of each night's environment: another from each change of it on.
    epochs = [0] * len(entries)
    for now in range(1, len(entries)):
        epochs[now] = epochs[now - 1] + bool(moved_settings(entries[now - 1], entries[now]))
    courses = {key: _Course(entries, key, epochs) for key in courses_of(entries)}
    changes = _of_pinned(entries)
    for arm in dict.fromkeys(key[2] for key in courses):
        mine = {key: course for key, course in courses.items() if key[2] == arm}
        directions = {key: course.direction for key, course in mine.items()}
        states = dict.fromkeys(mine, _State())
        for now, entry in enumerate(entries):
            nights = {key: course.night(states[key], now) for key, course in mine.items()}
            for across in (False, True):
                pairs = {key: n.across if across else n.pair for key, n in nights.items()}
                called = _called(pairs, directions, entry.thresholds)
                for key, judgement in called.items():
                    nights[key] = mine[key].changed(nights[key], now, judgement, across=across)
            states = {key: night.state for key, night in nights.items()}
            changes += [change for night in nights.values() for change in night.changes]
        changes += [state.gap for state in states.values() if state.gap]
    return sorted(changes, key=lambda f: (f.detected, f.arm, f.case, f.metric))


@dataclass(frozen=True)
class _State:
    """Nights of one metric of one arm with new code since its last change, in this environment.

    ``carried`` are those of former ones besides, as far back as the control arm is the same: what
    that moved by was the environment's.  ``former`` are both before the seeds were others.
    ``gap`` is the record of nights that cannot be compared, while it goes on.
    """

    nights: tuple[int, ...] = ()
    carried: tuple[int, ...] = ()
    former: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    last: int | None = None
    gap: DetectedChange | None = None


@dataclass(frozen=True)
class _Night:
    """What a night makes of a state: the next one, what it is compared with, what it shows.

    ``pair`` is the baseline of the ``compared`` nights and tonight, ``across`` of what is carried.
    """

    state: _State
    changes: tuple[DetectedChange, ...] = ()
    pair: Pair | None = None
    compared: tuple[int, ...] = ()
    across: Pair | None = None


class _Course:
    """One metric of one arm over the nights of a track; ``epochs`` number its environments."""

    def __init__(self, entries: Sequence[Entry], key: Key, epochs: Sequence[int]) -> None:
        self.entries, self.key, self.epochs = entries, key, epochs
        self.values = followed(entries, *key)
        self.direction = direction_of(entries, *key[:2])
        self.has_control = np.asarray(np.isfinite(self.values.control).any(axis=1))

    def night(self, state: _State, now: int) -> _Night:
        """Hold a night against what came before it."""
        logs = self.values.logs
        if not np.isfinite(logs[now]).any():
            return _Night(state)
        last, state = state.last, replace(state, last=now)
        if last is None:
            return _Night(self._begin(state, now))
        environment = moved_settings(self.entries[last], self.entries[now])
        same = same_code(self.entries[last], self.entries[now], self.key[2])
        if environment and not self._controlled(last, now):
            return self._uncontrolled(state, last, now, environment, same=same)
        if same and environment:
            # The kernel is the one of last night; from here on the dice are others.
            return _Night(replace(state, nights=(now,), carried=(*state.carried, now)))
        if not same:
            return self._compare(state, last, now)
        if not _differ(logs[last], logs[now]):
            return _Night(state)
        change = self._judged(logs[last], logs[now], now).change
        unexplained = DetectedChange("unexplained", *self.key, last, now, now, None, change)
        return _Night(self._begin(state, now), (unexplained,))

    def changed(self, night: _Night, now: int, judgement: Judgement, *, across: bool) -> _Night:
        """Tonight is another than the baseline of its own environment, or ``across``, of a former
        one.
        """
        nights = night.state.carried if across else night.compared
        where, kind = locate(self._rows(nights), [self.epochs[each] for each in nights])
        at = nights[where]
        before = int(np.flatnonzero(np.isfinite(self.values.logs[:at]).any(axis=1))[-1])
        lab = moved_settings(self.entries[before], self.entries[at])
        change = DetectedChange(
            kind, *self.key, before, at, now, judgement.verdict, judgement.change, lab
        )
        if across:
            # Of a drift the baseline to come is what was judged: nights after it would hide what
            # it went by until then.
            carried = nights[where:] if kind == "step" else self._recent(nights)
            state = replace(night.state, carried=carried, nights=(now,))
        else:
            state = self._begin(night.state, *(nights[where:] if kind == "step" else (now,)))
            here = tuple(each for each in state.nights if self.epochs[each] == self.epochs[now])
            state = replace(state, nights=here)
        return _Night(state, (*night.changes, change))

    def _begin(self, state: _State, *nights: int) -> _State:
        """Forget all nights but these."""
        carried = tuple(night for night in nights if self.has_control[night])
        return replace(state, nights=nights, carried=carried, former=None)

    def _compare(self, state: _State, last: int, now: int) -> _Night:
        needed = _needed(self.entries[now])
        before, pair = self._against(state.nights, last, now)
        if _common(pair) < needed and state.former:
            # A night or two had other seeds: back on the old ones the old baseline is good.
            nights, carried = state.former
            back, other = self._against(nights, nights[-1], now)
            if _common(other) >= needed:
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
        if not self.has_control[now]:
            return _Night(state, changes, pair, compared)
        carried = (*state.carried, now)
        state, recent = replace(state, carried=carried), self._recent(carried)
        across = None
        if self.epochs[carried[0]] != self.epochs[now] and recent:
            # Here those dice are a part of the scatter that the change is held against.
            relative = self.values.relative()
            across = _mean(relative[list(carried[:BASELINE])]), _mean(relative[list(recent)])
            across = across if _common(across) >= needed else None
        return _Night(state, changes, pair, compared, across)

    def _against(
        self, nights: tuple[int, ...], last: int, now: int
    ) -> tuple[tuple[int, ...], Pair]:
        """The nights that tonight can be held against, and their mean and tonight's values."""
        if self.epochs[nights[-1]] != self.epochs[now]:
            nights = tuple(each for each in nights if self._controlled(each, now)) or (last,)
        rows = self._rows((*nights[:BASELINE], now))
        return nights, (_mean(rows[:-1]), rows[-1])

    def _rows(self, nights: Sequence[int]) -> Floats:
        """The nights' logarithms: relative to the pinned arm where all of them have one."""
        rows = self.values.logs[list(nights)]
        has_control = self.has_control[list(nights)].all()
        return rows - self.values.control[list(nights)] if has_control else rows

    def _controlled(self, before: int, now: int) -> bool:
        """Whether both nights have the same pinned kernel, built anew or not."""
        pins = {self.entries[night].setting.get(PINNED) for night in (before, now)}
        return len(pins) == 1 and bool(self.has_control[[before, now]].all())

    def _recent(self, carried: tuple[int, ...]) -> tuple[int, ...]:
        """The newest nights that are not of the carried baseline, as many as that has."""
        return carried[BASELINE:][-BASELINE:]

    def _comparable(
        self, state: _State, pair: Pair, last: int, now: int
    ) -> tuple[_State, bool, tuple[DetectedChange, ...]]:
        """Whether baseline and tonight have seeds enough in common; where not, it is recorded."""
        needed, common = _needed(self.entries[now]), _common(pair)
        if common >= needed:
            return replace(state, gap=None), True, (state.gap,) if state.gap else ()
        if state.gap is None:
            before, after = (self.values.names(row) for row in pair)
            change = self._judged(*pair, now).change if common else None
            words = f"seeds: {before} -> {after}, {common} in common, {needed} needed"
            gap = DetectedChange("incomparable", *self.key, last, now, now, None, change, (words,))
        else:
            gap = replace(state.gap, detected=now)
        if np.isfinite(self.values.logs[now]).sum() < needed:
            return replace(state, gap=gap), False, ()
        begun = self._begin(replace(state, gap=None), now)
        return replace(begun, former=(state.nights, state.carried)), False, (gap,)

    def _judged(self, before: Floats, after: Floats, now: int) -> Judgement:
        return judged(before, after, self.entries[now], self.direction, *self.key[:2])

    def _uncontrolled(
        self, state: _State, last: int, now: int, environment: tuple[str, ...], *, same: bool
    ) -> _Night:
        """The environment changed and no control arm tells by how much."""
        pins = {self.entries[night].setting.get(PINNED) for night in (last, now)}
        pair = self.values.logs[last], self.values.logs[now]
        state, comparable, changes = self._comparable(state, pair, last, now)
        judgement = self._judged(*pair, now)
        is_called = judgement.verdict in CALLED
        if comparable and not is_called and len(pins) == 1:
            # The control arm may only have failed tonight: what was carried is good still.
            carried = (*state.carried, now) if self.has_control[now] else state.carried
            return _Night(replace(state, nights=(now,), carried=carried), changes)
        if comparable and is_called:
            repinned = all(line.startswith(f"{PINNED}: ") for line in environment)
            kind: Kind = "lab" if same else "step" if repinned else "mixed"
            verdict = None if same else judgement.verdict
            change = DetectedChange(
                kind, *self.key, last, now, now, verdict, judgement.change, environment
            )
            changes = (*changes, change)
        return _Night(self._begin(state, now), changes)


def _needed(entry: Entry) -> int:
    """The fewest seeds in common that can have a verdict at the night's level."""
    return pairs_needed(1 - entry.thresholds.alpha)


def _common(pair: Pair) -> int:
    """How many seeds both have."""
    return int(np.isfinite(pair[1] - pair[0]).sum())


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


def _of_pinned(entries: Sequence[Entry]) -> list[DetectedChange]:
    """What the pinned arm moved by on nights on which the lab moved."""
    changes = []
    for case, metric in dict.fromkeys((c, m) for c, m, _ in courses_of(entries)):
        key = (case, metric, PINNED)
        logs, direction = followed(entries, *key).logs, direction_of(entries, case, metric)
        nights = np.flatnonzero(np.isfinite(logs).any(axis=1)).tolist()
        for last, now in itertools.pairwise(nights):
            if _differ(logs[last], logs[now]):
                lab = moved_settings(entries[last], entries[now])
                kind: Kind = "lab" if lab else "unexplained"
                change = judged(logs[last], logs[now], entries[now], direction, case, metric).change
                changes.append(DetectedChange(kind, *key, last, now, now, None, change, lab))
    return changes


def _called(
    pairs: Mapping[Key, Pair | None],
    directions: Mapping[Key, Direction],
    thresholds: Thresholds,
) -> dict[Key, Judgement]:
    """The improvements and regressions of a night's metrics, judged as one family.

    Changes below a share of the threshold are none.
    """
    family = {key: pair for key, pair in pairs.items() if pair}
    own = {key: thresholds.of(*key[:2]) for key in family}
    if not any(_may_differ(*pair, own[key]) for key, pair in family.items()):
        return {}
    evidence = [_evidence(*pair, directions[key], *key[:2]) for key, pair in family.items()]
    judgements = zip(family, judge_primary(evidence, thresholds), strict=True)
    return {
        key: judgement
        for key, judgement in judgements
        if judgement.verdict in CALLED
        and judgement.change
        and abs(judgement.change.estimate) >= SHARE * own[key].change
    }


def _may_differ(before: Floats, after: Floats, thresholds: Thresholds) -> bool:
    """Whether the verdict rule could call this pair a change: cheap, and never too strict."""
    apart = after - before
    apart = apart[np.isfinite(apart)]
    if apart.size < 2 or abs(np.expm1(apart.mean())) < SHARE * thresholds.change:
        return False
    half = (
        student_quantile(1 - thresholds.alpha, apart.size - 1)
        * apart.std(ddof=1)
        / np.sqrt(apart.size)
    )
    return bool(abs(apart.mean()) >= half)


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


def locate(rows: Floats, epochs: Sequence[int]) -> tuple[int, Kind]:
    """Where nights that end in a change changed, and whether at once or by and by.

    ``rows`` are logarithms, shape (nights, seeds).  Generalized least squares (Aitken 1935) over
    the means of the seeds that all nights have: two levels against a level and a slope.  The
    control arm's dice are the same in all nights of an epoch.  The answer is the first night's
    position.
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
