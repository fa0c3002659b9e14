"""What a report says of a modelled machine's caches and TLBs."""

from __future__ import annotations

from reports.attribution_model import Arm
from reports.paired import Paired
from results.record import Record


class Missed(Record):
    """Events per unit of work; see ``results.profile.Misses``.

    ``cycles`` is an estimate: what these events take by the machine's weights, one after the
    other.
    """

    l1d: Paired
    l1i: Paired
    l2: Paired
    llc: Paired
    prefetched: Paired
    tlb: Paired
    walks: Paired
    cycles: Paired

    @property
    def equal(self) -> bool:
        """Whether every event is the same on both arms, seed by seed."""
        return all(getattr(self, name).equal for name in Missed.model_fields)


class MissedIn(Missed):
    """Those of one function, or of one of the user's files."""

    name: str
    file: str
    user: bool
    only_in: Arm = ""


class MemoryComparison(Record):
    """One phase of one case in the diagnostic run that models a machine.

    ``total`` is of everything but idling.  ``rows`` are the functions whose events moved most by
    the estimate, the most first; ``others`` the sum of the ``other_count`` that are not listed,
    None where all are.  ``cycles`` is the estimate of everything: an instruction is one, and events
    take what the machine's weights say.  ``unmapped`` counts accesses of the runs on base and
    patched that are in none of this.
    """

    twin: str
    machine: str
    machine_title: str
    case: str
    phase: str
    unit_title: str
    seeds: tuple[int, ...]
    instructions: Paired
    total: Missed
    cycles: Paired
    rows: tuple[MissedIn, ...]
    others: Missed | None
    other_count: int
    unmapped: tuple[int, int]
