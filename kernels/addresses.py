"""Where a kernel's functions are and where they come from: System.map, source files and lines."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from errors import InfraError
from host import folders
from host.process import run
from kernels.cache import Kernel
from kernels.products import MOST_BYTES
from kernels.symbols import (
    PADDING,
    STT_FILE,
    STT_FUNC,
    STT_NOTYPE,
    Elf,
    load_table,
    of_a_build,
    read,
    save_table,
)
from results import door
from results.door import StoreError

FORMAT = 1
STB_LOCAL = 0
ARCHIVE = "vmlinux.a"
LIBRARY = "lib.a"
SUFFIXES = (".c", ".S")
TIMEOUT_S = 120.0
# Kernel style: a definition begins in the first column, and its body follows its parameters.
FIRST_COLUMN = re.compile(r"^[A-Za-z_][^\n;=#{}]*\(", re.MULTILINE)
NAME = re.compile(r"\b([A-Za-z_][A-Za-z0-9_]*)\s?\(")
BODY = re.compile(r"[;{]")
# What a macro makes functions of: __x64_sys_read and others of SYSCALL_DEFINE3(read, ...).
SYSCALL = re.compile(r"^(?:COMPAT_)?SYSCALL_DEFINE\d\((\w+)", re.MULTILINE)
OF_SYSCALL = re.compile(r"_sys_(\w+)$")
ASSEMBLY = re.compile(r"^SYM_\w*START\w*\((\w+)\)", re.MULTILINE)
# name → objects that define it, in the order of the link: local ones, then others.
Defined = Mapping[str, Sequence[str]]


class Origin(NamedTuple):
    """A source file, relative to the source, and the line of it; 0 where that is not known."""

    file: str
    line: int = 0


class _Built(NamedTuple):
    name: str
    object: str


@of_a_build
def collect(objects: Path, source: Path) -> dict[int, Origin]:
    """Address of each function of ``objects``/vmlinux → its definition; InfraError: nm failed."""
    if not (objects / ARCHIVE).exists():
        return {}
    libraries = sorted(name for name, entry in folders.entries(objects) if entry.name == LIBRARY)
    archives = [str(objects / name) for name in (ARCHIVE, *libraries)]
    argv = ["nm", "--defined-only", "--print-file-name", *archives]
    output = run(argv, timeout_s=TIMEOUT_S, env={"LC_ALL": "C"}).stdout
    local, other = definitions(output.splitlines(), f"{objects}/")
    built = built_from(read(objects / "vmlinux"), local, other)
    compiled = {each.object for each in built.values()}
    sources = {}
    for name in compiled:  # the object itself where there is no source
        files = [f"{name.removesuffix('.o')}{suffix}" for suffix in SUFFIXES]
        places = [file for top in (source, objects) for file in files if (top / file).exists()]
        sources[name] = places[0] if places else name
    names_in: dict[str, set[str]] = defaultdict(set)
    for each in built.values():
        names_in[sources[each.object]].add(each.name)
    lines = {
        file: definition_lines((source / file).read_text(encoding="utf-8", errors="replace"), names)
        for file, names in names_in.items()
        if (source / file).is_file()  # an object may have no source
    }
    return {
        address: Origin(file := sources[each.object], lines.get(file, {}).get(each.name, 0))
        for address, each in built.items()
    }


def definition_lines(text: str, names: Collection[str]) -> dict[str, int]:
    """Symbol → line of its definition in the kernel's style, where there is one alone."""
    at: dict[str, list[int]] = defaultdict(list)
    for head in FIRST_COLUMN.finditer(text):
        body = BODY.search(text, head.end())
        if body is not None and body[0] == "{":
            for name in NAME.findall(head[0]):
                at[name].append(head.start())
    for match in ASSEMBLY.finditer(text):
        at[match[1]].append(match.start())
    for match in SYSCALL.finditer(text):
        at[f"_sys_{match[1]}"].append(match.start())
    lines: dict[str, int] = {}
    for symbol in names:
        plain = symbol.partition(".")[0]
        call = OF_SYSCALL.search(plain)
        places = at.get(plain) or (at.get(call[0]) if call else None) or ()
        if len(places) == 1:
            lines[symbol] = text.count("\n", 0, places[0]) + 1
    return lines


def definitions(lines: Iterable[str], prefix: str) -> tuple[Defined, Defined]:
    """Local and other functions as nm lists archives; ``prefix`` goes off objects' names."""
    local: dict[str, list[str]] = defaultdict(list)
    other: dict[str, list[str]] = defaultdict(list)
    weak: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        head, _, rest = line.rpartition(":")
        fields = rest.split()
        # "$x" and "$d" say in each object of arm64 where code and data begin.
        if len(fields) != 3 or fields[1] not in "tTwW" or fields[2].startswith("$"):
            continue
        into = {"t": local, "T": other}.get(fields[1], weak)
        into[fields[2]].append(head.rpartition(":")[2].removeprefix(prefix))
    for name, where in weak.items():
        # The linker takes the strong one, else the first.
        other.setdefault(name, where)
    return local, other


