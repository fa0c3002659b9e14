"""A machine whose caches and TLBs are modelled: one file under ``configs/machines/``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from experiment.frozen import Frozen, Name

MACHINES = Path(__file__).resolve().parent.parent / "configs" / "machines"
LINE_BYTES = 64
# What the smallest page has of lines: a first-level cache of as many sets is indexed by them.
LINES_OF_PAGE = 64
PageSize = Literal["4K", "2M", "1G"]
TlbLevel = Literal["data", "code", "second", "second_data", "second_code"]
Positive = Annotated[int, Field(ge=1, le=1 << 24)]
PositiveFloat = Annotated[float, Field(gt=0, le=1e6)]
# Where an experiment names none.
DEFAULT_MACHINE = "ice-lake-sp"


def is_power_of_two(number: int) -> bool:
    """Whether a number is 1, 2, 4 and so on."""
    return number > 0 and not number & (number - 1)


class CacheSpec(Frozen):
    """A cache of lines of 64 bytes."""

    kib: Positive
    """Size, KiB; of a shared one, all of it."""
    ways: Annotated[int, Field(ge=1, le=64)]
    """Lines of a set."""
    cores: Positive = 1
    """Cores that share it: one has this part of it for itself, as if all were as busy."""
    source: str
    """Where these numbers are printed."""

    @property
    def sets(self) -> int:
        """Sets of one core's share."""
        return self.kib * 1024 // self.cores // LINE_BYTES // self.ways

    def _mistakes(self) -> Iterator[str]:
        whole = self.sets * self.ways * self.cores * LINE_BYTES == self.kib * 1024
        if not whole or not is_power_of_two(self.sets):
            yield (
                f"{self.kib} KiB for {self.cores} cores are no power of two of sets of {self.ways} "
                "lines"
            )


class TlbSpec(Frozen):
    """A TLB, or the part of one that holds pages of these sizes."""

    level: TlbLevel
    """``data`` and ``code`` are the first level; ``second`` is for both, ``second_data`` and
    ``second_code`` for one.
    """
    pages: Annotated[tuple[PageSize, ...], Field(min_length=1)]
    """Sizes of the pages that it holds; a larger one goes in by parts."""
    entries: Positive
    """Pages that it holds."""
    ways: Positive
    """Entries of a set; as many as ``entries`` where any can be anywhere."""
    source: str
    """Where these numbers are printed."""

    @property
    def sets(self) -> int:
        """Sets of ``ways`` entries."""
        return self.entries // self.ways

    def _mistakes(self) -> Iterator[str]:
        if self.entries % self.ways or not is_power_of_two(self.sets):
            yield f"{self.entries} entries are no power of two of sets of {self.ways} entries"


class Weights(Frozen):
    """Cycles from an access to its data, by where it is found: for an estimate beside counts."""

    l2: Positive
    """Found in L2."""
    llc: Positive
    """Found in the last level."""
    memory: Positive
    """Found in memory."""
    walk: Positive
    """A walk of page tables that are in caches."""
    source: str
    """Where these numbers are printed."""

    def _mistakes(self) -> Iterator[str]:
        if not self.l2 <= self.llc <= self.memory:
            yield (
                f"l2, llc and memory: found {self.l2}, {self.llc} and {self.memory}; each is "
                "farther than the one before, and takes no less"
            )


class ManyCpus(Frozen):
    """What many CPUs at once depend on, each from least to most: for an estimated range."""

    ghz: PositiveFloat
    """Cycles of a CPU in a nanosecond."""
    instructions_per_cycle: tuple[PositiveFloat, PositiveFloat]
    """Of kernel code, the least and the most."""
    instructions_per_cycle_in_caches: tuple[PositiveFloat, PositiveFloat] | None = None
    """The same where nothing is waited for that misses L2, nor page walks: for phases whose misses
    are counted and added. Without it they never are.
    """
    transfer_ns: tuple[PositiveFloat, PositiveFloat]
    """A line that another CPU wrote comes to this one: from the nearest and from the farthest."""
    source: str
    """Where these numbers are printed, or that they are chosen."""

    def _mistakes(self) -> Iterator[str]:
        for name in ("instructions_per_cycle", "instructions_per_cycle_in_caches", "transfer_ns"):
            least, most = getattr(self, name) or (0, 0)
            if least > most:
                yield f"{name}: found {least} before {most}; the least comes first"


class MachineSpec(Frozen):
    """Caches and TLBs of one core of a machine, what fetches lines ahead, and many of its CPUs."""

    name: Name
    """Of the machine, and of its file."""
    title: str
    """What it is, in one line."""
    l1d: CacheSpec
    """First level, data."""
    l1i: CacheSpec
    """First level, code."""
    l2: CacheSpec
    """Second level, of one core."""
    llc: CacheSpec
    """Last level."""
    prefetch_lines: Annotated[int, Field(ge=0, le=63)]
    """Lines that a stream is fetched ahead within a page of 4 KiB; 0: nothing is."""
    prefetch_source: str
    """Where this number is printed, or that it is chosen."""
    tlbs: Annotated[tuple[TlbSpec, ...], Field(min_length=2)]
    """Every TLB."""
    cycles: Weights
    """What an access takes, for an estimate that is shown beside the counts."""
    many: ManyCpus | None = None
    """What many CPUs depend on; without it no range is estimated for them."""

    def _mistakes(self) -> Iterator[str]:
        for name, cache in (("l1d", self.l1d), ("l1i", self.l1i)):
            if cache.sets % LINES_OF_PAGE:
                yield f"{name}: found {cache.sets} sets; a multiple of {LINES_OF_PAGE} is wanted"
        for level in ("data", "code"):
            if not any(tlb.level == level and "4K" in tlb.pages for tlb in self.tlbs):
                yield f"tlbs: none of level {level!r} holds pages of 4K"


def names_in(folder: Path) -> tuple[str, ...]:
    """Names of the TOML files in ``folder``, sorted; none if it is not there."""
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))
