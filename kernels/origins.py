"""Which source file each function of a kernel was built from.

The linker leaves names of files without folders in the symbol table (STT_FILE).  The
objects it was given have folders, and the two are in the same order.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from errors import InfraError
from host.process import run
from kernels.elf import STT_FILE, STT_FUNC, Elf, read

FORMAT = 1
STT_NOTYPE = 0
STB_LOCAL = 0
ARCHIVE = "vmlinux.a"
LIBRARY = "lib.a"
SUFFIXES = (".c", ".S")
TIMEOUT_S = 120.0
# name → objects that define it, in the order of the link: local ones, then others.
Defined = Mapping[str, tuple[str, ...]]


def collect(objects: Path, source: Path) -> dict[int, str]:
    """Address of each function of ``objects``/vmlinux → source file, relative to ``source``.

    What cannot be told is left out.  A kernel too old to link ``vmlinux.a`` gives an
    empty table.

    Raises:
        InfraError: no ELF file, or nm failed.
    """
    archives = [objects / ARCHIVE, *sorted(objects.rglob(LIBRARY))]
    if not archives[0].exists():
        return {}
    argv = ["nm", "--defined-only", "--print-file-name", *map(str, archives)]
    output = run(argv, timeout_s=TIMEOUT_S, env={"LC_ALL": "C"}).stdout
    local, other = definitions(output.splitlines(), f"{objects}/")
    files = match(read(objects / "vmlinux"), local, other)
    sources = {name: _source(name, objects, source) for name in set(files.values())}
    return {address: sources[name] for address, name in files.items()}


def definitions(lines: Iterable[str], prefix: str) -> tuple[Defined, Defined]:
    """Read what ``nm --print-file-name`` says of archives: local and other functions.

    ``prefix`` is taken off the objects' names.
    """
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
    return _frozen(local), _frozen(other)


def match(elf: Elf, local: Defined, other: Defined) -> dict[int, str]:
    """Address of each function → object, from a linked kernel and its objects' symbols.

    Local functions of one name from files of one name (``core.c``) are told apart by
    their order, and left out when there are more or fewer of them than objects.
    """
    kinds, binding = elf.symbols["info"] & 0xF, elf.symbols["info"] >> 4
    file, result = "", {}
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
                result[address] = other[name][0]
        elif name in local:
            ambiguous[name, file].append(address)
    for (name, file), addresses in ambiguous.items():
        stem = file.rpartition(".")[0]
        here = [path for path in local[name] if Path(path).stem == stem] or list(local[name])
        if len(here) == len(addresses):
            for address, path in zip(addresses, here, strict=True):
                result.setdefault(address, path)
    return result


def save(origins: Mapping[int, str], path: Path) -> None:
    """Write a table; equal tables are equal bytes."""
    files = sorted(set(origins.values()))
    number = {file: at for at, file in enumerate(files)}
    at = {f"{address:x}": number[file] for address, file in sorted(origins.items())}
    text = json.dumps({"format": FORMAT, "files": files, "at": at}, indent=0)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def load(path: Path) -> dict[int, str]:
    """Read a table written by ``save``; empty when the kernel was kept without one.

    Raises:
        InfraError: written by another version of the lab, or damaged.
    """
    if not path.exists():
        return {}
    try:
        content = json.loads(gzip.decompress(path.read_bytes()))
        if content["format"] == FORMAT:
            files = content["files"]
            return {int(address, 16): str(files[at]) for address, at in content["at"].items()}
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError):
        pass
    raise InfraError(
        "not an origins file of this version of the lab",
        where=str(path),
        next_step=f"remove {path.parent} to have the kernel built again",
    )


def _frozen(files: Mapping[str, list[str]]) -> Defined:
    return {name: tuple(where) for name, where in files.items()}


def _source(name: str, objects: Path, source: Path) -> str:
    """The source file of an object; the object itself where there is none."""
    stem = name.removesuffix(".o")
    for folder in (source, objects):
        for suffix in SUFFIXES:
            if (folder / f"{stem}{suffix}").exists():
                return f"{stem}{suffix}"
    return name
