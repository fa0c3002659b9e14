"""What a report says of call stacks."""

from __future__ import annotations

from reports.paired import Paired
from results.record import Record


class StackRow(Record):
    """A kernel function as called on one path: ``callers`` from the outermost to the nearest.

    ``instructions`` and ``calls`` are of the function itself, ``total`` with all that it called
    there, each per unit of work.
    """

    callers: tuple[str, ...]
    function: str
    instructions: Paired
    total: Paired
    calls: Paired

    @property
    def path(self) -> tuple[str, ...]:
        """The callers, and the function."""
        return (*self.callers, self.function)


class StackComparison(Record):
    """One phase of one case in a diagnostic run of the judged guests, virtual, per unit of work.

    ``total`` is what the kernel executed on any path.  ``rows`` are all paths, callers before what
    they called; ``listed`` are the numbers of those whose own instructions changed, the most first.
    ``focus`` is the longest path that ``focus_share`` of all changed instructions are on or below;
    empty where nothing changed or no path has most of it.
    """

    twin: str
    case: str
    phase: str
    unit_title: str
    seeds: tuple[int, ...]
    total: Paired
    rows: tuple[StackRow, ...]
    listed: tuple[int, ...]
    focus: tuple[str, ...]
    focus_share: float
