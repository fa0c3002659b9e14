"""What a function is called and part of, and functions that may be one under another name.

A compiler inlines, clones and splits, and a series renames.  Then a difference is
shown at two functions of which neither changed.  Counts alone cannot prove that, so
rows stay as they were counted and a hint stands beside them, never a merge.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from analysis.counts import Arm
from analysis.paired import Paired
from results.record import Record

FILE = Path(__file__).parent / "subsystems.toml"
OTHER = "other kernel code"
VARIANT = re.compile(r"(?:\.(?:constprop|isra|part|cold|llvm)(?:\.\d+)*)+$")
# A rename keeps the number of calls and about the size.
SAME_CALLS, SAME_SIZE = 0.10, 0.30
# Inlined code gets shorter: its prologue goes, and what the compiler now knows.  A function
# that moved by far more than what it may have taken in moved for another reason.
KEPT, MORE = 0.30, 2.0
# Taking code in or giving it away does not change how often a function is entered.
SAME_CALLS_KEPT = 0.02
# Below this share of all movement a hint would cost more attention than it is worth.
LEAST = 0.01


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


class Hint(Record):
    """Two functions that may be one piece of code under another name.

    ``kind`` is ``variant`` (the same name but for a suffix of the compiler),
    ``renamed``, ``inlined`` (``name`` is gone and ``other`` grew) or ``split``
    (``name`` is new and ``other`` shrank).  ``together`` is the sum of both differences.
    """

    kind: Literal["variant", "renamed", "inlined", "split"]
    name: str
    other: str
    together: float


class Subsystem(Record):
    """Prefixes of source files, and of function names for functions of no known file."""

    title: str
    files: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


@functools.cache
def catalogue() -> tuple[Subsystem, ...]:
    """All subsystems in the order of the data file."""
    with FILE.open("rb") as source:
        rows = tomllib.load(source)["subsystems"]
    return tuple(Subsystem.model_validate(row) for row in rows)


@functools.cache
def programs() -> dict[str, str]:
    """What user files are, by name; only those that need a word."""
    with FILE.open("rb") as source:
        return {str(k): str(v) for k, v in tomllib.load(source)["programs"].items()}


@functools.cache
def subsystem(function: str, file: str) -> str:
    """Title of the subsystem; :data:`OTHER` where no prefix fits."""
    best, title = 0, OTHER
    for entry in catalogue():
        for prefix in entry.files if file else entry.functions:
            if (file or function).startswith(prefix) and len(prefix) > best:
                best, title = len(prefix), entry.title
    return title


def stem(name: str) -> str:
    """The name without the suffixes that a compiler appends to clones and parts."""
    return VARIANT.sub("", name)


def _near(first: float, second: float, tolerance: float) -> bool:
    return abs(first - second) <= tolerance * max(abs(first), abs(second))


def _size(row: FunctionRow) -> float:
    return row.instructions.base or row.instructions.patched


def _calls(row: FunctionRow) -> float:
    return (row.calls.base or row.calls.patched) if row.calls else 0.0


def _together(first: FunctionRow, second: FunctionRow) -> float:
    return first.instructions.difference + second.instructions.difference


def _same_file(first: FunctionRow, second: FunctionRow) -> bool:
    return bool(first.file) and first.file == second.file


def _variant(row: FunctionRow, rows: Sequence[FunctionRow]) -> FunctionRow | None:
    """A row of the same stem that ran on the other arm (on both, if none ran there alone)."""
    same = [
        other
        for other in rows
        if other is not row
        and stem(other.name) == stem(row.name)
        and other.only_in != row.only_in
        and (not row.file or not other.file or row.file == other.file)
    ]
    return min(same, key=lambda other: (not other.only_in, other.name), default=None)


def _renamed(row: FunctionRow, rows: Sequence[FunctionRow]) -> FunctionRow | None:
    alike = [
        other
        for other in rows
        if other.only_in
        and other.only_in != row.only_in
        and _same_file(row, other)
        and _near(_calls(row), _calls(other), SAME_CALLS)
        and _near(_size(row), _size(other), SAME_SIZE)
    ]
    return min(alike, key=lambda other: (abs(_size(other) - _size(row)), other.name), default=None)


def _counterpart(row: FunctionRow, rows: Sequence[FunctionRow]) -> FunctionRow | None:
    """The row of the same file, called as often on both arms, that moved most the other way."""
    sign = 1 if row.instructions.difference < 0 else -1
    moved = [
        other
        for other in rows
        if not other.only_in
        and _same_file(row, other)
        and KEPT <= sign * other.instructions.difference / _size(row) <= MORE
        and not other.instructions.within_scatter
        and other.calls is not None
        and _near(other.calls.base, other.calls.patched, SAME_CALLS_KEPT)
    ]
    return min(
        moved, key=lambda other: (-sign * other.instructions.difference, other.name), default=None
    )


def find_hints(rows: Sequence[FunctionRow]) -> tuple[Hint, ...]:
    """Hints on functions that ran on one arm only, in the order of the rows.

    A pair of functions is named once; functions that moved less than
    :data:`LEAST` of all absolute differences get no hint.
    """
    least = LEAST * sum(abs(row.instructions.difference) for row in rows)
    hints: list[Hint] = []
    mentioned: set[str] = set()
    for row in rows:
        moved = abs(row.instructions.difference)
        if row.user or not row.only_in or row.name in mentioned or not moved or moved < least:
            continue
        other = _variant(row, rows)
        kind = "variant"
        if other is None:
            other, kind = _renamed(row, rows), "renamed"
        if other is None:
            other = _counterpart(row, rows)
            kind = "inlined" if row.only_in == "base" else "split"
        if other is None or other.name in mentioned:
            continue
        first, second = row, other
        if kind in {"variant", "renamed"} and row.only_in == "patched":
            first, second = other, row
        hints.append(Hint.model_validate(
            {"kind": kind, "name": first.name, "other": second.name,
             "together": _together(row, other)}
        ))  # fmt: skip
        mentioned |= {row.name, *([other.name] if other.only_in else [])}
    return tuple(hints)
