"""From the probe's counts to a profile: pure, but for reading the kernel's tables.

A block is counted where it begins, also one that runs into the next function.  Calls are entries of
blocks that begin at a function's first instruction.  Before QEMU 11.1 a block that is left in its
middle by a page fault counts whole, and its rest once more: in user code, 0.01 % of a phase.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from errors import InfraError
from experiment.architecture import ARCHITECTURES
from guests.probe import counts
from guests.probe.counts import Counts, CountsError, Rows
from guests.probe.plugin import (
    NAMES,
    REMOVED,
    SHARED,
    SLEEPS,
    STATIC,
    LockPlace,
    UserMap,
    member_of_slab,
    user_map,
)
from guests.probe.plugin import places as lock_places
from kernels import addresses, btf
from kernels.addresses import (
    KERNEL_HALF,
    AddressesError,
    AddressTable,
    FunctionMap,
    functions_of,
    table_of,
)
from kernels.btf import Types
from kernels.cache import Kernel
from results import profile as profiles
from results.profile import PER_WORK, WORK
from workloads.metrics import ios_of, work_ns
from workloads.parse import GuestResult, PhaseResult
from workloads.spec import Phase, Unit

Key = TypeVar("Key")
MODULE = "[module]"
USER_CODE = "[user]"
# Of a phase with a program: what it started, with the libraries of that.
PROGRAMS = "[programs]"
# Numbers of a row of locks that are added up, as fields of ``LockSite``.
SPENT = ("taken", "held", "waits", "waited", "moved", "l2", "llc", "walks")
# Those of a row of pairs, and what a ``LockWait`` calls them.
WAITED, PAIR = ("waits", "taken", "waited"), ("waits", "handovers", "waited")
# What device bytes are counted in, whatever the guest's own pages are.
PAGE = 4096
# More kernel instructions than this where System.map has no code, and it is another
# kernel's: a right one leaves none.
MAX_UNKNOWN_SHARE = 0.001


@dataclass(frozen=True)
class Places:
    """What addresses mean in one run: functions, modules' [start, end), user files."""

    functions: FunctionMap
    modules: tuple[tuple[int, int], ...]
    user: UserMap


