"""All changes of a history: found by mode, explained, and how each stands; pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

from analysis.explain.functions import SMALLEST as MOVED_ON
from analysis.verdict import Verdict
from experiment.spec import Direction, Mode
from files import digest
from history import exact
from history.entry import (
    Entry,
    FunctionDifference,
    by_track,
    role_of,
)
from history.exact import DetectedChange, Kind
from history.policy import KnownChanges, Policy, PolicyTarget, Status
from results.record import Record
from results.units import read_name, shown_unit
from text import counted


class Course(NamedTuple):
    """What is followed: one metric of one arm in one case of a track."""

    experiment: str
    guest: str
    mode: Mode
    case: str
    metric: str
    arm: str

    def __str__(self) -> str:
        metric = read_name(self.metric)
        return f"{self.experiment} {self.guest} {self.mode}: {self.case} {metric} ({self.arm})"


class NightlyChange(Record):
    """One change of one metric, reported once.

    ``night`` and ``entry`` are the first that show it, ``before`` the last without it,
    ``detected`` when it was known.  ``estimate``, ``low`` and ``high`` are fractions, None where
    nothing was judged; ``lab`` has a line for each thing of the setting that moved that night.
    ``functions`` are those that differ otherwise from the pinned arm's than before.
    """

    kind: Kind
    course: Course
    unit: str
    direction: Direction
    night: str
    entry: str
    before_night: str
    before: str
    detected: str
    detected_entry: str
    verdict: Verdict | None = None
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    kernels: tuple[str, str] = ("", "")
    commits: str = ""
    lab: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    status: Status = "open"
    why: str = ""

    @property
    def id(self) -> str:
        """12 hex digits, the same every night."""
        whose = "lab" if self.kind == "lab" else "kernel"
        text = "\0".join((whose, *self.course, self.entry))
        return digest(text)[:12]


def newest_entry(entries: Iterable[Entry]) -> Entry | None:
    """The entry of the newest night; None without entries."""
    return max(entries, key=lambda entry: entry.order, default=None)


def marked(
    changes: Sequence[NightlyChange], known_changes: KnownChanges, tonight: str, policy: Policy
) -> tuple[NightlyChange, ...]:
    """The changes, in the order they were seen, each with how it stands on a night."""
    later: dict[Course, list[NightlyChange]] = {}
    marks = []
    for change in reversed(changes):
        after = later.setdefault(change.course, [])
        threshold = policy.change(PolicyTarget(*change.course[:5]))
        by = fixed_by(change, after, threshold) if is_loss(change) else None
        status: Status
        if by is not None:
            status, why = "fixed", f"by the change of {by.night} ({by.id})"
        elif change.kind == "unexplained" and abs(change.estimate or 0.0) < threshold:
            # It fails its own night; no regression can hide behind it on later ones.
            status, why = "small", f"below the threshold of {100 * threshold:g} %"
        else:
            status, why = known_changes.standing(change.id, tonight)
        marks.append(change.model_copy(update={"status": status, "why": why}))
        after.insert(0, change)
    return tuple(reversed(marks))


def is_loss(change: NightlyChange) -> bool:
    """Whether a change stays open: a regression, or numbers that are others without a reason."""
    return change.verdict is Verdict.REGRESSION or change.kind == "unexplained"


def is_open(change: NightlyChange) -> bool:
    """Whether a change fails later nights, too: a loss that nobody has fixed nor knows of."""
    return change.status == "open" and is_loss(change)


def fixed_by(
    change: NightlyChange, later: Iterable[NightlyChange], threshold: float
) -> NightlyChange | None:
    """The later change of its course after which a loss is smaller than the threshold.

    What counts is the level: 5 % are not fixed by 1 %.  On a night on which the lab moved, too, an
    improvement may be the lab's, so it fixes nothing but what came on such a night itself.
    """
    level = _gain(change)
    for candidate in later:
        if _gain(candidate) > 0 and candidate.kind == "mixed" and change.kind != "mixed":
            continue
        level += _gain(candidate)
        back = abs(level) if change.kind == "unexplained" else -level
        if _gain(candidate) and back < math.log1p(threshold):
            return candidate
    return None


def _gain(change: NightlyChange) -> float:
    """A logarithm, above zero for the better."""
    if change.estimate is None or change.kind in ("lab", "incomparable"):
        return 0.0
    return math.log1p(change.estimate) * (1 if change.direction == "higher" else -1)


@dataclass(frozen=True)
class Gap:
    """One gap of a track; ``case``, ``metric`` and ``arm`` are empty where it is of all.

    ``night`` is the first with the gap, ``last`` the entry before it.
    """

    kind: Literal["stale", "ended", "seeds"]
    track: tuple[str, str, str]
    night: str
    last: str
    words: str
    case: str = ""
    metric: str = ""
    arm: str = ""
    status: Status = "open"
    why: str = ""

    @property
    def id(self) -> str:
        """12 hex digits by which the gap is acknowledged; the same every night after."""
        text = "\0".join((self.kind, *self.track, self.case, self.metric, self.arm, self.last))
        return digest(text)[:12]

    @property
    def line(self) -> str:
        """The gap in one line, without its track."""
        of = " ".join(part for part in (self.case, read_name(self.metric), self.arm) if part)
        stands = f"; {self.status}: {self.why}" if self.why else ""
        return f"{f'{of}: ' if of else ''}{self.words}{stands}; change {self.id}"


def gaps_of(entries: Sequence[Entry], known_changes: KnownChanges | None = None) -> tuple[Gap, ...]:
    """Every gap of a history on its newest night, by track, each with how it stands."""
    newest = newest_entry(entries)
    if newest is None:
        return ()
    gaps: list[Gap] = []
    for track in by_track(entries).values():
        last = track[-1]
        if last.night_key != newest.night_key:
            words = f"last entry of {last.night}, others have {newest.night}"
            gaps.append(Gap("stale", last.track, newest.night, last.id, words))
        gaps += [*_ended(track), *_seeds(track)]
    return _standing(gaps, known_changes, newest)


# (case, metric, arm); empty where it is of all.
Part = tuple[str, str, str]


def _ended(track: Sequence[Entry]) -> Iterator[Gap]:
    """Cases, primary metrics and followed arms that the track's newest night has no longer."""
    parts: list[set[Part]] = []
    for entry in track:
        of = {("", "", arm.name) for arm in entry.followed}
        of |= {(case.name, name, "") for case in entry.cases for name in ("", *case.primary)}
        parts.append(of)
    tonight = [entry.night_key == track[-1].night_key for entry in track]
    now = set[Part]().union(*itertools.compress(parts, tonight))
    for part in sorted(set[Part]().union(*parts) - now):
        case, metric, arm = part

        def alike(other: Part, part: Part = part) -> bool:
            """Whether both are metrics of one case, both cases, or both arms."""
            same_kind = [bool(name) for name in part] == [bool(name) for name in other]
            return same_kind and (part[0] == other[0] or not part[1])

        if metric and (case, "", "") not in now:
            # Of a case that is gone its metrics need no word of their own.
            continue
        nights = [at for at, of in enumerate(parts) if part in of]
        first, last = nights[0], nights[-1]
        # A part that stood in for another for a while, which is back, is missed by nobody.
        instead = set(filter(alike, parts[first - 1] - parts[first])) if first else set()
        if instead and instead <= now:
            continue
        new = sorted(filter(alike, now - set[Part]().union(*parts[: last + 1])))
        names = ", ".join(read_name("".join(other[1:])) or other[0] for other in new)
        words = f"last measured on {track[last].night}{f'; new since: {names}' if names else ''}"
        since = track[last + 1].night
        yield Gap("ended", track[last].track, since, track[last].id, words, case, metric, arm)


