"""What a page shows of one track: its nights, trends and changes, put together; pure.

First for its templates, then for its script.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from analysis.verdict import Verdict
from experiment.load import NONE, Subsystems
from experiment.spec import Direction, Mode
from history.changes import Course, FunctionsChange, Gap, NightlyChange, is_open
from history.entry import Entry, Role, by_track
from history.exact import Key, moved_settings
from history.store import HistoryContents
from history.wording import size
from reports.sentences import MARKS
from reports.wording import figure, percent
from results.record import Record
from results.units import read_name

# Words besides those of verdicts, which have theirs in reports.wording.
OTHER_MARKS = {
    "environment changed": "◆",
    "known": "○",
    "mixed": "◇",
    "inexact": "✕",
    "incomparable": "∅",
    "first night": "·",
}


class Status(NamedTuple):
    """A word, its mark, the class that colours it, and what it is of."""

    word: str
    mark: str
    style: str
    words: str = ""


def status(word: str, words: str = "") -> Status:
    """A word with its mark; unknown words have none."""
    mark = MARKS.get(word) or OTHER_MARKS.get(word, "")
    bad = {"inexact": "failed", "unexplained": "failed"}
    return Status(word, mark, bad.get(word, word.replace(" ", "-")), words)


def of_change(change: NightlyChange) -> Status:
    """The word of a change: its verdict, or whose it is."""
    if change.status not in ("open", "fixed", "small"):
        return status("known", change.status)
    if change.kind in ("lab", "mixed", "unexplained", "incomparable"):
        return status({"lab": "environment changed"}.get(change.kind, change.kind))
    return status(str(change.verdict) if change.verdict else "no change")


# In the order a reader wants to hear of them.
ORDER = (
    "failed",
    "inexact",
    "regression",
    "not tested",
    "unexplained",
    "incomparable",
    "mixed",
    "inconclusive",
    "improvement",
    "environment changed",
    "known",
)


def of_night(
    entry: Entry,
    changes: Sequence[NightlyChange],
    *,
    first: bool = False,
    earlier: Sequence[Entry] = (),
) -> Status:
    """The word of a night: what was first seen in it, against the nights before.

    The ``first`` night of a track has none before it, and the verdict of its series;
    ``earlier`` are its measurements before this one.
    """
    ids = {each.id for each in (*earlier, entry)}
    states = [of_change(change) for change in changes if change.detected_entry in ids]
    concluded = [each for case in entry.cases for each in case.conclusions]
    lost = [each for each in concluded if each.verdict is Verdict.FAILED]
    if lost:
        states.append(status("failed", lost[0].reason))
    of_series = [each for pair in entry.of_series.values() for _, each in pair]
    if of_series and all(each.verdict is Verdict.NOT_TESTED for each in of_series):
        states.append(status("not tested", of_series[0].reason))
    elif first:
        # There is no night before it, but what its series did.
        states += [status(str(each.verdict)) for each in of_series]
    if not entry.is_fit:
        states.append(status("inexact", "a repeated run was not bit-identical"))
    if not states:
        return status("first night" if first else "no change")
    worst = min(states, key=lambda s: ORDER.index(s.word) if s.word in ORDER else len(ORDER))
    count = sum(state.word == worst.word for state in states)
    return worst._replace(words=worst.words or (f"{count} metrics" if count > 1 else "1 metric"))


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

    @property
    def shown(self) -> str:
        """The value with its scatter and its distance from the level, or why there is none."""
        if self.value is None:
            return self.why_not
        spread = f" ±{100 * self.stddev:.2f} %" if self.stddev is not None else ""
        away = percent(self.value / self.level - 1) if self.level else ""
        return f"{figure(self.value)}{spread}{f', {away} from the level' if away else ''}"


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
    factor, unit = head.shown(metric, mode)
    course = Course(*newest.track[:2], mode, *key)
    mine = [change for change in changes if change.course == course]
    width = newest.thresholds.of(case, name).change
    ensembles = (entry.ensemble(*key) for entry in entries)
    summaries = [each.summary if each else None for each in ensembles]
    values = [
        factor * summary.mean if summary and entry.is_fit else None
        for entry, summary in zip(entries, summaries, strict=True)
    ]
    breaks = {change.entry for change in mine}
    breaks |= {c.entry for c in changes if c.kind in ("lab", "mixed")}
    starts = [at for at, entry in enumerate(entries) if at == 0 or entry.id in breaks]
    points = []
    for start, end in itertools.pairwise([*starts, len(entries)]):
        numbers = [value for value in values[start:end] if value is not None]
        level = float(np.mean(numbers)) if numbers else None
        for at in range(start, end):
            entry, value, summary = entries[at], values[at], summaries[at]
            arm_entry = entry.arm(arm)
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
                    stddev=summary.stddev if summary else None,
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
        title=metric.title if read_name(name) == name else f"{name.partition('.')[0]}: {unit}",
        unit=unit,
        direction=metric.direction,
        primary=name in head.primary,
        points=tuple(points),
    )


@dataclass(frozen=True)
class TrendChart:
    """One metric of one case: the courses of its arms, the subject's first.

    ``subsystem`` is the part of the kernel that the case is about.
    """

    case: str
    metric: str
    trends: tuple[Trend, ...]
    changes: tuple[NightlyChange, ...]
    subsystem: str

    @property
    def head(self) -> Trend:
        """The course that level and band are drawn of."""
        return self.trends[0]

    @property
    def title(self) -> str:
        """``filemap-4k: bandwidth``."""
        return f"{self.case}: {self.head.title}"

    @property
    def primary(self) -> bool:
        """Whether it is judged: a primary metric of an arm that is followed."""
        return self.head.primary and self.head.role == "followed"


@dataclass(frozen=True)
class Track:
    """One experiment on one guest in one mode, the oldest night first."""

    entries: tuple[Entry, ...]
    changes: tuple[NightlyChange, ...]
    gaps: tuple[Gap, ...] = ()
    of_functions: tuple[FunctionsChange, ...] = ()
    subsystems: Subsystems = NONE

    @property
    def last(self) -> Entry:
        """The newest night."""
        return self.entries[-1]

    @property
    def name(self) -> str:
        """Of its files; made of what file names are made of."""
        return ".".join(self.last.track)

    @cached_property
    def charts(self) -> tuple[TrendChart, ...]:
        """Every metric that any night has, primary ones first, by the part of the kernel."""
        groups: dict[tuple[str, str], list[Trend]] = {}
        for trend in trends(self.entries, self.changes):
            groups.setdefault((trend.course.case, trend.course.metric), []).append(trend)
        subject, charts = self.last.subject.name, []
        for (case, metric), of in groups.items():
            of.sort(key=lambda trend: (trend.course.arm != subject, trend.role != "followed"))
            courses = {trend.course for trend in of}
            changes = tuple(change for change in self.changes if change.course in courses)
            part = self.subsystems.of_case(case)
            charts.append(TrendChart(case, read_name(metric), tuple(of), changes, part))
        position = self.subsystems.position
        charts.sort(key=lambda chart: (not chart.primary, position(chart.subsystem)))
        return tuple(charts)

    @property
    def grouped(self) -> bool:
        """Whether it has metrics of several parts of the kernel, which pages then name."""
        return len({chart.subsystem for chart in self.charts}) > 1

    @property
    def primary(self) -> tuple[TrendChart, ...]:
        """The metrics that are judged."""
        return tuple(chart for chart in self.charts if chart.primary)

    @property
    def status(self) -> Status:
        """The word of the newest night."""
        same = [entry for entry in self.entries[:-1] if entry.night_key == self.last.night_key]
        first = len(self.entries) == 1
        return of_night(self.last, self.changes, first=first, earlier=same)

    @property
    def rank(self) -> int:
        """Low where somebody has to look: what was new last night, then what stands open."""
        if self.status.word in ("failed", "inexact", "regression", "unexplained"):
            return 0
        return 1 if self.standing or self.blind else 2

    @property
    def standing(self) -> tuple[NightlyChange, ...]:
        """What stands open, as the gate has it."""
        return tuple(change for change in self.changes if is_open(change))

    @property
    def blind(self) -> tuple[Gap, ...]:
        """What is no longer measured as it was, and nobody acknowledged."""
        return tuple(gap for gap in self.gaps if gap.status == "open")

    @property
    def functions(self) -> tuple[FunctionsChange, ...]:
        """Functions that differ between the newest night's arms, and nobody acknowledged."""
        return tuple(change for change in self.of_functions if change.is_standing)

    def of_night(self, entry: Entry) -> tuple[NightlyChange, ...]:
        """Changes that begin in an entry, or were first seen in it."""
        return tuple(c for c in self.changes if entry.id in (c.entry, c.detected_entry))