def profile(
    data: bytes,
    kernel: Kernel,
    files: Mapping[str, bytes],
    phases: Sequence[Phase],
    result: GuestResult,
    sources: Collection[str] = (),
) -> tuple[profiles.PhaseProfile, ...]:
    """Fold one run: the probe's file, and what the guest sent (``files``, and parsed).

    Phases are in the order they ran, numbered from 1 as the agent numbers them.  Of functions of
    the ``sources`` blocks are kept, too.
    Raises InfraError: the counts are cut short, a phase was not counted, or System.map is not that
    of the kernel that ran.
    """
    counted = [definition.calls for phase in phases for definition in (*phase.units, *phase.costs)]
    counted += [
        definition.calls + definition.less for phase in phases for definition in phase.ratios
    ]
    called = frozenset(name for names in counted for name in names)
    try:
        parsed = counts.parse(data)
        root = ARCHITECTURES[kernel.identity.arch].root
        # A workload's program loads a module and has it gone before it ends.
        later = (root.modules_at,) if kernel.modules else ()
        places = Places(
            functions_of(kernel, called),
            (*addresses.module_ranges(_text(files, "modules")), *later),
            user_map(_text(files, "maps"), root.program_at),
        )
        table = places.functions.table
        # The agent kept some lines of /proc/kallsyms.  A kernel without it proves itself by its
        # build id, which was read from the same link as System.map.
        compared = addresses.require_same(table, _text(files, "kallsyms"))
        if not compared and (not result.build_id or result.build_id != kernel.identity.build_id):
            raise AddressesError("neither /proc/kallsyms nor a build id shows that it fits")
        watched = bool(lock_places(table, kernel.identity.arch))
        kinds = [kind for kind, _ in waiting_places(table)][: parsed.span_count]
        types = btf.of(kernel) if len(parsed.slabs) else Types([])
        objects = KernelObjects(types, parsed.slabs)
        folded = []
        for number, (phase, sent) in enumerate(zip(phases, result.phases, strict=True), start=1):
            of = parsed.in_phase(number)
            if not len(of.rows):
                raise CountsError(f"phase {phase.name} (number {number}) was not counted")
            # Instructions of all vCPUs while each one waited, by kind of the spans.
            span = (of.spans["address"] - np.uint64(counts.SPAN)).astype(np.int64)
            waits: dict[str, tuple[int, ...]] = {}
            for kind in dict.fromkeys(kinds):
                mine = np.isin(span, [at for at, name in enumerate(kinds) if name == kind])
                spent = of.spans["entries"][mine]
                waits[kind] = _sums(of.spans["vcpu"][mine], spent, of.vcpus)
            more: dict[str, object] = {"waits": waits}
            if watched:
                more |= {"locks": _locks(of, places, objects), "lost_locks": parsed.lost_locks}
            if parsed.modelled:
                more["memory"] = _memory(of, places, by_lock=watched)
            if parsed.shared:
                more["lines"] = _lines(of.moves, places, objects)
            if parsed.interrupted:
                more["interruptions"] = _interruptions(of.interruptions, places, phase)
            if sources:
                more["blocks"] = blocks_of(of, places.functions, sources)
            if parsed.stacked:
                more["stacks"] = counts.fold(of, places.functions)
            folded.append(_phase(of, places, phase, sent).model_copy(update=more))
        return tuple(folded)
    except (CountsError, AddressesError) as error:
        raise InfraError(
            str(error),
            where=str(kernel.system_map) if isinstance(error, AddressesError) else "the probe",
            next_step=REMOVED,
        ) from None


def _phase(of: Counts, places: Places, phase: Phase, result: PhaseResult) -> profiles.PhaseProfile:
    """What was executed in one phase; AddressesError: much of it where System.map has no code."""
    rows, functions = of.rows, places.functions
    spent = rows["entries"] * rows["instructions"]
    kinds = of.kinds[rows["kinds"]] * rows["entries"][:, np.newaxis]
    inside = rows["address"] >= KERNEL_HALF
    kernel = _kernel(rows[inside], spent[inside], kinds[inside], places)
    where = rows["address"][~inside]
    user, *by_kind = (
        _of_phase(phase, places.user.fold(where, column))
        for column in (spent[~inside], *kinds[~inside].T)
    )
    units, work = (
        {
            unit.name: value
            for unit in those
            if (value := _unit(unit, functions, kernel, result)) is not None
        }
        for those in (phase.units, phase.costs)
    )
    if done := work_ns(phase, work):
        units = {WORK: done / PER_WORK, **units}
    return profiles.PhaseProfile(
        phase=phase.name,
        instructions=int(spent.sum()),
        kernel=kernel,
        user=user,
        by_vcpu=_sums(rows["vcpu"], spent, of.vcpus),
        units=units,
        work=work,
        user_kinds={file: tuple(each.get(file, 0) for each in by_kind) for file in user},
    )


def blocks_of(
    of: Counts, functions: FunctionMap, sources: Collection[str]
) -> tuple[tuple[int, int, int], ...]:
    """The blocks of functions of these files, those of all vCPUs together, by their addresses."""
    of_source = np.array([file in sources for _, file in functions.named], np.bool_)
    start = np.searchsorted(functions.table.starts, of.rows["address"], side="right") - 1
    rows = of.rows[(start >= 0) & of_source[functions.owner[np.maximum(start, 0)]]]
    keys = zip(rows["address"].tolist(), rows["instructions"].tolist(), strict=True)
    counted = _added(zip(keys, _columns(rows, ("entries",)), strict=True))
    return tuple((at - KERNEL_HALF, n, entries) for (at, n), (entries,) in sorted(counted.items()))


