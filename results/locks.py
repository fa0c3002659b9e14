"""What a diagnostic run read of waits for locks.

Times are virtual nanoseconds; they include the turns that other vCPUs had meanwhile.
"""

from __future__ import annotations

from results.record import Record


class Wait(Record):
    """Waits of one caller from the contention events: how often, and how long together.

    ``callers`` goes from the lock function's caller outwards; ``flags`` is the
    kernel's word for the kind of lock (``SPIN``, ``READ``, ``MUTEX`` and so on).
    """

    callers: tuple[str, ...]
    flags: str
    count: int
    total_ns: float


class PhaseLocks(Record):
    """One phase of a twin's run.

    ``virtual_ns`` is the time the phase took.  ``dropped`` counts events that the
    histograms had no room for: with any, ``waits`` is not complete.
    """

    phase: str
    virtual_ns: int
    waits: tuple[Wait, ...] = ()
    dropped: int = 0


class Locks(Record):
    """What one run of a twin saw; phases in their order."""

    run_id: str
    twin: str
    phases: tuple[PhaseLocks, ...]
