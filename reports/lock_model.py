"""Locks of the judged runs, and waits of diagnostic runs, base against patched."""

from __future__ import annotations

from reports.attribution_model import Arm
from reports.lock_identity import Instances, TakerBy
from reports.paired import Paired
from results.record import Record


class TakenIn(Record):
    """A lock as one function takes it: per unit of work, and held each time; see MeasuredLock."""

    function: str
    taken: Paired
    held: Paired
    held_each: Paired | None


class MeasuredLock(Record):
    """One lock, or all locks of one label, in the judged runs.

    ``held`` is instructions from taking to letting go, of the vCPU that held it: per unit of
    work, and for each time.  Of a lock that ``sleeps`` they hold the sleep and whoever ran
    meanwhile.  ``waits`` are the times that it was held by another, ``waited`` the instructions of
    all vCPUs meanwhile, per unit; None where nobody waited.  ``saturation`` is the number of CPUs
    that keep the longest held instance held all the time.
    """

    label: str
    by: TakerBy
    instances: Instances
    sleeps: bool
    taken: Paired
    held: Paired
    held_each: Paired | None
    waits: Paired | None
    waited: Paired | None
    saturation: Paired | None
    sites: tuple[TakenIn, ...]
    only_in: Arm = ""


class MeasuredLocks(Record):
    """Locks of one phase of one case, in the judged runs.

    ``busy`` is all instructions per unit, without idling.  The first ``listed`` rows are
    those to show; locks that are slept for come last.  ``moved_most`` is the label of
    the spinning lock whose time held moved most, empty where none did beyond the
    scatter.  ``lost`` counts locks on base and patched whose end was not seen.  ``slow_entries`` is
    how often the slow path of spin locks was entered per 1,000 units, None on one vCPU; ``pairs``
    are who waited for whom, the longest first.
    """

    case: str
    phase: str
    unit_title: str
    seeds: tuple[int, ...]
    vcpus: int
    busy: Paired
    rows: tuple[MeasuredLock, ...]
    listed: int
    moved_most: str
    lost: tuple[int, int]
    slow_entries: Paired | None = None
    pairs: tuple[WaitedFor, ...] = ()

    @property
    def shown(self) -> tuple[MeasuredLock, ...]:
        """The rows that are listed."""
        return self.rows[: self.listed]

    @property
    def foremost(self) -> MeasuredLock | None:
        """The lock that moved most, else the one that stands first among those that spin."""
        rows = [row for row in self.rows if not row.sleeps]
        return next(
            (row for row in rows if row.label == self.moved_most), rows[0] if rows else None
        )


class WaitedFor(Record):
    """Who waited for whom for a lock of this label, per 1,000 units of work.

    ``waits`` are the times that ``waiter`` found what ``holder`` had taken, ``handovers`` those
    that the lock came to it from there.  ``waited`` are virtual ns of all vCPUs per unit.
    """

    label: str
    waiter: str
    holder: str
    waits: Paired
    handovers: Paired
    waited: Paired


class WaitRow(Record):
    """Waits of one caller: events per 1,000 units, and virtual ns per unit.

    ``chain`` is the most frequent chain of callers, the innermost first.
    """

    caller: str
    flags: str
    chain: tuple[str, ...]
    count: Paired
    wait: Paired


class LockComparison(Record):
    """Waits of one phase of one case in diagnostic runs.

    ``slow_share`` is the share of all instructions that ran in the slow path of spin
    locks (a fraction), ``slow_entries`` how often it was entered per 1,000 units; both
    from the probe, None on one vCPU or without it.  ``virtual_ns`` is virtual time per
    unit.  ``dropped`` counts lost events on base and patched.  ``in_wall`` is true where the
    guest's clock was the host's: times are real ns then, also those that are called virtual here.
    """

    twin: str
    vcpus: int
    jobs: int
    metronome_ns: int
    case: str
    phase: str
    unit_title: str
    seeds: tuple[int, ...]
    virtual_ns: Paired
    waits: tuple[WaitRow, ...] = ()
    dropped: tuple[int, int] = (0, 0)
    slow_share: Paired | None = None
    slow_entries: Paired | None = None
    in_wall: bool = False

    @property
    def ns(self) -> str:
        """Unit of the times as printed."""
        return "real ns" if self.in_wall else "virtual ns"
