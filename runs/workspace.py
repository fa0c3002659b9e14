"""Scratch folders for snapshots and running guests, swept when their owner died."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from errors import InfraError

OWNER = "owner.lock"
RESERVE_BYTES = 1 << 30


@contextmanager
def workspace(cache: Path, needed_bytes: int) -> Iterator[Path]:
    """A new scratch folder under ``cache``; gone when the block is left.

    Folders of lab processes that were killed are removed first: their lock, held
    by the kernel for a living owner only, can be taken.

    Raises:
        InfraError: less than ``needed_bytes`` and a reserve are free.
    """
    top = cache / "scratch"
    top.mkdir(parents=True, exist_ok=True)
    # One at a time: a folder just made is not yet its owner's to a sweep elsewhere.
    with FileLock(top.with_suffix(".lock")):
        _sweep(top)
        require_space(top, needed_bytes)
        folder = Path(tempfile.mkdtemp(prefix="session-", dir=top))
        owner = FileLock(folder / OWNER)
        owner.acquire()
    try:
        yield folder
    finally:
        owner.release()
        shutil.rmtree(folder, ignore_errors=True)


def require_space(top: Path, needed_bytes: int) -> None:
    """Refuse to begin what would not find room.

    Raises:
        InfraError: less than ``needed_bytes`` and a reserve are free.
    """
    free = shutil.disk_usage(top).free
    if free < needed_bytes + RESERVE_BYTES:
        raise InfraError(
            f"{free >> 20} MiB free, {(needed_bytes + RESERVE_BYTES) >> 20} MiB needed",
            where=str(top),
            next_step="./lab.py clean, or set TWINBOOT_CACHE to a larger disk",
        )


def _sweep(top: Path) -> None:
    for folder in top.glob("session-*"):
        # Not found: its owner has just left it.
        with suppress(Timeout, FileNotFoundError), FileLock(folder / OWNER, timeout=0):
            shutil.rmtree(folder, ignore_errors=True)
