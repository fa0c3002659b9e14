"""What a report says of the kinds of instructions, by function."""

from __future__ import annotations

from reports.attribution_model import Arm
from reports.paired import Paired
from results.record import Record


class Kinds(Record):
    """Instructions of each kind per unit of work; see ``results.profile.KINDS``.

    One instruction may be of several kinds: what adds to memory is a load and a store.
    """

    loads: Paired
    stores: Paired
    atomics: Paired
    barriers: Paired
    divisions: Paired
    system: Paired


class KindsIn(Kinds):
    """Those of one function, or of one of the user's files."""

    name: str
    file: str
    user: bool
    only_in: Arm = ""


class KindsComparison(Record):
    """One phase of one case in the judged runs, per its first unit of work.

    ``total`` is of everything but idling.  ``rows`` are all functions; the first ``listed`` moved
    some kind beyond its scatter, by the largest share of all instructions of that kind first.
    """

    case: str
    phase: str
    unit: str
    unit_title: str
    seeds: tuple[int, ...]
    total: Kinds
    rows: tuple[KindsIn, ...]
    listed: int
