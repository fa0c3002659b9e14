"""The result channel: what the agent sends over the second serial port.

One header line ``TWINBOOT1 LENGTH SHA256 ...`` and LENGTH bytes of a gzip'ed tar.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from pathlib import Path

from errors import InfraError
from results import door

MAGIC = b"TWINBOOT1"
MAX_BYTES = 64 << 20
MAX_DIGITS = 12
HEADER_BYTES = 256


class ChannelError(InfraError):
    """Nothing, not all, or something else came through."""


def read(path: Path) -> dict[str, bytes]:
    """As :func:`decode`, of a file, which is no link and no larger than a result may be."""
    try:
        return decode(door.read(path.parent, path.name, MAX_BYTES + HEADER_BYTES))
    except door.StoreError as error:
        raise ChannelError(error.what) from None


def decode(data: bytes) -> dict[str, bytes]:
    """Return path → content of every file sent.

    Raises:
        ChannelError: no header, wrong length, wrong checksum, or no archive.
    """
    header, newline, payload = data.partition(b"\n")
    fields = header.split()
    well_formed = newline and len(fields) >= 3 and fields[0] == MAGIC and fields[1].isdigit()
    if not well_formed or len(fields[1]) > MAX_DIGITS:
        raise ChannelError(f"no result header in {len(data)} bytes")
    length, digest = int(fields[1]), fields[2].decode(errors="replace")
    if len(payload) != length:
        raise ChannelError(f"{len(payload)} of {length} bytes arrived")
    if hashlib.sha256(payload).hexdigest() != digest:
        raise ChannelError("checksum of the result does not match")
    try:
        return _unpack(payload)
    except ChannelError:
        raise
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise ChannelError(f"not a gzip'ed tar: {error}") from None
    except (ArithmeticError, LookupError, ValueError) as error:
        # tarfile lets through what int() and the like say to a damaged header.
        raise ChannelError(f"not a gzip'ed tar: {error!r}") from None


def fingerprint(files: dict[str, bytes]) -> str:
    """SHA-256 over names and contents of all files, in order of name."""
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(f"{name}\0{len(files[name])}\0".encode())
        total.update(files[name])
    return total.hexdigest()


def _unpack(payload: bytes) -> dict[str, bytes]:
    with gzip.open(io.BytesIO(payload)) as stream:
        plain = stream.read(MAX_BYTES + 1)
    if len(plain) > MAX_BYTES:
        raise ChannelError(f"result larger than {MAX_BYTES} bytes")
    files = {}
    room = MAX_BYTES
    # Read member by member and never extracted: a guest names no path of the host.
    # "r:" looks for no second compression within.
    with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
        for member in archive:
            # A sparse member may say any size.
            if not 0 <= member.size <= room:
                raise ChannelError(f"result larger than {MAX_BYTES} bytes")
            room -= member.size
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                files[member.name.removeprefix("./")] = content.read()
    return files