def tracks_of(
    read: HistoryContents,
    changes: Sequence[NightlyChange],
    gaps: Sequence[Gap] = (),
    of_functions: Sequence[FunctionsChange] = (),
    subsystems: Subsystems = NONE,
) -> tuple[Track, ...]:
    """The tracks of a history, in the order of their names."""
    return tuple(
        Track(
            entries,
            tuple(c for c in changes if c.course[:3] == name),
            tuple(gap for gap in gaps if gap.track == name),
            tuple(change for change in of_functions if change.track == name),
            subsystems,
        )
        for name, entries in by_track(read.entries).items()
    )


# What is embedded in a page for its script: plain lists and numbers.  Texts are as they came: the
# scripts put them into a page as text, never as markup.
# What could end a script element or begin a comment in it, and two line ends of JavaScript.
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
DIGITS = 10


def data(value: object) -> Markup:
    """JSON for a ``script`` element of type ``application/json``.

    NaN and infinities, and what rounds to one, become null; lone surrogates are replaced.
    """
    text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.encode("utf-8", "replace").decode()
    for character, escaped in UNSAFE.items():
        text = text.replace(character, escaped)
    return Markup(text)  # noqa: S704  (escaped above)


def _plain(value: object) -> object:
    if isinstance(value, float):
        # The largest of numbers round to infinity.
        short = float(f"{value:.{DIGITS}g}")
        return short if math.isfinite(short) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


