"""The probe's plugin, built for the QEMU that is there, and the words that it is told.

Caches, TLBs and lines to model, and which functions take locks.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from errors import InfraError
from experiment.architecture import X86_64, Architecture
from experiment.machine import MachineSpec
from guests.argv import joined
from guests.programs import SHARED_LIBRARY, build
from host.process import run
from kernels import btf
from kernels.addresses import AddressTable, text_of
from kernels.btf import Types
from kernels.cache import Kernel
from results.profile import UNKNOWN
from text import words

HERE = Path(__file__).parent
SOURCE = HERE / "probe.c"
FILES = words("memory.c lines.c groups.c kinds.c discontinuities.c stacks.c plugin.h")
BESIDE = tuple(HERE / name for name in FILES)
TIMEOUT_S = 20.0
# The first QEMU of each form of the plugin interface, newest first; plugin.h says
# how they differ.
FORMS: tuple[tuple[tuple[int, int], int], ...] = (
    ((11, 1), 7),
    ((9, 1), 3),
    ((9, 0), 2),
    ((7, 2), 1),
)
OLDEST = ".".join(map(str, FORMS[-1][0]))
LEVELS = {"data": "d1", "code": "i1", "second": "s2", "second_data": "d2", "second_code": "i2"}
SIZES = {"4K": 1, "2M": 2, "1G": 4}
# The plugin's memory_words for the addresses of the kernel's variables.
VARIABLES = {
    "init_top_pgt": "swapper",
    "init_mm": "init_mm",
    "__per_cpu_offset": "percpu",
    "cpu_tlbstate": "tlbstate",
}
# No guest executes code of 32 bits once its kernel is up.
CODE = "bits=64"
SYMBOL = re.compile(r"^([0-9a-f]+) [A-Za-z] (\w+)$", re.MULTILINE)
REMOVED = "./lab.py build makes a kernel that was removed from the cache again"


@dataclass(frozen=True)
class Probe:
    """A built plugin: its file and digest, the interface's version, QEMU's version.

    ``window`` cuts phases into so many instructions each; 0 does not cut.  ``spans`` are
    [start, end) of code in which vCPUs wait, ``locks`` the functions that take locks or let
    go of them, each with its kind (:func:`line_words`).  ``model`` describes caches and TLBs to
    be modelled (:func:`machine_words`), of a guest whose memory is one file.  ``functions`` is the
    kernel's System.map, by which call stacks are followed, and ``stacks`` are those with a
    meaning (``guests.probe.counts``).
    """

    path: Path
    sha256: str
    api: int
    qemu: str
    window: int = 0
    spans: tuple[tuple[int, int], ...] = ()
    locks: tuple[tuple[str, int, int], ...] = ()
    model: tuple[str, ...] = ()
    functions: Path | None = None
    stacks: tuple[str, ...] = ()

    def argument(self, counts: Path, memory: str) -> str:
        """QEMU's ``-plugin``; ``memory`` is how /proc/PID/maps calls the guest's memory."""
        words = [f"file={self.path.absolute()}", f"out={counts}"]
        words += [f"window={self.window}"] if self.window else []
        words += [f"span={start:x}-{end:x}" for start, end in self.spans]
        words += [f"{kind}={start:x}-{end:x}" for kind, start, end in self.locks]
        words += [*self.model, f"ram={memory}"] if self.model else []
        if self.functions:
            words += [f"functions={self.functions.absolute()}", *self.stacks]
        return joined(*words)


def provide(cache: Path, architecture: Architecture = X86_64) -> Probe:
    """The plugin, built for this QEMU; InfraError: one too old or without plugins, no compiler."""
    program, package = architecture.board.qemu, architecture.board.package
    qemu = version_of(run([program, "--version"], timeout_s=TIMEOUT_S).stdout, program)
    api = api_of(qemu, program)
    # Only a build with plugins offers it.
    if not re.search(r"^-plugin ", run([program, "-help"], timeout_s=TIMEOUT_S).stdout, re.M):
        what = f"QEMU {qemu} was built without plugins, so it cannot count instructions"
        step = f"install Debian's {package}, or build QEMU with --enable-plugins"
        raise InfraError(what, where=program, next_step=step)
    defined = (f"-DPROBE_API={api}", *architecture.board.probe)
    flags = (*SHARED_LIBRARY, "-fvisibility=hidden", *defined)
    path = build(SOURCE, flags, cache, beside=BESIDE)
    return Probe(path, hashlib.sha256(path.read_bytes()).hexdigest(), api, qemu)


def version_of(output: str, program: str = X86_64.board.qemu) -> str:
    """The dotted version in what ``qemu --version`` says.  Raises InfraError: there is none."""
    match = re.search(r"version (\d+\.\d+(?:\.\d+)*)", output)
    if not match:
        what = f"no version in what it says of itself: {output.strip()[:80]!r}"
        raise InfraError(what, where=program, next_step="./lab.py doctor")
    return match[1]


def api_of(version: str, program: str = X86_64.board.qemu) -> int:
    """The plugin interface's version of a QEMU version; InfraError: too old."""
    major, minor = (int(part) for part in version.split(".")[:2])
    for first, api in FORMS:
        if (major, minor) >= first:
            return api
    what = f"QEMU {version}: the probe needs {OLDEST} or later"
    raise InfraError(what, where=program, next_step="./lab.py doctor names the package")


