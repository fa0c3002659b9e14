"""Functions of ELF files in words that do not move when code moves: what differs between builds."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection
from numpy.typing import NDArray

from errors import InfraError, LabError
from results.record import FunctionRecord
from text import clean

SHF_ALLOC = 0x2
SHF_EXECINSTR = 0x4
SHF_STRINGS = 0x20
STT_NOTYPE = 0
STT_OBJECT = 1
STT_FUNC = 2
STT_SECTION = 3
STT_FILE = 4

# Elf64_Sym and Elf64_Rela of the System V ABI, little-endian.
SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
RELOCATION = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
Table = NDArray[np.void]
P = ParamSpec("P")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Section:
    """One section: header fields, and its bytes (empty for NOBITS)."""

    index: int
    name: str
    kind: str
    flags: int
    address: int
    size: int
    data: bytes

    @property
    def is_code(self) -> bool:
        """Whether it holds instructions that are loaded."""
        return bool(self.flags & SHF_EXECINSTR and self.flags & SHF_ALLOC)


@dataclass(frozen=True)
class Elf:
    """One file: its machine, sections by index, the symbols, and their names' string table."""

    machine: str
    sections: tuple[Section, ...]
    symbols: Table
    strings: bytes
    relocations: dict[int, Table]

    def name(self, offset: int) -> str:
        """The string at ``offset`` of the symbols' string table."""
        return self.strings[offset : self.strings.index(b"\0", offset)].decode(errors="replace")


def of_a_build(
    reader: Callable[Concatenate[Path, P], Value],
) -> Callable[Concatenate[Path, P], Value]:
    """A reader of a file that a stranger's build may have made: all that it raises is InfraError.

    Offsets, indices and sizes are what the file says, and lead anywhere.
    """

    @functools.wraps(reader)
    def read_or_say(path: Path, /, *arguments: P.args, **named: P.kwargs) -> Value:
        try:
            return reader(path, *arguments, **named)
        except LabError:
            raise
        except Exception as error:
            what = clean(str(error) or type(error).__name__, 200)
            raise InfraError(f"cannot be read as ELF: {what}", where=str(path)) from None

    return read_or_say


@of_a_build
def read(path: Path) -> Elf:
    """Read a 64-bit little-endian ELF file.  Raises InfraError: it is none."""
    sections = []
    symbols = np.zeros(0, SYMBOL)
    strings = b"\0"
    relocations: dict[int, Table] = {}
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        if elf.elfclass != 64 or not elf.little_endian:
            raise InfraError("not a 64-bit little-endian ELF file", where=str(path))
        for index, section in enumerate(elf.iter_sections()):
            kind = section["sh_type"]
            data = b"" if kind in ("SHT_NOBITS", "SHT_NULL") else bytes(section.data())
            if kind == "SHT_SYMTAB":
                symbols = np.frombuffer(data, SYMBOL)
                strings = bytes(elf.get_section(section["sh_link"]).data())
            elif kind == "SHT_RELA":
                relocations[section["sh_info"]] = np.frombuffer(data, RELOCATION)
            at, size = section["sh_addr"], section["sh_size"]
            sections.append(Section(index, section.name, kind, section["sh_flags"], at, size, data))
        return Elf(str(elf["e_machine"]), tuple(sections), symbols, strings, relocations)


@of_a_build
def build_id(path: Path) -> str:
    """The linker's build id (hexadecimal); empty when the file has none."""
    with path.open("rb") as stream:
        for section in ELFFile(stream).iter_sections():
            if isinstance(section, NoteSection):
                for note in section.iter_notes():
                    # Other owners, as Xen, number their notes themselves.
                    if (note["n_name"], note["n_type"]) == ("GNU", "NT_GNU_BUILD_ID"):
                        return str(note["n_desc"])
    return ""


# R_X86_64_PC32 and PLT32 count from the end of their own 4 bytes.
PC_RELATIVE = (2, 4)
CALL, JUMP = 0xE8, 0xE9
TWO_BYTE, JCC = 0x0F, 0x80  # 0f 80 to 0f 8f: conditional jumps
SHORT_JUMP, SHORT_JCC = 0xEB, 0x70
SHORTEST = 8  # bytes; anything less holds no call
# arm64: instructions that branch, as mask, bits, and where in the word the distance is.
ARM64_WORD = 4
ARM64_BRANCHES = (
    (0x7C000000, 0x14000000, 0, 26),  # b, bl
    (0xFF000000, 0x54000000, 5, 19),  # b.cond
    (0x7E000000, 0x34000000, 5, 19),  # cbz, cbnz
    (0x7E000000, 0x36000000, 5, 14),  # tbz, tbnz
)


