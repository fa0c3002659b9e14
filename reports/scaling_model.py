"""Throughput of many CPUs, as an estimated range, on both arms."""

from __future__ import annotations

from results.record import Record

Range = tuple[float, float]


class ScalingPoint(Record):
    """So many CPUs: throughput against that of one CPU of base, and patched against base.

    Each is the least and the most of all assumptions; ``change`` is a fraction of base, above zero
    where patched is faster.
    """

    cpus: int
    base: Range
    patched: Range
    change: Range


class MissedEach(Record):
    """Misses of L2, of the last level, and page walks, on base and on patched."""

    l2: Range
    llc: Range
    walks: Range

    def times(self, base: float, patched: float) -> MissedEach:
        """Each event so many times."""
        return MissedEach(
            **{name: (getattr(self, name)[0] * base, getattr(self, name)[1] * patched)
               for name in MissedEach.model_fields}
        )  # fmt: skip


class PublishedPoint(Record):
    """A published throughput that the range can be held against.

    ``jobs`` are those of the document, taken for CPUs.
    """

    jobs: int
    change: float
    document: str


class Scaling(Record):
    """One phase of one case: what many CPUs of a machine may make of what one CPU counted.

    Of one CPU, per unit of work, base then patched: ``instructions`` in all, those with the lock
    ``held``, and its ``acquisitions``.  ``lock`` is the one that would saturate first, by
    its longest held instance.  ``at_one`` is the change of throughput of one CPU by path length;
    ``lines`` are lines that move while the lock is held once, from least to most, and
    ``lines_counted`` whether diagnostic runs have followed them.  ``missed`` is what the machine's
    model missed per unit of work, ``missed_held`` what of it with the lock held; both are None,
    and none of it in the range, where no diagnostic run has counted them.  Not
    ``significant`` is a range whose path length or hold time may as well not have changed.
    """

    case: str
    phase: str
    unit_title: str
    machine: str
    machine_title: str
    lock: str
    instructions: Range
    held: Range
    acquisitions: Range
    lines: Range
    lines_counted: bool
    missed: MissedEach | None = None
    missed_held: MissedEach | None = None
    at_one: float
    significant: bool
    points: tuple[ScalingPoint, ...]
    published: PublishedPoint | None

    def at(self, cpus: int) -> ScalingPoint | None:
        """The point of so many CPUs; None where none was computed."""
        return next((point for point in self.points if point.cpus == cpus), None)

    @property
    def saturated(self) -> ScalingPoint:
        """The point of the most CPUs."""
        return self.points[-1]
