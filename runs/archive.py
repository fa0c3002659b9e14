"""Archives that travel: the same bytes for the same files, and nothing taken on trust.

Written without times, owners and modes of this machine; read as what a stranger sent.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from errors import InfraError, UsageError
from files import written_beside
from host import limited
from results import door
from text import clean

MODE = 0o644
LEVEL = 6
# A session of many arms with profiles has some 10 MiB in a few hundred files.
MOST_FILES = 20_000
MOST_BYTES = 1 << 30
LONGEST_NAME = 240
PIECE = 1 << 20


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
    than any session has; nothing is laid out then.
    """
    where = clean(str(archive))
    try:
        members = limited.call(listed, archive, most_bytes)
        with (
            door.opened_named(archive, most_bytes) as raw,
            gzip.GzipFile(fileobj=raw, mode="rb") as packed,
        ):
            for name, at, size in members:
                place = into / name
                place.parent.mkdir(parents=True, exist_ok=True)
                packed.seek(at)
                with place.open("xb") as sink:
                    while left := size - sink.tell():
                        if not (piece := packed.read(min(left, PIECE))):
                            raise EOFError("ends in the middle of a file")
                        sink.write(piece)
    except (UsageError, door.StoreError, limited.LimitError) as error:
        raise UsageError(
            error.what, where=where, next_step="ask for an archive made by ./lab.py repro"
        ) from None
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise UsageError(
            f"is no archive that can be read: {clean(str(error))}",
            where=where,
            next_step="name a file made by ./lab.py repro",
        ) from None
    return tuple(name for name, _, _ in members)


def listed(archive: Path, most_bytes: int) -> tuple[tuple[str, int, int], ...]:
    """Name, place in the unpacked archive, and size in bytes of each file; raises as ``unpack``.

    Python's reader believes a header's sizes, holes and further headers: 362 bytes took it minutes.
    So this is for a helper process, whose time has an end (``host.limited``).
    """
    members: dict[str, tuple[str, int, int]] = {}
    left, problem = most_bytes, ""
    with (
        door.opened_named(archive, most_bytes) as raw,
        gzip.GzipFile(fileobj=raw, mode="rb") as packed,
        tarfile.open(fileobj=packed, mode="r:") as tar,
    ):
        for member in tar:
            if member.isdir():
                continue
            left -= member.size
            if left < 0:
                problem = "unpacks to more than any session has"
            elif len(members) >= MOST_FILES:
                problem = f"holds more than {MOST_FILES} files"
            elif member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
                what = "is a link or a device, where only files are wanted"
                problem = f"{clean(member.name)}: {what}"
            elif member.name in members:
                problem = f"{clean(member.name)}: is in it twice"
            if problem := problem or _problem(member.name):
                raise UsageError(problem)
            members[member.name] = (member.name, member.offset_data, member.size)
    return tuple(members.values())


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
