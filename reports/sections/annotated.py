"""The diff with a margin: how often each line ran, on base to the left and on patched to the right.

A line that has code and never ran is marked as gcov does it; one without code has no number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from analysis.explain.annotated import EXPLANATION, AnnotatedHunk, AnnotatedLine, AnnotatedPhase
from analysis.model import Comparison
from reports import wording
from reports.document import Block, Code, Fold, Heading, Paragraph
from reports.sections import View
from text import counted

NEVER = "#####"
WIDE = 8
TAB = 4
HOW = (
    "Where the compiler made copies of a line, inlined or not, they are added up; a line without a "
    "number has no code, and one with a ~ left none of its own, so that it ran about as often."
)


def summary(comparison: Comparison) -> str:
    """``31 of 44 changed lines ran``, in some phase; empty where lines were not counted."""
    phases = EXPLANATION.of(comparison)
    every = set[tuple[str, str, int]]().union(*(each.changed() for each in phases))
    ran = set[tuple[str, str, int]]().union(*(each.changed(ran=True) for each in phases))
    return f"{len(ran)} of {counted(len(every), 'changed line')} ran" if every else ""


def blocks(_: View, comparison: Comparison) -> list[Block]:
    """A fold for each phase; forms of characters have it by a verb of its own."""
    return [
        Fold(f"{_title(each)}: the diff by lines, {_ran(each)}", tuple(of_phase(each)), True)
        for each in EXPLANATION.of(comparison)
    ]


def shown(comparison: Comparison, pair: str = "") -> list[Block]:
    """Every phase of a pair of arms with its diff, for those who ask for nothing else."""
    blocks: list[Block] = []
    for each in EXPLANATION.of(comparison):
        blocks.append(Heading(": ".join(filter(None, (pair, _title(each), _ran(each)))), 2))
        blocks += of_phase(each)
    return [*blocks, Paragraph(HOW, "note")] if blocks else []


def of_phase(phase: AnnotatedPhase) -> list[Block]:
    """The hunks of each file, behind what the numbers are."""
    lead = (
        f"How often each line ran per {phase.unit_title}, over "
        f"{counted(len(phase.seeds), 'seed')}: on base to the left, on patched to the right; "
        f"{NEVER} never."
    )
    files = groupby(phase.hunks, key=lambda hunk: hunk.file)
    return [
        Paragraph(lead, "note"),
        *(Code("\n".join([file, *lines_of(hunks)]), "diff") for file, hunks in files),
    ]


def lines_of(hunks: Iterable[AnnotatedHunk]) -> Iterator[str]:
    """The lines of some hunks with their margin, each hunk behind what ran of it."""
    for hunk in hunks:
        changed = [line.runs for line in hunk.lines if line.runs is not None]
        ran = sum(map(bool, changed))
        executed = (
            f"{ran} of {counted(len(changed), 'changed line')} ran" if ran else "not executed"
        )
        share = f"{100 * hunk.base:.2g} -> {100 * hunk.patched:.2g} % of the phase"
        yield f"{'':{2 * WIDE + 2}}{hunk.header}"
        yield f"{'':{2 * WIDE + 2}}[{executed if changed else 'no code changed'}; {share}]"
        for line in hunk.lines:
            margin = f"{_number(line.base, line)} {_number(line.patched, line)}"
            yield f"{margin} {line.sign}{line.text.expandtabs(TAB)}".rstrip()


def _number(ran: float | None, line: AnnotatedLine) -> str:
    if ran is None:
        return f"{'':{WIDE}}"
    text = wording.figure(ran, 3) if ran else NEVER
    text = text if len(text) < WIDE else f"{ran:.1e}"
    return f"{'' if line.exact else '~'}{text}".rjust(WIDE)


def _title(phase: AnnotatedPhase) -> str:
    return f"{phase.case} {phase.phase}"


def _ran(phase: AnnotatedPhase) -> str:
    return f"{len(phase.changed(ran=True))} of {counted(len(phase.changed()), 'changed line')} ran"