@dataclass(frozen=True)
class Pointer:
    """At ``offset`` of a section the code refers to ``label``."""

    offset: int
    label: str


class References:
    """The references of one file's sections."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        self._known: dict[tuple[int, int, int], str] = {}
        self._starts: dict[int, tuple[list[int], list[int]]] = {}

    def of(
        self, section: Section, starts: Mapping[int, str]
    ) -> tuple[bytes, list[Pointer], list[Pointer]]:
        """The section's bytes with resolved calls blanked, its relocations, these calls.

        ``starts`` maps offsets in the section to the functions that begin there.
        Both lists are in the order of their offsets.
        """
        relocations = self._elf.relocations.get(section.index, np.zeros(0, RELOCATION))
        # Of other machines' code nothing is known: what the assembler resolved stays.
        blank = BLANK.get(self._elf.machine)
        data, calls = blank(section, starts, relocations) if blank else (section.data, [])
        ordered = relocations[np.argsort(relocations["offset"], kind="stable")]
        pointers = [
            Pointer(offset, f"{kind} {self._label(target, kind, addend)}")
            for offset, kind, target, addend in ordered.tolist()
        ]
        return data, pointers, calls

    def _label(self, target: int, kind: int, addend: int) -> str:
        key = (target, kind, addend)
        if key not in self._known:
            self._known[key] = self._look_up(target, kind, addend)
        return self._known[key]

    def _look_up(self, target: int, kind: int, addend: int) -> str:
        symbol = self._elf.symbols[target]
        if symbol["info"] & 0xF != STT_SECTION:
            return f"{self._plain(target)}{addend:+d}"
        section = self._elf.sections[int(symbol["section"])]
        position = addend + 4 if kind in PC_RELATIVE else addend
        if section.flags & SHF_STRINGS:
            end = section.data.find(b"\0", max(position, 0))
            return f"{section.name} {section.data[max(position, 0) : end]!r}"
        starts, indices = self._objects(section.index)
        at = bisect_right(starts, position) - 1
        if at >= 0 and position < starts[at] + int(self._elf.symbols["size"][indices[at]]):
            return f"{self._plain(indices[at])}{position - starts[at]:+d}"
        return section.name  # unnamed constants and jump tables

    def _plain(self, index: int) -> str:
        # gcc numbers static variables in a file: "__already_done.12".
        return re.sub(r"\.\d+$", "", self._elf.name(int(self._elf.symbols["name"][index])))

    def _objects(self, section: int) -> tuple[list[int], list[int]]:
        if section not in self._starts:
            symbols = self._elf.symbols
            indices = np.flatnonzero((symbols["section"] == section) & (symbols["size"] > 0))
            ordered = indices[np.argsort(symbols["value"][indices], kind="stable")]
            self._starts[section] = (symbols["value"][ordered].tolist(), ordered.tolist())
        return self._starts[section]


def _blank_calls(
    section: Section, starts: Mapping[int, str], relocations: Table
) -> tuple[bytes, list[Pointer]]:
    """Blank every displacement that leads to the start of a function of the section.

    Not a disassembler: bytes may only look like such a call (about one in a whole kernel).  A jump
    that becomes short because its target moved nearer still counts as a difference.
    """
    code = np.frombuffer(section.data, np.uint8)
    data = bytearray(section.data)
    if len(code) < SHORTEST or not starts:
        return bytes(data), []
    begins = np.fromiter(starts, np.int64)
    opcode = code[:-4]
    near = (opcode == CALL) | (opcode == JUMP)
    near[1:] |= (opcode[1:] & 0xF0 == JCC) & (opcode[:-1] == TWO_BYTE)
    short = (opcode == SHORT_JUMP) | (opcode & 0xF0 == SHORT_JCC)
    calls = []
    for opcodes, width in ((near, 4), (short, 1)):
        fields = np.flatnonzero(opcodes) + 1
        fields = fields[~np.isin(fields, relocations["offset"])]
        distances = code[fields[:, None] + np.arange(width)].view(f"<i{width}").ravel()
        targets = fields + width + distances
        hits = np.isin(targets, begins)
        for offset, target in zip(fields[hits].tolist(), targets[hits].tolist(), strict=True):
            data[offset : offset + width] = bytes(width)
            calls.append(Pointer(offset, f"call {starts[target]}"))
    return bytes(data), sorted(calls, key=lambda call: call.offset)


def _blank_branches(
    section: Section, starts: Mapping[int, str], relocations: Table
) -> tuple[bytes, list[Pointer]]:
    """The same for arm64, whose instructions are words: none is taken for another."""
    whole = len(section.data) // ARM64_WORD * ARM64_WORD
    words = np.frombuffer(section.data[:whole], "<u4").copy()
    at = np.arange(len(words), dtype=np.int64) * ARM64_WORD
    begins = np.fromiter(starts, np.int64)
    free = ~np.isin(at, relocations["offset"])
    calls = []
    for mask, bits, shift, width in ARM64_BRANCHES:
        places = np.flatnonzero(((words & np.uint32(mask)) == bits) & free)
        field = (words[places].astype(np.int64) >> shift) & ((1 << width) - 1)
        distances = (field - ((field >> (width - 1)) << width)) * ARM64_WORD
        targets = at[places] + distances
        hits = np.isin(targets, begins)
        words[places[hits]] &= np.uint32(~(((1 << width) - 1) << shift) & 0xFFFFFFFF)
        for offset, target in zip(at[places[hits]].tolist(), targets[hits].tolist(), strict=True):
            calls.append(Pointer(offset, f"call {starts[target]}"))
    data = words.tobytes() + section.data[whole:]
    return data, sorted(calls, key=lambda call: call.offset)


Blank = Callable[[Section, Mapping[int, str], Table], tuple[bytes, list[Pointer]]]
BLANK: Mapping[str, Blank] = {"EM_X86_64": _blank_calls, "EM_AARCH64": _blank_branches}


FORMAT = 2
# What a label is of: "4 folio_add_lru-4", "call folio_add_lru@swap.c".
TARGET = re.compile(r" ([\w.$]+)(?:[@#]\S+|[+-]\d+)?$")
# Padding before a function (CONFIG_PREFIX_SYMBOLS, kCFI): never executed.
PADDING = ("__pfx_", "__cfi_")
# Release, build number and date; all else that is loaded decides what a kernel does.
BANNERS = ("linux_banner", "linux_proc_banner", "init_uts_ns")
_offset = attrgetter("offset")
# Variables of one name and file: size in bytes and hash (16 hex digits) of each, sorted.
Variables = Mapping[str, Sequence[tuple[int, str]]]


class FunctionCode(NamedTuple):
    """A function's size in bytes and hashes (16 hex digits each).

    ``exact`` is over its bytes and relocations; in ``named``, calls that the
    assembler resolved are replaced by the name of what they call.  A function
    that moved keeps ``named``.  Finding those calls without a disassembler may
    take other bytes for one, which then look changed; ``exact`` sees they are not.
    ``blind`` is ``named`` without the functions' names, which are in ``names``, a blank between
    two; both are empty in tables that were written before there were any.
    """

    size: int
    exact: str
    named: str
    blind: str = ""
    names: str = ""

    def is_same(self, other: FunctionCode | None, renamed: Mapping[str, str]) -> bool:
        """Whether both are the same code, wherever it was put; ``renamed`` is new names by old."""
        if other is None or self.size != other.size:
            return False
        if self.exact == other.exact or self.named == other.named:
            return True
        names = [renamed.get(name, name) for name in self.names.split()]
        return bool(self.blind) and (self.blind, names) == (other.blind, other.names.split())


@of_a_build
def code_key(vmlinux: Path, modules: Sequence[Path] = ()) -> str:
    """SHA-256 over all that is loaded, without notes (the build id) and the banners.

    That of a kernel with ``modules`` is over theirs, too.
    Raises InfraError: no ELF file.
    """
    elf = read(vmlinux)
    masked: dict[int, list[tuple[int, int]]] = {}
    for symbol in elf.symbols[elf.symbols["size"] > 0]:
        if elf.name(int(symbol["name"])) in BANNERS:
            where = masked.setdefault(int(symbol["section"]), [])
            where.append((int(symbol["value"]), int(symbol["size"])))
    digest = hashlib.sha256()
    for section in elf.sections:
        if not section.flags & SHF_ALLOC or section.kind == "SHT_NOTE":
            continue
        digest.update(f"{section.name} {section.address:x} {section.size:x}\n".encode())
        data = bytearray(section.data)
        for value, size in masked.get(section.index, []):
            start = value - section.address
            data[start : start + size] = bytes(size)
        digest.update(data)
    for module in sorted(modules, key=lambda path: path.name):
        digest.update(f"{module.name} {code_key(module)}\n".encode())
    return digest.hexdigest()


@of_a_build
def functions(image: Path) -> dict[str, FunctionCode]:
    """The code of every function, by name.

    ``image`` is best a relocatable file (vmlinux.o): there a function's bytes do
    not depend on where it and its callees were put, and where it points is
    hashed by name.  A name that several files use gets ``@file``.
    Raises InfraError: no ELF file.
    """
    elf = read(image)
    names: dict[int, str] = {}
    counts: Counter[str] = Counter()
    for index, name in _names(elf, (STT_FUNC, STT_NOTYPE), lambda part: part.is_code).items():
        counts[name] += 1
        names[index] = name if counts[name] == 1 else f"{name}#{counts[name]}"
    known = {re.split("[@#]", name)[0] for name in counts}
    references = References(elf)
    values, sizes = elf.symbols["value"].tolist(), elf.symbols["size"].tolist()
    table: dict[str, FunctionCode] = {}
    for section in elf.sections:
        if not section.is_code:
            continue
        here = np.flatnonzero(elf.symbols["section"] == section.index).tolist()
        inside = sorted(names.keys() & set(here))
        starts = {values[index] - section.address: names[index] for index in reversed(inside)}
        data, pointers, calls = references.of(section, starts)
        for index in inside:
            start, size = values[index] - section.address, sizes[index]
            exact = hashlib.sha256(section.data[start : start + size])
            named = hashlib.sha256(data[start : start + size])
            blind, referred = named.copy(), []
            places = _within(pointers, start, size)
            for number, place in enumerate((*places, *_within(calls, start, size))):
                label = f"\n{place.offset - start} {place.label}"
                if number < len(places):
                    exact.update(label.encode())
                named.update(label.encode())
                target = TARGET.search(label)
                if target and target[1] in known:
                    referred.append(target[1])
                    label = f"{label[: target.start(1)]}{label[target.end(1) :]}"
                blind.update(label.encode())
            table[names[index]] = FunctionCode(
                size,
                exact.hexdigest()[:16],
                named.hexdigest()[:16],
                blind.hexdigest()[:16],
                " ".join(referred),
            )
    return table


@of_a_build
def variables(image: Path) -> dict[str, list[tuple[int, str]]]:
    """The contents of every variable by name, as of :func:`functions`; InfraError: no ELF."""
    elf = read(image)
    references = References(elf)
    table: dict[str, list[tuple[int, str]]] = {}
    named = _names(elf, (STT_OBJECT,), lambda section: not section.is_code, _unnumbered)
    named = {index: name for index, name in named.items() if name not in BANNERS}
    for section in elf.sections:
        here = np.flatnonzero(elf.symbols["section"] == section.index).tolist()
        inside = [index for index in here if index in named]
        pointers = references.of(section, {})[1] if inside else []
        for index in inside:
            start = int(elf.symbols["value"][index]) - section.address
            size = int(elf.symbols["size"][index])
            digest = hashlib.sha256(section.data[start : start + size])
            for pointer in _within(pointers, start, size):
                digest.update(f"\n{pointer.offset - start} {pointer.label}".encode())
            table.setdefault(named[index], []).append((size, digest.hexdigest()[:16]))
    return {name: sorted(contents) for name, contents in table.items()}


def save(table: dict[str, FunctionCode], path: Path, data: Variables | None = None) -> None:
    """Write tables of functions and variables; equal tables are equal bytes."""
    save_table(path, {"format": FORMAT, "functions": table, **({"data": data} if data else {})})


def load(path: Path) -> tuple[dict[str, FunctionCode], Variables | None]:
    """The tables of ``save``, None for variables that were not kept.

    Raises InfraError: of another version, or damaged.
    """

    def tables_in(content: dict[str, Any]) -> tuple[dict[str, FunctionCode], Variables | None]:
        functions = {name: FunctionCode(*code) for name, code in content["functions"].items()}
        data = content.get("data", {})
        variables = {name: [(size, of) for size, of in each] for name, each in data.items()}
        return functions, variables or None

    return load_table(path, FORMAT, tables_in)


def save_table(path: Path, content: Mapping[str, Any]) -> None:
    """Write a value as packed JSON; equal values are equal bytes."""
    text = json.dumps(content, sort_keys=True, indent=0)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def load_table(path: Path, version: int | str, made_of: Callable[[dict[str, Any]], Value]) -> Value:
    """A value made of what ``save_table`` wrote; InfraError: another version's, or damaged."""
    try:
        content = json.loads(gzip.decompress(path.read_bytes()))
        if content["format"] == version:
            return made_of(content)
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError):
        pass
    step = f"remove {path.parent} to have the kernel built again"
    raise InfraError("not a table of this version of the lab", where=str(path), next_step=step)


