"""The result channel: what the agent sends over the second serial port.

One header line ``TWINBOOT1 LENGTH SHA256 ...`` and LENGTH bytes of a gzip'ed tar.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib

MAGIC = b"TWINBOOT1"
MAX_BYTES = 64 << 20


class ChannelError(ValueError):
    """Nothing, not all, or something else came through."""


def decode(data: bytes) -> dict[str, bytes]:
    """Return path → content of every file sent.

    Raises:
        ChannelError: no header, wrong length, wrong checksum, or no archive.
    """
    header, newline, payload = data.partition(b"\n")
    fields = header.split()
    if not newline or len(fields) < 3 or fields[0] != MAGIC or not fields[1].isdigit():
        raise ChannelError(f"no result header in {len(data)} bytes")
    length, digest = int(fields[1]), fields[2].decode(errors="replace")
    if len(payload) != length:
        raise ChannelError(f"{len(payload)} of {length} bytes arrived")
    if hashlib.sha256(payload).hexdigest() != digest:
        raise ChannelError("checksum of the result does not match")
    try:
        return _unpack(payload)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise ChannelError(f"not a gzip'ed tar: {error}") from None


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
    # Read member by member and never extracted: a guest names no path of the host.
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                files[member.name.removeprefix("./")] = content.read()
    return files
