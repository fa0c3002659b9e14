"""What the probe wrote: pure, from bytes to a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from errors import InfraError
from experiment.architecture import X86_64
from kernels.addresses import AddressTable, FunctionMap
from kernels.cache import Kernel
from results.profile import INTERRUPTIONS, KINDS, SMALLER, UNKNOWN, StackFrame

MAGIC = b"TWINPROB"
VERSION = 9


def _of(form: str, names: str) -> list[tuple[str, str]]:
    return [(name, form) for name in names.split()]


HEADER = np.dtype(
    [
        ("magic", "S8"),
        *_of("<u4", "version vcpus"),
        *_of("<u8", "window spans modelled shared interrupted stacked"),
    ]
)
ROW = np.dtype(
    [
        *_of("<u4", "phase window"),
        *_of("<u2", "vcpu instructions"),
        ("kinds", "<u4"),
        *_of("<u8", "address entries"),
    ]
)
LOCK = np.dtype(
    [
        *_of("<u4", "phase kind"),
        *_of("<u8", "lock site holder taken held waits waited moved object l2 llc walks"),
    ]
)
# Added to the kind of rows of locks that say who waited for whom.
PAIR = 16
# What the model of caches and TLBs counts, in the order of a row.
MISSES = ("l1d", "l1i", "l2", "llc", "prefetched", "tlb", "walks")
MISS = np.dtype([*_of("<u4", "phase instructions"), *_of("<u8", f"address {' '.join(MISSES)}")])
# Lines that moved: the numbers that are added up, and bits of the bytes on either side.
MOVED = ("reads", "writes", "apart")
# Objects that are no address in the kernel's image (lines.c).
OF_CPU, OF_CPU_BYTES = 0x0050435500000000, 0xFFFFFFFF
OF_PAGES, OF_USER, OF_MEMORY = 0x0050474500000000, 0x0055534500000000, 0x004D454D00000000
# Of a slab cache: its number, and where in the object the line begins, a line more than that.
OF_SLAB, SLAB_BITS, LINE_BYTES = 0x00534C4100000000, 20, 64
MOVE = np.dtype(
    [*_of("<u4", "phase unused"), *_of("<u8", f"object to from {' '.join(MOVED)} mine theirs")]
)
SLAB = np.dtype([("name", "S40"), *_of("<u4", "size users")])
# How often a vCPU went from an instruction to a handler; the kinds are those of the profile.
INTERRUPTION = np.dtype([*_of("<u4", "phase kind"), *_of("<u8", "handler from count")])
# A function as called from another path, and what was executed in it itself.
PATH = np.dtype([*_of("<u4", "parent unused"), ("function", "<u8")])
STACK = np.dtype([*_of("<u4", "phase path"), *_of("<u8", "instructions calls")])
KINDS_ROW = np.dtype([(name, "<u2") for name in KINDS])
# In the order of the file, by the trailer's fields.
TABLES = {
    "rows": ROW,
    "locks": LOCK,
    "misses": MISS,
    "kinds": KINDS_ROW,
    "moves": MOVE,
    "slabs": SLAB,
    "interruptions": INTERRUPTION,
    "paths": PATH,
    "stacks": STACK,
}
TRAILER = np.dtype([*_of("<u4", "phase lost"), *_of("<u8", f"{' '.join(TABLES)} unmapped")])
TRAILER_PHASE = 0xFFFFFFFF
# Rows from this address on are no blocks but spans; no code can be there.
SPAN = 0x0053504100000000
MAX_SPANS = 4
Rows = NDArray[np.void]


class CountsError(InfraError):
    """Not a file of this probe, or not all of it."""


@dataclass(frozen=True)
class Counts:
    """One run: vCPUs, instructions of a window (0: not cut), and the rows.

    A row (``ROW``) says how often a vCPU entered the block of ``instructions`` that begins at
    ``address``, in a window of a phase.  Phases are numbered from 1; row ``kinds`` of the table of
    that name (blocks, :data:`results.profile.KINDS`) says what they are.  In a row of ``spans`` the
    entries are the instructions that all vCPUs executed while this one was in span number
    ``address`` - :data:`SPAN`; ``span_count`` is how many were looked at. A row of ``locks``
    (``LOCK``) is one lock in one phase, as taken by one call: ``held`` in instructions of the
    holder's vCPU, ``waited`` in those of all vCPUs; ``object`` is where in an object of ``slabs``
    the line of it begins, 0 for none; ``l2``, ``llc`` and ``walks`` are what the model missed while
    it was held. In a row of ``pairs`` (``LOCK``) ``site`` waited for what the call at ``holder``
    had taken: so many ``waits``, ``waited`` in instructions of all vCPUs, and ``taken`` once it was
    let go of. ``lost_locks`` counts those that were taken again without having been let go of. A
    row of ``misses`` (``MISS``) is a block in one phase by which the model of a machine counted any
    of :data:`MISSES`; ``unmapped`` counts the accesses that it found no page for.  Nothing is known
    of either unless ``modelled``. A row of ``moves`` (``MOVE``) are lines of an object that came to
    the block ``to`` from what the block ``from`` of another vCPU touched; none unless ``shared``.
    ``slabs`` (``SLAB``) are the slab caches that the objects are numbered by: ``size`` of their
    objects, and how many caches are merged in each (``users``). A row of ``interruptions``
    (``INTERRUPTION``) says how often a vCPU went from the instruction ``from``, which it did not
    execute then, to ``handler``; ``kind`` is one of :data:`results.profile.INTERRUPTIONS` by
    number.  None are known unless ``interrupted``, and then blocks that were left before their end
    count as those of what was executed. A row of ``paths`` (``PATH``) is a function, by its
    address, as called on the path ``parent``; the first is the user's code, and all others are
    behind theirs.  A row of ``stacks`` (``STACK``) says what was executed in it itself in one
    phase; there are none unless ``stacked``.
    """

    vcpus: int
    window: int
    rows: Rows
    spans: Rows
    span_count: int
    locks: Rows
    pairs: Rows
    lost_locks: int
    modelled: bool
    misses: Rows
    unmapped: int
    kinds: NDArray[np.uint64]
    shared: bool
    moves: Rows
    slabs: Rows
    interrupted: bool
    interruptions: Rows
    stacked: bool
    paths: Rows
    stacks: Rows

    def in_phase(self, number: int) -> Counts:
        """The same with the rows of one phase."""
        tables = ("rows", "spans", "locks", "pairs", "misses", "moves", "interruptions", "stacks")
        of_all = {name: getattr(self, name) for name in tables}
        return replace(self, **{name: t[t["phase"] == number] for name, t in of_all.items()})


def parse(data: bytes) -> Counts:
    """Read the probe's file; CountsError: another's, another version's, or cut short."""
    if len(data) < HEADER.itemsize or not data.startswith(MAGIC):
        raise CountsError(f"not written by the probe: {data[:8]!r}, {len(data)} bytes")
    header = np.frombuffer(data, HEADER, count=1)[0]
    if header["version"] != VERSION:
        raise CountsError(f"version {header['version']} of the probe's file, not {VERSION}")
    body = data[HEADER.itemsize :]
    if len(body) < TRAILER.itemsize:
        raise CountsError(f"cut short after {len(data)} bytes")
    last = np.frombuffer(body[-TRAILER.itemsize :], TRAILER)[0]
    whole = sum(kind.itemsize * int(last[name]) for name, kind in TABLES.items())
    if last["phase"] != TRAILER_PHASE or whole + TRAILER.itemsize != len(body):
        raise CountsError(f"cut short after {len(data)} bytes")
    tables, start = {}, 0
    for name, kind in TABLES.items():
        tables[name] = np.frombuffer(body, kind, int(last[name]), start)
        start += tables[name].nbytes
    vcpus, rows, locks, kinds = int(header["vcpus"]), *map(tables.pop, ("rows", "locks", "kinds"))
    if np.any(rows["vcpu"] >= vcpus) or np.any(rows["phase"] == TRAILER_PHASE):
        raise CountsError(f"rows of a vCPU or phase that is none, with {vcpus} vCPUs")
    if len(rows) and int(rows["kinds"].max()) >= max(len(kinds), 1):
        raise CountsError(f"rows of kinds that are not there: of {len(kinds)}")
    if np.any(tables["interruptions"]["kind"] >= len(INTERRUPTIONS)):
        raise CountsError(f"interruptions of a kind that is none: of {len(INTERRUPTIONS)}")
    is_pair = locks["kind"] >= PAIR
    is_span = (rows["address"] >= SPAN) & (rows["address"] < SPAN + MAX_SPANS)
    return Counts(
        vcpus=vcpus,
        window=int(header["window"]),
        rows=rows[~is_span],
        spans=rows[is_span],
        span_count=int(header["spans"]),
        locks=locks[~is_pair],
        pairs=locks[is_pair],
        lost_locks=int(last["lost"]),
        unmapped=int(last["unmapped"]),
        kinds=np.stack([kinds[name] for name in KINDS], axis=1).astype(np.uint64),
        modelled=bool(header["modelled"]),
        shared=bool(header["shared"]),
        interrupted=bool(header["interrupted"]),
        stacked=bool(header["stacked"]),
        **tables,
    )


