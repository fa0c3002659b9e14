"""Which file of the guest a user address belongs to: pure.

The guest runs without address-space randomisation, so a file is a range, the same in
every process that maps it.  fio's loader tells where it put what when the agent asks it
(``LD_TRACE_LOADED_OBJECTS``); the program itself is at a fixed place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiment.architecture import X86_64
from results.profile import UNKNOWN

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