def _seeds(track: Sequence[Entry]) -> Iterator[Gap]:
    """Nights on which a case lost seeds by which the nights before were compared."""
    for name in dict.fromkeys(case.name for entry in track for case in entry.cases):
        # Each gap with the seeds that end it.
        standing: list[tuple[frozenset[int], Gap]] = []
        before: Entry | None = None
        reference: frozenset[int] = frozenset()
        for entry in track:
            case = entry.case(name)
            if case is None:
                continue
            # Of a night that added seeds until it was decided its first look counts: that
            # another night needs fewer is no loss.
            seeds = frozenset(case.seeds[: entry.looks[0]] if entry.looks else case.seeds)
            left = [(former, gap) for former, gap in standing if not former <= seeds]
            if before is not None and len(left) == len(standing) and not reference <= seeds:
                words = (
                    f"{len(reference & seeds)} of the {len(reference)} seeds of {before.night} "
                    f"are measured since {entry.night}: what changed in between may not be seen"
                )
                gap = Gap("seeds", entry.track, entry.night, before.id, words, name)
                left.append((reference, gap))
            standing, before, reference = left, entry, seeds
        yield from (gap for _, gap in standing)


def changes_of(
    entries: Iterable[Entry],
    known_changes: KnownChanges | None = None,
    policy: Policy | None = None,
) -> tuple[NightlyChange, ...]:
    """Every change that the history shows, in the order it was seen, each once.

    Nights are judged by the thresholds of ``policy``, whatever theirs were; ``status`` is that on
    the newest night.
    """
    policy = policy or Policy()
    nights = list(entries)
    tracks = [[policy.judging(entry) for entry in track] for track in by_track(nights).values()]
    changes = [_change(track, change) for track in tracks for change in exact.find(track)]
    newest = newest_entry(nights)
    if newest is None:
        return ()
    changes.sort(key=lambda change: (change.detected, change.course))
    return marked(changes, known_changes or KnownChanges(), newest.night, policy)


