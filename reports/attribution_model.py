"""Where a change came from, as frozen values: instructions and calls by function."""

from __future__ import annotations

from typing import Literal

from reports.explained import Split
from reports.paired import Paired
from results.record import Record

Arm = Literal["", "base", "patched"]
Moved = Literal["instructions", "calls"]


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


class Attribution(Record):
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

    case: str
    phase: str
    unit: str
    unit_title: str
    headline: bool
    seeds: tuple[int, ...]
    total: Paired
    functions: tuple[FunctionRow, ...]
    listed: int
    others: Paired | None
    groups: tuple[GroupRow, ...]
    ratios: tuple[RatioRow, ...] = ()
    hints: tuple[Hint, ...] = ()
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
    def listed_difference(self) -> float:
        """Sum of the listed differences."""
        return sum(row.instructions.difference for row in self.rows)

    @property
    def share(self) -> float | None:
        """Listed differences over the whole one; None where the whole one is zero."""
        whole = self.total.difference
        return self.listed_difference / whole if whole else None

    @property
    def movement(self) -> float | None:
        """Listed absolute differences over those of all functions; None where all are zero."""
        everything = sum(abs(row.instructions.difference) for row in self.functions)
        listed = sum(abs(row.instructions.difference) for row in self.rows)
        return listed / everything if everything else None