def machine_words(machine: MachineSpec) -> tuple[str, ...]:
    """Caches, TLBs and streams of a machine."""
    caches = {"l1d": machine.l1d, "l1i": machine.l1i, "l2": machine.l2, "llc": machine.llc}
    return (
        *(f"cache={name}:{cache.sets}:{cache.ways}" for name, cache in caches.items()),
        *(
            f"tlb={LEVELS[tlb.level]}:{sum(SIZES[size] for size in tlb.pages)}"
            f":{tlb.sets}:{tlb.ways}"
            for tlb in machine.tlbs
        ),
        f"prefetch={machine.prefetch_lines}",
    )


def memory_words(machine: MachineSpec, kernel: Kernel) -> tuple[str, ...]:
    """The machine, and this kernel's page tables; empty where they cannot be walked.

    Raises InfraError: System.map cannot be read.
    """
    if kernel.identity.arch != X86_64.name:
        return ()
    variables = kernel_variables(kernel)
    return (*machine_words(machine), CODE, *variables) if len(variables) == len(VARIABLES) else ()


def kernel_variables(
    kernel: Kernel, more: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, ...]:
    """Where page tables, and ``more`` symbols, are; InfraError: no System.map."""
    at = _addresses(kernel.system_map)
    return tuple(f"{word}={at[name]}" for name, word in {**VARIABLES, **more}.items() if name in at)


@lru_cache(maxsize=4)
def _addresses(system_map: Path) -> dict[str, str]:
    names = {*VARIABLES, END_OF_CPU, SLAB_CACHES, SECTIONS}
    try:
        symbols = SYMBOL.findall(text_of(system_map))
        return {name: address for address, name in symbols if name in names}
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise InfraError(what, where=str(system_map), next_step=REMOVED) from None


# Where the variables of a CPU end, numbered from 0.
END_OF_CPU = "__per_cpu_end"
# Of kernels' functions, by what they are for, and of what slab caches hold.
NAMES = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
SLAB_CACHES, SECTIONS = "slab_caches", "mem_section"
WORDS = {SLAB_CACHES: "slabs", SECTIONS: "sections"}
VIRTUAL_MAP = "CONFIG_SPARSEMEM_VMEMMAP=y"
# What the plugin has to know of the kernel's structures to find an object's slab cache.
SLAB_MEMBERS = (
    *(("kmem_cache", member) for member in ("list", "name", "size", "refcount")),
    ("slab", "slab_cache"),
    ("page", "compound_head"),
)


def line_words(machine: MachineSpec, kernel: Kernel) -> tuple[str, ...]:
    """The private cache of a CPU, and where this kernel keeps the variables of each.

    The second level is what a CPU has for itself.  Without the variables they have no names, and
    without the kernel's types objects of slab caches have none.
    Empty for a kernel of another architecture.
    Raises InfraError: System.map or the types cannot be read.
    """
    if kernel.identity.arch != X86_64.name:
        return ()
    return (
        f"private={machine.l2.sets}:{machine.l2.ways}",
        CODE,
        *kernel_variables(kernel, {END_OF_CPU: "of_cpu"}),
        *slab_words(kernel),
    )


def lock_words(kernel: Kernel) -> tuple[str, ...]:
    """What says which objects locks are in, empty if nothing; raises as :func:`slab_words`."""
    slabs = slab_words(kernel) if kernel.identity.arch == X86_64.name else ()
    return (*kernel_variables(kernel), *slabs) if slabs else ()


def slab_words(kernel: Kernel) -> tuple[str, ...]:
    """Where slab caches, and page structures in sections, are; InfraError: no map or types."""
    types = btf.of(kernel)
    if types.size("page") is None:
        return ()
    numbers = {
        SLAB_CACHES: (*(types.offset(*member) for member in SLAB_MEMBERS), types.size("page")),
    }
    if VIRTUAL_MAP not in kernel.config.read_text().splitlines():
        numbers[SECTIONS] = (types.offset(SECTIONS, "section_mem_map"), types.size(SECTIONS))
    at = dict(
        word.split("=") for word in kernel_variables(kernel, {name: name for name in numbers})
    )
    if any(name not in at or None in those for name, those in numbers.items()):
        return ()
    return tuple(
        f"{WORDS[name]}={':'.join((at[name], *map(str, those)))}" for name, those in numbers.items()
    )


def member_of_slab(types: Types, cache: str, offset: int) -> str:
    """What is at a byte of a cache's objects, as ``xfs_inode.i_lock``, or its name."""
    holds = NAMES["slabs"].get(cache, cache)
    member = types.member_at(holds, offset)
    return f"{holds}.{member}" if member else cache


# Bits of a kind's number in the probe's rows, which is its place below.
SHARED, SLEEPS = 1, 2
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
        for kind, names in NAMES["locks"].items()
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
    """What fio's loader said; programs alone of an empty text, fio at ``program_at``."""
    files = {STATIC_AT: STATIC, program_at: PROGRAM}
    for name, address in LINE.findall(loader):
        short = name.rpartition("/")[2]
        files[int(address, 16)] = "vdso" if short.startswith(VDSO) else short
    starts = sorted(files)
    return UserMap(np.array(starts, np.uint64), tuple(files[start] for start in starts))
