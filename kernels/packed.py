"""The bytes of a file of mails, a module or an image: unpacked where packed, and bounded.  Pure.

How a file is packed is told by its first bytes, as its name may be anything.  No more is unpacked
than the reader allows, whatever the file says of itself.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable

from errors import SeriesError

LARGEST_MBOX = 256 << 20
# Endings of names, besides those of the files in them.
ENDINGS = (".gz", ".xz", ".zst", ".bz2")
PIECE = 1 << 20
# Of what is no mail, and what to do with it.
FOREIGN = (
    (b"PK\x03\x04", "is a zip archive", "unpack it, and name the folder or the mailbox in it"),
    (b"%PDF", "is a PDF", "save the mails themselves"),
    (b"7z\xbc\xaf", "is a 7z archive", "unpack it, and name the folder or the mailbox in it"),
)
PAGES = (b"<!doctype html", b"<html", b"<?xml")
TAR = slice(257, 262)


# What readers of packed bytes raise.
DAMAGED = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


def plain(data: bytes, most: int) -> bytes:
    """What ``data`` holds, once unpacked: more than ``most`` bytes only where it is not packed.

    Raises:
        one of :data:`DAMAGED`.
    """
    read = next((reader for magic, reader in _READERS if data.startswith(magic)), None)
    return read(data, most) if read else data


def unpacked(data: bytes, where: str, most: int = LARGEST_MBOX) -> bytes:
    """What ``data`` holds, of which nothing may be packed twice; at most ``most`` bytes.

    Raises:
        SeriesError: too large, damaged, or a file of which it is known that it has no mails.
    """
    try:
        data = plain(data, most)
    except DAMAGED as error:
        raise SeriesError(
            f"is damaged and cannot be unpacked: {error}", where=where, next_step="fetch it again"
        ) from None
    if len(data) > most:
        raise too_large(len(data), where, most)
    head = data[:512].lstrip().lower()
    for magic, what, next_step in FOREIGN:
        if data.startswith(magic):
            raise SeriesError(what, where=where, next_step=next_step)
    if data[TAR] == b"ustar":
        raise SeriesError(
            "is a tar archive", where=where, next_step="unpack it, and name the folder in it"
        )
    if head.startswith(PAGES):
        raise SeriesError(
            "is a page for a browser and holds no mails", where=where,
            next_step="save the thread as mbox (t.mbox.gz of an archive), or name mid:MESSAGE-ID",
        )  # fmt: skip
    return data


def is_packed(data: bytes) -> bool:
    """Whether a file begins as one that is packed."""
    return any(data.startswith(magic) for magic, _ in _READERS)


def too_large(size: int, where: str, most: int = LARGEST_MBOX) -> SeriesError:
    """The refusal of a mailbox of ``size`` bytes or more."""
    return SeriesError(
        f"has {size >> 20} MiB, more than {most >> 20}",
        where=where,
        next_step="cut the thread out of the mailbox",
    )


def _gzip(data: bytes, most: int) -> bytes:
    parts, size = [], 0
    while data:  # members may follow each other
        reader = zlib.decompressobj(wbits=31)
        parts.append(reader.decompress(data, most + 1 - size))
        size += len(parts[-1])
        if size > most:
            break
        if not reader.eof:
            raise EOFError("it ends too early")
        data = reader.unused_data.lstrip(b"\0")
    return b"".join(parts)


def _xz(data: bytes, most: int) -> bytes:
    return _whole(lzma.LZMADecompressor(memlimit=LARGEST_MBOX), data, most)


def _bzip2(data: bytes, most: int) -> bytes:
    return _whole(bz2.BZ2Decompressor(), data, most)


def _whole(reader: lzma.LZMADecompressor | bz2.BZ2Decompressor, data: bytes, most: int) -> bytes:
    content = reader.decompress(data, most + 1)
    if not reader.eof and len(content) <= most:
        raise EOFError("it ends too early")
    return content


def _zstd(data: bytes, most: int) -> bytes:
    import pyarrow  # takes a quarter of a second, for few files

    with pyarrow.CompressedInputStream(pyarrow.BufferReader(data), "zstd") as stream:
        parts, size = [], 0
        while size <= most and (piece := stream.read(PIECE)):
            parts.append(piece)
            size += len(piece)
    return b"".join(parts)


_READERS: tuple[tuple[bytes, Callable[[bytes, int], bytes]], ...] = (
    (b"\x1f\x8b", _gzip),
    (b"\xfd7zXZ\x00", _xz),
    (b"]\x00\x00", _xz),
    (b"BZh", _bzip2),
    (b"\x28\xb5\x2f\xfd", _zstd),
)
