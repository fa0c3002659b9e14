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
from kernels.cleaning import clean

MODE = 0o644
LEVEL = 6
# A session of many arms with profiles has some 10 MiB in a few hundred files.
MOST_FILES = 20_000
MOST_BYTES = 1 << 30
LONGEST_NAME = 240


class _Bounded(io.RawIOBase):
    """A stream that ends with an error where an honest archive has long ended."""

    def __init__(self, stream: gzip.GzipFile, most: int) -> None:
        self._stream, self._left = stream, most

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, 1 << 20) if size >= 0 else 1 << 20)
        self._left -= len(data)
        if self._left < 0:
            raise _HostileError("unpacks to more than any session has")
        return data


class _HostileError(Exception):
    pass


def pack(files: Mapping[str, bytes], archive: Path) -> None:
    """Write ``files``, by their names in the archive, beside ``archive`` and rename it.

    Raises:
        UsageError: `unpack` would refuse it: a name that leads elsewhere, too many files or bytes.
        InfraError: it cannot be written.
    """
    _require_plain(files, archive)
    beside = archive.with_name(f".{archive.name}.new")
    try:
        with (
            beside.open("wb") as raw,
            gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for name in sorted(files):
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(files[name]), MODE
                tar.addfile(member, io.BytesIO(files[name]))
        beside.replace(archive)
    except OSError as error:
        raise InfraError(
            f"cannot be written: {error.strerror}", where=str(archive), next_step="-o elsewhere"
        ) from None
    finally:
        beside.unlink(missing_ok=True)


def unpack(
    archive: Path, into: Path, *, most_bytes: int = MOST_BYTES, made_by: str = "./lab.py repro"
) -> tuple[str, ...]:
    """Lay an archive's files out in the existing folder ``into``; return their names.

    ``made_by`` is the command that writes such archives, for the message.
    Only plain files below ``into`` are made, whatever the archive asks for.

    Raises:
        UsageError: it is no archive, or holds what none of ours does: links, devices,
            names that lead elsewhere, the same name twice, more files or bytes than any
            session has.
    """
    names: list[str] = []
    where = clean(str(archive))
    try:
        with (
            gzip.open(archive, "rb") as packed,
            # As a stream: what it says of places further on is not believed.
            tarfile.open(fileobj=_Bounded(packed, most_bytes), mode="r|") as tar,
        ):
            for member in tar:
                if member.isdir():
                    continue
                name = _refused(member, names)
                content = tar.extractfile(member)
                assert content is not None
                place = into / name
                place.parent.mkdir(parents=True, exist_ok=True)
                with place.open("xb") as sink:
                    while block := content.read(1 << 20):
                        sink.write(block)
                names.append(name)
    except _HostileError as error:
        raise UsageError(
            str(error), where=where, next_step=f"ask for an archive made by {made_by}"
        ) from None
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        raise UsageError(
            f"is no archive that can be read: {clean(str(error))}",
            where=where,
            next_step=f"name a file made by {made_by}",
        ) from None
    return tuple(names)


def _require_plain(files: Mapping[str, bytes], archive: Path) -> None:
    size = sum(len(content) for content in files.values())
    problems = [problem for name in files if (problem := _problem(name))]
    if len(files) > MOST_FILES:
        problems.append(f"more than {MOST_FILES} files")
    if size > MOST_BYTES:
        problems.append(f"{size >> 20} MiB, of at most {MOST_BYTES >> 20}")
    if problems:
        raise UsageError(
            f"cannot be made: {problems[0]}", where=clean(str(archive)),
            next_step="pack a session that this lab has measured",
        )  # fmt: skip


def _refused(member: tarfile.TarInfo, names: list[str]) -> str:
    """The name of a member that may be unpacked; what may not raises."""
    name = member.name
    if not member.isreg():
        raise _HostileError(f"{clean(name)}: is a link or a device, where only files are wanted")
    if problem := _problem(name):
        raise _HostileError(problem)
    if name in names:
        raise _HostileError(f"{clean(name)}: is in it twice")
    if len(names) >= MOST_FILES:
        raise _HostileError(f"holds more than {MOST_FILES} files")
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
