"""What is said of a night in one word with a mark, and of a change in one line: pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from history.change import NightlyChange
from history.entry import Entry
from history.standing import is_open
from history.values import fit
from history.wording import KINDS, moved_words, standing_words
from reports.verdict import Verdict
from reports.verdict_words import MARKS
from reports.wording import between, percent

# Words besides those of verdicts, which have theirs in reports.wording.
OTHER_MARKS = {"environment changed": "◆",
               "known": "○", "mixed": "◇", "inexact": "✕",
               "suspected": "?", "incomparable": "∅", "first night": "·"}  # fmt: skip


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
    if change.kind in ("lab", "mixed", "unexplained", "suspected", "incomparable"):
        return status({"lab": "environment changed"}.get(change.kind, change.kind))
    return status(str(change.verdict) if change.verdict else "no change")


# In the order a reader wants to hear of them.
ORDER = ("failed", "inexact", "regression", "not tested", "unexplained", "incomparable", "mixed",
         "suspected",
         "improvement", "environment changed", "known")  # fmt: skip


def of_night(
    entry: Entry,
    changes: Sequence[NightlyChange],
    *,
    first: bool = False,
    earlier: Sequence[Entry] = (),
) -> Status:
    """The word of a night: what was first seen in it, against the nights before.

    The ``first`` night of a track has none before it; ``earlier`` are its measurements
    before this one.
    """
    ids = {each.id for each in (*earlier, entry)}
    states = [of_change(change) for change in changes if change.detected_entry in ids]
    lost = [
        outcome
        for case in entry.cases
        for outcome in case.said
        if outcome.verdict is Verdict.FAILED
    ]
    states += [status("failed", lost[0].reason)] if lost else []
    pairs = entry.of_series.values()
    untested = [each for pair in pairs for _, each in pair]
    if untested and all(each.verdict is Verdict.NOT_TESTED for each in untested):
        states.append(status("not tested", untested[0].reason))
    states += [] if fit(entry) else [status("inexact", "a repeated run was not bit-identical")]
    if not states:
        return status("first night" if first else "no change")
    word = min((state.word for state in states), key=lambda w: ORDER.index(w) if w in ORDER else 99)
    count = sum(state.word == word for state in states)
    worst = next(state for state in states if state.word == word)
    return worst._replace(words=worst.words or (f"{count} metrics" if count > 1 else "1 metric"))


def standing(changes: Sequence[NightlyChange]) -> tuple[NightlyChange, ...]:
    """What stands open on the newest night, as the gate has it."""
    return tuple(change for change in changes if is_open(change))


def size(change: NightlyChange) -> str:
    """``+1.31 % [+1.02, +1.60]``; empty where nothing was judged."""
    if change.estimate is None:
        return ""
    within = ""
    if change.low is not None and change.high is not None:
        within = f" {between(change.low, change.high)}"
    return f"{percent(change.estimate)}{within}"


def reasons(change: NightlyChange) -> tuple[str, ...]:
    """Whose a change is, a line each: kind, kernels, what moved of the lab, who knows of it."""
    lines = [KINDS[change.kind]]
    if change.kind in ("step", "drift", "mixed", "suspected") and all(change.kernels):
        lines.append(f"kernel {change.commits or ' -> '.join(change.kernels)}")
    lines += change.lab
    if change.earliest != change.latest:
        lines.append(f"began between {change.earliest} and {change.latest} (95 %)")
    if change.detected != change.night:
        lines.append(f"seen on {change.detected}")
    lines += standing_words(change)
    return tuple(lines)


def functions(change: NightlyChange) -> tuple[str, ...]:
    """``xas_load 494.9 -> 634.6 (lib/xarray.c)`` for each function that moved."""
    return tuple(
        f"{moved_words(function)}{f' ({function.file})' if function.file else ''}"
        for function in change.functions
    )
