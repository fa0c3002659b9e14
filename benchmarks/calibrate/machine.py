"""A machine's file for the host that we stand on: what it says of itself, and what was timed.

Times are the least of several repeats: whatever else runs makes them longer, never shorter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from benchmarks.calibrate import hardware
from benchmarks.calibrate.hardware import CpuCache, CpuTlb
from errors import InfraError, UsageError
from experiment.machine import (
    LINE_BYTES,
    LINES_OF_PAGE,
    CacheSpec,
    MachineSpec,
    ManyCpus,
    TlbSpec,
    Weights,
    is_power_of_two,
)
from guests import programs
from host.accelerator import is_guest
from host.facts import text_of
from host.fitness import Cpu, host_cpus, read_cpus
from host.process import run

SOURCE = Path(__file__).with_name("calibrate.c")
FLAGS = ("-O2", "-pthread")
TIMEOUT_S = 120.0
# Of some ms each: a few of them fall between what else runs.
REPEATS = 25
LEVEL_REPEATS = 60
# Pairs of CPUs, counters, and large buffers.
SLOW_REPEATS = 9
# Times the second level, for every fourth line: none of them stays there.
LLC_TIMES = 2
# Where that is not known.
L2_KIB, LLC_KIB = 256, 4096
# A last level is filled no further to see how much of it there is.
MOST_LLC_KIB = 64 << 10
# More than any second-level TLB holds, with lines and page tables that are in caches all the same.
WALKED_PAGES = 8192
# A line goes to and fro between so many pairs of CPUs at most.
MOST_PAIRS = 66
# A least time that is so far below the middle one may be of a host that is never quiet.
WIDE = 0.25
MOST_SHARING = 4096
KEPT = "not told by the host, kept of"
LIKE = {"intel": "ice-lake-sp", "amd": "zen3-epyc", "arm": "neoverse-n1", "": "ice-lake-sp"}
Answers = Mapping[str, Sequence[tuple[float, ...]]]


class Sample(NamedTuple):
    """Repeats of one measurement, in its own unit."""

    values: tuple[float, ...]

    @property
    def least(self) -> float:
        """What is nearest to a host that does nothing else."""
        return min(self.values)

    @property
    def spread(self) -> float:
        """How far the middle one is above the least, as a fraction of that."""
        middle = sorted(self.values)[len(self.values) // 2]
        return middle / self.least - 1

    def words(self) -> str:
        """``least of 9, the median 2 % above``."""
        return f"least of {len(self.values)}, the median {100 * self.spread:.0f} % above"


@dataclass(frozen=True)
class HostParts:
    """What the host says of itself: caches of one CPU, its TLBs, and the CPUs that there are."""

    title: str
    guest: bool
    caches: tuple[CpuCache, ...]
    tlbs: tuple[CpuTlb, ...]
    cpus: tuple[Cpu, ...]

    def cache(self, level: int, kind: str) -> CpuCache | None:
        """The cache of a level that holds this kind, None where the host names none."""
        return next((c for c in self.caches if (c.level, c.kind) == (level, kind)), None)

    @property
    def last(self) -> CpuCache | None:
        """The last level of those that are behind the second."""
        return max((c for c in self.caches if c.level > 2), key=lambda c: c.level, default=None)


@dataclass(frozen=True)
class Timed:
    """What was timed, in ns: a cycle, loads from the levels and from memory, pages, pairs of CPUs.

    ``far`` are loads of lines in pages that no TLB holds, ``near`` of as many side by side.
    ``l2_kib`` and ``llc_kib`` are the buffers.  ``held_kib`` is the largest buffer that the last
    level held and ``lost_kib`` the first that it did not, 0 where it held all that was tried.
    ``huge`` says whether buffers were of huge pages.  ``pair_count`` is how many pairs of cores
    there are.  ``small`` and ``large`` are instructions per cycle in the kernel, of calls that stay
    in caches and of one that does not, empty where there are no counters.
    """

    cycle: Sample
    l2: Sample
    llc: Sample
    memory: Sample
    far: Sample
    near: Sample
    l2_kib: int
    llc_kib: int
    held_kib: int
    lost_kib: int
    huge: bool
    pairs: tuple[Sample, ...] = ()
    pair_count: int = 0
    small: tuple[float, ...] = ()
    large: tuple[float, ...] = ()

    def cycles(self, ns: float) -> int:
        """So many ns in cycles, one at least."""
        return max(1, round(ns / self.cycle.least))


def answers(text: str) -> Answers:
    """What the program printed: the numbers of each line by its word.

    Raises:
        InfraError: a line is none of a word and numbers.
    """
    by_word: dict[str, list[tuple[float, ...]]] = {}
    for line in text.splitlines():
        word, *numbers = line.split() or [""]
        try:
            values = tuple(map(float, numbers))
        except ValueError:
            values = ()
        if not word.isalpha() or not values or not all(map(math.isfinite, values)):
            raise InfraError(
                f"answered {line!r}, where a word and numbers belong",
                where=str(SOURCE),
                next_step="run it again",
            )
        by_word.setdefault(word, []).append(values)
    return by_word


def sample(given: Answers, word: str = "ns") -> Sample:
    """The repeats of a measurement.

    Raises:
        InfraError: there is none, or a time that is none.
    """
    values = tuple(row[0] for row in given.get(word, ()))
    if not values or min(values) <= 0:
        raise InfraError(
            f"measured {word}: {', '.join(map(str, values)) or 'nothing'}",
            where=str(SOURCE),
            next_step="run it again on a quiet host",
        )
    return Sample(values)


def like_here() -> str:
    """The machine whose numbers stand where this host gives none, by who made the CPU."""
    return LIKE[hardware.vendor(text_of(Path("/proc/cpuinfo")))]


def pairs_of(cpus: Sequence[Cpu], most: int = MOST_PAIRS) -> tuple[list[tuple[int, int]], int]:
    """Pairs of CPUs of different cores to try, evenly chosen, and how many there are.

    A core's second thread shares the first one's caches: nothing goes from one to the other.
    """
    first_of = {(cpu.package, cpu.core): cpu.number for cpu in reversed(cpus)}
    every = list(combinations(sorted(first_of.values()), 2))
    if len(every) <= most:
        return every, len(every)
    return [every[at * (len(every) - 1) // (most - 1)] for at in range(most)], len(every)


def measure(cache: Path, cpu: int, progress: Callable[[str], None]) -> tuple[HostParts, Timed]:
    """Build the program, and time this host on ``cpu`` and between pairs of cores.

    Raises:
        InfraError: there is no compiler, or something cannot be measured.
    """
    program = programs.build(SOURCE, FLAGS, cache)

    def answer_of(*words: object) -> Answers:
        done = run([str(program), *map(str, words)], timeout_s=TIMEOUT_S)
        return answers(done.stdout)

    cpuinfo = text_of(Path("/proc/cpuinfo"))
    rows = answer_of("cpuid").get("cpuid", ())
    parts = HostParts(
        title=hardware.title(cpuinfo),
        guest=is_guest(cpuinfo),
        caches=hardware.caches_of(cpu),
        tlbs=hardware.tlbs_of(tuple(map(int, row)) for row in rows if len(row) == 6),
        cpus=read_cpus(),
    )
    cycle = sample(answer_of("cycle", cpu, REPEATS))
    progress(f"a cycle: {cycle.least:.3f} ns ({1 / cycle.least:.2f} GHz)")
    second, last = parts.cache(2, "Unified"), parts.last
    second_kib = second.kib if second else L2_KIB
    l2_kib = second_kib // 2
    llc_kib = LLC_TIMES * second_kib if second else LLC_KIB
    if last:
        llc_kib = min(llc_kib, last.kib // 2)
    chased = answer_of("chase", cpu, REPEATS, l2_kib << 10)
    l2 = sample(chased)
    farther = answer_of("levels", cpu, LEVEL_REPEATS, llc_kib << 10)
    llc, memory = sample(farther, "last"), sample(farther, "memory")
    huge = all(each.get("huge", [(0.0,)])[0][0] > 0 for each in (chased, farther))
    progress(f"loads: L2 {l2.least:.1f}, last level {llc.least:.1f}, memory {memory.least:.1f} ns")
    held_kib, lost_kib = llc_kib, 0
    share = last.kib // hardware.cores_of(last, parts.cpus) if last else 0
    while not lost_kib and 2 * held_kib <= min(share, MOST_LLC_KIB):
        further = sample(answer_of("chase", cpu, SLOW_REPEATS, 2 * held_kib << 10)).least
        if further > (llc.least + memory.least) / 2:
            lost_kib = 2 * held_kib
        else:
            held_kib *= 2
    walked = answer_of("pages", cpu, LEVEL_REPEATS, WALKED_PAGES)
    far, near = sample(walked, "far"), sample(walked, "near")
    progress(f"a page walk: {far.least - near.least:.1f} ns")
    chosen, count = pairs_of(host_cpus())
    pairs = []
    for number, (first, other) in enumerate(chosen, start=1):
        pairs.append(sample(answer_of("pair", first, other, SLOW_REPEATS)))
        if number % 10 == 0 or number == len(chosen):
            best = sorted(pair.least for pair in pairs)
            progress(
                f"a line between CPUs: {best[0]:.1f} to {best[-1]:.1f} ns, "
                f"{number} of {len(chosen)} pairs"
            )
    counted = answer_of("counters", cpu, SLOW_REPEATS)
    return parts, Timed(
        cycle=cycle,
        l2=l2,
        llc=llc,
        memory=memory,
        far=far,
        near=near,
        l2_kib=l2_kib,
        llc_kib=llc_kib,
        held_kib=held_kib,
        lost_kib=lost_kib,
        huge=huge,
        pairs=tuple(pairs),
        pair_count=count,
        small=tuple(row[0] for row in counted.get("small", ())),
        large=tuple(row[0] for row in counted.get("large", ())),
    )


def warnings_of(parts: HostParts, timed: Timed) -> list[str]:
    """What makes the numbers less than this host's own."""
    warnings = []
    if parts.guest:
        warnings.append(
            "this host is a guest: its caches, their sharing and its CPUs are what its hypervisor "
            "shows, and others may use them"
        )
    if not timed.pairs:
        warnings.append("one core: how long a line takes between CPUs cannot be measured")
    if timed.lost_kib:
        warnings.append(
            f"the last level holds {timed.held_kib} KiB for this CPU and not {timed.lost_kib}: "
            "others use the rest, or it is divided"
        )
    wide = {
        "a cycle": timed.cycle,
        "L2": timed.l2,
        "last level": timed.llc,
        "memory": timed.memory,
        "page walks": timed.far,
    }
    noisy = [name for name, each in wide.items() if each.spread > WIDE]
    if noisy:
        warnings.append(
            f"repeats are far apart ({', '.join(noisy)}): the host is busy; run it again"
        )
    if not timed.huge:
        warnings.append("the host gives no huge pages: loads have TLB misses in them")
    return warnings


