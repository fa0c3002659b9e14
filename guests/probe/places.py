"""What addresses mean to the probe: functions that take locks, and files of user space."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiment.architecture import X86_64
from kernels.addresses import AddressTable
from results.profile import UNKNOWN
from text import words

# Bits of a kind's number in the probe's rows, which is its place below.
SHARED, SLEEPS = 1, 2
# Those of kernel/locking/ that change the lock's word by themselves, and the slow path of spin
# locks, in which a waiter does.  What a task that slept does with a lock is not watched.
FUNCTIONS = {
    "spin": words(
        "_raw_spin_lock _raw_spin_lock_bh _raw_spin_lock_irq _raw_spin_lock_irqsave "
        "_raw_spin_trylock _raw_spin_trylock_bh _raw_write_lock _raw_write_lock_bh "
        "_raw_write_lock_irq _raw_write_lock_irqsave _raw_write_lock_nested _raw_write_trylock"
    ),
    "slow": words(
        "native_queued_spin_lock_slowpath queued_spin_lock_slowpath queued_write_lock_slowpath"
    ),
    "spin_shared": words(
        "_raw_read_lock _raw_read_lock_bh _raw_read_lock_irq _raw_read_lock_irqsave "
        "_raw_read_trylock"
    ),
    "sleep": words(
        "mutex_lock mutex_lock_interruptible mutex_lock_killable mutex_lock_io mutex_trylock "
        "down_write down_write_killable down_write_trylock"
    ),
    "sleep_shared": words("down_read down_read_interruptible down_read_killable down_read_trylock"),
    "free": ("mutex_unlock",),
    # A task may sleep between the call of a function above and its taking the lock.
    "switch": ("__switch_to_asm",),
}


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


# Where a position-independent program goes without randomisation.
PROGRAM_AT = X86_64.root.program_at
PROGRAM = "fio"
# Static programs: busybox, which is the agent and its spinner, and the lab's own.
STATIC_AT = 0x400000
STATIC = "busybox"
VDSO = "linux-vdso"
# A file has no more than this behind its start, unless another begins there.
LARGEST = 64 << 20
LINE = re.compile(r"^\s*(\S+)(?: => \S+)? \(0x([0-9a-f]{1,16})\)$", re.MULTILINE)


@dataclass(frozen=True)
class UserMap:
    """Sorted starts of files, and their names."""

    starts: NDArray[np.uint64]
    names: tuple[str, ...]

    def fold(self, where: NDArray[np.uint64], spent: NDArray[np.uint64]) -> dict[str, int]:
        """Sum ``spent`` by file, in the order of names; files without any are left out."""
        at = np.searchsorted(self.starts, where, side="right") - 1
        known = (at >= 0) & (where - self.starts[at] < LARGEST)
        sums: dict[str, int] = {}
        for number in np.unique(at[known]).tolist():
            name = self.names[number]
            sums[name] = sums.get(name, 0) + int(spent[known & (at == number)].sum())
        if not known.all():
            sums[UNKNOWN] = int(spent[~known].sum())
        return dict(sorted((name, value) for name, value in sums.items() if value))


def user_map(loader: str, program_at: int = PROGRAM_AT) -> UserMap:
    """Read what fio's loader said; an empty text knows the programs alone.
    ``program_at`` is where the kernel puts fio itself.
    """
    files = {STATIC_AT: STATIC, program_at: PROGRAM}
    for name, address in LINE.findall(loader):
        short = name.rpartition("/")[2]
        files[int(address, 16)] = "vdso" if short.startswith(VDSO) else short
    starts = sorted(files)
    return UserMap(np.array(starts, np.uint64), tuple(files[start] for start in starts))
