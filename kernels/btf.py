"""Types of a kernel (BTF), and how the lab gets them: some files compiled once more."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from errors import InfraError
from kernels import symbols
from kernels.cache import Kernel
from text import words

MAGIC = 0xEB9F
HEADER = struct.Struct("<HBBIIIII")
TYPE = struct.Struct("<III")
MEMBER = struct.Struct("<III")
ARRAY = struct.Struct("<III")
INT, POINTER, ARRAY_OF, STRUCT, UNION, ENUM = 1, 2, 3, 4, 5, 6
TYPEDEF, VOLATILE, CONST, RESTRICT, FLOAT, TYPE_TAG, ENUM64 = 8, 9, 10, 11, 16, 18, 19
# Of these a type is said, and not a size.
REFERS = (TYPEDEF, VOLATILE, CONST, RESTRICT, TYPE_TAG, POINTER, ARRAY_OF)
# What a type of a kind has behind it: bytes, and bytes for each of its members.
BEHIND = {
    INT: (4, 0),
    ARRAY_OF: (12, 0),
    STRUCT: (0, 12),
    UNION: (0, 12),
    ENUM: (0, 8),
    13: (0, 8),
    14: (4, 0),
    15: (0, 12),
    17: (4, 0),
    ENUM64: (0, 12),
}
POINTER_BYTES = 8
# Whose parts say nothing that their name does not.
WHOLE = words(
    "spinlock_t raw_spinlock_t rwlock_t rw_semaphore mutex atomic_t atomic64_t atomic_long_t "
    "refcount_t list_head hlist_node rb_node percpu_counter"
)
# A structure in a structure in ...: no kernel's go deeper, and a damaged file may.
DEEPEST = 32
MOST_PARTS = 100


class _Member(NamedTuple):
    """A member of a structure: empty ``name`` for one without; ``offset`` and ``size`` in bytes."""

    name: str
    offset: int
    size: int
    type: int


class _Type(NamedTuple):
    """``elements`` are those of an array."""

    name: str
    kind: int
    size_or_type: int
    members: tuple[tuple[str, int, int], ...] = ()
    elements: int = 0


class Types:
    """The structures of one or several files of BTF, by name: of two the first one's."""

    def __init__(self, files: Iterable[bytes]) -> None:
        """Read them; ValueError: no BTF, cut short, or references out of its bounds."""
        # Those of all files by their number: a file's begin behind those before it.
        self._types: list[_Type] = []
        for data in files:
            self._types += _parse(data, len(self._types))
        self._named: dict[str, int] = {}
        # Thousands of locks are in as many objects, at few places of few structures.
        self.member_at = cache(self._member_at)
        for number, each in enumerate(self._types):
            if each.kind == STRUCT and each.name:
                self._named.setdefault(each.name, number)

    def size(self, name: str) -> int | None:
        """Bytes of a structure; None where there is none of this name."""
        return self._types[self._named[name]].size_or_type if name in self._named else None

    def offset(self, name: str, member: str) -> int | None:
        """Where a member begins in a structure, also one of an unnamed part of it."""
        if name not in self._named:
            return None
        return next((at for path, at in self._flat(self._named[name]) if path == member), None)

    def _member_at(self, name: str, offset: int) -> str:
        """The member at a byte of a structure, as ``i_data.i_pages.xa_lock``; or nothing."""
        number = self._named.get(name)
        if number is None:
            return ""
        path: list[str] = []
        for _ in range(DEEPEST):
            number = self._plain(number)
            each = self._types[number]
            if each.kind == ARRAY_OF:
                size = self._size(each.size_or_type)
                if not size:
                    break
                offset, number = offset % size, each.size_or_type
                continue
            if each.kind not in (STRUCT, UNION):
                break
            inner = next(
                (m for m in self._members(number) if m.offset <= offset < m.offset + m.size),
                None,
            )
            if inner is None:
                break
            path += [inner.name] if inner.name else []
            offset, number = offset - inner.offset, inner.type
            if self._types[number].name in WHOLE:
                break
        return ".".join(path)

    def _flat(self, number: int) -> Iterator[tuple[str, int]]:
        """Every named member with its offset, those of unnamed parts among them."""
        parts = [(number, 0)]
        # As many as no kernel's structure has: a damaged file's may be its own part.
        for _ in range(MOST_PARTS):
            if not parts:
                return
            number, at = parts.pop(0)
            for member in self._members(number):
                if member.name:
                    yield member.name, at + member.offset
                else:
                    parts.append((self._plain(member.type), at + member.offset))
            del parts[MOST_PARTS:]

    def _members(self, number: int) -> Iterator[_Member]:
        for name, bits, of in self._types[number].members:
            yield _Member(name, bits // 8, self._size(of), of)

    def _plain(self, number: int) -> int:
        """A type without what does not change its layout."""
        for _ in range(DEEPEST):
            if self._types[number].kind not in (TYPEDEF, VOLATILE, CONST, RESTRICT, TYPE_TAG):
                break
            number = self._types[number].size_or_type
        return number

    def _size(self, number: int, depth: int = 0) -> int:
        each = self._types[self._plain(number)]
        if each.kind == ARRAY_OF and depth < DEEPEST:
            return each.elements * self._size(each.size_or_type, depth + 1)
        if each.kind in (INT, STRUCT, UNION, ENUM, ENUM64, FLOAT):
            return each.size_or_type
        return POINTER_BYTES if each.kind == POINTER else 0


@lru_cache(maxsize=8)
def load(paths: tuple[Path, ...]) -> Types:
    """The types in a kernel's files of BTF, kept for its next run; InfraError: damaged."""
    path = Path()
    try:
        data = [(path := each).read_bytes() for each in paths]
        return Types(data)
    except (OSError, ValueError) as error:
        raise InfraError(
            f"no types of a kernel: {error}",
            where=str(path.parent if isinstance(error, ValueError) else path),
            next_step=f"remove {path.parent} to have the kernel built again",
        ) from None


def _parse(data: bytes, base: int) -> list[_Type]:
    """The types of a file, which count from ``base``."""
    try:
        magic, version, _, length, types_at, types_bytes, names_at, names_bytes = (
            HEADER.unpack_from(data)
        )
        if magic != MAGIC or version != 1:
            raise ValueError(f"no BTF: {data[:4]!r}")
        names = data[length + names_at : length + names_at + names_bytes]
        at, end = length + types_at, length + types_at + types_bytes
        if len(names) != names_bytes or end > len(data):
            raise ValueError(f"cut short after {len(data)} bytes")

        def name(offset: int) -> str:
            return names[offset : names.index(b"\0", offset)].decode("ascii", "replace")

        # Number 0 is void.
        types = [_Type("", 0, 0)]
        while at < end:
            name_at, info, size_or_type = TYPE.unpack_from(data, at)
            kind, count, with_bits = info >> 24 & 0x1F, info & 0xFFFF, info >> 31
            at += TYPE.size
            members: list[tuple[str, int, int]] = []
            elements = 0
            if kind in (STRUCT, UNION):
                for number in range(count):
                    label, of, bits = MEMBER.unpack_from(data, at + number * MEMBER.size)
                    # With bit fields in it, the upper byte is how many bits one has.
                    members.append((name(label), bits & 0xFFFFFF if with_bits else bits, of + base))
            elif kind == ARRAY_OF:
                size_or_type, _, elements = ARRAY.unpack_from(data, at)
            fixed, each = BEHIND.get(kind, (0, 0))
            at += fixed + each * count
            if kind in REFERS:
                size_or_type += base
            types.append(_Type(name(name_at), kind, size_or_type, tuple(members), elements))
    except struct.error as error:
        raise ValueError(f"cut short after {len(data)} bytes: {error}") from None
    for each_type in types:
        to = [of for _, _, of in each_type.members]
        to += [each_type.size_or_type] * (each_type.kind in REFERS)
        if any(number >= base + len(types) for number in to):
            raise ValueError(f"{each_type.name or 'a type'} is of a type that is not there")
    return types


# Between them they know what slab caches hold: pages, slabs and tasks; inodes of XFS; nodes of
# trees; buffers; requests; and what iomap keeps of a folio.
FILES = words(
    "mm/slub fs/xfs/xfs_super lib/xarray lib/maple_tree fs/buffer fs/iomap/buffered-io block/blk-mq"
)
SECTION = ".BTF"
PREFIX = "twinboot-types-"
# kbuild's record of how it made an object, "cmd_" before 6.3.
# Without ccache: in a box it has no home to keep anything in, and ends without compiling.
COMMAND = re.compile(
    r"^(?:saved)?cmd_\S+ := (?:ccache )?(?P<command>[^;\n]*) -o \S+(?P<rest>[^;\n]*)(?P<more>.*)",
    re.M,
)
# It has no part in what is compiled, and would be written anew.
DEPENDENCIES = re.compile(r" -Wp,-MMD,\S+")


def script(objects: Path, folder: str) -> str:
    """Shell commands that compile the files again, side by side; one may fail alone."""
    # What another kernel of the same folder was built from is not this one's.
    lines = [f"cd {folder}", f"rm -f {PREFIX}*.o"]
    lines += [again(objects, file, f"{PREFIX}{Path(file).name}.o", "-gbtf") for file in FILES]
    return "\n".join([*filter(None, lines), "wait"])


def again(objects: Path, file: str, target: str, flags: str, *, whole: bool = False) -> str:
    """The command that made an object, for another one beside others; empty where none was made."""
    record = (objects / file).with_name(f".{Path(file).name}.o.cmd")
    try:
        match = COMMAND.search(record.read_text(errors="replace"))
    except OSError:
        return ""
    if not match:
        return ""
    command = DEPENDENCIES.sub("", match["command"])
    tools = [each for each in match["more"].split(";") if whole and "/objtool " in each]
    more = "".join(f" && {tool.replace(f' {file}.o', f' {target}').strip()}" for tool in tools)
    return f"{command} {flags} -o {target}{match['rest']}{more} &"


def collected(objects: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of types that ``script`` has made."""
    for path in sorted(objects.glob(f"{PREFIX}*.o")):
        try:
            sections = symbols.read(path).sections
            data = next((each.data for each in sections if each.name == SECTION), b"")
            Types([data])
        except (InfraError, ValueError):
            continue
        yield f"{path.stem.removeprefix(PREFIX)}.btf", data


def of(kernel: Kernel) -> Types:
    """The types of a kernel, none of one kept without; InfraError: a file is damaged."""
    return load(kernel.structures)
