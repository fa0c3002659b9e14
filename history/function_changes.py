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
from history.entry import Entry, FunctionDifference, by_track
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
        key = (self.case, self.phase, self.arm, self.against, self.entry)
        return digest("\0".join(("functions", *self.track, *key)))[:12]

    @property
    def metric(self) -> str:
        """What policies and known changes call it."""
        return f"{self.phase}.functions"

    def course(self, function: str) -> tuple[str, ...]:
        """One of its functions, by ``history.known.FIELDS``."""
        return (*self.track[:2], self.case, self.metric, self.arm, function)

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

    Nights on which nothing was tested say nothing.  One is open as long as no entry of the known
    changes is about one of its functions; else as the last of them is.
    """
    nights = list(entries)
    changes = [change for track in by_track(nights).values() for change in _followed(track)]
    if not changes:
        return ()
    known = (known_changes or KnownChanges()).narrow(courses(nights))
    newest = max(nights, key=lambda entry: entry.order)
    standing = []
    for change in changes:
        status: Status = "open"
        why = ""
        for each in change.functions:
            size = abs(each.size)
            subject = Subject(change.id, change.course(each.name), change.night, size=size)
            status, why = known.standing(subject, newest.night)
            if status == "open":
                break
        standing.append(replace(change, status=status, why=why))
    return tuple(standing)


def _followed(track: Sequence[Entry]) -> list[FunctionsChange]:
    changes: list[FunctionsChange] = []
    # By case, phase and arms, and in it by function: its change, and how it was when that began.
    standing: dict[tuple[str, str, str, str], dict[str, tuple[int, FunctionDifference]]] = {}
    for entry, case in ((night, case) for night in track for case in night.cases):
        for each in case.functions:
            key = (case.name, each.phase, each.arm, each.against)
            before = standing.get(key, {})
            now = {f"{one.name} {one.file}": one for one in each.differences}
            standing[key] = {
                name: before[name]
                for name, difference in now.items()
                if name in before and not moved_on(before[name][1], difference)
            }
            new = {name: one for name, one in now.items() if name not in standing[key]}
            if new:
                standing[key] |= {name: (len(changes), one) for name, one in new.items()}
                names = tuple(sorted(one.name for one in new.values()))
                changes.append(
                    FunctionsChange(
                        entry.track,
                        *key,
                        entry.night,
                        entry.id,
                        names,
                        each.tested,
                        each.unit_title,
                    )
                )
            for at in {number for number, _ in (before | standing[key]).values()}:
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