def _change(track: Sequence[Entry], detected: DetectedChange) -> NightlyChange:
    before, after, detected_on = (
        track[n] for n in (detected.before, detected.at, detected.detected)
    )
    case = after.case(detected.case)
    metric = case.metric(detected.metric) if case else None
    commits, kernels = [], []
    for arm in (before.arm(detected.arm), after.arm(detected.arm)):
        patches = arm.kernel.patches if arm else ()
        with_patches = f" + {counted(len(patches), 'patch')}" if patches else ""
        kernels.append(f"{arm.version}{with_patches}" if arm else "")
        commits.append(arm.commit if arm else "")
    estimate = detected.estimate
    return NightlyChange(
        kind=detected.kind,
        course=Course(*after.track[:2], after.mode, detected.case, detected.metric, detected.arm),
        unit=shown_unit(metric.unit, after.mode) if metric else "",
        direction=metric.direction if metric else "higher",
        night=after.night,
        entry=after.id,
        before_night=before.night,
        before=before.id,
        detected=detected_on.night,
        detected_entry=detected_on.id,
        verdict=detected.verdict,
        estimate=estimate.estimate if estimate else None,
        low=estimate.low if estimate else None,
        high=estimate.high if estimate else None,
        kernels=(kernels[0], kernels[1]),
        commits="..".join(commit[:12] for commit in commits) if all(commits) else "",
        lab=detected.lab,
        # A drift has no night of its own: its functions are those of the whole way.
        functions=_moved(before, detected_on if detected.kind == "drift" else after, detected),
    )


def _moved(before: Entry, after: Entry, detected: DetectedChange) -> tuple[str, ...]:
    """The functions that differ otherwise from the pinned arm's than before, the largest first."""
    nights: list[dict[str, FunctionDifference]] = []
    key = (detected.metric.partition(".")[0], detected.arm, "pinned")
    for entry in (before, after):
        case = entry.case(detected.case)
        for each in case.functions if case else ():
            if (each.phase, each.arm, role_of(each.against)) == key:
                nights.append({moved.name: moved for moved in each.differences})
    if len(nights) != 2:
        return ()
    was, now = nights
    sizes = {
        name: abs((now[name].size if name in now else 0) - (was[name].size if name in was else 0))
        for name in (*was, *now)
        if name not in was or name not in now or moved_on(was[name], now[name])
    }
    return tuple(sorted(sizes, key=lambda name: (-sizes[name], name)))


