"""The diff of two arms with how often each of its lines ran, per read or operation: pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Literal

from analysis import counts
from analysis.counts import OnePhase, Recorded
from analysis.explain import Explanation
from results.profile import Annotation, FileCounts, FileDiff
from results.record import Record

IO = "io"


class AnnotatedLine(Record):
    """A line of a diff, by its number in the file of its side (that of patched for context).

    ``base`` and ``patched`` are how often it ran there per unit: None where it has no code.  Not
    ``exact`` it left no instruction of its own, and ran about as often.
    """

    sign: Literal[" ", "-", "+"]
    number: int
    text: str
    base: float | None = None
    patched: float | None = None
    exact: bool = True

    @property
    def runs(self) -> float | None:
        """Of a changed line how often it ran; None of context, and without code of its own."""
        return {"-": self.base, "+": self.patched}.get(self.sign) if self.exact else None


class AnnotatedHunk(Record):
    """A hunk; its lines take so much of all instructions of the phase on either arm, 0 to 1.

    ``without`` says why its lines have no counts.
    """

    file: str
    header: str
    lines: tuple[AnnotatedLine, ...]
    base: float
    patched: float
    without: str = ""


class AnnotatedPhase(OnePhase):
    """All hunks in one phase of one case."""

    hunks: tuple[AnnotatedHunk, ...]

    def changed(self, *, ran: bool = False) -> set[tuple[str, str, int]]:
        """File, sign and number of the changed lines that have code, or of those that ran."""
        return {
            (hunk.file, line.sign, line.number)
            for hunk in self.hunks
            for line in hunk.lines
            if line.runs is not None and (line.runs or not ran)
        }


def compare_lines(recorded: Recorded) -> Iterator[AnnotatedPhase]:
    """One for each phase that was counted on both arms; nothing where no lines are on record."""
    annotation, manifest = recorded.annotation, recorded.manifest
    if annotation is None:
        return
    arms = (manifest.base, manifest.patched)
    diffs = [each for each in annotation.diffs if (each.base, each.patched) == arms]
    for here in counts.phases(recorded, lambda run: True, favourite=IO):
        at = (here.case.name, here.phase.name)
        sides = [_Side(recorded, annotation, arm, *at, here.unit) for arm in arms]
        hunks = [
            hunk
            for diff in diffs
            for hunk in hunks_of(diff, annotation.without.get(diff.file, ""), *sides)
        ]
        if hunks and any(side.files for side in sides):
            yield AnnotatedPhase(
                case=here.case.name,
                phase=here.phase.name,
                unit_title=here.unit_title,
                seeds=tuple(block.seed for block in here.blocks),
                hunks=tuple(hunks),
            )


class _Side:
    """One arm in one phase: its files' lines, and units and instructions of the same runs."""

    def __init__(
        self, recorded: Recorded, annotation: Annotation, arm: str, case: str, phase: str, unit: str
    ) -> None:
        own = [c for c in annotation.counts if (c.arm, c.case, c.phase) == (arm, case, phase)]
        self.files: dict[str, FileCounts] = {each.file: each for each in own}
        runs = {run_id for each in own for run_id in each.runs}
        phases = [
            of_phase
            for profile in recorded.profiles
            if profile.run_id in runs
            for of_phase in profile.phases
            if of_phase.phase == phase
        ]
        self.units = sum(each.units.get(unit, 0) for each in phases)
        self.instructions = sum(each.busy for each in phases)

    def ran(self, file: str, line: int) -> tuple[float | None, bool]:
        """How often a line ran per unit, None where it has no code, and whether that is exact."""
        counted = self.files[file].lines.get(line) if file in self.files else None
        return (counted[0] / self.units, counted[2]) if counted and self.units else (None, True)

    def share(self, file: str, lines: set[int]) -> float:
        """The share of the phase's instructions that these lines took."""
        known = self.files[file].lines if file in self.files else {}
        spent = sum(known[line][1] for line in lines if line in known)
        return spent / self.instructions if self.instructions else 0.0


def hunks_of(diff: FileDiff, without: str, base: _Side, patched: _Side) -> Iterator[AnnotatedHunk]:
    """The hunks of a file with how often their lines ran on either side."""
    number = 0
    texts: list[tuple[int, str]] = []
    for line in diff.hunks.split("\n"):
        number += line.startswith("@@ ")
        texts.append((number, line))
    for _, group in groupby(texts, key=lambda each: each[0]):
        header, *rest = (text for _, text in group)
        old, new = (int(word[1:].partition(",")[0]) for word in header.split()[1:3])
        lines: list[AnnotatedLine] = []
        numbers: tuple[set[int], set[int]] = (set(), set())
        for text in rest:
            sign, own = text[:1] or " ", text[1:]
            ran: dict[str, float | None] = {}
            exact = [True, True]
            if sign != "+":
                ran["base"], exact[0] = base.ran(diff.file, old)
                numbers[0].add(old)
            if sign != "-":
                ran["patched"], exact[1] = patched.ran(diff.file, new)
                numbers[1].add(new)
            values = {"sign": sign, "number": old if sign == "-" else new, "text": own, **ran}
            lines.append(AnnotatedLine.model_validate({**values, "exact": all(exact)}))
            old, new = old + (sign != "+"), new + (sign != "-")
        yield AnnotatedHunk(
            file=diff.file,
            header=header,
            lines=tuple(lines),
            base=base.share(diff.file, numbers[0]),
            patched=patched.share(diff.file, numbers[1]),
            without=without,
        )


EXPLANATION = Explanation(
    name="annotated", title="Changed lines", rank=90, record=AnnotatedPhase, compare=compare_lines
)
