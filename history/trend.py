"""What a chart of a course shows: a point a night, with level, band and what moved; pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from experiment.spec import Direction, Mode
from history.changes import Course, NightlyChange
from history.entry import Entry, Role
from history.exact import Key, moved_settings
from results.record import Record
from results.units import shown_unit


class Point(Record):
    """One night; ``level`` is the mean between two changes, outside ``low`` to ``high`` it would be
    one.
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
    """The course of one metric of one arm."""

    course: Course
    role: Role
    title: str
    unit: str
    direction: Direction
    primary: bool
    points: tuple[Point, ...]


def trends(entries: Sequence[Entry], changes: Iterable[NightlyChange] = ()) -> tuple[Trend, ...]:
    """The trends of one track: geometric means."""
    listed = list(changes)
    keys = {
        (case.name, metric.name, arm.arm): None
        for entry in entries
        for case in entry.cases
        for arm in case.arms
        for metric in case.metrics
        if metric.name in arm.metrics
        and arm.arm in {each.name for each in entry.arms if each.role != "again"}
    }
    return tuple(_trend(entries, key, listed) for key in keys)


def _trend(entries: Sequence[Entry], key: Key, changes: list[NightlyChange]) -> Trend:
    case, name, arm = key
    newest, head, metric = next(
        (entry, head, metric)
        for entry in reversed(entries)
        if (head := entry.case(case)) and (metric := head.metric(name))
    )
    mode: Mode = newest.mode
    course = Course(*newest.track[:2], mode, *key)
    mine = [change for change in changes if change.course == course]
    width = newest.thresholds.of(case, name).change
    values = [_mean(entry, *key) for entry in entries]
    breaks = {change.entry for change in mine}
    breaks |= {c.entry for c in changes if c.kind in ("lab", "mixed")}
    starts = [at for at, entry in enumerate(entries) if at == 0 or entry.id in breaks]
    points = []
    for start, end in itertools.pairwise([*starts, len(entries)]):
        numbers = [value for value in values[start:end] if value is not None]
        level = float(np.mean(numbers)) if numbers else None
        for at in range(start, end):
            entry, value = entries[at], values[at]
            arm_entry, ensemble = entry.arm(arm), entry.ensemble(*key)
            why_not = ""
            if value is None:
                measured = of_case.arm(arm) if (of_case := entry.case(case)) else None
                failures = measured.failures if measured else ()
                why_not = entry.exactness if not entry.is_fit else [*failures, "no valid run"][0]
            points.append(
                Point(
                    night=entry.night,
                    entry=entry.id,
                    kernel=arm_entry.version if arm_entry else "",
                    value=value,
                    stddev=ensemble.summary.stddev if ensemble and ensemble.summary else None,
                    level=level,
                    low=level * (1 - width) if level is not None else None,
                    high=level * (1 + width) if level is not None else None,
                    lab=moved_settings(entries[at - 1], entry) if at else (),
                    changes=tuple(change.id for change in mine if change.entry == entry.id),
                    why_not=why_not,
                )
            )
    return Trend(
        course=course,
        role=next((each.role for e in entries for each in e.arms if each.name == arm), "followed"),
        title=metric.title,
        unit=shown_unit(metric.unit, mode),
        direction=metric.direction,
        primary=name in head.primary,
        points=tuple(points),
    )


def _mean(entry: Entry, case: str, metric: str, arm: str) -> float | None:
    ensemble = entry.ensemble(case, metric, arm)
    return ensemble.summary.mean if ensemble and ensemble.summary and entry.is_fit else None
