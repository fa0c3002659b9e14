"""Which functions the code of a kernel refers to, read from the image that is booted (x86-64).

No disassembler: four bytes of code that lead to the first instruction of a function, relative to
what is behind them or as an address, are a call, a jump or a pointer; of 2^32 values hardly any
other four bytes do (some ninety of a kernel's fifteen million).  Pointers in data have eight bytes.
Short jumps (to a neighbour) and calls through pointers are two bytes, which other instructions have
as well: there a function is rather taken to make them than not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from errors import LabError
from experiment.spec import PREBUILT
from kernels import addresses, elf, origins, vmlinux
from kernels.addresses import FunctionMap
from kernels.cache import Kernel
from results.calls import Calls, calls_of, together

# What is executed at boot and thrown away.
INIT = ("_sinittext", "_einittext")
SHORT_JUMP = 0xEB
# ff /2 and ff /4: a call and a jump through a register or memory; else through a thunk.
THROUGH, MODRM, CALLS_IT, JUMPS_TO_IT = 0xFF, 0x38, 0x10, 0x20
THUNK = "__x86_indirect"
Longs = NDArray[np.int64]


def of_kernels(kernels: Iterable[Kernel]) -> Calls | None:
    """The calls of several kernels together; None where they are not known of all of them."""
    each = [of_kernel(kernel) for kernel in {kernel.folder: kernel for kernel in kernels}.values()]
    known = [calls for calls in each if calls is not None]
    return together(known) if known and len(known) == len(each) else None


def of_kernel(kernel: Kernel) -> Calls | None:
    """The calls of one kernel; None of one that the lab did not build, and of other processors."""
    if kernel.identity.arch != "x86_64" or kernel.identity.flavour == PREBUILT:
        return None
    try:
        text = addresses.text_of(kernel.system_map)
        functions = addresses.functions(addresses.parse(text), origins.load(kernel.origins))
        with tempfile.TemporaryDirectory() as folder:
            unpacked = Path(folder) / "vmlinux"
            vmlinux.extract(vmlinux.read(kernel.image), unpacked)
            sections = elf.read(unpacked).sections
    except (LabError, OSError, UnicodeError):
        return None
    bounds = [
        int(line.split()[0], 16)
        for name in INIT for line in text.splitlines() if line.endswith(f" {name}")
    ]  # fmt: skip
    return read(functions, sections, range(*bounds) if len(bounds) == len(INIT) else range(0))


def read(functions: FunctionMap, sections: Sequence[elf.Section], init: range) -> Calls:
    """The calls in a kernel's ``sections``; ``init`` are addresses of what is thrown away."""
    starts = functions.table.starts.view(np.int64)
    names = [name for name, _ in functions.named]
    edges: dict[str, set[str]] = {}
    pointed: set[str] = set()
    indirect: set[str] = set()

    def named(places: Longs) -> set[str]:
        return {names[number] for number in np.unique(functions.owner[places]).tolist()}

    def begun(values: Longs) -> tuple[Longs, Longs]:
        """Which of the values are first instructions of functions: their index and the place."""
        inside = np.flatnonzero((values >= starts[0]) & (values <= starts[-1]))
        places = np.searchsorted(starts, values[inside])
        hits = (starts[places] == values[inside]) & functions.is_entry[places]
        return inside[hits], places[hits]

    for section in sections:
        if not section.flags & elf.SHF_ALLOC or len(section.data) < 8:
            continue
        data = np.frombuffer(section.data, np.uint8)
        if not section.is_code:
            words = data[: len(data) // 8 * 8].view("<i8").astype(np.int64)
            pointed |= named(begun(words)[1])
            continue
        fields = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(data, 4))
        values = fields.view("<i4").ravel().astype(np.int64)
        first = np.array(section.address, np.uint64).view(np.int64)
        here = first + np.arange(len(values), dtype=np.int64)
        jumps = np.flatnonzero(data[:-1] == SHORT_JUMP)
        short = first + jumps + 2 + data[jumps + 1].view("<i1").astype(np.int64)
        for source, targets in ((here, here + 4 + values), (here, values), (first + jumps, short)):
            at, places = begun(targets)
            callers = np.searchsorted(starts, source[at], side="right") - 1
            pairs = np.stack([functions.owner[callers], functions.owner[places]])
            for caller, callee in np.unique(pairs, axis=1).T.tolist():
                if caller != callee:
                    edges.setdefault(names[caller], set()).add(names[callee])
        through = (data[:-1] == THROUGH) & np.isin(data[1:] & MODRM, (CALLS_IT, JUMPS_TO_IT))
        callers = np.searchsorted(starts, first + np.flatnonzero(through), side="right") - 1
        indirect |= named(np.unique(callers))
    indirect |= {
        name for name, callees in edges.items() if any(each.startswith(THUNK) for each in callees)
    }
    low, high = (np.array(bound, np.uint64).view(np.int64) for bound in (init.start, init.stop))
    boot = named(np.flatnonzero((starts >= low) & (starts < high)))
    return calls_of(edges, pointed=pointed, indirect=indirect, boot=boot)
