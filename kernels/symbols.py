"""A kernel's machine code, named: whether two are the same, and which functions differ."""

from __future__ import annotations

import gzip
import hashlib
import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from errors import InfraError
from kernels.elf import SHF_ALLOC, STT_FILE, STT_FUNC, Elf, read
from kernels.references import Pointer, References

FORMAT = 2
STT_NOTYPE = 0
# Release, build number and date; all else that is loaded decides what a kernel does.
BANNERS = ("linux_banner", "linux_proc_banner", "init_uts_ns")
_offset = attrgetter("offset")


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
    """A function that differs between two kernels: sizes in bytes, None where absent."""

    name: str
    before: int | None
    after: int | None


def code_key(vmlinux: Path) -> str:
    """SHA-256 over all that is loaded, without notes (the build id) and the banners.

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


def save(table: dict[str, FunctionCode], path: Path) -> None:
    """Write a table of functions; equal tables are equal bytes."""
    text = json.dumps({"format": FORMAT, "functions": table}, sort_keys=True, indent=0)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def load(path: Path) -> dict[str, FunctionCode]:
    """Read a table written by ``save``.

    Raises:
        InfraError: written by another version of the lab, or damaged.
    """
    try:
        content = json.loads(gzip.decompress(path.read_bytes()))
        if content["format"] == FORMAT:
            return {name: FunctionCode(*code) for name, code in content["functions"].items()}
    except (OSError, EOFError, ValueError, KeyError, TypeError):
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


def _size(code: FunctionCode | None) -> int | None:
    return None if code is None else code.size


def _within(pointers: Sequence[Pointer], start: int, size: int) -> Sequence[Pointer]:
    """The pointers, ordered by offset, that lie in one function."""
    first = bisect_left(pointers, start, key=_offset)
    return pointers[first : bisect_left(pointers, start + size, first, key=_offset)]


def _function_names(elf: Elf) -> dict[int, str]:
    """Symbol index → unique name, for all functions with a size."""
    kinds = elf.symbols["info"] & 0xF
    code = np.array([section.index for section in elf.sections if section.is_code], np.uint16)
    places = np.flatnonzero(
        np.isin(kinds, (STT_FUNC, STT_NOTYPE))
        & np.isin(elf.symbols["section"], code)
        & (elf.symbols["size"] > 0)
    )
    offsets = elf.symbols["name"].tolist()
    plain = {index: elf.name(offsets[index]) for index in places.tolist()}
    uses = Counter(plain.values())
    files = np.flatnonzero(kinds == STT_FILE).tolist()
    names: dict[int, str] = {}
    counts: Counter[str] = Counter()
    for index, name in plain.items():
        if uses[name] > 1 and files:
            file = elf.name(offsets[files[max(bisect_left(files, index) - 1, 0)]])
            name = f"{name}@{file}"
        counts[name] += 1
        names[index] = name if counts[name] == 1 else f"{name}#{counts[name]}"
    return names
