"""Files written whole or not at all, and what files hold as a number to compare."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, hexadecimal; it is never in memory as a whole.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest(*parts: str | bytes) -> str:
    """SHA-256 of the parts with a zero byte between them, hexadecimal."""
    # A name may have halves of surrogate pairs: bytes of a file name that are no UTF-8.
    data = [
        part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in parts
    ]
    return hashlib.sha256(b"\0".join(data)).hexdigest()


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A name beside ``path`` to write to, which becomes ``path`` when the block ends well.

    Folders on the way are made.  Whoever reads ``path`` meanwhile gets the old file or the new
    one.  Not synced: a cache may lose it; what is measured goes through ``results.door``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own: threads and processes may write the same file at once.
    beside = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}.new")
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file by :func:`written_beside`; text in UTF-8.

    Raises:
        OSError: it cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    with written_beside(path) as beside:
        beside.write_bytes(data)
