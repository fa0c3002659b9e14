"""What was counted in a run, waits for locks that a diagnostic run read, and who calls whom.

Kept apart from the run record: it explains a number and is never one that is judged.  Times of
waits are virtual nanoseconds; they include the turns that other vCPUs had meanwhile.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from experiment.frozen import MOST
from results.record import Record, Sample


class Wait(Record):
    """Waits of one caller from the contention events: how often, and how long together.

    ``callers`` goes from the lock function's caller outwards; ``flags`` is the
    kernel's word for the kind of lock (``SPIN``, ``READ``, ``MUTEX`` and so on).
    """

    callers: tuple[str, ...]
    flags: str
    count: int
    total_ns: float


class PhaseLocks(Record):
    """One phase of a twin's run.

    ``virtual_ns`` is the time the phase took.  ``dropped`` counts events that the
    histograms had no room for: with any, ``waits`` is not complete.
    """

    phase: str
    virtual_ns: int
    waits: tuple[Wait, ...] = ()
    dropped: int = 0


class Locks(Record):
    """What one run of a twin saw; phases in their order."""

    run_id: str
    twin: str
    phases: tuple[PhaseLocks, ...]


# Kernel code that no symbol covers, in a profile's ``kernel``.
UNKNOWN = "[unknown]"
# Paths too small to be listed, with all that they called, in the function that called them.
SMALLER = "[smaller]"
SPINNING, IDLE = "spinning", "idle"
# With one vCPU the agent keeps it from being idle by this program, at the lowest priority.
IDLE_PROGRAM = "busybox"
# The names of what is measured by counting: what an I/O takes is path times work.
PATH, WORK = "path", "work"
# Path is instructions for a standard amount of work, and work what an I/O needed: an index of
# prices, and one of quantities at fixed prices (Laspeyres).  A path is given for so many ns of
# work, so that tools that print two decimals show it.
PER_WORK = 1000
# What went by on the guest's clock before a phase, in milliseconds.
BEFORE = "before"
# Kinds of instructions, in the order of their counts.
KINDS = ("loads", "stores", "atomics", "barriers", "divisions", "system")
# What takes a vCPU from what it executes, in the order of the probe's file.
InterruptionKind = Literal["interrupt", "exception", "host call"]
INTERRUPTIONS: tuple[InterruptionKind, ...] = ("interrupt", "exception", "host call")


@functools.cache
def stem(name: str) -> str:
    """A function's name in its source: without ``.constprop.0``, ``.isra.0``, ``@file``, ``#2``.

    What the compiler adds to clones and split-off parts, and the lab to names that several files
    have.
    """
    return name.partition("@")[0].partition("#")[0].partition(".")[0]


# Of rows that a session has millions of: as :class:`Record`, in a seventh of its memory.
Count = Annotated[int, Field(ge=-MOST["int"], le=MOST["int"])]
ROW = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True, config=ROW)
class FunctionCount:
    """One kernel function: instructions executed in it, and times it was entered.

    ``file`` is the source file it was built from, relative to the source; empty
    where that is not known or where several files have a function of this name.  ``line`` is
    where its definition begins in it, 0 where that is not known.
    A module's code is one entry, ``[module]``.  ``kinds`` are those of the instructions that are
    of each kind (:data:`KINDS`; one may be of several), empty where nobody counted them.
    """

    name: str
    file: str
    instructions: Count
    calls: Count
    kinds: tuple[Count, ...] = ()
    line: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True, config=ROW)
class LockSite:
    """A function that took a lock: how often, and for how many instructions it was held.

    ``function`` and ``file`` are as in :class:`FunctionCount`; ``shared`` tells a reader from who
    has the lock for itself.  Held are instructions of the vCPU that took it, what ran in between
    included.  ``waits`` counts the times that it was held by another, ``waited`` what all vCPUs
    executed meanwhile, where the waiter span.  ``moved`` are lines that came from other vCPUs while
    it was held, where these were followed; ``l2``, ``llc`` and ``walks`` are as in :class:`Misses`,
    while it was held, where a machine was modelled.
    """

    function: str
    file: str
    shared: bool
    taken: Count
    held: Count
    waits: Count = 0
    waited: Count = 0
    moved: Count = 0
    l2: Count = 0
    llc: Count = 0
    walks: Count = 0


class LockWait(Record):
    """Who waited for whom: functions that took a lock, the one while the other held it.

    ``waits`` counts the times that ``waiter`` found what ``holder`` had taken, ``handovers`` those
    that a waiter got it next once that one let go, both of spin locks and the first of others,
    too.  ``waited`` is what all vCPUs executed while the one waited for the other: all waiting is
    divided among those that held the lock meanwhile.  ``shared`` tells a reader that waits.
    """

    waiter: str
    holder: str
    shared: bool
    waits: int
    handovers: int
    waited: int


class LockUse(Record):
    """Locks of one phase that the same functions took, told apart by their addresses.

    ``instances`` is how many they are, ``sleeps`` whether who finds one held sleeps, and
    ``symbol`` the name of the kernel's variable that a single one is in; empty for others.
    ``member`` is what it is in an object of a slab cache, as ``inode.i_lock``; empty where that is
    not known.
    Two locks of one type that other functions took are two entries.  ``pairs`` are those of
    their takers who waited for each other, in the order of names.
    """

    instances: int
    sleeps: bool
    symbol: str
    member: str = ""
    sites: tuple[LockSite, ...]
    pairs: tuple[LockWait, ...] = ()


class Misses(Record):
    """What a model of a machine's caches and TLBs counted; never seen on hardware.

    Misses of ``l1d`` and ``l1i``, ``l2`` and ``llc`` are lines that were asked for and not there;
    ``prefetched`` are lines that a stream had fetched from memory besides.  ``tlb`` are misses of
    the first level's TLBs for data, ``walks`` those of the second level, for data and code.
    """

    l1d: int = 0
    l1i: int = 0
    l2: int = 0
    llc: int = 0
    prefetched: int = 0
    tlb: int = 0
    walks: int = 0


class FunctionMisses(Misses):
    """Those of one kernel function; ``name`` and ``file`` as in :class:`FunctionCount`."""

    name: str
    file: str


class MemoryUse(Record):
    """What a modelled machine missed in one phase: by kernel function, and by user file.

    ``unmapped`` are accesses of the whole run that no page was found for; they are in no cache.
    ``by_lock`` says whether the phase's locks have what was missed while each was held.
    """

    kernel: tuple[FunctionMisses, ...]
    user: dict[str, Misses]
    unmapped: int = 0
    by_lock: bool = False


class LineMove(Record):
    """Lines of one object that came to a vCPU, in function ``taker``, from others.

    ``holder`` is the function that touched the line there last.  ``reads`` are those that the other
    had written, ``writes`` those that the other lost, ``apart`` those of both that are false
    sharing: the taker touched no byte that was written there (or, of lines that others read, that
    they read).  ``object`` is a variable of the kernel or of its CPUs (``of_cpu``), the
    member of an object of a slab cache (``slab``) or of a page structure (``pages``) that the taker
    touched first, and empty else or where types are not known.  ``mine`` and ``theirs`` are the
    first and the last byte that either touched, from the object's beginning; None where there is no
    object.
    """

    kind: Literal["variable", "of_cpu", "slab", "pages", "user", "memory"]
    object: str
    taker: str
    holder: str
    reads: int
    writes: int
    apart: int
    mine: tuple[int, int] | None = None
    theirs: tuple[int, int] | None = None


class Interruption(Record):
    """How often something took a vCPU from ``function`` to ``handler``, a kernel function.

    Exceptions are page faults for the most part, and a host call is none that the guest handles:
    there ``handler`` is what went on.  ``function`` is the kernel function, or with ``user`` the
    guest's file, of the instruction that was to be executed.
    """

    kind: InterruptionKind
    handler: str
    function: str
    user: bool
    count: int


class StackFrame(Record):
    """A kernel function as called on one path: ``depth`` 0 is called by the user or an interrupt.

    ``instructions`` are those of the function itself on this path, ``calls`` the times that it was
    entered on it.  Frames stand behind the one that called them, which is the last before them
    with a depth that is smaller by one.  :data:`SMALLER` is no function and has no calls.
    """

    depth: int
    function: str
    instructions: int
    calls: int


class PhaseProfile(Record):
    """One phase: all instructions, by kernel function, by user file, and by vCPU.

    ``kernel`` is in the order of names, ``user`` maps files of the guest to
    instructions.  Their sum, and the sum of ``by_vcpu``, is ``instructions``.
    ``units`` maps units of work to how many were done, ``work`` those that the work of the
    phase is added up from.
    ``waits`` maps a kind of waiting (``SPINNING``, ``IDLE``) to what each vCPU spent in
    it, in instructions that all vCPUs executed meanwhile; empty where nobody looked.

    ``locks`` are those that were taken, None where that was not watched; ``lost_locks``
    counts those that were never seen to be let go of, whose times are not in ``locks``.

    ``user_kinds`` maps files of the guest to kinds as in :class:`FunctionCount`.

    ``memory`` is what a model of a machine missed, ``lines`` are those that moved between
    its vCPUs, None where neither was asked for.

    ``interruptions`` are in the order of their kinds and names, None where QEMU tells of none
    (before 11.1); where it does, blocks that were left before their end are counted up to there.

    ``stacks`` are the paths on which kernel functions were called, None where nobody followed them.

    ``blocks`` are those of files whose lines are counted (:class:`Annotation`): where each begins
    in the kernel's half of the addresses, how many instructions it has, and its entries.
    """

    phase: str
    instructions: int
    kernel: tuple[FunctionCount, ...]
    user: dict[str, int]
    by_vcpu: tuple[int, ...]
    units: dict[str, Sample]
    waits: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    work: dict[str, Sample] = Field(default_factory=dict)
    locks: tuple[LockUse, ...] | None = None
    lost_locks: int = 0
    memory: MemoryUse | None = None
    lines: tuple[LineMove, ...] | None = None
    user_kinds: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    interruptions: tuple[Interruption, ...] | None = None
    stacks: tuple[StackFrame, ...] | None = None
    blocks: tuple[tuple[int, int, int], ...] = ()

    @property
    def busy(self) -> int:
        """Instructions that were executed for something."""
        return self.instructions - self.user.get(IDLE_PROGRAM, 0)

    @property
    def in_kernel(self) -> int:
        """Instructions that no program executed."""
        return self.instructions - sum(self.user.values())

    @property
    def spinning_share(self) -> float | None:
        """Time in the spin locks' slow path over the time that vCPUs were not idle.

        Over all vCPUs, 0 to 1; None where nobody looked.
        """
        if not self.waits:
            return None
        busy = len(self.by_vcpu) * self.instructions - sum(self.waits.get(IDLE, ()))
        return sum(self.waits.get(SPINNING, ())) / busy if busy > 0 else None


class Profile(Record):
    """What the probe counted in one run; phases in their order."""

    run_id: str
    phases: tuple[PhaseProfile, ...]

    @property
    def of_functions(self) -> Profile:
        """The same without all that was watched besides: instructions and calls alone."""
        left_out: dict[str, Any] = dict.fromkeys(("locks", "memory", "lines", "interruptions"))
        left_out |= {"stacks": None, "waits": {}, "user_kinds": {}, "blocks": ()}
        phases = (phase.model_copy(update=left_out) for phase in self.phases)
        return self.model_copy(update={"phases": tuple(phases)})


# The fields that have names of the kernel's functions.
OF_FUNCTIONS = ("callers", "function", "handler", "holder", "name", "taker", "waiter")
Counts = TypeVar("Counts", Profile, Locks)


def with_names(counts: Counts, names: Mapping[str, str]) -> Counts:
    """The same with other names of functions: those of the kernel that they are compared with."""

    def walk(value: Any, field: str) -> Any:
        if isinstance(value, dict):
            return {key: walk(each, key) for key, each in value.items()}
        if isinstance(value, tuple):
            each = [walk(each, field) for each in value]
            return tuple(sorted(each, key=itemgetter("name")) if field == "kernel" else each)
        return names.get(value, value) if field in OF_FUNCTIONS else value

    return type(counts).model_validate(walk(counts.model_dump(), ""))


class FileDiff(Record):
    """What two arms' sources of one file differ by: hunks as ``diff -u`` writes them."""

    base: str
    patched: str
    file: str
    hunks: str