def built_from(elf: Elf, local: Defined, other: Defined) -> dict[int, _Built]:
    """Address of each function → name and object; local ones of one name by their order."""
    kinds, binding = elf.symbols["info"] & 0xF, elf.symbols["info"] >> 4
    file = ""
    result: dict[int, _Built] = {}
    ambiguous: dict[tuple[str, str], list[int]] = defaultdict(list)
    code = [section.index for section in elf.sections if section.is_code]
    is_code = (np.isin(kinds, (STT_FUNC, STT_NOTYPE)) & np.isin(elf.symbols["section"], code)) | (
        kinds == STT_FILE
    )
    for index in np.flatnonzero(is_code).tolist():
        name = elf.name(int(elf.symbols["name"][index]))
        if kinds[index] == STT_FILE:
            file = name
            continue
        address = int(elf.symbols["value"][index])
        if binding[index] != STB_LOCAL:
            if name in other:
                result[address] = _Built(name, other[name][0])
        elif name in local:
            ambiguous[name, file].append(address)
    for (name, file), addresses in ambiguous.items():
        stem = file.rpartition(".")[0]
        here = [path for path in local[name] if Path(path).stem == stem] or list(local[name])
        if len(here) == len(addresses):
            for address, path in zip(addresses, here, strict=True):
                result.setdefault(address, _Built(name, path))
    return result


def save(origins: Mapping[int, Origin], path: Path) -> None:
    """Write a table; equal tables are equal bytes."""
    files = sorted({origin.file for origin in origins.values()})
    number = {file: at for at, file in enumerate(files)}
    at = {f"{address:x}": number[origin.file] for address, origin in origins.items()}
    lines = {f"{address:x}": origin.line for address, origin in origins.items()}
    save_table(path, {"format": FORMAT, "files": files, "at": at, "lines": lines})


def load(path: Path) -> dict[int, Origin]:
    """A table of ``save``, empty where none was kept; InfraError: another version's, damaged."""
    return load_table(path, FORMAT, _origins_in) if path.exists() else {}


def _origins_in(content: dict[str, Any]) -> dict[int, Origin]:
    files, lines = content["files"], content["lines"]
    return {
        int(address, 16): Origin(str(files[at]), int(lines[address]))
        for address, at in content["at"].items()
    }


# Global before weak before local, as nm prints their types.
BINDINGS = "TWtw"
VARIABLES = "DBRdbr"
# Keys of lock classes have no size without lockdep: what follows is at their address.
CLASS_KEY = "__key."
# The kernel lives in the upper half.
KERNEL_HALF = 1 << 63
# Words of the linker script, which mark places and are no functions.
MARKERS = re.compile(
    r"_(s|e)?text|_(s|e)init(text)?|_(s|e)exittext|__.*_(text|code)_(start|end)|startup_64_.*|__end_.*"
)
COLD = ".cold"
# No sign, no underscore, and no more digits than an address has.
ADDRESS = re.compile(r"[0-9a-fA-F]{1,16}")
INIT = ("_sinittext", "_einittext")
RANGES = (("_text", "_etext"), ("_stext", "_etext"), INIT)
NOWHERE = Origin("")
Addresses = NDArray[np.uint64]


class AddressesError(InfraError):
    """Not a list of a kernel's symbols, or one of another kernel."""


@dataclass(frozen=True)
class AddressTable:
    """A kernel's code: sorted ``starts``, the names at each, and where code is at all.

    ``names`` are all the names of one address, the one it goes by first; ``at`` maps
    every name to its addresses.  ``ranges`` are [start, end) of the kernel's code.
    ``data`` are the kernel's variables, by their sorted addresses.  ``init`` is code that is
    executed at boot and thrown away.
    """

    starts: Addresses
    names: tuple[tuple[str, ...], ...]
    at: Mapping[str, tuple[int, ...]]
    ranges: tuple[tuple[int, int], ...]
    data: tuple[Addresses, tuple[str, ...]]
    of_cpu: tuple[Addresses, tuple[str, ...]]
    init: range = range(0)

    def placed(self, address: int) -> tuple[str, int]:
        """The variable (empty: none) that an address is in, and how far from its beginning."""
        starts, names = self.data if address >= KERNEL_HALF else self.of_cpu
        at = int(np.searchsorted(starts, np.uint64(address), side="right")) - 1
        if at < 0 or (address >= KERNEL_HALF and at == len(names) - 1):
            return "", address
        return names[at], address - int(starts[at])

    def variables(self, addresses: Addresses) -> list[str]:
        """The kernel's variable that each address is in; empty outside of its image."""
        starts, names = self.data
        last = len(names) - 1
        places = (np.searchsorted(starts, addresses, side="right") - 1).tolist()
        return [names[at] if 0 <= at < last else "" for at in places]

    def spans(self, name: str) -> tuple[tuple[int, int], ...]:
        """[start, end) of the code of each symbol of a name, up to the next symbol."""
        spans = []
        for start in self.at.get(name, ()):
            after = int(np.searchsorted(self.starts, np.uint64(start), side="right"))
            if after < len(self.starts):
                spans.append((start, int(self.starts[after])))
        return tuple(spans)