def changed_functions(before: Path, after: Path) -> tuple[FunctionRecord, ...]:
    """Functions that differ between two symbols files; InfraError: one cannot be read."""
    return differing(load(before)[0], load(after)[0])


def differing(
    first: Mapping[str, FunctionCode], second: Mapping[str, FunctionCode]
) -> tuple[FunctionRecord, ...]:
    """Functions that differ between two tables, by name; those that got another one do not."""
    changes, names = [], renamed(first, second)
    for name in sorted({*first, *second} - {*names, *names.values()}):
        before, after = first.get(name), second.get(name)
        if before is None or not before.is_same(after, names):
            old, new = (code.size if code else None for code in (before, after))
            changes.append(FunctionRecord(name=name, before=old, after=new))
    return tuple(changes)


def renamed(
    first: Mapping[str, FunctionCode], second: Mapping[str, FunctionCode]
) -> dict[str, str]:
    """New names by old ones of functions that are in one table each, with the same code.

    Code that several of them have is nobody's, but for padding, which goes with what it is of.
    """
    sides: list[dict[tuple[int, str], list[str]]] = [{}, {}]
    for side, table, other in zip(sides, (first, second), (second, first), strict=True):
        for name in sorted(table.keys() - other.keys()):
            # What has its file with it is counted by its plain name.
            if table[name].blind and not name.startswith(PADDING) and not re.search("[@#]", name):
                side.setdefault((table[name].size, table[name].blind), []).append(name)
    names = {
        old[0]: new[0]
        for key, old in sides[0].items()
        if len(old) == len(new := sides[1].get(key, [])) == 1
    }
    # What they refer to may have another name as well, or be something else: then so are they.
    pending, referring = [*names], dict[str, list[str]]()
    for old in names:
        for name in first[old].names.split():
            referring.setdefault(name, []).append(old)
    while pending:
        old = pending.pop()
        if old in names and not first[old].is_same(second[names[old]], names):
            del names[old]
            pending += referring.pop(old, [])
    padded = ((f"{pad}{old}", f"{pad}{new}") for old, new in names.items() for pad in PADDING)
    return names | {old: new for old, new in padded if old in first and new in second}