# Functions that changed between two arms.  A session says of each phase which functions differ
# between its arms, and says it every night anew: with a pinned arm all that changed since its
# kernel.  Here each difference is one change, of the first night that has it, with an id by which
# it can be acknowledged.  A function whose difference moves on begins another change, so that
# nothing hides behind what is acknowledged.


@dataclass(frozen=True)
class FunctionsChange:
    """Functions of one phase that differ between ``arm`` and ``against`` since one night.

    ``names`` are all that began on it, ``functions`` those that the newest night has still.
    """

    track: tuple[str, str, str]
    case: str
    phase: str
    arm: str
    against: str
    night: str
    entry: str
    names: tuple[str, ...]
    tested: int
    unit_title: str
    functions: tuple[FunctionDifference, ...] = ()
    status: Status = "open"
    why: str = ""

    @property
    def id(self) -> str:
        """12 hex digits by which the change is acknowledged; the same every night after."""
        key = (self.case, self.phase, self.arm, self.against, self.entry)
        return digest("\0".join(("functions", *self.track, *key)))[:12]

    @property
    def metric(self) -> str:
        """What policies and known changes call it."""
        return f"{self.phase}.functions"

    @property
    def size(self) -> float:
        """The largest difference, a fraction of the phase with its sign; 0 for none."""
        return max((each.size for each in self.functions), key=abs, default=0.0)

    @property
    def is_standing(self) -> bool:
        """Whether it is said again on later nights: it lasts, and nobody acknowledged it."""
        return bool(self.functions) and self.status != "acknowledged"


def function_changes(
    entries: Iterable[Entry], known_changes: KnownChanges | None = None
) -> tuple[FunctionsChange, ...]:
    """Every change of functions that a history has or had, in the order of tracks and nights."""
    nights = list(entries)
    newest = newest_entry(nights)
    if newest is None:
        return ()
    changes = [change for track in by_track(nights).values() for change in _followed(track)]
    return _standing(changes, known_changes, newest)


Acknowledgeable = TypeVar("Acknowledgeable", Gap, FunctionsChange)


def _standing(
    changes: Iterable[Acknowledgeable], known_changes: KnownChanges | None, newest: Entry
) -> tuple[Acknowledgeable, ...]:
    """Each as it stands on the newest night."""
    known = known_changes or KnownChanges()
    return tuple(
        replace(change, status=status, why=why)
        for change in changes
        for status, why in [known.standing(change.id, newest.night)]
    )


def _followed(track: Sequence[Entry]) -> list[FunctionsChange]:
    changes: list[FunctionsChange] = []
    # By case, phase and arms, and in it by function: its change, and how it was when that began.
    standing: dict[tuple[str, str, str, str], dict[str, tuple[int, FunctionDifference]]] = {}
    for entry, case in ((night, case) for night in track for case in night.cases):
        for each in case.functions:
            key = (case.name, each.phase, each.arm, each.against)
            before = standing.get(key, {})
            now = {f"{moved.name} {moved.file}": moved for moved in each.differences}
            standing[key] = {
                name: before[name]
                for name, difference in now.items()
                if name in before and not moved_on(before[name][1], difference)
            }
            new = {name: moved for name, moved in now.items() if name not in standing[key]}
            if new:
                standing[key] |= {name: (len(changes), moved) for name, moved in new.items()}
                names = tuple(sorted(moved.name for moved in new.values()))
                since = (entry.night, entry.id)
                changes.append(
                    FunctionsChange(entry.track, *key, *since, names, each.tested, each.unit_title)
                )
            for at in {number for number, _ in (before | standing[key]).values()}:
                still = [now[name] for name, (n, _) in standing[key].items() if n == at]
                still.sort(key=lambda difference: (-abs(difference.size), difference.name))
                changes[at] = replace(changes[at], functions=tuple(still), tested=each.tested)
    return changes


def moved_on(then: FunctionDifference, now: FunctionDifference) -> bool:
    """Whether a difference moved by as much as changes a function, and beyond both intervals."""
    apart = abs(now.size - then.size)
    return apart >= MOVED_ON and apart > then.half + now.half
