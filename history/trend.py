"""What a chart of a course shows: a point a night, with level, band and what moved; pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from experiment.spec import Direction, Mode
from history import wall
from history.changes import Course, NightlyChange
from history.entry import PINNED, Entry, Role
from history.exact import direction_of, fit, followed, moved_settings
from results.record import Record
from results.units import shown_unit

# Two-sided normal quantile of the 99 % that verdicts are given at.
SIGMAS = 2.576


class Point(Record):
    """One night.  ``value`` is None where there was nothing fit to be shown.

    ``level`` is the mean of all nights from the last change to the next, ``low`` and
    ``high`` the band in which a night is no change; ``lab`` has a line for each thing of the
    setting that moved, ``changes`` the ids of the changes that begin here.
    """

    night: str
    entry: str
    kernel: str
    value: float | None
    stddev: float | None
    level: float | None
    low: float | None
    high: float | None
    lab: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    why_not: str = ""


class Trend(Record):
    """The course of one metric of one arm; ``against`` names the arm of a ratio, if any."""

    course: Course
    role: Role
    title: str
    unit: str
    direction: Direction
    primary: bool
    against: str
    points: tuple[Point, ...]


def trends(
    entries: Sequence[Entry], changes: Iterable[NightlyChange] = (), *, primary_only: bool = False
) -> tuple[Trend, ...]:
    """The trends of one track, the oldest night first.

    In exact mode a value is the geometric mean over the seeds in the metric's unit, in wall
    mode the ratio to the pinned arm (``history.wall.reference``).
    """
    listed = list(changes)
    keys = {
        (case.name, metric.name, arm.arm): None
        for entry in entries
        for case in entry.cases
        for arm in case.arms
        for metric in case.metrics
        if metric.name in arm.metrics
        and (metric.name in case.primary or not primary_only)
        and arm.arm in {each.name for each in entry.arms if each.role != "again"}
    }
    return tuple(_trend(entries, key, listed) for key in keys)


def _trend(
    entries: Sequence[Entry], key: tuple[str, str, str], changes: list[NightlyChange]
) -> Trend:
    case, name, arm = key
    newest = next(e for e in reversed(entries) if (c := e.case(case)) and c.metric(name))
    head = newest.case(case)
    metric = head.metric(name) if head else None
    assert head is not None
    assert metric is not None
    mode: Mode = newest.mode
    course = Course(*newest.track[:2], mode, *key)
    mine = [c for c in changes if c.course == course]
    against = wall.reference(entries, arm) if mode == "wall" and arm != PINNED else ""
    values = _values(entries, key, against)
    # A change that is only suspected has not shown that there are two levels.
    breaks = {c.entry for c in mine if c.kind != "suspected"} | (
        {c.entry for c in changes if c.kind in ("lab", "mixed")} if mode == "exact" else set()
    )
    levels = _levels(entries, values, breaks)
    width = _width(entries, key, against, newest)
    role = next((each.role for e in entries for each in e.arms if each.name == arm), "followed")
    points = [
        _point(entries, at, key, values[at], levels[at], width, mine) for at in range(len(entries))
    ]
    return Trend(
        course=course,
        role=role,
        title=metric.title,
        unit=f"ratio to {against}" if against else shown_unit(metric.unit, mode),
        direction=direction_of(entries, case, name),
        primary=name in head.primary,
        against=against,
        points=tuple(points),
    )


def _mean(entry: Entry, case: str, metric: str, arm: str) -> float | None:
    case_entry = entry.case(case)
    measured = case_entry.arm(arm) if case_entry else None
    ensemble = measured.metrics.get(metric) if measured else None
    return ensemble.summary.mean if ensemble and ensemble.summary and fit(entry) else None


def _values(
    entries: Sequence[Entry], key: tuple[str, str, str], against: str
) -> list[float | None]:
    means = [_mean(entry, *key) for entry in entries]
    if not against:
        return means
    below = [_mean(entry, *key[:2], against) for entry in entries]
    ratios = [a / b if a is not None and b else None for a, b in zip(means, below, strict=True)]
    logs = followed(entries, *key).logs - followed(entries, *key[:2], against).logs
    # Thinned nights have means alone; the others the estimate that is judged.
    for night, estimate in zip(*wall.nightly(logs)[:2], strict=True):
        ratios[night] = math.exp(estimate)
    return ratios


def _levels(
    entries: Sequence[Entry], values: Sequence[float | None], breaks: set[str]
) -> list[float | None]:
    """The mean of all nights between two breaks, for each of them."""
    starts = [at for at, entry in enumerate(entries) if at == 0 or entry.id in breaks]
    levels: list[float | None] = []
    for start, end in itertools.pairwise([*starts, len(entries)]):
        numbers = [value for value in values[start:end] if value is not None]
        levels += [float(np.mean(numbers)) if numbers else None] * (end - start)
    return levels


def _width(
    entries: Sequence[Entry], key: tuple[str, str, str], against: str, newest: Entry
) -> float:
    if not against:
        return newest.thresholds.of(*key[:2]).change
    logs = followed(entries, *key).logs - followed(entries, *key[:2], against).logs
    _, estimates, errors = wall.nightly(logs)
    if len(estimates) < 3:
        return newest.thresholds.of(*key[:2]).change
    recent = slice(-wall.LONGEST, None)
    return SIGMAS * wall.night_noise(estimates[recent], errors[recent])


def _point(
    entries: Sequence[Entry], at: int, key: tuple[str, str, str], value: float | None,
    level: float | None, width: float, changes: Sequence[NightlyChange],
) -> Point:  # fmt: skip
    entry, (case, metric, name) = entries[at], key
    arm, case_entry = entry.arm(name), entry.case(case)
    measured = case_entry.arm(name) if case_entry else None
    ensemble = measured.metrics.get(metric) if measured else None
    summary = ensemble.summary if ensemble else None
    why_not = ""
    if value is None:
        why_not = entry.exactness if not fit(entry) else "no valid run"
        why_not = measured.failures[0] if measured and measured.failures and fit(entry) else why_not
    return Point(
        night=entry.night,
        entry=entry.id,
        kernel=arm.version if arm else "",
        value=value,
        stddev=summary.stddev if summary else None,
        level=level,
        low=level * (1 - width) if level is not None else None,
        high=level * (1 + width) if level is not None else None,
        lab=moved_settings(entries[at - 1], entry) if at else (),
        changes=tuple(c.id for c in changes if c.entry == entry.id),
        why_not=why_not,
    )
