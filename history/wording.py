"""The history in words, for a terminal: one line a thing, nothing that moves a cursor."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.verdict import MISSING, Verdict
from history.changes import FunctionsChange, NightlyChange
from history.entry import ChangedFunctions, Conclusion, Entry, by_track
from history.store import HistoryContents
from reports.sentences import changed_words
from reports.wording import between, percent
from results.units import read_name
from text import clean_line, counted, enumerated

KINDS = {
    "step": "caused by the kernel",
    "drift": "gradual drift, caused by the kernel",
    "lab": "environment changed",
    "mixed": "kernel and environment changed together, and no control arm separates them",
    "unexplained": "same code in the same environment, different numbers",
    "incomparable": "not comparable: too few seeds in common with the nights before",
}


def change_line(change: NightlyChange) -> str:
    """One change in one line."""
    course = change.course
    head = f"{change.night} {course.case} {read_name(course.metric)} ({course.arm})"
    verdict = f" {change.verdict}" if change.verdict else ""
    kind, *facts = reasons(change)
    sized = f" {size(change)}" if size(change) else ""
    return clean_line("; ".join([f"{head}{sized}{verdict}: {kind}", *facts, f"change {change.id}"]))


def size(change: NightlyChange) -> str:
    """``+1.31 % [+1.02, +1.60]``; empty where nothing was judged."""
    if change.estimate is None:
        return ""
    return f"{percent(change.estimate)} {interval(change)}".rstrip()


def interval(of: NightlyChange | Conclusion) -> str:
    """``[+1.02, +1.60]``; empty where there is none."""
    return between(of.low, of.high) if of.low is not None and of.high is not None else ""


def reasons(change: NightlyChange) -> tuple[str, ...]:
    """Whose a change is, a line each: kind, kernels, what moved of the lab, who knows of it."""
    lines = [KINDS[change.kind]]
    if change.kind in ("step", "drift", "mixed") and all(change.kernels):
        lines.append(f"kernel {change.commits or ' -> '.join(change.kernels)}")
    if change.functions:
        lines.append(f"functions {enumerated(change.functions)}")
    lines += change.lab
    if change.detected != change.night:
        lines.append(f"seen {change.detected}")
    # Why it is open only where there is a reason.
    if change.status != "open" or change.why:
        lines.append(f"{change.status}: {change.why}")
    return tuple(lines)


def of_session(functions: ChangedFunctions) -> str:
    """The functions that a night's own session found changed, in the words of its report."""
    largest = [(each.name, each.difference) for each in functions.largest]
    words = changed_words(functions.tested, functions.count, largest)
    return f"{words}{f' instructions per {functions.unit_title}' * bool(functions.count)}"


def of_functions(change: FunctionsChange) -> str:
    """The functions that one night changed and the newest still has, and how that stands."""
    differences = [(each.name, each.difference) for each in change.functions]
    words = changed_words(change.tested, len(differences), differences)
    stands = f"; {change.status}: {change.why}" if change.why else ""
    of = f"{change.arm} against {change.against}"
    return f"{of}: {words} instructions per {change.unit_title}{stands}"


def function_change_line(change: FunctionsChange) -> str:
    """A change of functions in one line, without its track."""
    where = f"{change.night} {change.case} {change.metric}"
    return f"{where}: {of_functions(change)}; change {change.id}"


def overview(read: HistoryContents) -> list[str]:
    """A line a track, and one for each file that was left out."""
    lines = []
    for track, entries in by_track(read.entries).items():
        first, last = entries[0], entries[-1]
        nights, cases = counted(len(entries), "night"), counted(len(last.cases), "case")
        lines.append(
            clean_line(
                f"{' '.join(track)}: {nights}, {first.night} to {last.night}, "
                f"{cases}, {last.subject.name} is {last.subject.version}"
            )
        )
    lines += [clean_line(f"left out: {problem}") for problem in read.problems]
    return lines or ["no entries"]


# Of which a night says nothing: no change of them can be seen, or nobody knows of what.
UNSEEN = (*MISSING, Verdict.NOT_TESTED, Verdict.UNEXPLAINED)


def unseen(entries: Sequence[Entry]) -> list[dict[str, str]]:
    """What each track's newest night has no verdict of, by case and metric, and why."""
    newest = {entry.track: entry for entry in sorted(entries, key=lambda each: each.order)}
    return [
        {
            "night": entry.night,
            "case": case,
            "metric": read_name(each.metric),
            "verdict": each.verdict.value,
            "reason": each.reason,
        }
        for entry in newest.values()
        for pair in entry.of_series.values()
        for case, each in pair
        if each.verdict in UNSEEN
    ]
