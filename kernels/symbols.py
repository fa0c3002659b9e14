"""A kernel's machine code and data, named: whether two are the same, and what differs."""

from __future__ import annotations

import gzip
import hashlib
import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from errors import InfraError
from kernels.elf import SHF_ALLOC, STT_FILE, STT_FUNC, STT_OBJECT, Elf, Section, read
from kernels.references import Pointer, References

FORMAT = 2
STT_NOTYPE = 0
# Release, build number and date; all else that is loaded decides what a kernel does.
BANNERS = ("linux_banner", "linux_proc_banner", "init_uts_ns")
_offset = attrgetter("offset")
# Variables of one name and file: size in bytes and hash (16 hex digits) of each, sorted.
Variables = Mapping[str, Sequence[tuple[int, str]]]


class FunctionCode(NamedTuple):
    """A function's size in bytes and two hashes (16 hex digits each).

    ``exact`` is over its bytes and relocations; in ``named``, calls that the
    assembler resolved are replaced by the name of what they call.  A function
    that moved keeps ``named``.  Finding those calls without a disassembler may
    take other bytes for one, which then look changed; ``exact`` sees they are not.
    """

    size: int
    exact: str
    named: str

    def is_same(self, other: FunctionCode | None) -> bool:
        """Whether both are the same code, wherever it was put."""
        if other is None or self.size != other.size:
            return False
        return self.exact == other.exact or self.named == other.named


@dataclass(frozen=True)
class CodeChange:
    """A function or variable that differs: sizes in bytes, None in the kernel that has none."""

    name: str
    before: int | None
    after: int | None


def code_key(vmlinux: Path, modules: Sequence[Path] = ()) -> str:
    """SHA-256 over all that is loaded, without notes (the build id) and the banners.

    That of a kernel with ``modules`` is over theirs, too.

    Raises:
        InfraError: no ELF file.
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


def functions(image: Path) -> dict[str, FunctionCode]:
    """The code of every function, by name.

    ``image`` is best a relocatable file (vmlinux.o): there a function's bytes do
    not depend on where it and its callees were put, and where it points is
    hashed by name.  A name that several files use gets ``@file``.

    Raises:
        InfraError: no ELF file.
    """
    elf = read(image)
    names = _function_names(elf)
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
            digest = hashlib.sha256(data[start : start + size])
            for pointer in _within(pointers, start, size):
                label = f"\n{pointer.offset - start} {pointer.label}".encode()
                exact.update(label)
                digest.update(label)
            for call in _within(calls, start, size):
                digest.update(f"\n{call.offset - start} {call.label}".encode())
            table[names[index]] = FunctionCode(
                size, exact.hexdigest()[:16], digest.hexdigest()[:16]
            )
    return table


def variables(image: Path) -> dict[str, list[tuple[int, str]]]:
    """The contents of every variable, by name; ``image`` is as for :func:`functions`.

    Raises:
        InfraError: no ELF file.
    """
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
    content = {"format": FORMAT, "functions": table}
    text = json.dumps({**content, **({"data": data} if data else {})}, sort_keys=True, indent=0)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def load(path: Path) -> dict[str, FunctionCode]:
    """Read a table of functions written by ``save``.

    Raises:
        InfraError: written by another version of the lab, or damaged.
    """
    return _tables(path)[0]


def load_variables(path: Path) -> Variables | None:
    """Read the table of variables; None of a kernel whose were not kept.

    Raises:
        InfraError: as :func:`load`.
    """
    return _tables(path)[1]


def _tables(path: Path) -> tuple[dict[str, FunctionCode], Variables | None]:
    try:
        content = json.loads(gzip.decompress(path.read_bytes()))
        if content["format"] == FORMAT:
            table = {name: FunctionCode(*code) for name, code in content["functions"].items()}
            data = content.get("data")
            return table, data and {
                name: [(size, code) for size, code in each] for name, each in data.items()
            }
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError):
        pass
    raise InfraError(
        "not a symbols file of this version of the lab",
        where=str(path),
        next_step=f"remove {path.parent} to have the kernel built again",
    )


def changed_functions(before: Path, after: Path) -> tuple[CodeChange, ...]:
    """Functions that differ between two symbols files, by name.

    Raises:
        InfraError: one of the files cannot be read.
    """
    return differing(load(before), load(after))


def differing(
    first: Mapping[str, FunctionCode], second: Mapping[str, FunctionCode]
) -> tuple[CodeChange, ...]:
    """Functions that differ between two tables, by name."""
    return tuple(
        CodeChange(name, _size(first.get(name)), _size(second.get(name)))
        for name in sorted({*first, *second})
        if name not in first or not first[name].is_same(second.get(name))
    )


def differing_variables(first: Variables, second: Variables) -> tuple[CodeChange, ...]:
    """Variables that differ between two tables, by name.

    Of those that share a name only what one kernel has and the other has not is compared.
    """
    changes = []
    for name in sorted({*first, *second}):
        both = Counter(first.get(name, ())), Counter(second.get(name, ()))
        gone, new = (
            sum(size for size, _ in left.elements())
            for left in (both[0] - both[1], both[1] - both[0])
        )
        if both[0] != both[1]:
            changes.append(
                CodeChange(
                    name, gone if both[0] - both[1] else None, new if both[1] - both[0] else None
                )
            )
    return tuple(changes)


def _size(code: FunctionCode | None) -> int | None:
    return None if code is None else code.size


def _within(pointers: Sequence[Pointer], start: int, size: int) -> Sequence[Pointer]:
    """The pointers, ordered by offset, that lie in one function."""
    first = bisect_left(pointers, start, key=_offset)
    return pointers[first : bisect_left(pointers, start + size, first, key=_offset)]


def _function_names(elf: Elf) -> dict[int, str]:
    """Symbol index → unique name, for all functions with a size."""
    names: dict[int, str] = {}
    counts: Counter[str] = Counter()
    for index, name in _names(elf, (STT_FUNC, STT_NOTYPE), lambda part: part.is_code).items():
        counts[name] += 1
        names[index] = name if counts[name] == 1 else f"{name}#{counts[name]}"
    return names


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
    """Symbol index → name, with its file where several have it.

    Of symbols with a size, of these ``kinds``, in sections that are loaded and ``held``.
    """
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