def _added(rows: Iterable[tuple[Key, Iterable[int]]]) -> dict[Key, list[int]]:
    """The numbers of rows with the same key, added up in whole numbers."""
    sums: dict[Key, list[int]] = {}
    for key, numbers in rows:
        known = sums.get(key)
        sums[key] = [*map(add, known, numbers)] if known else list(numbers)
    return sums


def _named(names: Iterable[str], numbers: Iterable[int]) -> dict[str, int]:
    return dict(zip(names, numbers, strict=True))


def _columns(rows: Rows, names: Iterable[str]) -> Iterator[tuple[int, ...]]:
    """Some numbers of each row; by columns, as a phase may have taken ten thousands of locks."""
    return zip(*(rows[name].tolist() for name in names), strict=True)


def _of_phase(phase: Phase, by_file: Mapping[str, int]) -> dict[str, int]:
    """Instructions by user file; fio's loader knows nothing of where a phase's program has its."""
    if not phase.program:
        return dict(by_file)
    named = {name: spent for name, spent in by_file.items() if name in (STATIC, profiles.UNKNOWN)}
    rest = sum(by_file.values()) - sum(named.values())
    return {**named, **({PROGRAMS: rest} if rest else {})}


def _locks(of: Counts, places: Places, objects: KernelObjects) -> tuple[profiles.LockUse, ...]:
    """One phase's locks and who waited for whom, by who took them, the longest held first."""
    rows, pairs = of.locks, of.pairs
    names = _names(rows["site"], places)
    takers = zip(rows["lock"].tolist(), names, rows["kind"].tolist(), strict=True)
    by_lock: dict[int, dict[tuple[str, str, int], list[int]]] = {}
    keyed = ((lock, (*name, kind)) for lock, name, kind in takers)
    for (lock, taker), sums in _added(zip(keyed, _columns(rows, SPENT), strict=True)).items():
        by_lock.setdefault(lock, {})[taker] = sums
    waiters, holders = (_names(pairs[end], places) for end in ("site", "holder"))
    waits: dict[int, list[tuple[tuple[str, str, bool], tuple[int, ...]]]] = {}
    for row, (waiter, _), (holder, _), numbers in zip(
        pairs, waiters, holders, _columns(pairs, WAITED), strict=True
    ):
        of_lock = waits.setdefault(int(row["lock"]), [])
        of_lock.append(((waiter, holder, bool(int(row["kind"]) & SHARED)), numbers))
    place_of = dict(zip(rows["lock"].tolist(), rows["object"].tolist(), strict=True))
    symbols = places.functions.table.variables(np.array(list(by_lock), np.uint64))
    same: dict[tuple[str, str, tuple[tuple[str, str, int], ...]], list[int]] = {}
    for (lock, sites), symbol in zip(by_lock.items(), symbols, strict=True):
        member = objects.lock(place_of[lock], lock)
        same.setdefault((symbol, member, tuple(sorted(sites))), []).append(lock)
    uses = []
    for (symbol, member, those), locks in same.items():
        spent = _added(row for lock in locks for row in by_lock[lock].items())
        waited = _added(row for lock in locks for row in waits.get(lock, ()))
        sites_of = tuple(
            profiles.LockSite(
                function=function,
                file=file,
                shared=bool(kind & SHARED),
                **_named(SPENT, spent[function, file, kind]),
            )
            for function, file, kind in those
        )
        of_pairs = tuple(
            profiles.LockWait(waiter=waiter, holder=holder, shared=shared, **_named(PAIR, numbers))
            for (waiter, holder, shared), numbers in sorted(waited.items())
        )
        sleeps = any(kind & SLEEPS for _, _, kind in those)
        whose = {"symbol": symbol, "member": member, "instances": len(locks), "sleeps": sleeps}
        uses.append(
            profiles.LockUse.model_validate({**whose, "sites": sites_of, "pairs": of_pairs})
        )

    def order(use: profiles.LockUse) -> tuple[int, str, str, str]:
        return -sum(s.held for s in use.sites), use.symbol, use.member, use.sites[0].function

    return tuple(sorted(uses, key=order))


