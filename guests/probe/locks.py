"""The functions of a kernel that take locks and let go of them, as the probe watches them.

x86-64 alone: the probe knows a lock by the opcodes that write it.  Of a kernel for
another architecture, or with lock debugging, nothing is watched, and its runs have no locks.
"""

from __future__ import annotations

from typing import NamedTuple

from experiment.architecture import X86_64
from kernels.addresses import AddressTable

# Bits of a kind's number in the probe's rows, which is its place below.
SHARED, SLEEPS = 1, 2
# Those of kernel/locking/ that change the lock's word by themselves, and the slow path of spin
# locks, in which a waiter does.  What a task that slept does with a lock is not watched.
FUNCTIONS = {
    "spin": (
        "_raw_spin_lock", "_raw_spin_lock_bh", "_raw_spin_lock_irq", "_raw_spin_lock_irqsave",
        "_raw_spin_trylock", "_raw_spin_trylock_bh",
        "_raw_write_lock", "_raw_write_lock_bh", "_raw_write_lock_irq", "_raw_write_lock_irqsave",
        "_raw_write_lock_nested", "_raw_write_trylock",
    ),
    "slow": (
        "native_queued_spin_lock_slowpath", "queued_spin_lock_slowpath",
        "queued_write_lock_slowpath",
    ),
    "spin_shared": (
        "_raw_read_lock", "_raw_read_lock_bh", "_raw_read_lock_irq", "_raw_read_lock_irqsave",
        "_raw_read_trylock",
    ),
    "sleep": (
        "mutex_lock", "mutex_lock_interruptible", "mutex_lock_killable", "mutex_lock_io",
        "mutex_trylock", "down_write", "down_write_killable", "down_write_trylock",
    ),
    "sleep_shared": (
        "down_read", "down_read_interruptible", "down_read_killable", "down_read_trylock",
    ),
    "free": ("mutex_unlock",),
    # A task may sleep between the call of a function above and its taking the lock.
    "switch": ("__switch_to_asm",),
}  # fmt: skip


# With lock debugging locks are taken in here, and what is measured is the debugging.
DEBUGGED = "do_raw_spin_lock"


class LockPlace(NamedTuple):
    """A function of a kind (a word of the probe's), [start, end)."""

    kind: str
    start: int
    end: int


def places(table: AddressTable, arch: str) -> tuple[LockPlace, ...]:
    """The functions of one kernel; none of one whose locks are not watched."""
    if arch != X86_64.name or DEBUGGED in table.at:
        return ()
    return tuple(
        LockPlace(kind, start, end)
        for kind, names in FUNCTIONS.items()
        for name in names
        for start, end in table.spans(name)
    )
