"""Archives that travel: the same bytes for the same files, and nothing taken on trust.

Written without times, owners and modes of this machine; read as what a stranger sent.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, cast

from errors import InfraError, UsageError
from files import written_beside
from results import door
from results.door import StoreError
from text import clean

MODE = 0o644
LEVEL = 6
# A session of many arms with profiles has some 10 MiB in a few hundred files.
MOST_FILES = 20_000
MOST_BYTES = 1 << 30
LONGEST_NAME = 240
# A long name has a header of its own, and a folder may have one.
MOST_HEADERS, LONGEST_HEADER = 3 * MOST_FILES, 4096
BLOCK, USTAR = 512, b"ustar\0"
FILE, FOLDER, PAX, LONG_NAME = (b"0", b"\0"), b"5", b"x", b"L"
# What tar itself may say of a file that somebody packed again; none of it is used but the name.
HARMLESS = (b"path", b"mtime", b"atime", b"ctime", b"uid", b"gid", b"uname", b"gname")


class _Stream:
    """The unpacked bytes of an archive, which end with an error where an honest one has ended."""

    def __init__(self, packed: IO[bytes], most: int) -> None:
        self._packed, self._left = packed, most

    def exactly(self, size: int) -> bytes:
        """The next ``size`` bytes, which are all held at once."""
        return b"".join(self.blocks(size))

    def blocks(self, size: int) -> Iterator[bytes]:
        """The next ``size`` bytes, piece by piece."""
        self._left -= size
        if self._left < 0:
            raise _HostileError("unpacks to more than any session has")
        while size:
            block = self._packed.read(min(size, 1 << 20))
            if not block:
                raise EOFError("ends in the middle of a file")
            size -= len(block)
            yield block


class _HostileError(Exception):
    pass


def pack(files: Mapping[str, bytes], archive: Path) -> None:
    """Write ``files`` by their names in it.

    Raises UsageError: `unpack` would refuse it; InfraError: it cannot be written.
    """
    size = sum(len(content) for content in files.values())
    problems = [problem for name in files if (problem := _problem(name))]
    if len(files) > MOST_FILES:
        problems.append(f"more than {MOST_FILES} files")
    if size > MOST_BYTES:
        problems.append(f"{size >> 20} MiB, of at most {MOST_BYTES >> 20}")
    if problems:
        what = f"cannot be made: {problems[0]}"
        step = "pack a session that this lab has measured"
        raise UsageError(what, where=clean(str(archive)), next_step=step)
    try:
        with (
            written_beside(archive) as beside,
            beside.open("wb") as raw,
            gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for name in sorted(files):
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(files[name]), MODE
                tar.addfile(member, io.BytesIO(files[name]))
    except OSError as error:
        raise InfraError(
            f"cannot be written: {error.strerror}", where=str(archive), next_step="-o elsewhere"
        ) from None


def unpack(archive: Path, into: Path, *, most_bytes: int = MOST_BYTES) -> tuple[str, ...]:
    """Lay out an archive in the folder ``into``: plain files below it alone; return their names.

    Raises UsageError: no archive, or links, devices, names that lead elsewhere or come twice, more
    than any session has.
    """
    names: dict[str, None] = {}
    where = clean(str(archive))
    try:
        with (
            door.opened_named(archive, most_bytes) as raw,
            gzip.GzipFile(fileobj=raw, mode="rb") as packed,
        ):
            stream = _Stream(cast("IO[bytes]", packed), most_bytes)
            for name, size in _members(stream):
                if name in names:
                    raise _HostileError(f"{clean(name)}: is in it twice")
                if len(names) >= MOST_FILES:
                    raise _HostileError(f"holds more than {MOST_FILES} files")
                place = into / name
                place.parent.mkdir(parents=True, exist_ok=True)
                with place.open("xb") as sink:
                    for block in stream.blocks(size):
                        sink.write(block)
                stream.exactly(-size % BLOCK)
                names[name] = None
    except (_HostileError, StoreError) as error:
        what = error.what if isinstance(error, StoreError) else str(error)
        step = "ask for an archive made by ./lab.py repro"
        raise UsageError(what, where=where, next_step=step) from None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UsageError(
            f"is no archive that can be read: {clean(str(error))}",
            where=where,
            next_step="name a file made by ./lab.py repro",
        ) from None
    return tuple(names)


def _members(stream: _Stream) -> Iterator[tuple[str, int]]:
    """Name and size of each file, whose content the caller reads before it asks for the next.

    Python's reader believes a header's sizes, holes and further headers: 362 bytes took it minutes.
    """
    name = ""
    for _ in range(MOST_HEADERS):
        header = stream.exactly(BLOCK)
        if not any(header):
            return
        if _octal(header[148:156]) != sum(header) - sum(header[148:156]) + 8 * ord(" "):
            raise ValueError("a header is damaged")
        kind, size = header[156:157], _octal(header[124:136])
        parts = (header[345:500] if header[257:263] == USTAR else b"", header[:100])
        name = name or "/".join(text for part in parts if (text := _text(part)))
        if kind in (PAX, LONG_NAME):
            if size > LONGEST_HEADER:
                raise _HostileError(f"has a header of {size} bytes, of at most {LONGEST_HEADER}")
            content = stream.exactly(size + -size % BLOCK)[:size]
            name = _text(content) if kind == LONG_NAME else _pax_name(content)
            continue
        if kind != FOLDER or size:
            if kind not in FILE:
                what = "is a link or a device, where only files are wanted"
                raise _HostileError(f"{clean(name)}: {what}")
            if problem := _problem(name):
                raise _HostileError(problem)
            yield name, size
        name = ""
    raise _HostileError(f"holds more than {MOST_HEADERS} headers")


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    if not re.fullmatch(rb"[0-7]{0,12}", digits):
        raise ValueError("a header has a number that is none")
    return int(digits or b"0", 8)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode()


def _pax_name(content: bytes) -> str:
    """The name that an extended header gives to the file behind it, or nothing."""
    name, at = "", 0
    while at < len(content):
        record = re.compile(rb"([1-9][0-9]{0,3}) ([A-Za-z]{1,20})=").match(content, at)
        end = at + int(record[1]) if record else 0
        if not record or end <= record.end() or content[end - 1 : end] != b"\n":
            raise _HostileError("has an extended header that none of ours has")
        if record[2] not in HARMLESS:
            raise _HostileError(f"has {clean(record[2].decode())} in an extended header")
        if record[2] == b"path":
            name = content[record.end() : end - 1].decode()
        at = end
    return name


def _problem(name: str) -> str:
    """Why a name must not be in an archive, or nothing."""
    path = PurePosixPath(name)
    shown = clean(name)
    plain = (
        not path.is_absolute()
        and ".." not in path.parts
        and "\\" not in name
        and str(path) == name
        and shown == name
        and len(name.encode(errors="replace")) <= LONGEST_NAME
    )
    return "" if plain else f"{shown}: is no plain name below the archive's top"
