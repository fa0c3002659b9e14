"""The door to files in folders that others can write: sessions, histories, queues, stores, caches.

Whoever can write to such a folder chooses what its names stand for: a link to a file of the
reader's, a pipe that is never written to, a file without an end.  So nothing in it is opened by
its path.  The folder itself is the one that was named; what is below it is opened step by step from
there, without following a link, is a plain file, and is read up to a bound of its kind.  What is
written is written beside its name and renamed, so that a link there is replaced and not followed.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from errors import RecordError

MIB = 1 << 20
# Texts that one program wrote at once: a manifest, an entry, the head of a folder.
TEXT = 16 * MIB
# Lines of many runs, and what is as large: the bound of an archive as a whole.
LINES = 1024 * MIB
MOST_NAMES = 1_000_000
# The raw logs of a run of a session within a search lie 5 deep.
DEEPEST = 16
NO_NAMES = ("", ".", "..")
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class StoreError(RecordError):
    """A file or folder of a record that cannot be read: says which, why and what to do."""


def read(top: Path, name: str, most: int = TEXT) -> bytes:
    """The bytes of the file ``name`` below ``top``, which has at most ``most``.

    Raises StoreError: it, or a folder on the way, is a link; it is no plain file, or larger;
    OSError: there is none, or it cannot be read.
    """
    with opened(top, name, most) as file:
        content = file.read(most + 1)
        _require_size(len(content), most, top / name)
        return content


@contextmanager
def opened(top: Path, name: str, most: int) -> Iterator[IO[bytes]]:
    """The file ``name`` below ``top``, open for reading; raises as :func:`read`."""
    above, last = _parts(top, name)
    with _folder(top, above) as folder, _plain(folder, last, os.O_RDONLY, top / name) as file:
        _require_size(os.fstat(file.fileno()).st_size, most, top / name)
        yield file


@contextmanager
def opened_named(path: Path, most: int) -> Iterator[IO[bytes]]:
    """A file that the user named, which may be a link, open for reading; raises as :func:`read`."""
    with _plain(None, str(path), os.O_RDONLY, path, follow=True) as file:
        _require_size(os.fstat(file.fileno()).st_size, most, path)
        yield file


def write(top: Path, name: str, content: str | bytes) -> None:
    """Write the file ``name`` below ``top`` beside its place, durably, and rename it there.

    Folders on the way are made.  Raises StoreError: a folder on the way is a link; OSError: it
    cannot be written.
    """
    with created(top, name) as sink:
        sink.write(content.encode("utf-8", "replace") if isinstance(content, str) else content)


@contextmanager
def created(top: Path, name: str) -> Iterator[IO[bytes]]:
    """A file to fill, which becomes ``name`` when the block ends well; raises as :func:`write`."""
    above, last = _parts(top, name)
    with _folder(top, above, make=True) as folder:
        # A name of its own: threads of one process may write the same file at once.
        beside = f".{last[:100]}.{uuid.uuid4().hex}.new"
        try:
            with _plain(folder, beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, top / name) as sink:
                yield sink
                sink.flush()
                os.fsync(sink.fileno())
            os.replace(beside, last, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=folder)
        # The rename itself is on disk only when the folder is.
        os.fsync(folder)


def append(top: Path, name: str, line: bytes) -> None:
    """Append a line durably; what a killed process left of the last one is cut off before.

    Raises StoreError: as :func:`read`, or the file has another name, whose content would change;
    OSError: it cannot be written.
    """
    path = top / name
    above, last = _parts(top, name)
    flags = os.O_RDWR | os.O_CREAT
    with _folder(top, above) as folder, _plain(folder, last, flags, path) as file:
        if os.fstat(file.fileno()).st_nlink > 1:
            raise _refused("has a second name, whose content would change", path)
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        if end and file.read(1) != b"\n":
            _require_size(end, LINES, path)
            file.seek(0)
            end = file.truncate(file.read().rfind(b"\n") + 1)
        file.seek(end)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def names(top: Path, name: str = "", *, folders: bool = False) -> list[str]:
    """The names in the folder ``name`` below ``top``, sorted; none where there is no folder.

    With ``folders`` those of folders alone; a link to one is none.  Raises StoreError: it is a link
    or no folder, or has more names than any folder of the lab's; OSError: it cannot be read.
    """
    kept = []
    with suppress(FileNotFoundError), _folder(top, name) as folder, os.scandir(folder) as listing:
        for number, entry in enumerate(listing):
            if number >= MOST_NAMES:
                raise _refused(f"has more than {MOST_NAMES} names", top / name)
            if not folders or entry.is_dir(follow_symlinks=False):
                kept.append(entry.name)
    return sorted(kept)


def exists(top: Path, name: str) -> bool:
    """Whether there is anything of that name below ``top``: a link that leads nowhere as well.

    Raises StoreError: a folder on the way is a link.
    """
    above, last = _parts(top, name)
    try:
        with _folder(top, above) as folder:
            os.stat(last, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def remove(top: Path, name: str) -> None:
    """Remove the file ``name`` below ``top``, if there is one; a link goes, not what is behind it.

    Raises StoreError: a folder on the way is a link; OSError: it cannot be removed.
    """
    above, last = _parts(top, name)
    with suppress(FileNotFoundError), _folder(top, above) as folder:
        os.unlink(last, dir_fd=folder)


def make_folder(top: Path, name: str = "") -> Path:
    """Make the folder ``name`` below ``top``, and those on the way, as far as missing.

    Raises StoreError: one of them is a link or no folder; OSError: it cannot be made.
    """
    with _folder(top, name, make=True):
        return top / name


def _parts(top: Path, name: str) -> tuple[str, str]:
    """The folder that a name is in, by its name below ``top``, and the last part of the name."""
    above, _, last = name.rpartition("/")
    if last in NO_NAMES or "\0" in name:
        raise _refused("is no name of a file", top / name.replace("\0", "?"))
    return above, last


def require_plain(top: Path) -> None:
    """Refuse a folder that has anything but plain files and folders in it, however deep.

    For a folder whose files are also opened by programs, which follow links.  Raises StoreError:
    names the first link, pipe or device.
    """
    pending = [(top, 0)]
    while pending:
        folder, depth = pending.pop()
        if depth > DEEPEST:
            raise _refused(f"lies more than {DEEPEST} folders deep", folder)
        with os.scandir(folder) as listing:
            for entry in listing:
                if entry.is_dir(follow_symlinks=False):
                    pending.append((Path(entry.path), depth + 1))
                elif not entry.is_file(follow_symlinks=False):
                    what = "is a link" if entry.is_symlink() else "is no plain file"
                    raise _refused(f"{what}, and a session of the lab's has none", Path(entry.path))


@contextmanager
def _folder(top: Path, name: str, *, make: bool = False) -> Iterator[int]:
    """The folder ``name`` below ``top``, open."""
    if make:
        top.mkdir(parents=True, exist_ok=True)
    folder, place = os.open(top, FOLDER), top
    try:
        for part in name.split("/") if name else ():
            place /= part
            if part in NO_NAMES:
                raise _refused("is no name below its folder", place)
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            with _words(place, "folder"):
                below = os.open(part, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


@contextmanager
def _plain(
    folder: int | None, last: str, flags: int, path: Path, *, follow: bool = False
) -> Iterator[IO[bytes]]:
    """A file of an open folder, open and known to be plain."""
    with _words(path, "plain file"):
        # A pipe is opened without waiting for whoever writes to it, and then refused.
        flags |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        file = os.open(last, flags, 0o666, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _refused("is no plain file", path)
    form = {os.O_RDONLY: "rb", os.O_WRONLY: "wb"}.get(flags & os.O_ACCMODE, "r+b")
    with os.fdopen(file, form) as stream:
        yield stream


@contextmanager
def _words(path: Path, kind: str) -> Iterator[None]:
    """An error of the system with the whole path: of a step it knows the last name alone."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR):
            what = "is a link, which is not followed" if path.is_symlink() else f"is no {kind}"
            raise _refused(what, path) from None
        error.filename = str(path)
        raise


def _require_size(size: int, most: int, path: Path) -> None:
    if size > most:
        bound = f"{most / MIB:g} MiB" if most >= MIB else f"{most} bytes"
        raise _refused(f"has more than {bound}, the most that is read of it", path)


def _refused(what: str, path: Path) -> StoreError:
    return StoreError(
        what, where=str(path), next_step="put what the lab wrote there, or move it away"
    )
