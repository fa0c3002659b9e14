"""The bytes of a file of mails, a module or an image: unpacked where packed, and bounded.  Pure.

How a file is packed is told by its first bytes, as its name may be anything.  No more is unpacked
than the reader allows, whatever the file says of itself.
"""

from __future__ import annotations

import bz2
import lzma
import zlib

from errors import SeriesError

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
    """What ``data`` holds, of which nothing may be packed twice; at most ``most`` bytes.
    Raises SeriesError: too large, damaged, or a file of which it is known that it has no mails.
    """
    try:
        data = plain(data, most)
    except DAMAGED as error:
        what = f"is damaged and cannot be unpacked: {error}"
        raise SeriesError(what, where=where, next_step="fetch it again") from None
    if len(data) > most:
        raise too_large(len(data), where, most)
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


def too_large(size: int, where: str, most: int = LARGEST_MBOX) -> SeriesError:
    """The refusal of a mailbox of ``size`` bytes or more."""
    what = f"has {size >> 20} MiB, more than {most >> 20}"
    return SeriesError(what, where=where, next_step="cut the thread out of the mailbox")
