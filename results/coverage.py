"""Which kernel functions each workload executes, how often, and which workload shows a change.

Pure but for two files: the data of one kernel source is ``configs/coverage/NAME.csv``, a row for
each function that is built into the kernel, and ``NAME.json``, which says of each column where it
was measured.  Counts are those of the probe (docs/notebook/probe.md): a function that the compiler
inlined has none of its own and is not in the table.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from errors import RecordError
from results import door
from results.profile import stem
from results.record import Record
from text import words

HEAD = ".json"
# What the kernel's build makes of each trace event; somebody who traces calls it, and nobody else.
TRACING = words(
    "perf_trace_ trace_event_raw_event_ trace_raw_output_ __bpf_trace_ __probestub_ "
    "__SCT__tp_func_ __traceiter_"
)


class CoverageError(RecordError):
    """Coverage files that cannot be read: names the file, and how to have it again."""

    def __init__(self, what: str, file: Path) -> None:
        super().__init__(
            what,
            where=str(file),
            next_step=f"restore it (git checkout {file}), or count anew: docs/coverage.md",
        )


class CoveredCase(Record):
    """One column: a case, the shipped experiment that has it, and how it was counted.

    ``ios`` are the I/Os of one run, or operations of its programs, ``instructions`` all that its
    phases executed, and ``run_cpu_s`` its host CPU seconds in that guest (an estimate for others of
    the same size).
    """

    case: str
    workload: str
    experiment: str
    guest: str
    ios: float
    instructions: float
    run_cpu_s: float


class CoverageHead(Record):
    """The file beside the table: whose functions these are, and its columns in their order."""

    source: str
    release: str
    cases: tuple[CoveredCase, ...]


Function = tuple[str, str]
# Of the score of a workload's best variant, from which on none is needed.
PLAIN_SHARE = 0.5


@dataclass(frozen=True)
class Coverage:
    """Functions of one kernel source and what executes them.

    ``calls`` maps every function, as file and name, to calls for an I/O (or operation) by case,
    over all its phases; a case that never executes it is not in the mapping.
    """

    source: str
    release: str
    cases: tuple[CoveredCase, ...]
    calls: Mapping[Function, Mapping[str, float]]

    @cached_property
    def by_name(self) -> Mapping[str, Sequence[Function]]:
        """Plain names of functions, without what the compiler added, to the rows that have them."""
        rows: dict[str, list[Function]] = {}
        for function in self.calls:
            rows.setdefault(plain(function[1]), []).append(function)
        return rows

    def with_session(self, other: Coverage) -> Coverage:
        """These cases with those of ``other``, which replace cases of the same name.

        Raises ValueError: of another kernel source or release.
        """
        if (self.source, self.release) != (other.source, other.release):
            raise ValueError(
                f"{other.source} ({other.release}) is not {self.source} ({self.release})"
            )
        names = {case.case for case in other.cases}
        cases = tuple(case for case in self.cases if case.case not in names)
        old = {case.case for case in cases}
        calls = {
            function: {
                **{name: n for name, n in self.calls.get(function, {}).items() if name in old},
                **other.calls.get(function, {}),
            }
            for function in {*self.calls, *other.calls}
        }
        return Coverage(
            self.source,
            self.release,
            tuple(sorted((*cases, *other.cases), key=lambda case: case.case)),
            calls,
        )

    def rows_of(
        self, names: Iterable[str], files: Collection[str] = ()
    ) -> dict[str, list[Function]]:
        """The rows of each plain name; of several files' functions those in ``files``, if any."""
        result = {}
        for name in names:
            rows = self.by_name.get(plain(name), ())
            here = [row for row in rows if row[0] in files]
            result[name] = here or list(rows)
        return result


@dataclass(frozen=True)
class Candidate:
    """A workload, by its best case: which changed functions it executes, and how often.

    That without a variant is the best where it has half the score of any.
    ``shares`` has of each of them its calls for an instruction of a run divided by those of the
    workload that executes it most: 1 there.  ``score`` is what workloads are ranked by: one that
    executes every function as often as any other does has as many as there are functions, and one
    that spends a hundredth of its time on what they do next to nothing.
    """

    case: CoveredCase
    shares: Mapping[str, float]
    calls_per_io: float

    @property
    def functions(self) -> tuple[str, ...]:
        """The changed functions that it executes."""
        return tuple(self.shares)

    @property
    def score(self) -> float:
        """The sum of its shares."""
        return sum(self.shares.values())


@dataclass(frozen=True)
class Suggestion:
    """What would show a change, best first.

    ``functions`` are those that change.  ``never`` of them are built in and executed by no
    workload; ``absent`` are no functions of this kernel: inlined, not built, or of another
    version.  ``by_files`` says that no changed function is known, and that the candidates
    execute other functions of the same files.
    """

    functions: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    never: tuple[str, ...]
    absent: tuple[str, ...]
    by_files: bool = False


def plain(name: str) -> str:
    """Its stem; the name itself of what has none, as of a label."""
    return stem(name) or name


