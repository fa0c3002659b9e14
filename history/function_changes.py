"""Functions that changed between two arms, followed from night to night; pure.

A session says of each phase which functions differ between its arms, and says it every night
anew: with a pinned arm all that changed since its kernel.  Here each difference is one change,
of the first night that has it, with an id by which it can be acknowledged.  A function whose
difference moves on begins another change, so that nothing hides behind what is acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from analysis.explain.functions import SMALLEST
from files import digest
from history.changes import courses
from history.entry import ChangedFunctions, Entry, FunctionDifference, by_track
from history.known import KnownChanges, Status, Subject


@dataclass(frozen=True)
class FunctionsChange:
    """Functions of one phase that differ between ``arm`` and ``against`` since one night.

    ``night`` and ``entry`` are the first that have them like this, ``functions`` those that the
    newest night of the track has still, with its numbers: none where all are gone or moved on.
    ``names`` are all that began on that night.  ``status`` and ``why`` are how the change stands
    on the newest night.
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
        text = "\0".join(("functions", *self.track, *self.key, self.entry))
        return digest(text)[:12]

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Case, phase and both arms."""
        return self.case, self.phase, self.arm, self.against

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
    """Every change of functions that a history has or had, in the order of tracks and nights.

    Nights on which nothing was tested say nothing.
    """
    nights = list(entries)
    changes = [change for track in by_track(nights).values() for change in _followed(track)]
    if not changes:
        return ()
    known = (known_changes or KnownChanges()).narrow(courses(nights))
    newest = max(nights, key=lambda entry: entry.order)
    return tuple(_standing(change, known, newest.night) for change in changes)


def function_courses(change: FunctionsChange) -> list[tuple[str, ...]]:
    """Names by ``history.known.FIELDS``, of each function that began with a change."""
    return [_course(change, name) for name in change.names]


def _course(change: FunctionsChange, function: str) -> tuple[str, ...]:
    return (*change.track[:2], change.case, change.metric, change.arm, function)


def _standing(
    change: FunctionsChange, known_changes: KnownChanges, tonight: str
) -> FunctionsChange:
    """Open as long as no entry is about one of its functions; else as the last of them is."""
    status: Status = "open"
    why = ""
    for each in change.functions:
        subject = Subject(change.id, _course(change, each.name), change.night, size=abs(each.size))
        status, why = known_changes.standing(subject, tonight)
        if status == "open":
            break
    return replace(change, status=status, why=why)


def _followed(track: Sequence[Entry]) -> list[FunctionsChange]:
    changes: list[FunctionsChange] = []
    # By case, phase and arms, and in it by function: its change, and how it was when that began.
    standing: dict[tuple[str, str, str, str], dict[str, tuple[int, FunctionDifference]]] = {}
    for entry in track:
        for case in entry.cases:
            for each in case.functions:
                key = (case.name, each.phase, each.arm, each.against)
                before = standing.get(key, {})
                now = {_name(difference): difference for difference in each.differences}
                stays = {
                    name: before[name] for name, difference in now.items()
                    if name in before and not moved_on(before[name][1], difference)
                }  # fmt: skip
                new = {name: difference for name, difference in now.items() if name not in stays}
                if new:
                    names = tuple(sorted(difference.name for difference in new.values()))
                    changes.append(_begun(entry, key, each, names))
                standing[key] = stays | {
                    name: (len(changes) - 1, difference) for name, difference in new.items()
                }
                for at in {n for n, _ in (before | standing[key]).values()}:
                    still = [now[name] for name, (n, _) in standing[key].items() if n == at]
                    still.sort(key=lambda difference: (-abs(difference.size), difference.name))
                    changes[at] = replace(changes[at], functions=tuple(still), tested=each.tested)
    return changes


def moved_on(then: FunctionDifference, now: FunctionDifference) -> bool:
    """Whether a difference between the arms is another than it was.

    It is where it moved by as much as makes a function changed, and the 95 % intervals of both
    nights do not overlap.
    """
    apart = abs(now.size - then.size)
    return apart >= SMALLEST and apart > then.half + now.half


def _name(each: FunctionDifference) -> str:
    return f"{each.name} {each.file}"


def _begun(
    entry: Entry,
    key: tuple[str, str, str, str],
    functions: ChangedFunctions,
    names: tuple[str, ...],
) -> FunctionsChange:
    case, phase, arm, against = key
    return FunctionsChange(
        entry.track, case, phase, arm, against, entry.night, entry.id, names, functions.tested,
        functions.unit_title,
    )  # fmt: skip
