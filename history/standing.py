"""How each change stands on the newest night: open, fixed, or known; pure.

The gate, the pages and `history show` have it from here, so that they say the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from history.change import Course, NightlyChange, Status
from history.entry import Entry
from history.known import KnownChanges, subject_of
from history.policy import Policy, PolicyTarget
from history.values import courses_of
from reports.verdict import Verdict


def newest_entry(entries: Iterable[Entry]) -> Entry | None:
    """The entry by which it is known which night is the newest; None without entries."""
    return max(entries, key=lambda entry: entry.order, default=None)


def courses(entries: Sequence[Entry]) -> tuple[tuple[str, ...], ...]:
    """Names by ``history.known.FIELDS`` of all metrics that are or were ever judged."""
    tracks: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in entries:
        tracks.setdefault(entry.track, []).append(entry)
    return tuple(
        (*track[:2], *course, "") for track, of in tracks.items() for course in courses_of(of)
    )


def marked(
    changes: Sequence[NightlyChange], known_changes: KnownChanges, tonight: str, policy: Policy
) -> tuple[NightlyChange, ...]:
    """The changes, in the order they were seen, each with how it stands on a night."""
    later: dict[Course, list[NightlyChange]] = {}
    marks = []
    for change in reversed(changes):
        after = later.setdefault(change.course, [])
        marks.append(_standing(change, after, known_changes, tonight, policy))
        after.insert(0, change)
    return tuple(reversed(marks))


def _standing(
    change: NightlyChange,
    later: Sequence[NightlyChange],
    known_changes: KnownChanges,
    tonight: str,
    policy: Policy,
) -> NightlyChange:
    threshold = policy.change(PolicyTarget(*change.course[:5]))
    by = fixed_by(change, later, threshold) if is_loss(change) else None
    status: Status
    if by is not None:
        status, why = "fixed", f"by the change of {by.night} ({by.id})"
    elif change.kind == "unexplained" and abs(change.estimate or 0.0) < threshold:
        # It fails its own night; no regression can hide behind it on later ones.
        status, why = "small", f"below the threshold of {100 * threshold:g} %"
    else:
        status, why = known_changes.standing(subject_of(change), tonight)
    if (status, why) == (change.status, change.why):
        return change
    return change.model_copy(update={"status": status, "why": why})


def is_loss(change: NightlyChange) -> bool:
    """Whether a change stays open until something is done about it.

    A regression does, and numbers that are others without a reason, for a regression may
    hide behind them.
    """
    return change.verdict is Verdict.REGRESSION or change.kind == "unexplained"


def is_open(change: NightlyChange) -> bool:
    """Whether a change fails later nights, too: a loss that nobody has fixed nor knows of."""
    return change.status == "open" and is_loss(change)


def fixed_by(
    change: NightlyChange, later: Iterable[NightlyChange], threshold: float
) -> NightlyChange | None:
    """The later change of its course after which a loss is smaller than the threshold.

    What counts is the level: a regression of 5 % is not fixed by an improvement of 1 %, and
    of two regressions an improvement fixes the one whose former level it reaches.  On a
    night on which the lab moved too an improvement may be the lab's, so it fixes nothing but
    what came on such a night itself.
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
    if change.estimate is None or change.kind in ("lab", "suspected", "incomparable"):
        return 0.0
    return math.log1p(change.estimate) * (1 if change.direction == "higher" else -1)