def suggest(coverage: Coverage, functions: Sequence[str], files: Sequence[str]) -> Suggestion:
    """Rank workloads by how many of the changed ``functions`` they execute and how often.

    ``files`` are those that the series changes, relative to the kernel's source.  Where no
    changed function is in the kernel's table, other functions of the same files stand for them.
    """
    names = tuple(dict.fromkeys(functions))
    rows = coverage.rows_of(names, files)
    absent = tuple(name for name in names if not rows[name])
    never = tuple(
        name for name in names if rows[name] and not any(coverage.calls[row] for row in rows[name])
    )
    by_files = len(absent) == len(names)
    if by_files:
        rows = {}
        for row in coverage.calls:
            if row[0] in files:
                rows.setdefault(row[1], []).append(row)
    calls = {
        case: {
            name: sum(coverage.calls[row].get(case.case, 0.0) for row in rows_of_name)
            for name, rows_of_name in rows.items()
            if any(case.case in coverage.calls[row] for row in rows_of_name)
        }
        for case in coverage.cases
    }
    # How much of a run they have says whether a change of them is seen in its path: an operation
    # may be a system call, or a file that is compiled.  Instructions are the same on every host.
    often = {
        case: {name: number * case.ios / case.instructions for name, number in of.items()}
        for case, of in calls.items()
    }
    most = {name: max(each.get(name, 0.0) for each in often.values()) for name in rows}
    candidates = [
        # A count that is so small that it was rounded to 0 in the table is executed all the same.
        Candidate(
            case,
            {name: n / most[name] if most[name] else 0.0 for name, n in often[case].items()},
            sum(counts.values()),
        )
        for case, counts in calls.items()
        if counts
    ]
    candidates.sort(key=lambda each: (-each.score, -each.calls_per_io, each.case.case))
    best: dict[str, Candidate] = {}
    for candidate in candidates:
        case = candidate.case
        first = best.setdefault(case.workload, candidate)
        if case.case == case.workload and candidate.score >= PLAIN_SHARE * first.score:
            best[case.workload] = candidate
    ranked = sorted(best.values(), key=lambda each: (-each.score, -each.calls_per_io))
    return Suggestion(names, tuple(ranked), never, absent, by_files)


@dataclass(frozen=True)
class FolderCoverage:
    """Of one folder: functions built in, and executed, by each workload and by any.

    ``tracing`` of those that nothing executes are made of trace events.
    """

    folder: str
    functions: int
    by_workload: Mapping[str, int]
    executed: int
    tracing: int

    @property
    def share(self) -> float:
        """Executed of all."""
        return self.executed / self.functions if self.functions else 0.0

    @property
    def untraced_share(self) -> float:
        """Executed of those that are not made of trace events alone."""
        rest = self.functions - self.tracing
        return self.executed / rest if rest else 0.0


def by_folder(coverage: Coverage, folders: Sequence[str]) -> tuple[FolderCoverage, ...]:
    """Count functions below each of ``folders`` (``mm``, ``fs/iomap``, ``lib/xarray.c``)."""
    workload_of = {case.case: case.workload for case in coverage.cases}
    coverages = []
    for folder in folders:
        rows = [row for row in coverage.calls if f"{row[0]}/".startswith(f"{folder}/")]
        counts: Counter[str] = Counter()
        for row in rows:
            counts.update({workload_of[case] for case in coverage.calls[row]})
        executed = sum(bool(coverage.calls[row]) for row in rows)
        tracing = sum(not coverage.calls[row] and row[1].startswith(TRACING) for row in rows)
        coverages.append(
            FolderCoverage(folder, len(rows), dict(sorted(counts.items())), executed, tracing)
        )
    return tuple(coverages)


def write(coverage: Coverage, table: Path) -> None:
    """Write ``table`` (.csv) and its .json; equal coverage is equal bytes."""
    names = [case.case for case in coverage.cases]
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("file", "function", *names))
    for function in sorted(coverage.calls):
        calls = coverage.calls[function]
        rows.writerow((*function, *(f"{calls[n]:.3g}" if n in calls else "" for n in names)))
    head = CoverageHead(source=coverage.source, release=coverage.release, cases=coverage.cases)
    table.parent.mkdir(parents=True, exist_ok=True)
    door.write(table.parent, table.name, text.getvalue())
    door.write(table.parent, table.with_suffix(HEAD).name, head.model_dump_json(indent=1) + "\n")


def read(table: Path) -> Coverage:
    """Read what :func:`write` wrote.

    Raises CoverageError: a file is missing or damaged; it is named.
    """
    head_file = table.with_suffix(HEAD)
    try:
        head = CoverageHead.model_validate_json(head_file.read_bytes())
    except (OSError, ValidationError) as error:
        raise CoverageError(str(error).splitlines()[0], head_file) from None
    cases = head.cases
    calls: dict[Function, dict[str, float]] = {}
    try:
        with table.open(encoding="utf-8", newline="") as lines:
            rows = csv.reader(lines)
            first = next(rows, [])
            if first != ["file", "function", *(case.case for case in cases)]:
                raise CoverageError(f"line 1: not the cases of {head_file.name}", table)
            for row in rows:
                if len(row) != len(first):
                    raise CoverageError(
                        f"line {rows.line_num}: {len(row)} fields, {len(first)} wanted", table
                    )
                # Three of four functions are executed by nothing.
                numbers = zip(first[2:], row[2:], strict=True) if any(row[2:]) else ()
                calls[row[0], row[1]] = {name: float(n) for name, n in numbers if n}
    except ValueError as error:
        raise CoverageError(f"line {rows.line_num}: {error}", table) from None
    except (OSError, csv.Error) as error:
        raise CoverageError(str(error), table) from None
    return Coverage(head.source, head.release, cases, calls)
