"""Where a change came from: instructions and calls by function, per unit of work, in pairs.

Pure.  Counts explain; of a verdict they say whether the changed code can have made it
(``analysis.linked``).  What fails a gate by choice is that a function changed at all: its
instructions or its calls per unit of work moved in one direction on every seed, by at least
:data:`SMALLEST` of the phase or what the phase's workload has instead, and the paired t test
survives Holm's correction over all functions that are large enough to move by as much (half of
it, on average over both arms), of all phases of the two arms, instructions and calls each.  How
often that is wrong where nothing changed is measured (docs/notebook/evidence.md).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from analysis import counts
from analysis.counts import (
    Arm,
    CountedPhase,
    CountTable,
    Floats,
    Named,
    OnePhase,
    Paired,
    Recorded,
    Row,
    SeedProfiles,
)
from analysis.explain import Explanation
from analysis.linked import Counted, Split, network, split
from analysis.statistics import holm, pairs_needed
from experiment.spec import FUNCTIONS
from results.profile import IDLE_PROGRAM, UNKNOWN, WORK, PhaseProfile
from results.record import Record, UnitRecord

# The listed functions sum to the whole difference within this fraction of it ...
TOLERANCE = 0.05
# ... and make up at least this share of all absolute differences, so that two large ones
# which cancel each other are not passed over.
MOVEMENT = 0.80
USER = "user: "
# A process drags in dozens of libraries; below this share of all instructions a file is
# not worth a row among the parts.
SMALL_FILE = 0.005
SMALL_FILES = "user: other files"
# Instructions that a profile counts and gives to no function and no file.
NOT_ATTRIBUTED = "[not attributed]"
# Of all instructions of a phase.
SMALLEST = 2.5e-4
# Functions whose instructions say how memory was left by the boot, and not what a series does: by
# calls alone they can change.  __rmqueue_pcplist() takes 69 to 135 instructions a call by which
# memory is free, the same on all seeds of a build: up to 0.09 % of iomap-dirty, in 20 of 78 pairs
# of changes that change nothing (docs/notebook/evidence.md).
BY_BOOT = frozenset({"__rmqueue_pcplist"})
Moved = Literal["instructions", "calls"]
# Changed functions that are shown, and kept of a night; functions.csv marks them all.
MOST_CHANGED = 12
FILE = Path(__file__).parent.parent / "subsystems.toml"
OTHER = "other kernel code"


class FunctionRow(Record):
    """One kernel function, or one file of user code (``user``), per unit of work.

    ``only_in`` names the arm that alone executed it; ``calls`` is None for user code,
    whose functions are not told apart.  ``lines`` are where its definition
    begins in ``file`` on base and patched, 0 where that is not known.
    """

    name: str
    file: str
    lines: tuple[int, int] = (0, 0)
    subsystem: str
    instructions: Paired
    calls: Paired | None
    user: bool = False
    only_in: Arm = ""

    @property
    def shown_name(self) -> str:
        """The name; a file of user code says so."""
        return f"{self.name} (user)" if self.user else self.name


class FileRow(Record):
    """All functions of a source file together; ``file`` is empty where it is not known."""

    file: str
    functions: int
    instructions: Paired


class GroupRow(Record):
    """All functions of a subsystem together, and by file: both the largest difference first."""

    title: str
    functions: int
    instructions: Paired
    files: tuple[FileRow, ...] = ()


class RatioRow(Record):
    """Calls of some functions per unit, such as tree walks per folio added.

    ``absent`` names functions that were never entered in one of the arms: they may be
    inlined there, and the count may then be too low.
    """

    name: str
    title: str
    functions: tuple[str, ...]
    calls: Paired
    absent: tuple[str, ...] = ()


class FunctionChange(Record):
    """A kernel function that changed, per unit of work (``reports.changed_functions``).

    ``moved`` says in what; ``size`` is the larger difference in instructions per unit, that of
    calls at the function's mean length; ``p_value`` is Holm's, the smaller one.
    ``lines`` are as in :class:`FunctionRow`.
    """

    name: str
    file: str
    lines: tuple[int, int] = (0, 0)
    instructions: Paired
    calls: Paired
    moved: tuple[Moved, ...]
    size: float
    p_value: float

    @property
    def per_call(self) -> tuple[float | None, float | None]:
        """Instructions per call on both arms; None where it was never called."""
        spent, calls = self.instructions, self.calls
        return (
            spent.base / calls.base if calls.base else None,
            spent.patched / calls.patched if calls.patched else None,
        )


class Attribution(OnePhase):
    """Instructions per unit of work in one phase of one case, base against patched.

    ``functions`` holds every row, the largest absolute difference first, and sums to
    ``total``; the first ``listed`` of them are shown and ``others`` is the sum of the
    rest, None where there is no rest.  ``headline`` marks the phase's first unit.
    ``identical`` means that every function executed the same number of instructions
    and was called as often on both arms with every seed.

    ``tested`` is how many functions were tested for a change and ``changed`` those that
    have one, the largest first; only a headline has them, and 0 were tested where there
    are too few seeds or the session's numbers cannot be believed.  ``split`` is a headline's, where
    functions that differ ran and it is known who calls whom.
    """

    unit: str
    headline: bool
    total: Paired
    functions: tuple[FunctionRow, ...]
    listed: int
    others: Paired | None
    groups: tuple[GroupRow, ...]
    ratios: tuple[RatioRow, ...] = ()
    identical: bool = False
    tested: int = 0
    changed: tuple[FunctionChange, ...] = ()
    split: Split | None = None

    @property
    def largest_change(self) -> float:
        """The size of the largest change of a function, as a fraction of the phase; 0 for none."""
        return self.changed[0].size / self.total.base if self.changed else 0.0

    @property
    def rows(self) -> tuple[FunctionRow, ...]:
        """The functions that are listed."""
        return self.functions[: self.listed]

    @property
    def share(self) -> float | None:
        """Listed differences over the whole one; None where the whole one is zero."""
        whole = self.total.difference
        return sum(row.instructions.difference for row in self.rows) / whole if whole else None

    @property
    def movement(self) -> float | None:
        """Listed absolute differences over those of all functions; None where all are zero."""
        everything = sum(abs(row.instructions.difference) for row in self.functions)
        listed = sum(abs(row.instructions.difference) for row in self.rows)
        return listed / everything if everything else None


class Subsystem(Record):
    """Prefixes of source files, and of function names for functions of no known file."""

    title: str
    files: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


@functools.cache
def _data() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


@functools.cache
def catalogue() -> tuple[Subsystem, ...]:
    """All subsystems in the order of the data file."""
    return tuple(Subsystem.model_validate(row) for row in _data()["subsystems"])


def files_by_heart() -> Iterator[tuple[str, str]]:
    """Each file that a subsystem is known by, and its later name or itself."""
    later: dict[str, str] = _data()["later"]
    every = (file for entry in catalogue() for file in entry.files)
    return ((file, later.get(file, file)) for file in every if file not in later.values())


def programs() -> dict[str, str]:
    """What user files are, by name; only those that need a word."""
    named: dict[str, str] = _data()["programs"]
    return named


@functools.cache
def subsystem(function: str, file: str) -> str:
    """Title of the subsystem; :data:`OTHER` where no prefix fits."""
    best, title = 0, OTHER
    for entry in catalogue():
        for prefix in entry.files if file else entry.functions:
            if (file or function).startswith(prefix) and len(prefix) > best:
                best, title = len(prefix), entry.title
    return title


class PhaseCounts(NamedTuple):
    """Kernel functions of one phase per unit of work: each array is (seeds, functions)."""

    names: Sequence[str]
    files: Sequence[str]
    lines: Sequence[tuple[int, int]]
    instructions: tuple[Floats, Floats]
    calls: tuple[Floats, Floats]
    total: float
    smallest: float = SMALLEST


class Tested(NamedTuple):
    """One phase: how many functions were tested, and those that changed, the largest first."""

    functions: int
    changed: tuple[FunctionChange, ...]


class _Candidate(NamedTuple):
    """One test: of a function's instructions or of its calls.

    ``size`` is the difference in instructions per unit: that of calls at the function's mean
    length.
    """

    phase: int
    column: int
    moved: Moved
    size: float
    p_value: float
    one_direction: bool


def changed(phases: Sequence[PhaseCounts], alpha: float) -> list[Tested]:
    """The functions of each phase that changed; all phases are one family for Holm.

    Fewer seeds than a verdict at that level needs test nothing.
    """
    candidates: list[_Candidate] = []
    for at, here in enumerate(phases):
        (base, patched), calls = here.instructions, here.calls
        if base.shape[0] < pairs_needed(1 - alpha):
            continue
        # Chosen by the mean of both arms, which says nothing of the difference.
        means = (base.mean(axis=0) + patched.mean(axis=0)) / 2
        entered = (calls[0].mean(axis=0) + calls[1].mean(axis=0)) / 2
        length = np.divide(means, entered, out=np.zeros_like(means), where=entered > 0)
        large = np.flatnonzero(means >= here.smallest / 2 * here.total)
        tests: tuple[tuple[Moved, Floats, Floats], ...] = (
            ("instructions", patched - base, np.ones_like(length)),
            ("calls", calls[1] - calls[0], length),
        )
        for moved, differences, scale in tests:
            apart = differences[:, large]
            sizes, p_values = apart.mean(axis=0) * scale[large], _t_p(apart)
            one_direction = np.abs(np.sign(apart).sum(axis=0)) == len(apart)
            numbers = zip(sizes.tolist(), p_values.tolist(), one_direction.tolist(), strict=True)
            candidates += [
                _Candidate(at, column, moved, *each)
                for column, each in zip(large.tolist(), numbers, strict=True)
                if moved == "calls" or here.names[column] not in BY_BOOT
            ]
    adjusted = holm([candidate.p_value for candidate in candidates])
    changes: list[list[FunctionChange]] = [[] for _ in phases]
    significant: dict[tuple[int, int], list[tuple[_Candidate, float]]] = {}
    for each, p_value in zip(candidates, adjusted, strict=True):
        least = phases[each.phase].smallest * phases[each.phase].total
        if each.one_direction and abs(each.size) >= least and p_value <= alpha:
            significant.setdefault((each.phase, each.column), []).append((each, p_value))
    for (at, column), own in significant.items():
        here, own_column = phases[at], slice(column, column + 1)
        instructions, calls_ = (
            counts.columns(base[:, own_column], patched[:, own_column])[0]
            for base, patched in (here.instructions, here.calls)
        )
        changes[at].append(
            FunctionChange(
                name=here.names[column],
                file=here.files[column],
                lines=here.lines[column],
                instructions=instructions,
                calls=calls_,
                moved=tuple(each.moved for each, _ in own),
                size=max((each.size for each, _ in own), key=abs),
                p_value=min(p_value for _, p_value in own),
            )
        )
    return [
        Tested(
            len({each.column for each in candidates if each.phase == at}),
            tuple(sorted(of_phase, key=lambda change: (-abs(change.size), change.name))),
        )
        for at, of_phase in enumerate(changes)
    ]


def _t_p(differences: Floats) -> Floats:
    """Two-sided p values of paired t tests, one a column of (seeds, functions).

    Differences that are all equal have no scatter: 0, or 1 where all are zero.
    """
    from scipy import special  # as in statistics.py

    seeds = differences.shape[0]
    constant = (differences == differences[0]).all(axis=0)
    error = differences.std(axis=0, ddof=1) / math.sqrt(seeds)
    ratio = np.divide(
        np.abs(differences.mean(axis=0)), error, out=np.zeros_like(error), where=~constant
    )
    certain = np.where(differences[0] == 0, 1.0, 0.0)
    return np.asarray(np.where(constant, certain, 2 * special.stdtr(seeds - 1, -ratio)))


def _counted(run: PhaseProfile) -> Iterator[Row[Named]]:
    left = run.busy
    for function in run.kernel:
        left -= function.instructions
        if function.instructions or function.calls:
            spent = function.instructions, function.calls
            yield Named(function.name, False), function.file, spent
    for name, instructions in run.user.items():
        # What only keeps the vCPU from being idle is no part of what was done.
        if name != IDLE_PROGRAM and instructions:
            left -= instructions
            yield Named(name, True), "", (instructions, 0)
    if left:
        yield Named(NOT_ATTRIBUTED, False), "", (left, 0)


def _per(
    table: CountTable[Named], column: int, keys: Sequence[int] | slice = slice(None)
) -> tuple[Floats, Floats]:
    """Instructions or calls of these keys per unit, by arm: (seeds, keys)."""
    base, patched = table.raw[:, :, keys, column] / table.units[:, :, None]
    return np.asfortranarray(base), np.asfortranarray(patched)


def _summed(table: CountTable[Named], keys: Sequence[int] | slice = slice(None)) -> Paired:
    """Instructions of these keys together."""
    return counts.pair(*(table.raw[:, :, keys, 0].sum(axis=2) / table.units))


def _lines(blocks: Sequence[SeedProfiles]) -> dict[str, tuple[int, int]]:
    """Where the definition of each function begins on both arms."""
    lines: dict[str, tuple[int, int]] = {}
    for block in blocks:
        for function in block.base.kernel:
            lines[function.name] = function.line, lines.get(function.name, (0, 0))[1]
        for function in block.patched.kernel:
            lines[function.name] = lines.get(function.name, (0, 0))[0], function.line
    return lines


def _rows(
    table: CountTable[Named], lines: Mapping[str, tuple[int, int]]
) -> list[tuple[int, FunctionRow]]:
    """Every row with its column, the largest difference first, then by name."""
    rows = []
    executed = np.asarray(table.raw[..., 0].any(axis=1), np.bool_)
    spent, calls = (counts.columns(*_per(table, column)) for column in (0, 1))
    for column, key in enumerate(table.keys):
        in_base, in_patched = executed[:, column].tolist()
        file = table.files[key]
        only: Arm = "" if in_base and in_patched else "base" if in_base else "patched"
        rows.append(
            (
                column,
                FunctionRow(
                    name=key.name,
                    file=file,
                    user=key.user,
                    only_in=only,
                    subsystem=f"{USER}{key.name}" if key.user else subsystem(key.name, file),
                    lines=(0, 0) if key.user else lines.get(key.name, (0, 0)),
                    instructions=spent[column],
                    calls=None if key.user else calls[column],
                ),
            )
        )
    rows.sort(key=lambda row: (-abs(row[1].instructions.difference), row[1].name, row[1].user))
    return rows


def listed(differences: Sequence[float]) -> int:
    """How many of the differences, sorted by size, are to be listed.

    The fewest whose sum lies within :data:`TOLERANCE` of the whole difference and whose
    absolute sum is at least :data:`MOVEMENT` of all; zeros are never listed.
    """
    moved = sum(value != 0 for value in differences)
    whole, everything = sum(differences), sum(map(abs, differences))
    total = absolute = 0.0
    for number, value in enumerate(differences[: counts.MOST_LISTED], start=1):
        total, absolute = total + value, absolute + abs(value)
        if abs(whole - total) <= TOLERANCE * abs(whole) and absolute >= MOVEMENT * everything:
            return min(number, moved)
    return min(counts.MOST_LISTED, moved)


def _groups(
    rows: Sequence[tuple[int, FunctionRow]], table: CountTable[Named], total: Paired
) -> tuple[GroupRow, ...]:
    least = SMALL_FILE * total.base
    alone = {column: row.instructions for column, row in rows}
    members: dict[str, dict[str, list[int]]] = {}
    for column, row in rows:
        small = row.user and max(row.instructions.base, row.instructions.patched) < least
        files = members.setdefault(SMALL_FILES if small else row.subsystem, {})
        files.setdefault(row.name if row.user else row.file, []).append(column)
    groups = []
    for title, files in members.items():
        file_rows = [
            FileRow(
                file=file,
                functions=len(own),
                # Most files and programs are a single row.
                instructions=_summed(table, own) if own[1:] else alone[own[0]],
            )
            for file, own in files.items()
        ]
        file_rows.sort(key=lambda row: (-abs(row.instructions.difference), row.file))
        every = [column for own in files.values() for column in own]
        together = {"functions": len(every), "instructions": _summed(table, every)}
        groups.append(GroupRow(title=title, files=tuple(file_rows), **together))
    return tuple(sorted(groups, key=lambda g: (-abs(g.instructions.difference), g.title)))


def _ratios(here: CountedPhase, table: CountTable[Named]) -> tuple[RatioRow, ...]:
    known = {key.name: number for number, key in enumerate(table.keys) if not key.user}
    calls = table.raw[..., 1]
    rows = []
    for ratio in here.phase.ratios:
        if not all(run.units.get(ratio.unit, 0.0) > 0 for run in here.every):
            continue
        mine, less = (
            sorted(known[name] for name in {*names} if name in known)
            for names in (ratio.functions, ratio.less)
        )
        times = calls[:, :, mine].sum(axis=2) - calls[:, :, less].sum(axis=2)
        entered = {
            table.keys[number].name for number in mine if calls[:, :, number].any(axis=1).all()
        }
        rows.append(
            RatioRow(
                name=ratio.name,
                title=ratio.title,
                functions=ratio.functions,
                calls=counts.pair(*(times / dataclasses.replace(here, unit=ratio.unit).units)),
                absent=tuple(name for name in ratio.functions if name not in entered),
            )
        )
    return tuple(rows)


class _Phase(NamedTuple):
    """A phase per each unit of work that every run did, its counts, and where functions begin."""

    units: list[CountedPhase]
    table: CountTable[Named]
    lines: Mapping[str, tuple[int, int]]

    def attributed(self, number: int) -> Attribution:
        """Its attribution per one of the units: that of the first is the headline."""
        here = self.units[number]
        table = dataclasses.replace(self.table, units=here.units)
        rows = _rows(table, self.lines)
        many = listed([row.instructions.difference for _, row in rows])
        total, rest = _summed(table), [column for column, _ in rows[many:]]
        return Attribution(
            **here.where,
            unit=here.unit,
            headline=number == 0,
            total=total,
            functions=tuple(row for _, row in rows),
            listed=many,
            others=_summed(table, rest) if rest else None,
            groups=_groups(rows, table, total),
            ratios=_ratios(here, table) if number == 0 else (),
            identical=np.array_equal(*table.raw)
            and all(block.base.units == block.patched.units for block in here.blocks),
        )


def _phases(recorded: Recorded) -> Iterator[_Phase]:
    for case, phase, blocks in counts.profiled_phases(recorded):
        names = sorted(blocks[0].base.units)
        units = phase.units or [UnitRecord(name=name, title=name) for name in names]
        every = [CountedPhase(case, phase, blocks, unit.name, unit.title) for unit in units]
        every = [of for of in every if all(run.units.get(of.unit, 0.0) > 0 for run in of.every)]
        if every:
            yield _Phase(every, every[0].table(_counted, 2), _lines(blocks))


def headlines(recorded: Recorded) -> tuple[Attribution, ...]:
    """The attribution of each phase per its first unit, in the order of the manifest.

    Where the session is not trusted, no function is called changed, and none of a phase that
    prepares others, nor of one in which nothing ran that differs.  What a phase moved by is split
    where functions that differ ran and it is known who calls whom, and none is called changed of
    the functions that are not linked with them.
    """
    attributions: list[Attribution] = []
    counts_of: dict[int, PhaseCounts] = {}
    thresholds = recorded.manifest.experiment.thresholds
    for each in recorded.once("phases", lambda: list(_phases(recorded))):
        attribution, case, phase = each.attributed(0), each.units[0].case, each.units[0].phase
        if not phase.prepares:
            table = each.table
            here = _counts(table, each.lines)
            names = recorded.ran.get((case.name, phase.name), ())
            if names and recorded.calls is not None:
                # Of a phase with a program a path is the kernel's alone.  What boots differ by
                # is in the rest, so that the usual smallest change is asked for.
                whole = attribution.unit == WORK
                path = [at for at, key in enumerate(table.keys) if whole or not key.user]
                total = table.raw[:, :, path, 0].sum(axis=2) / table.units
                moved = Counted(here.names, here.instructions, here.calls, list(total))
                parts = split(moved, names, network(here.names, recorded.calls))
                attribution = attribution.model_copy(update={"split": parts})
            else:
                own = thresholds.own(case.name, f"{phase.name}.{FUNCTIONS}")
                here = here._replace(smallest=own or SMALLEST)
            counts_of[len(attributions)] = here
        attributions.append(attribution)
    tests = changed(list(counts_of.values()) if recorded.trusted else [], thresholds.alpha)
    for at, tested in zip(counts_of, tests, strict=False):
        judged = attributions[at]
        of, ran = judged.split, recorded.ran.get((judged.case, judged.phase))
        functions = tuple(f for f in tested.changed if of is None or f.name in of.linked_with)
        # None where it is not known what ran; empty where nothing did.
        update = {"tested": tested.functions, "changed": functions if ran is None or ran else ()}
        attributions[at] = judged.model_copy(update=update)
    return tuple(attributions)


def attribute(recorded: Recorded) -> tuple[Attribution, ...]:
    """One attribution a case, phase and unit of work, in the order of the manifest.

    A unit of which some run did none is left out.
    """
    firsts = HEADLINES.made(recorded)
    return tuple(
        first if number == 0 else each.attributed(number)
        for each, first in zip(recorded.kept["phases"], firsts, strict=True)
        for number in range(len(each.units))
    )


def _counts(table: CountTable[Named], lines: Mapping[str, tuple[int, int]]) -> PhaseCounts:
    """The kernel's functions per a unit."""
    kernel = [
        at
        for at, key in enumerate(table.keys)
        if not key.user and key.name not in (NOT_ATTRIBUTED, UNKNOWN)
    ]
    names = [table.keys[at].name for at in kernel]
    return PhaseCounts(
        names=names,
        files=[table.files[table.keys[at]] for at in kernel],
        lines=[lines.get(name, (0, 0)) for name in names],
        instructions=_per(table, 0, kernel),
        calls=_per(table, 1, kernel),
        total=float(_per(table, 0)[0].sum(axis=1).mean()),
    )


HEADLINES = Explanation("headlines", "Functions", 9, Attribution, headlines, part=True)
EXPLANATION = Explanation(
    "attributions",
    "Functions",
    10,
    Attribution,
    attribute,
    lambda each: each.model_copy(update={"functions": each.rows}),
)