# Where the CPU begins to handle an interrupt or an exception, on top of what it executed.
ENTERS = re.compile(r"asm_(exc|sysvec|common_interrupt|spurious_interrupt|fred)\w*")
# Where a task has no kernel function below: a call of the system, and a task's first steps.
BEGINS = re.compile(r"entry_(SYSCALL|SYSENTER|INT80|SYSRETL)\w*|ret_from_fork_asm")
SWITCHES = re.compile(r"__switch_to_asm")
WORDS = {"enter": ENTERS, "begin": BEGINS, "switches": SWITCHES}
# Paths below this share of the kernel's instructions, with all that they called, are put together.
LEAST_SHARE = 0.00005


def words(kernel: Kernel, table: AddressTable) -> tuple[str, ...]:
    """The functions of one kernel; empty for one whose stacks are not followed."""
    places = [
        f"{word}={start:x}"
        for word, pattern in WORDS.items()
        for name, starts in sorted(table.at.items())
        if pattern.fullmatch(name)
        for start in starts
    ]
    if kernel.identity.arch != X86_64.name or not any(p.startswith("switches=") for p in places):
        return ()
    return tuple(places)


def fold(of: Counts, functions: FunctionMap) -> tuple[StackFrame, ...]:
    """Stacks of one phase, callers first, without user code; CountsError: a path without end."""
    at = np.searchsorted(functions.table.starts, of.paths["function"], side="right") - 1
    names = [
        functions.named[int(functions.owner[start])][0] if start >= 0 else UNKNOWN
        for start in at.tolist()
    ]
    tree = _Tree(names, of.paths["parent"].tolist())
    for row in of.stacks:
        tree.add(int(row["path"]), int(row["instructions"]), int(row["calls"]))
    return tuple(tree.frames())