def kept_of(machine: MachineSpec) -> list[str]:
    """The parts of a machine whose numbers, or some of them, are another one's."""
    parts = {
        "l1d": machine.l1d.source,
        "l1i": machine.l1i.source,
        "l2": machine.l2.source,
        "llc": machine.llc.source,
        "prefetch_lines": machine.prefetch_source,
        "tlbs": machine.tlbs[0].source,
        "many": machine.many.source if machine.many else "",
    }
    return [name for name, source in parts.items() if KEPT in source]


def machine_of(
    name: str, parts: HostParts, timed: Timed, like: MachineSpec, today: str
) -> MachineSpec:
    """The machine's file: this host's numbers, and those of ``like`` where it has none.

    Raises:
        InfraError: what was timed is in no order that hardware has.
    """
    by = f"measured by calibrate, {today}, {parts.title}"
    l1d = _cache(parts, parts.cache(1, "Data"), like.l1d, like.name, first=True)
    l1i = _cache(parts, parts.cache(1, "Instruction"), like.l1i, like.name, first=True)
    l2 = _cache(parts, parts.cache(2, "Unified"), like.l2, like.name)
    llc = _cache(parts, parts.last, like.llc, like.name, timed=timed)
    try:
        return MachineSpec(
            name=name,
            title=f"{parts.title}, calibrated {today}",
            l1d=l1d,
            l1i=l1i,
            l2=l2,
            llc=llc,
            prefetch_lines=like.prefetch_lines,
            prefetch_source=_kept(like.name, like.prefetch_source),
            tlbs=_tlbs(parts, like),
            cycles=_weights(timed, by),
            many=_many(timed, like, by),
        )
    except ValidationError as error:
        words = "; ".join(str(each["msg"]) for each in error.errors())
        raise InfraError(
            f"no machine: {words}", where="this host", next_step="run it again on a quiet host"
        ) from None