def _memory(of: Counts, places: Places, *, by_lock: bool) -> profiles.MemoryUse:
    """One phase's misses by function and user file; ``by_lock``: locks were watched, too."""
    inside = of.misses["address"] >= KERNEL_HALF
    in_kernel, in_user = of.misses[inside], of.misses[~inside]
    names = _names(in_kernel["address"], places)
    kernel = _added(zip(names, _columns(in_kernel, counts.MISSES), strict=True))
    user: dict[str, dict[str, int]] = {}
    for field in counts.MISSES:
        for file, count in places.user.fold(in_user["address"], in_user[field]).items():
            user.setdefault(file, {})[field] = count
    return profiles.MemoryUse(
        kernel=tuple(
            profiles.FunctionMisses(name=name, file=file, **_named(counts.MISSES, sums))
            for (name, file), sums in sorted(kernel.items())
        ),
        user={file: profiles.Misses(**sums) for file, sums in sorted(user.items())},
        unmapped=of.unmapped,
        by_lock=by_lock,
    )


class KernelObjects(NamedTuple):
    """What memory of a kernel holds: its types, and the slab caches by number (``counts.SLAB``)."""

    types: Types
    slabs: Rows

    def named(self, kind: str, value: int, first: int) -> tuple[str, int]:
        """What the byte ``first`` of a line is of (empty: not known), and where the line begins."""
        if kind == "pages":
            member = self.types.member_at("page", first)
            return (f"page.{member}" if member else ""), 0
        number, begins = value >> counts.SLAB_BITS, value & ((1 << counts.SLAB_BITS) - 1)
        begins -= counts.LINE_BYTES
        if number >= len(self.slabs):
            return "", begins
        slab = self.slabs[number]
        cache = bytes(slab["name"]).decode("ascii", "replace")
        if int(slab["users"]) > 1:
            return f"{cache} and caches merged with it", begins
        return member_of_slab(self.types, cache, begins + first), begins

    def lock(self, place: int, address: int) -> str:
        """What a lock is in an object, by the last two words of its place: ``i_pages.xa_lock``."""
        if place & ~counts.OF_CPU_BYTES != counts.OF_SLAB:
            return ""
        first = address % counts.LINE_BYTES
        name, _ = self.named("slab", place & counts.OF_CPU_BYTES, first)
        words = name.split(".")
        return ".".join(words[-2:]) if len(words) > 1 else ""


def _lines(rows: Rows, places: Places, objects: KernelObjects) -> tuple[profiles.LineMove, ...]:
    """One phase's lines that moved by object and functions, the most first."""
    takers, holders = (
        [
            USER_CODE if address < KERNEL_HALF else name
            for address, (name, _) in zip(
                rows[end].tolist(), _names(rows[end], places), strict=True
            )
        ]
        for end in ("to", "from")
    )
    keys: list[tuple[str, str, str, str]] = []
    ranges: dict[tuple[str, str, str, str], list[tuple[int, int]]] = {}
    for row, taker, holder in zip(rows, takers, holders, strict=True):
        address, bits = int(row["object"]), [int(row[side]) for side in ("mine", "theirs")]
        value = address & counts.OF_CPU_BYTES
        kind = KINDS_OF_LINES.get(address - value, "variable")
        name = ""
        if kind in ("variable", "of_cpu"):
            base = value if kind == "of_cpu" else address
            name, into = places.functions.table.placed(base + _bytes(bits[0])[0])
            begins = into - _bytes(bits[0])[0]
            name = name or ("variables of a CPU" if kind == "of_cpu" else "the kernel's image")
        elif kind in ("slab", "pages"):
            name, begins = objects.named(kind, value, _bytes(bits[0])[0])
        key = (kind, name, taker, holder)
        keys.append(key)
        if name:
            both = [(begins + low, begins + high) for low, high in map(_bytes, bits)]
            known = ranges.get(key, both)
            ranges[key] = [
                (min(low, old_low), max(high, old_high))
                for (low, high), (old_low, old_high) in zip(both, known, strict=True)
            ]
    moves = []
    fields = ("kind", "object", "taker", "holder")
    for key, numbers in _added(zip(keys, _columns(rows, counts.MOVED), strict=True)).items():
        mine, theirs = ranges.get(key, (None, None))
        values = dict(zip((*fields, *counts.MOVED), (*key, *numbers), strict=True))
        moves.append(profiles.LineMove.model_validate(values | {"mine": mine, "theirs": theirs}))

    def order(move: profiles.LineMove) -> tuple[int, str, str, str, str]:
        most = -(move.reads + move.writes)
        return most, move.kind, move.object, move.taker, move.holder

    return tuple(sorted(moves, key=order))


