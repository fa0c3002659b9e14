"""What a twin saw of locks in one run.

Times are virtual nanoseconds.  On guests of several vCPUs they include the turns
that other vCPUs had meanwhile, so hold times are read on one vCPU, waits on several.
"""

from __future__ import annotations

from results.record import Record


class CallSite(Record):
    """A place in the code that waited for, or held, a contended lock."""

    function: str
    offset: int
    count: int


class LockClass(Record):
    """One class of ``/proc/lock_stat``.

    ``name`` is as printed, with a number that is not stable (``&xa->xa_lock#4``)
    and the mode of a reader-writer lock (``-R``, ``-W``); ``key`` is the address of
    the class in hexadecimal, the same in every boot of one kernel, or empty.
    ``waiters`` and ``holders`` are the contention sites that the kernel kept (at
    most four of each).
    """

    name: str
    key: str
    contentions: int
    wait_total_ns: float
    wait_max_ns: float
    acquisitions: int
    hold_total_ns: float
    hold_max_ns: float
    waiters: tuple[CallSite, ...] = ()
    holders: tuple[CallSite, ...] = ()


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
    histograms had no room for: with any, ``waits`` is not complete.  ``samples`` are those
    that ``perf`` took of busy CPUs, of which ``waits`` are the ones in a lock's slow path.
    """

    phase: str
    virtual_ns: int
    classes: tuple[LockClass, ...] = ()
    waits: tuple[Wait, ...] = ()
    dropped: int = 0
    samples: int = 0


class Locks(Record):
    """What one run of a twin saw; phases in their order."""

    run_id: str
    twin: str
    phases: tuple[PhaseLocks, ...]