def _kept(name: str, source: str) -> str:
    return f"{KEPT} {name}: {source}"


def _cache(
    parts: HostParts,
    cache: CpuCache | None,
    like: CacheSpec,
    name: str,
    *,
    first: bool = False,
    timed: Timed | None = None,
) -> CacheSpec:
    if cache is None or cache.line_bytes != LINE_BYTES:
        return like.model_copy(update={"source": _kept(name, like.source)})
    sharing = 1 if first else hardware.cores_of(cache, parts.cpus)
    # Between what was held and what was not.
    most = timed.lost_kib - 1 if timed and timed.lost_kib else math.inf
    lines = cache.kib * 1024 // LINE_BYTES
    # The least number of cores that leaves each a power of two of sets, and no more KiB.
    cores = next(
        (
            cores
            for cores in range(sharing, MOST_SHARING)
            if not lines % (cache.ways * cores)
            and is_power_of_two(lines // (cache.ways * cores))
            and cache.kib / cores <= most
        ),
        None,
    )
    sets = lines // cache.ways
    if cores is None or (first and (cores != 1 or sets % LINES_OF_PAGE)):
        return like.model_copy(update={"source": _kept(name, like.source)})
    source = f"/sys of {parts.title}"
    if sharing > 1 or cores > 1:
        source += f": {sharing} cores share it"
    if cores != sharing:
        why = (
            "sets are a power of two"
            if most == math.inf
            else (
                f"no more than {most} KiB of it are this CPU's, by calibrate, "
                "and sets a power of two"
            )
        )
        source += f"; divided by {cores}, so that {why}"
    return CacheSpec(kib=cache.kib, ways=cache.ways, cores=cores, source=source)


def _tlbs(parts: HostParts, like: MachineSpec) -> tuple[TlbSpec, ...]:
    try:
        tlbs = tuple(
            TlbSpec(
                level=tlb.level,
                pages=tlb.pages,
                entries=tlb.entries,
                ways=tlb.ways,
                source=f"CPUID of {parts.title}",
            )
            for tlb in parts.tlbs
        )
    except ValidationError:
        tlbs = ()
    small = {tlb.level for tlb in tlbs if "4K" in tlb.pages}
    if {"data", "code"} <= small:
        return tlbs
    return tuple(
        tlb.model_copy(update={"source": _kept(like.name, tlb.source)}) for tlb in like.tlbs
    )


def _weights(timed: Timed, by: str) -> Weights:
    where = "huge pages" if timed.huge else "small pages"
    walk = timed.far.least - timed.near.least
    return Weights(
        l2=timed.cycles(timed.l2.least),
        llc=timed.cycles(timed.llc.least),
        memory=timed.cycles(timed.memory.least),
        walk=timed.cycles(walk),
        source=(
            f"{by}: loads that each need the one before, over shuffled lines in {where}: "
            f"{timed.l2.least:.1f} ns of {timed.l2_kib} KiB ({timed.l2.words()}), and of every "
            f"fourth line of {timed.llc_kib} KiB {timed.llc.least:.1f} ns where L2 does not hold "
            f"it ({timed.llc.words()}) and {timed.memory.least:.1f} ns where no cache does "
            f"({timed.memory.words()}). "
            f"A walk: {walk:.1f} ns, a line in each of {WALKED_PAGES} pages of 4 KiB "
            f"({timed.far.words()}) less as many side by side"
        ),
    )


def _many(timed: Timed, like: MachineSpec, by: str) -> ManyCpus:
    if like.many is None:
        raise UsageError(
            "has no [many], whose numbers may be needed",
            where=f"--like {like.name}",
            next_step="name another machine",
        )
    ghz = 1 / timed.cycle.least
    sources = [f"clock, {by}: additions that each need the one before ({timed.cycle.words()})"]
    kept: list[str] = []
    if timed.pairs:
        ns = sorted(pair.least for pair in timed.pairs)
        transfer = (round(ns[0], 1), round(ns[-1], 1))
        pairs = (
            f"all {timed.pair_count}"
            if len(ns) == timed.pair_count
            else (f"{len(ns)} evenly chosen of {timed.pair_count}")
        )
        sources.append(
            f"transfers, {by}: compare-and-exchange to and fro, half a round, {pairs} pairs of "
            f"cores, second threads left out, each the least of {SLOW_REPEATS}"
        )
    else:
        transfer = like.many.transfer_ns
        kept.append("transfers")
    per_cycle, in_caches = (
        like.many.instructions_per_cycle,
        like.many.instructions_per_cycle_in_caches,
    )
    if timed.small and timed.large:
        every = (*timed.small, *timed.large)
        per_cycle = (round(min(every), 2), round(max(every), 2))
        in_caches = (round(min(timed.small), 2), round(max(timed.small), 2))
        sources.append(
            f"instructions per cycle, {by}: counters of the kernel alone, reads, writes and fstat "
            "of a small file in memory, and for the whole range reads of a large one, too"
        )
    else:
        kept.append("instructions per cycle")
    if kept:
        sources.append(f"{' and '.join(kept)}: {_kept(like.name, like.many.source)}")
    return ManyCpus(
        ghz=round(ghz, 3),
        instructions_per_cycle=per_cycle,
        instructions_per_cycle_in_caches=in_caches,
        transfer_ns=transfer,
        source="; ".join(sources),
    )


def as_toml(machine: MachineSpec) -> str:
    """The machine as its file."""
    plain = machine.model_dump(mode="json", exclude_none=True)
    tables = [(f"[{key}]", value) for key, value in plain.items() if isinstance(value, dict)]
    tables += [("[[tlbs]]", tlb) for tlb in plain.pop("tlbs")]
    single = {key: value for key, value in plain.items() if not isinstance(value, dict)}
    return "\n".join(
        # A string of JSON is one of TOML.
        "".join(
            [f"{head}\n" * bool(head)]
            + [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in of.items()]
        )
        for head, of in [("", single), *tables]
    )
