"""All changes of a history: found by mode, explained, and how each stands; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from history import exact, wall
from history.change import Course, NightlyChange
from history.entry import Entry, NightFunctions
from history.exact import DetectedChange
from history.functions import moved
from history.known import KnownChanges
from history.policy import Policy
from history.standing import courses, marked
from results.units import shown_unit

FunctionsOf = Callable[[Entry], NightFunctions | None]


def changes_of(
    entries: Iterable[Entry],
    functions: FunctionsOf | None = None,
    known_changes: KnownChanges | None = None,
    policy: Policy | None = None,
) -> tuple[NightlyChange, ...]:
    """Every change that the history shows, in the order it was seen, each once.

    ``functions`` reads the functions of an entry (``HistoryStore.functions``); without it
    no change names any.  Nights are judged by the thresholds of ``policy``, whatever theirs
    were.  Each change has how it stands on the newest night: open, fixed by a later one, or
    as ``known`` says.
    """
    policy = policy or Policy()
    nights = sorted(entries, key=lambda each: each.order)
    tracks: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in nights:
        tracks.setdefault(entry.track, []).append(policy.judging(entry))
    changes = [
        _change(track, change, functions)
        for track in tracks.values()
        for change in (wall.find(track) if track[0].mode == "wall" else exact.find(track))
    ]
    if not changes:
        return ()
    changes.sort(key=lambda change: (change.detected, change.course))
    narrow = (known_changes or KnownChanges()).narrow(courses(nights))
    return marked(changes, narrow, nights[-1].night, policy)


def _change(
    track: Sequence[Entry], detected: DetectedChange, functions: FunctionsOf | None
) -> NightlyChange:
    before, after = track[detected.before], track[detected.at]
    case = after.case(detected.case)
    metric = case.metric(detected.metric) if case else None
    arms = before.arm(detected.arm), after.arm(detected.arm)
    commits = [arm.commit if arm else "" for arm in arms]
    kernels = [_kernel(arm.version, arm.kernel.patches) if arm else "" for arm in arms]
    change = NightlyChange(
        kind=detected.kind,
        course=Course(*after.track[:2], after.mode, detected.case, detected.metric, detected.arm),
        unit=shown_unit(metric.unit, after.mode) if metric else "",
        direction=metric.direction if metric else "higher",
        night=after.night,
        entry=after.id,
        before_night=before.night,
        before=before.id,
        detected=track[detected.detected].night,
        detected_entry=track[detected.detected].id,
        earliest=track[detected.dates[0]].night if detected.dates else "",
        latest=track[detected.dates[1]].night if detected.dates else "",
        noticed_entry=track[detected.nominated].id if detected.nominated is not None else "",
        verdict=detected.verdict,
        estimate=detected.estimate.estimate if detected.estimate else None,
        low=detected.estimate.low if detected.estimate else None,
        high=detected.estimate.high if detected.estimate else None,
        kernels=(kernels[0], kernels[1]),
        commits="..".join(commit[:12] for commit in commits) if all(commits) else "",
        lab=detected.lab,
    )
    # A drift has no night of its own: its functions are those of the whole way.
    last = track[detected.detected] if detected.kind == "drift" else after
    return _explained(change, before, last, functions)


def _kernel(version: str, patches: Sequence[str]) -> str:
    if not patches:
        return version
    return f"{version} + {len(patches)} patch{'es'[: 2 * (len(patches) != 1)]}"


def _explained(
    change: NightlyChange, before: Entry, after: Entry, functions: FunctionsOf | None
) -> NightlyChange:
    if functions is None or not (before.counted and after.counted):
        return change
    course, phase = change.course, change.course.metric.partition(".")[0]
    both = [
        stored.phase(course.case, phase, course.arm) if (stored := functions(entry)) else None
        for entry in (before, after)
    ]
    if both[0] is None or both[1] is None or both[0].unit != both[1].unit:
        return change
    return change.model_copy(
        update={"functions": moved(both[0], both[1]), "unit_of_work": both[1].unit_title}
    )


def newest(changes: Iterable[NightlyChange], entry: Entry) -> tuple[NightlyChange, ...]:
    """The changes that were first seen in this entry."""
    return tuple(change for change in changes if change.detected_entry == entry.id)
