"""What of an old history may go: pure decisions, and one thin function that does it.

A chart needs each night's means, verdicts and kernels, and changes are found anew from
the values of the primary metrics; all these stay.  Values of secondary metrics and counts
by function are nearly all of the bytes, and are read for few nights only: the newest, and
those on both sides of a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from history.change import NightlyChange
from history.entry import Entry
from history.exact import BASELINE
from history.standing import is_open
from history.store import HistoryStore


@dataclass(frozen=True)
class Pruning:
    """What would be thinned, and what taken out."""

    thinned: tuple[Entry, ...]
    removed: tuple[Entry, ...]


def decide(
    entries: Sequence[Entry],
    changes: Iterable[NightlyChange],
    *,
    keep_nights: int,
    before: str = "",
) -> Pruning:
    """Thin all but each track's newest ``keep_nights`` and the nights of changes.

    Entries of nights before the date ``before`` are taken out as a whole, but for those
    that a change names, and those by which a change that stands open was found: the gate
    finds it anew each night.
    """
    changes = tuple(changes)
    names = {
        name for c in changes for name in (c.entry, c.before, c.detected_entry, c.noticed_entry)
    }
    detected_by = [(c.before, c.detected_entry) for c in changes if is_open(c)]
    tracks: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in sorted(entries, key=lambda each: each.order):
        tracks.setdefault(entry.track, []).append(entry)
    thinned, removed = [], []
    for track in tracks.values():
        newest = {entry.id for entry in track[max(0, len(track) - keep_nights) :]}
        needed = _evidence([entry.id for entry in track], detected_by)
        for entry in track:
            if entry.id in names:
                continue
            if entry.night < before and entry.id not in needed:
                removed.append(entry)
            elif entry.id not in newest and not entry.thinned:
                thinned.append(entry)
    return Pruning(tuple(thinned), tuple(removed))


def _evidence(track: Sequence[str], detected_by: Iterable[tuple[str, str]]) -> set[str]:
    """From the nights that a change is measured against to the one that showed it."""
    needed: set[str] = set()
    for before, noticed in detected_by:
        if before in track and noticed in track:
            first = max(0, track.index(before) + 1 - BASELINE)
            needed.update(track[first : track.index(noticed) + 1])
    return needed


def thin(entry: Entry) -> Entry:
    """The entry without the values of secondary metrics and without functions."""
    cases = []
    for case in entry.cases:
        arms = [
            arm.model_copy(
                update={
                    "metrics": {
                        name: ensemble
                        if name in case.primary
                        else ensemble.model_copy(update={"values": ()})
                        for name, ensemble in arm.metrics.items()
                    }
                }
            )
            for arm in case.arms
        ]
        cases.append(case.model_copy(update={"arms": tuple(arms)}))
    return entry.model_copy(update={"cases": tuple(cases), "counted": False, "thinned": True})


def apply(store: HistoryStore, pruning: Pruning) -> None:
    """Do what was decided, an entry at a time: stopped anywhere, the history is whole."""
    for entry in pruning.thinned:
        store.replace(thin(entry), functions=False)
    store.remove(pruning.removed)