def differing_variables(first: Variables, second: Variables) -> tuple[FunctionRecord, ...]:
    """Variables that differ between two tables; of a shared name what one alone has."""
    changes = []
    for name in sorted(name for name in {*first, *second} if first.get(name) != second.get(name)):
        before, after = Counter(first.get(name, ())), Counter(second.get(name, ()))
        gone, new = (
            sum(size for size, _ in some.elements()) if some else None
            for some in (before - after, after - before)
        )
        if before != after:
            changes.append(FunctionRecord(name=name, before=gone, after=new))
    return tuple(changes)


def _within(pointers: Sequence[Pointer], start: int, size: int) -> Sequence[Pointer]:
    """The pointers, ordered by offset, that lie in one function."""
    first = bisect_left(pointers, start, key=_offset)
    return pointers[first : bisect_left(pointers, start + size, first, key=_offset)]


def _unnumbered(name: str) -> str:
    """A variable's name without what compilers and macros number: ``__already_done.12``."""
    if name.startswith("__UNIQUE_ID_"):
        return name.rstrip("0123456789")
    stem, dot, number = name.rpartition(".")
    return stem if dot and number.isdigit() else name


def _names(
    elf: Elf,
    kinds: Sequence[int],
    held: Callable[[Section], bool],
    named: Callable[[str], str] = str,
) -> dict[int, str]:
    """Index → name of loaded symbols of these kinds; with its file where several have the name."""
    types = elf.symbols["info"] & 0xF
    loaded = [part.index for part in elf.sections if part.flags & SHF_ALLOC and held(part)]
    places = np.flatnonzero(
        np.isin(types, kinds)
        & np.isin(elf.symbols["section"], np.array(loaded, np.uint16))
        & (elf.symbols["size"] > 0)
    )
    offsets = elf.symbols["name"].tolist()
    plain = {index: named(elf.name(offsets[index])) for index in places.tolist()}
    uses = Counter(plain.values())
    files = np.flatnonzero(types == STT_FILE).tolist()
    names: dict[int, str] = {}
    for index, name in plain.items():
        if uses[name] > 1 and files:
            file = elf.name(offsets[files[max(bisect_left(files, index) - 1, 0)]])
            name = f"{name}@{file}"
        names[index] = name
    return names
