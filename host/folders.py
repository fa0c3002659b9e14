"""Folders that a stranger's programs filled: walked and removed, whatever is in them.

A stranger chooses how deep folders lie in each other, how many there are, how they are called and
who may read them.  So nothing here recurses, follows a link, or takes more than linear time.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from errors import InfraError

# The deepest path of a kernel's tree has a dozen parts, and so has that of an object.
MOST_PARTS = 64
# Of 255 bytes each they would be longer than any path that the system takes.
LONGEST = 2048
# A kernel with all that can be built has 200,000 objects and what kbuild notes of each.
MOST_ENTRIES = 2_000_000
BLOCK_BYTES = 512


class StrangeFolderError(InfraError):
    """A folder that no tree or build of a kernel has; says what of it is strange."""


def entries(top: Path, apart: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All below a folder, as path and entry, folders first, without ``apart...``.

    Raises StrangeFolderError: it is too deep, has too many entries, or may not be read.
    """
    pending, count = [""], 0
    while pending:
        folder = pending.pop()
        if len(os.fsencode(folder)) > LONGEST or folder.count("/") > MOST_PARTS:
            raise StrangeFolderError(
                f"has folders in folders, more than {MOST_PARTS} or of more than {LONGEST} letters",
                where=str(top),
            )
        try:
            with os.scandir(top / folder) as listing:
                for entry in listing:
                    inside, count = f"{folder}{entry.name}", count + 1
                    if apart and inside.startswith(apart):
                        continue
                    if count > MOST_ENTRIES:
                        raise StrangeFolderError(
                            f"has more than {MOST_ENTRIES} files", where=str(top)
                        )
                    yield inside, entry
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(f"{inside}/")
        except PermissionError:
            raise StrangeFolderError("has a folder that may not be read", where=str(top)) from None


def size_bytes(path: Path, apart: str = "") -> int:
    """Bytes on disk below a path, without ``apart...``; at least, of a strange folder."""
    if not path.is_dir() or path.is_symlink():
        with suppress(OSError):
            return path.lstat().st_blocks * BLOCK_BYTES
        return 0
    total = 0
    with suppress(StrangeFolderError):
        for _, entry in entries(path, apart):
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    continue
                total += entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES
    return total


def beyond(paths: Iterable[Path], most_bytes: int) -> Iterator[Path]:
    """Of files, and of folders of files alone, those least recently used beyond so many bytes."""
    used = []
    for path in paths:
        with suppress(OSError):
            files = [each for each in path.iterdir() if each.is_file()] if path.is_dir() else [path]
            size = sum(each.stat().st_size for each in files)
            used.append((path.stat().st_mtime, size, path))
    for _, size, path in sorted(used, reverse=True):
        most_bytes -= size
        if most_bytes < 0:
            yield path


def remove(path: Path) -> None:
    """Remove a file, or a folder with all below it, if there is one; OSError: it cannot be.

    A folder is moved up to the first before it is emptied, so that no path gets long.
    """
    try:
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
            return
    except FileNotFoundError:
        return
    beside, count = secrets.token_hex(8), 0
    pending = [path]
    while pending:
        folder = pending.pop()
        folder.chmod(stat.S_IRWXU)
        with os.scandir(folder) as listing:
            for entry in listing:
                if not entry.is_dir(follow_symlinks=False):
                    Path(entry.path).unlink()
                    continue
                child = Path(entry.path)
                if folder != path:
                    child.chmod(stat.S_IRWXU)  # else it may not be moved
                    child = child.rename(path / f"{beside}{count}")
                    count += 1
                pending.append(child)
        if folder != path:
            folder.rmdir()
    path.rmdir()
