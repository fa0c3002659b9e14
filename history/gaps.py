"""What the newest night no longer measures as it was measured before; pure.

What is not measured cannot become worse, so a gate would pass.  Each gap stays until the
measurement is back or somebody acknowledges it: a regression may have come with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from files import digest
from history.change import Status
from history.entry import CaseEntry, Entry
from history.known import KnownChanges, Subject
from history.standing import courses

Kind = Literal["stale", "ended", "seeds"]


@dataclass(frozen=True)
class Gap:
    """One gap of a track.

    ``case``, ``metric`` and ``arm`` are empty where it is of all; ``night`` is the first
    with the gap, ``last`` the entry before it.  ``status`` and ``why`` are how it stands on
    the newest night, as those of a change.
    """

    kind: Kind
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
        of = " ".join(part for part in (self.case, self.metric, self.arm) if part)
        stands = f"; {self.status}: {self.why}" if self.why else ""
        return f"{f'{of}: ' if of else ''}{self.words}{stands}; change {self.id}"

    @property
    def subject(self) -> Subject:
        """The gap as known changes are asked for it."""
        names = (*self.track[:2], self.case, self.metric, self.arm, "")
        return Subject(self.id, names, self.night)


def gaps_of(entries: Iterable[Entry], known_changes: KnownChanges | None = None) -> tuple[Gap, ...]:
    """Every gap of a history on its newest night, by track, each with how it stands."""
    nights = sorted(entries, key=lambda each: each.order)
    tracks: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in nights:
        tracks.setdefault(entry.track, []).append(entry)
    gaps: list[Gap] = []
    for _, track in sorted(tracks.items()):
        if track[-1].night_key != nights[-1].night_key:
            gaps.append(_stale(track[-1], nights[-1]))
        gaps += _ended(track)
        gaps += _seeds(track)
    narrow = (known_changes or KnownChanges()).narrow(courses(nights)) if gaps else KnownChanges()
    return tuple(_standing(gap, narrow, nights[-1].night) for gap in gaps)


def _standing(gap: Gap, known_changes: KnownChanges, tonight: str) -> Gap:
    status, why = known_changes.standing(gap.subject, tonight)
    return replace(gap, status=status, why=why)


def _stale(last: Entry, tonight: Entry) -> Gap:
    words = f"last entry of {last.night}, others have {tonight.night}"
    return Gap("stale", last.track, tonight.night, last.id, words)


# (case, metric, arm); empty where it is of all.
Part = tuple[str, str, str]


def _parts(entry: Entry) -> set[Part]:
    """What an entry judges: its cases, their primary metrics, and its followed arms."""
    cases = {(case.name, "", "") for case in entry.cases}
    metrics = {(case.name, name, "") for case in entry.cases for name in case.primary}
    return cases | metrics | {("", "", arm.name) for arm in entry.followed}


def _ended(track: Sequence[Entry]) -> Iterator[Gap]:
    """Parts that the entries of the track's newest night no longer have."""
    parts = [_parts(entry) for entry in track]
    now = set[Part]().union(
        *(of for entry, of in zip(track, parts, strict=True)
          if entry.night_key == track[-1].night_key)
    )  # fmt: skip
    for part in sorted(set[Part]().union(*parts) - now):
        case, metric, arm = part
        if metric and (case, "", "") not in now:
            # Of a case that is gone its metrics need no word of their own.
            continue
        first = next(at for at, of in enumerate(parts) if part in of)
        last = max(at for at, of in enumerate(parts) if part in of)
        if _replaced(part, parts, first, now):
            continue
        new = sorted(other for other in now - set[Part]().union(*parts[: last + 1])
                     if _alike(part, other))  # fmt: skip
        names = ", ".join("".join(other[1:]) or other[0] for other in new)
        words = f"last measured on {track[last].night}{f'; new since: {names}' if names else ''}"
        since = track[last + 1].night
        yield Gap("ended", track[last].track, since, track[last].id, words, case, metric, arm)


def _replaced(part: Part, parts: Sequence[set[Part]], first: int, now: set[Part]) -> bool:
    """Whether a part stood in for another for a while, which is back."""
    if first == 0:
        return False
    instead = {other for other in parts[first - 1] - parts[first] if _alike(part, other)}
    return bool(instead) and instead <= now


def _alike(part: Part, other: Part) -> bool:
    """Whether both are metrics of one case, both cases, or both arms."""
    return (part[0] == other[0] or not part[1]) and [bool(name) for name in part] == [
        bool(name) for name in other
    ]


@dataclass(frozen=True)
class _Reduced:
    reference: frozenset[int]
    gap: Gap


def _seeds(track: Sequence[Entry]) -> Iterator[Gap]:
    """Nights on which a case lost seeds by which the nights before were compared."""
    for name in dict.fromkeys(case.name for entry in track for case in entry.cases):
        standing: list[_Reduced] = []
        before: Entry | None = None
        reference: frozenset[int] = frozenset()
        for entry in track:
            case = entry.case(name)
            if case is None:
                continue
            seeds = _compared_by(entry, case)
            back = any(each.reference <= seeds for each in standing)
            standing = [each for each in standing if not each.reference <= seeds]
            if before is not None and not back and not reference <= seeds:
                words = _lost_seeds(entry, before, len(reference & seeds), len(reference))
                gap = Gap("seeds", entry.track, entry.night, before.id, words, name)
                standing.append(_Reduced(reference, gap))
            before, reference = entry, seeds
        yield from (each.gap for each in standing)


def _compared_by(entry: Entry, case: CaseEntry) -> frozenset[int]:
    """The seeds of an exact night; of a wall night, whose blocks are alike, their numbers.

    Of a night that added seeds until it was decided those of its first look: that another night
    needs fewer is no loss.
    """
    if entry.looks:
        return frozenset(case.seeds[: entry.looks[0]])
    return frozenset(range(len(case.seeds)) if entry.mode == "wall" else case.seeds)


def _lost_seeds(entry: Entry, before: Entry, remaining: int, of: int) -> str:
    what = "blocks" if entry.mode == "wall" else "seeds"
    return (
        f"{remaining} of the {of} {what} of {before.night} are measured since {entry.night}: what "
        "changed in between may not be seen"
    )
