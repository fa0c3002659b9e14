"""What is common to tables of locks: the unit of their counts, and the CPUs that fill a lock."""

from __future__ import annotations

from collections.abc import Sequence

from results.profile import PhaseProfile
from results.record import PhaseRecord

FAVOURITE_UNIT = "folio"
# Counts that are small for one folio are given for a thousand.
MANY = 1000.0
# Shown first: what the series of the page cache are about.
FIRST = ("i_pages.xa_lock", "lruvec->lru_lock", "page-table locks")
# Less than this fraction is not "what moved most", however steady it is.
MOVED = 0.005
# Taken less than once in so many units, a lock is no part of the work: one long hold while a
# phase is set up would stand above all that matters.
RARE = 0.001
# Functions in which a vCPU waits for a spin lock.
SLOW_PATHS = (
    "native_queued_spin_lock_slowpath",
    "queued_spin_lock_slowpath",
    "__pv_queued_spin_lock_slowpath",
)


def unit_of(phase: PhaseRecord, profiles: Sequence[PhaseProfile | None]) -> tuple[str, str] | None:
    """Name and title of the unit that counts are given per: folios, else the phase's first.

    Where folios are huge it is the first: how many folios there are is luck then.  None where
    some run counted none of them.
    """
    favourite = FAVOURITE_UNIT if phase.thp == "never" else ""
    for unit in sorted(phase.units, key=lambda unit: unit.name != favourite):
        if all(profile and profile.units.get(unit.name, 0.0) > 0 for profile in profiles):
            return unit.name, unit.title
    return None


def saturation(virtual_ns: float, hold_ns: float) -> float:
    """CPUs that keep one instance of a lock held all the time: virtual time over hold time.

    On one vCPU a unit of work takes T ns, S of them with the lock held.  N CPUs that
    share nothing else ask for N S / T of the lock's time (the utilisation law: Denning
    and Buzen, ACM Computing Surveys 10, 1978), and no more than all of it can be had.

    Raises:
        ValueError: a time that is not above zero.
    """
    if virtual_ns <= 0 or hold_ns <= 0:
        raise ValueError(f"times must be above zero: {virtual_ns}, {hold_ns}")
    return virtual_ns / hold_ns
