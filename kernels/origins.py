"""Which source file and line each function of a kernel was built from.

The linker leaves names of files without folders in the symbol table (STT_FILE).  The
objects it was given have folders, and the two are in the same order.  Lines are looked up in the
files: debug information would have them too, for a fifth more compile time.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from errors import InfraError
from host import folders
from host.process import run
from kernels.elf import STT_FILE, STT_FUNC, Elf, read

FORMAT = 1
STT_NOTYPE = 0
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
Defined = Mapping[str, tuple[str, ...]]


class Origin(NamedTuple):
    """A source file, relative to the source, and the line of it; 0 where that is not known."""

    file: str
    line: int = 0


class _Built(NamedTuple):
    name: str
    object: str


def collect(objects: Path, source: Path) -> dict[int, Origin]:
    """Address of each function of ``objects``/vmlinux → where its definition begins.

    What cannot be told is left out.  A kernel too old to link ``vmlinux.a`` gives an
    empty table.

    Raises:
        InfraError: no ELF file, or nm failed.
    """
    if not (objects / ARCHIVE).exists():
        return {}
    libraries = sorted(name for name, entry in folders.entries(objects) if entry.name == LIBRARY)
    archives = [str(objects / name) for name in (ARCHIVE, *libraries)]
    argv = ["nm", "--defined-only", "--print-file-name", *archives]
    output = run(argv, timeout_s=TIMEOUT_S, env={"LC_ALL": "C"}).stdout
    local, other = definitions(output.splitlines(), f"{objects}/")
    built = built_from(read(objects / "vmlinux"), local, other)
    compiled = {each.object for each in built.values()}
    sources = {name: _source(name, objects, source) for name in compiled}
    names_in: dict[str, set[str]] = defaultdict(set)
    for each in built.values():
        names_in[sources[each.object]].add(each.name)
    lines = {file: _lines(source / file, names) for file, names in names_in.items()}
    return {
        address: Origin(file := sources[each.object], lines[file].get(each.name, 0))
        for address, each in built.items()
    }


def definition_lines(text: str, names: Collection[str]) -> dict[str, int]:
    """Function → line on which its definition begins, of a file in the kernel's style.

    ``names`` are symbols: what the compiler appends (``.isra.0``) is taken off, and of a system
    call all functions that its macro makes are on its line.  Left out are what other macros make,
    and what is defined more than once, which is a choice of options.
    """
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


def built_from(elf: Elf, local: Defined, other: Defined) -> dict[int, _Built]:
    """Address of each function → its name and object, from a linked kernel and its objects.

    Local functions of one name from files of one name (``core.c``) are told apart by
    their order, and left out when there are more or fewer of them than objects.
    """
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
    at = {f"{address:x}": number[origin.file] for address, origin in sorted(origins.items())}
    lines = {f"{address:x}": origin.line for address, origin in sorted(origins.items())}
    text = json.dumps({"format": FORMAT, "files": files, "at": at, "lines": lines}, indent=0)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def load(path: Path) -> dict[int, Origin]:
    """Read a table written by ``save``; empty when the kernel was kept without one.

    Raises:
        InfraError: written by another version of the lab, or damaged.
    """
    if not path.exists():
        return {}
    try:
        content = json.loads(gzip.decompress(path.read_bytes()))
        if content["format"] == FORMAT:
            files, lines = content["files"], content["lines"]
            return {
                int(address, 16): Origin(str(files[at]), int(lines[address]))
                for address, at in content["at"].items()
            }
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError):
        pass
    raise InfraError(
        "not an origins file of this version of the lab",
        where=str(path),
        next_step=f"remove {path.parent} to have the kernel built again",
    )


def _frozen(files: Mapping[str, list[str]]) -> Defined:
    return {name: tuple(where) for name, where in files.items()}


def _lines(file: Path, names: Collection[str]) -> dict[str, int]:
    """None of a file that is not there, as an object without a source."""
    try:
        return definition_lines(file.read_text(encoding="utf-8", errors="replace"), names)
    except OSError:
        return {}


def _source(name: str, objects: Path, source: Path) -> str:
    """The source file of an object; the object itself where there is none."""
    stem = name.removesuffix(".o")
    for folder in (source, objects):
        for suffix in SUFFIXES:
            if (folder / f"{stem}{suffix}").exists():
                return f"{stem}{suffix}"
    return name