class _Tree:
    """Paths by their names: what is split into parts in one kernel is one function."""

    def __init__(self, names: Sequence[str], parents: Sequence[int]) -> None:
        self.children: list[dict[str, int]] = [{}]
        self.spent = [[0, 0]]
        self.of_path: list[int] = [0]
        for number, parent in enumerate(parents[1:], start=1):
            if parent >= number:
                raise CountsError(f"path {number} is called from path {parent}")
            self.of_path.append(self._child(self.of_path[parent], names[number]))

    def _child(self, parent: int, name: str) -> int:
        known = self.children[parent]
        if name not in known:
            known[name] = len(self.children)
            self.children.append({})
            self.spent.append([0, 0])
        return known[name]

    def add(self, path: int, instructions: int, calls: int) -> None:
        if path >= len(self.of_path):
            raise CountsError(f"path {path} of {len(self.of_path)}")
        spent = self.spent[self.of_path[path]]
        spent[0] += instructions
        spent[1] += calls

    def frames(self) -> Iterator[StackFrame]:
        # Those that were called are behind their callers.
        below = [own for own, _ in self.spent]
        for number in range(len(self.children) - 1, -1, -1):
            below[number] += sum(below[child] for child in self.children[number].values())
        least = (below[0] - self.spent[0][0]) * LEAST_SHARE
        pending = [(0, number, name) for name, number in sorted(self.children[0].items())][::-1]
        while pending:
            depth, number, name = pending.pop()
            if not below[number]:
                continue
            own, calls = self.spent[number]
            yield StackFrame(depth=depth, function=name, instructions=own, calls=calls)
            called = sorted(self.children[number].items())
            small = sum(below[child] for _, child in called if below[child] < least)
            if small:
                yield StackFrame(depth=depth + 1, function=SMALLER, instructions=small, calls=0)
            pending += [
                (depth + 1, child, name)
                for name, child in reversed(called)
                if below[child] >= least
            ]
