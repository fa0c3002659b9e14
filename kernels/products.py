"""What strangers may have written, taken with a bound: plain files of a build, and packed bytes.

A makefile writes what it likes under the names of a kernel's files: a link, a pipe, a terabyte of
nothing.  So each is opened by ``results.door`` and has a bound.  How a file of mails, a module or
an image is packed is told by its first bytes, and no more is unpacked than the reader allows.
"""

from __future__ import annotations

import bz2
import errno
import lzma
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from errors import InfraError, LabError, SeriesError
from results import door
from results.door import MIB
from text import clean

Kind = Literal["release", "configuration", "list", "log", "module", "map", "image", "program"]
# Of a large kernel's: a release of 64 characters (the kernel's own bound), a configuration of 300
# KiB, a System.map of 10 MiB, an image of 40 MiB, and a vmlinux of 800 MiB with debug information.
MOST_BYTES: Mapping[Kind, int] = {
    "release": 128,
    "configuration": 4 * MIB,
    "list": 4 * MIB,
    "log": 16 * MIB,
    "module": 64 * MIB,
    "map": 64 * MIB,
    "image": 256 * MIB,
    "program": 1024 * MIB,
}
# What a full or failing disk, or memory, says to the lab itself.
OF_HOST = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS),
    *(errno.ENOMEM, errno.EMFILE, errno.ENFILE),
)
RELEASE = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~_-]*")


class ProductError(InfraError):
    """A file that no build of a kernel makes, or none where each makes one; says which."""


def read(objects: Path, name: str, kind: Kind) -> bytes:
    """A file below an object folder.

    Raises ProductError: it is not there, no plain file, or too large; OSError: the host failed.
    """
    with _in_words(name, kind):
        return door.read(objects, name, MOST_BYTES[kind])


@contextmanager
def _in_words(name: str, kind: Kind) -> Iterator[None]:
    try:
        yield
    except (LabError, OSError) as error:
        if isinstance(error, OSError) and error.errno in OF_HOST:
            raise
        reason = error.what if isinstance(error, LabError) else error.strerror
        raise ProductError(f"{clean(name)} ({kind}): {reason}") from None


def text(objects: Path, name: str, kind: Kind) -> str:
    """The same as text; what is no UTF-8 shows as such."""
    return read(objects, name, kind).decode(errors="replace")


def release(objects: Path) -> str:
    """The release that a kernel was built as; raises as :func:`read`."""
    name = "include/config/kernel.release"
    written = text(objects, name, "release").strip()
    if not RELEASE.fullmatch(written):
        raise ProductError(f"{name}: {clean(written)!r} is no release of a kernel")
    return written


def modules(objects: Path, names: Sequence[str], folder: Path) -> None:
    """Copy modules into a folder; raises as :func:`read`, and where they are too large together."""
    total = 0
    for name in dict.fromkeys(names):
        content = read(objects, name, "module")
        total += len(content)
        if total > MOST_BYTES["program"]:
            raise ProductError(f"its modules have more than {MOST_BYTES['program'] / MIB:g} MiB")
        (folder / Path(name).name).write_bytes(content)


def require_size(objects: Path, name: str) -> None:
    """Raise as :func:`read`, without reading, where an ELF file is not one that a build makes."""
    most = MOST_BYTES["program"]
    with _in_words(name, "program"), door.opened(objects, name, most):
        pass


LARGEST_MBOX = 256 << 20
# Endings of names, besides those of the files in them.
ENDINGS = (".gz", ".xz", ".zst", ".bz2")
PIECE = 1 << 20
GZIP, ZSTD, BZIP2 = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh"
XZ = (b"\xfd7zXZ\x00", b"]\x00\x00")
EARLY = "it ends too early"
ARCHIVE = "unpack it, and name the folder or the mailbox in it"
# Of what is no mail: where it says so, and what to do with it.
FOREIGN = (
    (0, b"PK\x03\x04", "is a zip archive", ARCHIVE),
    (0, b"7z\xbc\xaf", "is a 7z archive", ARCHIVE),
    (257, b"ustar", "is a tar archive", ARCHIVE),
    (0, b"%PDF", "is a PDF", "save the mails themselves"),
)
PAGES = (b"<!doctype html", b"<html", b"<?xml")
# What readers of packed bytes raise.
DAMAGED = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


def plain(data: bytes, most: int) -> bytes:
    """What ``data`` holds; if packed, at most ``most`` bytes and one; raises of DAMAGED."""
    parts: list[bytes] = []
    size = 0
    if data.startswith(GZIP):
        while data and size <= most:  # members may follow each other
            reader = zlib.decompressobj(wbits=31)
            parts.append(reader.decompress(data, most + 1 - size))
            size += len(parts[-1])
            if size <= most and not reader.eof:
                raise EOFError(EARLY)
            data = reader.unused_data.lstrip(b"\0")
    elif data.startswith(ZSTD):
        import pyarrow  # takes a quarter of a second, for few files

        with pyarrow.CompressedInputStream(pyarrow.BufferReader(data), "zstd") as stream:
            while size <= most and (piece := stream.read(PIECE)):
                parts.append(piece)
                size += len(piece)
    elif data.startswith((*XZ, BZIP2)):
        whole = (
            bz2.BZ2Decompressor()
            if data.startswith(BZIP2)
            else lzma.LZMADecompressor(memlimit=LARGEST_MBOX)
        )
        parts.append(whole.decompress(data, most + 1))
        if not whole.eof and len(parts[0]) <= most:
            raise EOFError(EARLY)
    else:
        return data
    return b"".join(parts)


def unpacked(data: bytes, where: str, most: int = LARGEST_MBOX) -> bytes:
    """What ``data`` holds, packed once at most; SeriesError: too large, damaged or no mails."""
    try:
        data = plain(data, most)
    except DAMAGED as error:
        what = f"is damaged and cannot be unpacked: {error}"
        raise SeriesError(what, where=where, next_step="fetch it again") from None
    if len(data) > most:
        raise mailbox_too_large(len(data), where, most)
    for at, magic, what, next_step in FOREIGN:
        if data.startswith(magic, at):
            raise SeriesError(what, where=where, next_step=next_step)
    if data[:512].lstrip().lower().startswith(PAGES):
        step = "save the thread as mbox (t.mbox.gz of an archive), or name mid:MESSAGE-ID"
        raise SeriesError("is a page for a browser and holds no mails", where=where, next_step=step)
    return data


def is_packed(data: bytes) -> bool:
    """Whether a file begins as one that is packed."""
    return data.startswith((GZIP, ZSTD, *XZ, BZIP2))


def mailbox_too_large(size: int, where: str, most: int = LARGEST_MBOX) -> SeriesError:
    """The refusal of a mailbox of ``size`` bytes or more."""
    what = f"has {size >> 20} MiB, more than {most >> 20}"
    return SeriesError(what, where=where, next_step="cut the thread out of the mailbox")
