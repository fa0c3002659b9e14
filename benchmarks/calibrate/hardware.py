"""What a CPU says of its caches and TLBs: pure decoders, and a reader of /sys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiment.machine import PageSize, TlbLevel
from host.facts import NOT_FOUND, cpu_model, text_of
from host.fitness import SYSTEM, Cpu, cpu_list

CACHE_KINDS = ("Data", "Instruction", "Unified")
# A row of the program's answers: leaf, subleaf, EAX, EBX, ECX, EDX.
Cpuid = Sequence[int]
INTEL_TLBS = 0x18
AMD_L1, AMD_L2, AMD_1G = 0x80000005, 0x80000006, 0x80000019
# Intel SDM, CPUID leaf 18H: types of EDX[4:0]. Stores of some CPUs have TLBs of their own (5).
INTEL_LEVELS: dict[tuple[int, int], TlbLevel] = {
    (1, 1): "data",
    (1, 4): "data",
    (1, 2): "code",
    (2, 1): "second_data",
    (2, 2): "second_code",
    (2, 3): "second",
}
INTEL_SIZES: tuple[tuple[int, PageSize], ...] = ((1, "4K"), (2, "2M"), (8, "1G"))
# AMD APM 3, functions 8000_0005h, 8000_0006h and 8000_0019h: register, size of the pages, bits of
# the entries' number (the others are of the ways), and the levels for data and for code.
FIRST: tuple[TlbLevel, TlbLevel] = ("data", "code")
SECOND: tuple[TlbLevel, TlbLevel] = ("second_data", "second_code")
AMD_TLBS: tuple[tuple[int, int, PageSize, int, tuple[TlbLevel, TlbLevel]], ...] = (
    (AMD_L1, 0, "2M", 8, FIRST),
    (AMD_L1, 1, "4K", 8, FIRST),
    (AMD_L2, 0, "2M", 12, SECOND),
    (AMD_L2, 1, "4K", 12, SECOND),
    (AMD_1G, 0, "1G", 12, FIRST),
    (AMD_1G, 1, "1G", 12, SECOND),
)
# Ways by their code of four bits; all ones is all of the entries, there and in eight bits.
AMD_WAYS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 16, 10: 32, 11: 48, 12: 64, 13: 96, 14: 128}


@dataclass(frozen=True)
class CpuCache:
    """A cache of one CPU: its level, what it holds, and the CPUs that it is for."""

    level: int
    kind: str
    kib: int
    ways: int
    line_bytes: int
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class CpuTlb:
    """A TLB, or the part of one that holds pages of these sizes."""

    level: TlbLevel
    pages: tuple[PageSize, ...]
    entries: int
    ways: int


def caches_of(cpu: int, *, system: Path = SYSTEM) -> tuple[CpuCache, ...]:
    """The caches of a CPU that the kernel knows size and ways of, in its order."""
    folders = (system / "cpu" / f"cpu{cpu}" / "cache").glob("index*")
    caches = []
    for folder in sorted(folders, key=lambda path: int(path.name.removeprefix("index") or 0)):
        names = ("level", "ways_of_associativity", "coherency_line_size", "size", "type")
        *numbers, size, kind = (text_of(folder / name).strip() for name in names)
        numbers.append(size.removesuffix("K"))
        if kind in CACHE_KINDS and all(word.isdecimal() and int(word) for word in numbers):
            level, ways, line, kib = map(int, numbers)
            cpus = cpu_list(text_of(folder / "shared_cpu_list").strip()) or (cpu,)
            caches.append(CpuCache(level, kind, kib, ways, line, cpus))
    return tuple(caches)


def cores_of(cache: CpuCache, cpus: Iterable[Cpu]) -> int:
    """How many cores share a cache; threads of one core are one."""
    here = {(cpu.package, cpu.core) for cpu in cpus if cpu.number in cache.cpus}
    return max(len(here), 1)


def tlbs_of(rows: Iterable[Cpuid]) -> tuple[CpuTlb, ...]:
    """The TLBs that a CPU's answers name; empty where it, or a hypervisor, names none.

    AMD's hold all sizes together for which a level has equal numbers.
    """
    rows = list(rows)
    of_intel = []
    for _, b, sets, d in (row[2:] for row in rows if row[0] == INTEL_TLBS):
        level = INTEL_LEVELS.get((d >> 5 & 7, d & 31))
        sizes = tuple(size for bit, size in INTEL_SIZES if b & bit)
        ways = b >> 16
        if level is not None and sizes and ways and sets:
            all_ways = ways * sets if d >> 8 & 1 else ways
            of_intel.append(CpuTlb(level, sizes, ways * sets, all_ways))
    if of_intel:
        return tuple(of_intel)
    merged: dict[tuple[TlbLevel, int, int], set[PageSize]] = {}
    for leaf, at, size, bits, levels in AMD_TLBS:
        for row in (row for row in rows if row[0] == leaf):
            # Of data in the upper half of a register, of code in the lower.
            for level, half in zip(levels, (row[2 + at] >> 16, row[2 + at]), strict=True):
                entries, code = half & (1 << bits) - 1, half >> bits & (1 << 16 - bits) - 1
                ways = AMD_WAYS.get(code, 0) if bits == 12 else code
                if code == (1 << 16 - bits) - 1:
                    ways = entries
                if entries and ways:
                    merged.setdefault((level, entries, ways), set()).add(size)
    return tuple(
        CpuTlb(level, tuple(size for _, size in INTEL_SIZES if size in sizes), entries, ways)
        for (level, entries, ways), sizes in merged.items()
    )


def vendor(cpuinfo: str) -> str:
    """``intel``, ``amd`` or ``arm`` by the text of /proc/cpuinfo; empty for others."""
    if re.search(r"^vendor_id\s*:\s*GenuineIntel$", cpuinfo, re.M):
        return "intel"
    if re.search(r"^vendor_id\s*:\s*(AuthenticAMD|HygonGenuine)$", cpuinfo, re.M):
        return "amd"
    return "arm" if re.search(r"^CPU implementer\s*:", cpuinfo, re.M) else ""


def title(cpuinfo: str) -> str:
    """The CPU's model; of one that has numbers for a name these."""
    name = cpu_model(cpuinfo)
    if name != NOT_FOUND:
        return name
    numbers = (
        re.search(rf"^CPU {word}\s*:\s*(\S+)$", cpuinfo, re.M) for word in ("implementer", "part")
    )
    known = [match[1] for match in numbers if match]
    return f"CPU {' part '.join(known)}" if known else "CPU of unknown model"
