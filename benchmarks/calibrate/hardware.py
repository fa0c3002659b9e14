"""What a CPU says of its caches and TLBs: pure decoders, and a reader of /sys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from host.facts import NOT_FOUND, cpu_model, text_of
from host.topology import SYSTEM, Cpu, cpu_list

CacheKind = Literal["Data", "Instruction", "Unified"]
CACHE_KINDS: dict[str, CacheKind] = {
    "Data": "Data", "Instruction": "Instruction", "Unified": "Unified",
}  # fmt: skip
PageSize = Literal["4K", "2M", "1G"]
TlbLevel = Literal["data", "code", "second", "second_data", "second_code"]
# A row of the program's answers: leaf, subleaf, EAX, EBX, ECX, EDX.
Cpuid = Sequence[int]
INTEL_TLBS = 0x18
AMD_L1, AMD_L2, AMD_1G = 0x80000005, 0x80000006, 0x80000019
# Intel SDM, CPUID leaf 18H: types of EDX[4:0]. Stores of some CPUs have TLBs of their own (5).
INTEL_LEVELS: dict[tuple[int, int], TlbLevel] = {
    (1, 1): "data", (1, 4): "data", (1, 2): "code",
    (2, 1): "second_data", (2, 2): "second_code", (2, 3): "second",
}  # fmt: skip
INTEL_SIZES: tuple[tuple[int, PageSize], ...] = ((1, "4K"), (2, "2M"), (8, "1G"))
# AMD APM 3, functions 8000_0006h and 8000_0019h: ways by their code; 15 is all of the entries.
AMD_WAYS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 16, 10: 32, 11: 48, 12: 64, 13: 96, 14: 128}
AMD_ANY, AMD_ANY_OF_L1 = 15, 0xFF


@dataclass(frozen=True)
class CpuCache:
    """A cache of one CPU: its level, what it holds, and the CPUs that it is for."""

    level: int
    kind: CacheKind
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

        def word_of(name: str, of: Path = folder) -> str:
            return text_of(of / name).strip()

        size = re.fullmatch(r"(\d+)K", word_of("size"))
        numbers = [word_of(name) for name in
                   ("level", "ways_of_associativity", "coherency_line_size")]  # fmt: skip
        kind = CACHE_KINDS.get(word_of("type"))
        if kind is None or not size or not all(word.isdecimal() and int(word) for word in numbers):
            continue
        level, ways, line = map(int, numbers)
        cpus = cpu_list(word_of("shared_cpu_list")) or (cpu,)
        caches.append(CpuCache(level, kind, int(size[1]), ways, line, cpus))
    return tuple(caches)


def cores_of(cache: CpuCache, cpus: Iterable[Cpu]) -> int:
    """How many cores share a cache; threads of one core are one."""
    here = {(cpu.package, cpu.core) for cpu in cpus if cpu.number in cache.cpus}
    return max(len(here), 1)


def tlbs_of(rows: Iterable[Cpuid]) -> tuple[CpuTlb, ...]:
    """The TLBs that a CPU's answers name; empty where it, or a hypervisor, names none."""
    by_leaf: dict[int, list[Cpuid]] = {}
    for row in rows:
        by_leaf.setdefault(row[0], []).append(row[2:])
    of_intel = [tlb for registers in by_leaf.get(INTEL_TLBS, []) for tlb in _intel(registers)]
    if of_intel:
        return tuple(of_intel)
    parts = [
        *(tlb for registers in by_leaf.get(AMD_L1, []) for tlb in _amd_first(registers)),
        *(tlb for registers in by_leaf.get(AMD_L2, []) for tlb in _amd(registers, "2M", "4K", 2)),
        *(tlb for registers in by_leaf.get(AMD_1G, []) for tlb in _amd_1g(registers)),
    ]
    return _merged(parts)


def _intel(registers: Cpuid) -> list[CpuTlb]:
    _, b, sets, d = registers
    level = INTEL_LEVELS.get((d >> 5 & 7, d & 31))
    sizes = tuple(size for bit, size in INTEL_SIZES if b & bit)
    ways = b >> 16
    if level is None or not sizes or not ways or not sets:
        return []
    entries = ways * sets
    return [CpuTlb(level, sizes, entries, entries if d >> 8 & 1 else ways)]


def _amd_first(registers: Cpuid) -> list[CpuTlb]:
    """Function 8000_0005h: bytes of entries and ways, of code below data."""
    tlbs = []
    levels: tuple[tuple[TlbLevel, int], ...] = (("data", 16), ("code", 0))
    sizes: tuple[tuple[PageSize, int], ...] = (("2M", registers[0]), ("4K", registers[1]))
    for size, word in sizes:
        for level, shift in levels:
            entries, ways = word >> shift & 0xFF, word >> shift + 8 & 0xFF
            if entries and ways:
                ways = entries if ways == AMD_ANY_OF_L1 else ways
                tlbs.append(CpuTlb(level, (size,), entries, ways))
    return tlbs


def _amd(registers: Cpuid, of_a: PageSize, of_b: PageSize, level: int) -> list[CpuTlb]:
    """Functions with 12 bits of entries and 4 of ways, of code below data."""
    levels: tuple[tuple[TlbLevel, int], ...] = (
        (("second_data", 16), ("second_code", 0)) if level == 2 else (("data", 16), ("code", 0))
    )
    tlbs = []
    for size, word in ((of_a, registers[0]), (of_b, registers[1])):
        for name, shift in levels:
            entries, code = word >> shift & 0xFFF, word >> shift + 12 & 15
            ways = entries if code == AMD_ANY else AMD_WAYS.get(code, 0)
            if entries and ways:
                tlbs.append(CpuTlb(name, (size,), entries, ways))
    return tlbs


def _amd_1g(registers: Cpuid) -> list[CpuTlb]:
    a, b, *_ = registers
    return [*_amd((a, 0), "1G", "1G", 1), *_amd((b, 0), "1G", "1G", 2)]


def _merged(parts: Sequence[CpuTlb]) -> tuple[CpuTlb, ...]:
    """Sizes for which a level has equal numbers are one TLB: AMD's hold all sizes together."""
    sizes: dict[tuple[TlbLevel, int, int], set[PageSize]] = {}
    for part in parts:
        sizes.setdefault((part.level, part.entries, part.ways), set()).add(part.pages[0])
    order: tuple[PageSize, ...] = ("4K", "2M", "1G")
    return tuple(
        CpuTlb(level, tuple(size for size in order if size in those), entries, ways)
        for (level, entries, ways), those in sizes.items()
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