class FileCounts(Record):
    """One file in one phase on one arm, over all of ``runs``, which are named by their ids.

    ``lines`` maps a line to how often it was executed, to its instructions, and to whether the
    first is exact (:func:`kernels.linetable.executions`); a line that has code and never ran has
    zeros, and one without code is not in it.  Copies that the compiler made of a line are added up.
    """

    arm: str
    case: str
    phase: str
    file: str
    runs: tuple[str, ...]
    lines: dict[int, tuple[int, int, bool]]


class Annotation(Record):
    """All files of a session; ``without`` says of files why nothing is known of their lines."""

    diffs: tuple[FileDiff, ...]
    counts: tuple[FileCounts, ...]
    without: dict[str, str] = Field(default_factory=dict)


class Calls(Record):
    """Functions of a kernel by name, as a profile has them, and what their code refers to.

    ``callees`` are, for each of ``names``, the positions in it of functions that its code calls,
    jumps to or holds the address of.  ``pointed`` are positions of functions whose address is in
    data, so that any function of ``indirect`` (which call through pointers) may call them, and
    ``boot`` those of functions that are executed at boot alone and thrown away.
    """

    names: tuple[str, ...]
    callees: tuple[tuple[int, ...], ...]
    pointed: tuple[int, ...] = ()
    indirect: tuple[int, ...] = ()
    boot: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _positions_are_of_names(self) -> Calls:
        positions = {*self.pointed, *self.indirect, *self.boot}.union(*self.callees)
        many = len(self.names)
        if len(self.callees) > many or not positions <= {*range(many)}:
            raise ValueError(f"there are {many} names, and a position is of none")
        return self

    def edges(self) -> dict[str, set[str]]:
        """Callees by caller."""
        return {
            self.names[caller]: {self.names[callee] for callee in callees}
            for caller, callees in enumerate(self.callees)
        }

    def named(self, positions: Iterable[int]) -> set[str]:
        """The names at some positions."""
        return {self.names[position] for position in positions}


def calls_of(
    edges: Mapping[str, Iterable[str]],
    *,
    pointed: Iterable[str] = (),
    indirect: Iterable[str] = (),
    boot: Iterable[str] = (),
) -> Calls:
    """The same of sets of names; a name that is nobody's caller has no callees."""
    called = (callee for callees in edges.values() for callee in callees)
    names = tuple(sorted({*edges, *called, *pointed, *indirect, *boot}))
    at = {name: position for position, name in enumerate(names)}

    def positions(of: Iterable[str]) -> tuple[int, ...]:
        return tuple(sorted(at[name] for name in of))

    return Calls(
        names=names,
        callees=tuple(positions(edges.get(name, ())) for name in names),
        pointed=positions(pointed),
        indirect=positions(indirect),
        boot=positions(boot),
    )