def _interruptions(rows: Rows, places: Places, phase: Phase) -> tuple[profiles.Interruption, ...]:
    """One phase's interruptions, put together by names and in their order."""
    keys = []
    handlers, functions = (_names(rows[end], places) for end in ("handler", "from"))
    for row, (handler, _), (function, _) in zip(rows, handlers, functions, strict=True):
        user = bool(row["from"] < KERNEL_HALF)
        address = np.array([row["from"]], np.uint64), np.array([1], np.uint64)
        (name,) = _of_phase(phase, places.user.fold(*address)) if user else (function,)
        keys.append((int(row["kind"]), handler, user, name))
    sums = _added(zip(keys, _columns(rows, ("count",)), strict=True))
    return tuple(
        profiles.Interruption(
            kind=profiles.INTERRUPTIONS[kind],
            handler=handler,
            function=name,
            user=user,
            count=count,
        )
        for (kind, handler, user, name), (count,) in sorted(sums.items())
    )


# What the plugin knows a line to be of, by the bits that no address has.
KINDS_OF_LINES = {
    counts.OF_CPU: "of_cpu",
    counts.OF_PAGES: "pages",
    counts.OF_USER: "user",
    counts.OF_MEMORY: "memory",
    counts.OF_SLAB: "slab",
}


def _bytes(bits: int) -> tuple[int, int]:
    """The first and the last byte of a line that are set; all where none is."""
    if not bits:
        return 0, 63
    return (bits & -bits).bit_length() - 1, bits.bit_length() - 1


def _names(where: NDArray[np.uint64], places: Places) -> list[tuple[str, str]]:
    """The function and file that each address of code is in."""
    functions, table = places.functions, places.functions.table
    known, modules = _within(where, table.ranges), _within(where, places.modules)
    owner = functions.owner[np.searchsorted(table.starts, where, side="right") - 1]
    return [
        functions.named[at] if inside else (MODULE if module else profiles.UNKNOWN, "")
        for at, inside, module in zip(owner.tolist(), known, modules, strict=True)
    ]


def waiting_places(table: AddressTable) -> tuple[tuple[str, tuple[int, int]], ...]:
    """Where a kernel's vCPUs wait: the kind of waiting, and the function's [start, end)."""
    waiting = ((kind, name) for kind, names in NAMES["waiting"].items() for name in names)
    places = [(kind, span) for kind, name in waiting for span in table.spans(name)]
    return tuple(places[: counts.MAX_SPANS])


def spans_of(kernel: Kernel) -> tuple[tuple[int, int], ...]:
    """Where vCPUs of this kernel wait (``Probe.spans``)."""
    return tuple(span for _, span in waiting_places(_table_of(kernel)))


def locks_of(kernel: Kernel) -> tuple[LockPlace, ...]:
    """The functions of this kernel that take locks and let go of them (``Probe.locks``)."""
    return lock_places(_table_of(kernel), kernel.identity.arch)


