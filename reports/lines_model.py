"""Lines that move between a modelled machine's CPUs, as frozen values."""

from __future__ import annotations

from reports.attribution_model import Arm
from reports.paired import Paired
from results.record import Record


class MovedSum(Record):
    """Lines that moved per unit of work: to be read, to be written, and those of false sharing.

    ``all_lines`` are both; see ``results.profile.LineMove``.
    """

    all_lines: Paired
    reads: Paired
    writes: Paired
    apart: Paired


class MovedLines(MovedSum):
    """Those of one object; with functions, those that came to ``taker`` from ``holder``.

    ``object`` is a variable or a structure's member by its name, else what the memory is of.
    ``mine`` and ``theirs`` are the bytes of the object that were touched (of rows with
    functions).  ``other`` are base and patched
    of ``all_lines`` with turns of the other length, None where there were none, and
    ``by_turns`` whether they are so far apart that the number is one of the turns.
    """

    object: str
    named: bool
    taker: str = ""
    holder: str = ""
    mine: tuple[int, int] | None = None
    theirs: tuple[int, int] | None = None
    other: tuple[float, float] | None = None
    by_turns: bool = False
    only_in: Arm = ""


class LinesComparison(Record):
    """One phase of one case in the diagnostic runs that follow lines.

    ``metronome_ns`` is how long a vCPU's turn is at most, ``other_ns`` that of the runs beside, 0
    where there are none.  ``objects`` and ``pairs`` have what moved most first, and what the turns
    have made behind that.
    """

    twin: str
    machine: str
    machine_title: str
    case: str
    phase: str
    unit_title: str
    seeds: tuple[int, ...]
    vcpus: int
    metronome_ns: int
    other_ns: int
    total: MovedSum
    other: tuple[float, float] | None
    by_turns: bool
    objects: tuple[MovedLines, ...]
    pairs: tuple[MovedLines, ...]
    pair_count: int

    @property
    def falsest(self) -> MovedLines | None:
        """The named object whose false sharing changed most, else that with most of it; or None."""
        rows = [row for row in self.objects if row.named and (row.apart.base or row.apart.patched)]
        return max(
            rows,
            key=lambda row: (abs(row.apart.difference), row.apart.base + row.apart.patched),
            default=None,
        )