@dataclass(frozen=True)
class FunctionMap:
    """Functions of a kernel: what each start belongs to.

    ``named`` are pairs of name and source file (empty where unknown), ``owner`` has an
    index into it for each start of the table, and ``is_entry`` says which starts are
    where the function begins; the others are parts that were split off.  ``lines`` are where the
    definitions of ``named`` begin in their files, 0 where that is not known.
    """

    table: AddressTable
    named: tuple[tuple[str, str], ...]
    lines: tuple[int, ...]
    owner: NDArray[np.int64]
    is_entry: NDArray[np.bool_]

    def called(self, name: str) -> tuple[int, ...]:
        """Indices of the functions of a name or alias; empty when there is none."""
        starts = np.searchsorted(
            self.table.starts, np.array(self.table.at.get(name, ()), np.uint64)
        )
        return tuple(sorted({int(self.owner[start]) for start in starts}))


def text_of(system_map: Path) -> str:
    """A System.map's text; AddressesError: no plain file, or too large; OSError: there is none."""
    try:
        data = door.read(system_map.parent, system_map.name, MOST_BYTES["map"])
    except StoreError as error:
        raise AddressesError(error.what, where=str(system_map)) from None
    return data.decode(errors="replace")


def parse(text: str) -> AddressTable:
    """Read System.map, or a whole /proc/kallsyms (symbols of modules are left out).

    Of several names at one address the first is the one of a global symbol rather than
    a weak or local one, then of fewest leading underscores, then the shortest, then the
    first by alphabet.  Words of the linker script come last, and alone begin nothing.
    Raises AddressesError: a line that is none, or no kernel's code.
    """
    bounds: dict[str, int] = {}
    names_at: dict[int, list[tuple[str, str]]] = defaultdict(list)
    data: dict[int, str] = {}
    of_cpu: dict[int, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        if len(fields) == 4 and fields[3].startswith("["):
            continue
        if len(fields) != 3 or len(fields[1]) != 1:
            raise AddressesError(f"line {number} is no symbol: {line[:80]!r}")
        if not ADDRESS.fullmatch(fields[0]):
            raise AddressesError(f"line {number} has no address: {line[:80]!r}")
        address = int(fields[0], 16)
        kind, name = fields[1], fields[2]
        if MARKERS.fullmatch(name):
            bounds[name] = address
        if kind in BINDINGS and not name.startswith(PADDING):
            names_at[address].append((kind, name))
        elif kind in VARIABLES and not MARKERS.fullmatch(name):
            # Variables of each CPU are numbered from 0.
            known = data if address >= KERNEL_HALF else of_cpu
            if known.get(address, CLASS_KEY).startswith(CLASS_KEY):
                known[address] = name
    # The kernel's text, then its init text, where there is one.
    spans = [(bounds[low], bounds[end]) for low, end in RANGES if {low, end} <= bounds.keys()]
    spans = [(low, end) for low, end in spans if low < end]
    if not spans:
        raise AddressesError("no _stext and _etext: not a kernel's symbols")
    ends = sorted({end for _, end in spans})
    ranges = tuple((min(low for low, high in spans if high == end), end) for end in ends)
    starts = sorted(
        start
        for start, here in names_at.items()
        if any(low <= start < end for low, end in ranges)
        and not all(MARKERS.fullmatch(name) for _, name in here)
    )

    def preference(symbol: tuple[str, str]) -> tuple[bool, int, int, int, str]:
        kind, name = symbol
        underscores, marker = len(name) - len(name.lstrip("_")), MARKERS.fullmatch(name) is not None
        return marker, BINDINGS.index(kind), underscores, len(name), name

    names = tuple(
        tuple(name for _, name in sorted(set(names_at[start]), key=preference)) for start in starts
    )
    at: dict[str, list[int]] = defaultdict(list)
    for start, here in zip(starts, names, strict=True):
        for name in here:
            at[name].append(start)
    return AddressTable(
        np.array(starts, np.uint64),
        names,
        {name: tuple(where) for name, where in at.items()},
        ranges,
        data=_sorted(data),
        of_cpu=_sorted(of_cpu),
        init=range(*map(bounds.__getitem__, INIT)) if {*INIT} <= bounds.keys() else range(0),
    )


def _sorted(variables: Mapping[int, str]) -> tuple[Addresses, tuple[str, ...]]:
    starts = sorted(variables)
    return np.array(starts, np.uint64), tuple(variables[start] for start in starts)


def functions(
    table: AddressTable, origins: Mapping[int, Origin] | None = None, names: Collection[str] = ()
) -> FunctionMap:
    """Say which function each start belongs to.

    ``origins`` are source files and lines by address (:class:`Origin`).  Functions of one name in
    several files are told apart as ``name@file``; where the files are not known they are one
    function.  ``name.cold``, the part of a function that the compiler moved away, belongs to
    ``name``; other suffixes stay.  An address that has one of the ``wanted`` names goes by it.
    """
    origins = origins or {}
    starts_of = [
        next((name for name in here if name in names), here[0]) if names else here[0]
        for here in table.names
    ]
    places: dict[str, set[str]] = defaultdict(set)
    keys: list[tuple[str, str]] = []
    lines_at: list[int] = []
    for start, name in zip(table.starts.tolist(), starts_of, strict=True):
        file, line = origins.get(start, NOWHERE)
        key = (name.removesuffix(COLD), file)
        keys.append(key)
        lines_at.append(line)
        places[key[0]].add(file)
    labels = {name: _labels(name, where) for name, where in places.items()}
    full = [labels[name][file] for name, file in keys]
    lines: dict[tuple[str, str], int] = {}
    for pair, line in zip(full, lines_at, strict=True):
        lines[pair] = lines.get(pair) or line
    pairs = tuple(sorted(lines))
    index = {key: number for number, key in enumerate(pairs)}
    return FunctionMap(
        table,
        pairs,
        tuple(lines[pair] for pair in pairs),
        np.array([index[key] for key in full], np.int64),
        np.array([not name.endswith(COLD) for name in starts_of], np.bool_),
    )


@lru_cache(maxsize=8)
def table_of(kernel: Kernel) -> AddressTable:
    """A kernel's addresses, kept; AddressesError: its map cannot be read."""
    return parse(text_of(kernel.system_map))


@lru_cache(maxsize=8)
def functions_of(kernel: Kernel, called: frozenset[str] = frozenset()) -> FunctionMap:
    """A kernel's functions with their files, kept; AddressesError: maps cannot be read."""
    return functions(table_of(kernel), load(kernel.origins), called)


def require_same(table: AddressTable, guest_map: str) -> int:
    """Compare lines of /proc/kallsyms with addresses; return how many.

    Raises AddressesError: a symbol is somewhere else in ``table``, or not in it.
    """
    compared = 0
    for line in guest_map.splitlines():
        address, _, rest = line.partition(" ")
        name = rest.split()[-1] if rest.split() else ""
        try:
            at = int(address, 16)
        except ValueError:
            raise AddressesError(f"no line of /proc/kallsyms: {line[:80]!r}") from None
        if at == 0:
            continue
        addresses = table.at.get(name, ()) or tuple(
            bound for pair in table.ranges for bound in pair if name in ("_stext", "_etext")
        )
        if at not in addresses:
            where = ", ".join(f"{place:x}" for place in addresses) or "nowhere"
            raise AddressesError(f"{name} is at {at:x} in the running kernel, here: {where}")
        compared += 1
    return compared


def module_ranges(text: str) -> tuple[tuple[int, int], ...]:
    """[start, end) of modules in /proc/modules, where known; AddressesError: no such line."""
    ranges = []
    for line in text.splitlines():
        fields = line.split()
        try:
            size, start = int(fields[1]), int(fields[5], 16)
        except (IndexError, ValueError):
            raise AddressesError(f"no line of /proc/modules: {line[:80]!r}") from None
        if start:
            ranges.append((start, start + size))
    return tuple(sorted(ranges))


def _labels(name: str, files: set[str]) -> dict[str, tuple[str, str]]:
    """File → the pair that a function of this name there goes by."""
    paths = {file for file in files if file}
    if len(paths) < 2:
        # A start without a file is most likely a part of the one that has one.
        only = next(iter(paths), "")
        return dict.fromkeys(files, (name, only))
    short = {file: file.rpartition("/")[2] for file in paths}
    same = list(short.values())
    labels = {
        file: (f"{name}@{base if same.count(base) == 1 else file}", file)
        for file, base in short.items()
    }
    return {**labels, "": (name, "")}