def stack_words(kernel: Kernel) -> tuple[str, ...]:
    """What the plugin needs to follow this kernel's call stacks (``Probe.stacks``)."""
    return counts.words(kernel, _table_of(kernel))


def _table_of(kernel: Kernel) -> AddressTable:
    """A kernel's code.  Raises InfraError: System.map or the origins cannot be read."""
    try:
        return table_of(kernel)
    except AddressesError as error:
        raise InfraError(str(error), where=str(kernel.system_map), next_step=REMOVED) from None


def _kernel(
    rows: Rows, spent: NDArray[np.uint64], kinds: NDArray[np.uint64], places: Places
) -> tuple[profiles.FunctionCount, ...]:
    functions, table, where = places.functions, places.functions.table, rows["address"]
    known = _within(where, table.ranges)
    modules = _within(where, places.modules) & ~known
    lost = ~known & ~modules
    total, missing = int(spent.sum()), int(spent[lost].sum())
    if missing > total * MAX_UNKNOWN_SHARE:
        example = int(where[lost][np.argmax(spent[lost])])
        raise AddressesError(
            f"{missing / total:.1%} of the kernel's instructions are at addresses without "
            f"code, most at {example:x}: the map of another kernel"
        )
    start = np.searchsorted(table.starts, where[known], side="right") - 1
    owner = functions.owner[start]
    entry = (table.starts[start] == where[known]) & functions.is_entry[start]
    entries = rows["entries"][known]
    count = len(functions.named)
    instructions = _sums(owner, spent[known], count)
    calls = _sums(owner[entry], entries[entry], count)
    by_kind = list(zip(*(_sums(owner, column[known], count) for column in kinds.T), strict=True))
    counted = [
        profiles.FunctionCount(
            name=name,
            file=file,
            instructions=instructions[at],
            calls=calls[at],
            kinds=by_kind[at],
            line=functions.lines[at] if file else 0,
        )
        for at, (name, file) in enumerate(functions.named)
        if instructions[at]
    ]
    for name, mask in ((MODULE, modules), (profiles.UNKNOWN, lost)):
        if mask.any():
            counted.append(
                profiles.FunctionCount(
                    name=name,
                    file="",
                    instructions=int(spent[mask].sum()),
                    calls=0,
                    kinds=tuple(kinds[mask].sum(axis=0).tolist()),
                )
            )
    return tuple(sorted(counted, key=lambda function: (function.name, function.file)))


def _unit(
    unit: Unit,
    functions: FunctionMap,
    kernel: Sequence[profiles.FunctionCount],
    result: PhaseResult,
) -> float | None:
    """How many of a unit were done; None when nothing of this run counts it."""
    if unit.ios:
        return ios_of(result)
    if unit.pages_read:
        return (result.after.device_read_bytes - result.before.device_read_bytes) / PAGE
    for name, after, before in (
        (unit.counter, result.after.vmstat, result.before.vmstat),
        (unit.cgroup_counter, result.after.memory_stat, result.before.memory_stat),
    ):
        if name:
            return float(after[name] - before[name]) if name in after and name in before else None
    counted = {functions.named[at] for name in unit.calls for at in functions.called(name)}
    if not counted:
        return None
    return float(
        sum(function.calls for function in kernel if (function.name, function.file) in counted)
    )


def _within(where: NDArray[np.uint64], ranges: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    inside = np.zeros(len(where), np.bool_)
    for low, end in ranges:
        inside |= (where >= np.uint64(low)) & (where < np.uint64(end))
    return inside


def _sums(index: NDArray[np.integer], values: NDArray[np.uint64], size: int) -> tuple[int, ...]:
    """Sum ``values`` by index, in whole numbers."""
    total = np.zeros(size, np.uint64)
    np.add.at(total, index, values)
    return tuple(total.tolist())


def _text(files: Mapping[str, bytes], name: str) -> str:
    return files.get(name, b"").decode(errors="replace")
