"""What a report says of interrupts, exceptions and host calls."""

from __future__ import annotations

from reports.attribution_model import Arm
from reports.paired import Paired
from results.profile import InterruptionKind
from results.record import Record


class HandlerCount(Record):
    """How often ``handler``, a kernel function, was entered so."""

    kind: InterruptionKind
    handler: str
    count: Paired


class InterruptionCount(HandlerCount):
    """Those of one kernel function, or of one of the user's files, that was interrupted."""

    function: str
    user: bool
    only_in: Arm = ""


class InterruptionComparison(Record):
    """One phase of one case in the judged runs, virtual, per its first unit of work.

    ``kinds`` has each kind that there was, ``handlers`` is in the order of kinds and names.
    ``rows`` are of exceptions and host calls, by handler and function; the first ``listed`` moved
    beyond their scatter, by the largest share of all of their kind first.
    """

    case: str
    phase: str
    unit: str
    unit_title: str
    seeds: tuple[int, ...]
    kinds: dict[InterruptionKind, Paired]
    handlers: tuple[HandlerCount, ...]
    rows: tuple[InterruptionCount, ...]
    listed: int
