"""All changes of a history: found by mode, explained, and how each stands; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from history import exact, wall
from history.change import Change, Course
from history.entry import Entry, Functions
from history.exact import Found
from history.functions import moved
from history.known import Known
from history.policy import Policy
from history.standing import courses, marked
from results.units import shown_unit

FunctionsOf = Callable[[Entry], Functions | None]


def changes_of(
    entries: Iterable[Entry],
    functions: FunctionsOf | None = None,
    known: Known | None = None,
    policy: Policy | None = None,
) -> tuple[Change, ...]:
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
    found = [
        _change(track, one, functions)
        for track in tracks.values()
        for one in (wall.find(track) if track[0].mode == "wall" else exact.find(track))
    ]
    if not found:
        return ()
    found.sort(key=lambda change: (change.seen, change.course))
    narrow = (known or Known()).narrow(courses(nights))
    return marked(found, narrow, nights[-1].night, policy)


def _change(track: Sequence[Entry], one: Found, functions: FunctionsOf | None) -> Change:
    before, after = track[one.before], track[one.at]
    case = after.case(one.case)
    metric = case.metric(one.metric) if case else None
    arms = before.arm(one.arm), after.arm(one.arm)
    commits = [arm.commit if arm else "" for arm in arms]
    kernels = [_kernel(arm.version, arm.kernel.patches) if arm else "" for arm in arms]
    change = Change(
        kind=one.kind,
        course=Course(*after.track[:2], after.mode, one.case, one.metric, one.arm),
        unit=shown_unit(metric.unit, after.mode) if metric else "",
        direction=metric.direction if metric else "higher",
        night=after.night,
        entry=after.id,
        before_night=before.night,
        before=before.id,
        seen=track[one.seen].night,
        seen_entry=track[one.seen].id,
        earliest=track[one.dates[0]].night if one.dates else "",
        latest=track[one.dates[1]].night if one.dates else "",
        noticed_entry=track[one.nominated].id if one.nominated is not None else "",
        verdict=one.verdict,
        estimate=one.estimate.estimate if one.estimate else None,
        low=one.estimate.low if one.estimate else None,
        high=one.estimate.high if one.estimate else None,
        kernels=(kernels[0], kernels[1]),
        commits="..".join(commit[:12] for commit in commits) if all(commits) else "",
        lab=one.lab,
    )
    # A drift has no night of its own: its functions are those of the whole way.
    last = track[one.seen] if one.kind == "drift" else after
    return _explained(change, before, last, functions)


def _kernel(version: str, patches: Sequence[str]) -> str:
    if not patches:
        return version
    return f"{version} + {len(patches)} patch{'es'[: 2 * (len(patches) != 1)]}"


def _explained(
    change: Change, before: Entry, after: Entry, functions: FunctionsOf | None
) -> Change:
    if functions is None or not (before.counted and after.counted):
        return change
    course, phase = change.course, change.course.metric.partition(".")[0]
    both = [
        kept.phase(course.case, phase, course.arm) if (kept := functions(entry)) else None
        for entry in (before, after)
    ]
    if both[0] is None or both[1] is None or both[0].unit != both[1].unit:
        return change
    return change.model_copy(
        update={"functions": moved(both[0], both[1]), "unit_of_work": both[1].unit_title}
    )


def newest(changes: Iterable[Change], entry: Entry) -> tuple[Change, ...]:
    """The changes that were first seen in this entry."""
    return tuple(change for change in changes if change.seen_entry == entry.id)