DAY_S = 86400


def times(entries: Sequence[Entry]) -> list[float]:
    """Seconds since 1970 of each night, in order; entries of one night stand side by side."""
    instants: list[float] = []
    numbers: dict[str, int] = {}
    for entry in entries:
        count = numbers.get(entry.night, 0)
        numbers[entry.night] = count + 1
        midnight = (date.fromisoformat(entry.night) - date(1970, 1, 1)).days * DAY_S
        instants.append(midnight + min(count, 15) * DAY_S / 16)
    return instants


def of_chart(chart: TrendChart) -> dict[str, object]:
    """One chart: values and kernels by arm, level and band of the first, changes by night."""
    head = chart.head
    at = {point.entry: number for number, point in enumerate(head.points)}
    return {
        "title": chart.title,
        "metric": chart.metric,
        "unit": head.unit,
        "direction": head.direction,
        "arms": [
            {
                "name": trend.course.arm,
                "role": trend.role,
                "values": [point.value for point in trend.points],
                "shown": [point.shown for point in trend.points],
            }
            for trend in chart.trends
        ],
        "level": [point.level for point in head.points],
        "low": [point.low for point in head.points],
        "high": [point.high for point in head.points],
        "changes": [
            {
                "at": at[change.entry],
                "arm": change.course.arm,
                "word": state.word,
                "mark": state.mark,
                "style": state.style,
                "text": f"{change.course.arm} {size(change)}".strip(),
            }
            for change in chart.changes
            if change.entry in at
            for state in (of_change(change),)
        ],
    }


def of_track(track: Track) -> dict[str, object]:
    """The data of a page of trends."""
    head = track.charts[0].head if track.charts else None
    nights = []
    for number, entry in enumerate(track.entries):
        kernels = {}
        for arm in entry.arms:
            patches = len(arm.kernel.patches)
            kernels[arm.name] = f"{arm.version}{f' + {patches} patches' if patches else ''}"
        lab = list(head.points[number].lab) if head else []
        nights.append({"id": entry.id, "night": entry.night, "kernels": kernels, "lab": lab})
    charts = [of_chart(chart) for chart in track.charts]
    return {"times": times(track.entries), "nights": nights, "charts": charts}
