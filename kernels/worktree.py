"""One prepared tree for a source, moved from arm to arm by changing only what differs.

A file keeps its modification time unless its content changes, so that make
builds the second arm from the first arm's objects.

Before a file is changed for the first time its original is saved beside the
tree.  What every file should hold follows from the originals and the patches
alone, and each file is replaced as a whole: a switch that was killed half-way
is repaired by the next one, which looks at every file that ever had its
original saved.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from errors import SeriesError
from host.process import run
from kernels.series import Patch, apply
from kernels.source import Source, unpack

log = logging.getLogger(__name__)

# Set-user-id and the like.
SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
SYNC_TIMEOUT_S = 600.0
COPY_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class WorkTree:
    """The folder of one source: ``src`` is the tree, object folders are its children.

    kbuild names sources relatively ("..") only for an object folder right inside
    the tree; so no path of this machine gets into an object, and ccache hits
    wherever the cache is.
    """

    folder: Path

    @property
    def src(self) -> Path:
        """The kernel tree in the state of the last arm."""
        return self.folder / "src"

    @property
    def originals(self) -> Path:
        """Saved originals, by path."""
        return self.folder / "originals"

    @property
    def absent(self) -> Path:
        """Empty markers, by path, of files the source does not have."""
        return self.folder / "absent"

    @property
    def spare(self) -> Path:
        """Scratch on the same file system; nothing in it is worth keeping."""
        return self.folder / "spare"

    def objects(self, key: str) -> Path:
        """The object folder of one configuration."""
        return self.src / f"obj-{key}"


def prepare(source: Source, folder: Path) -> WorkTree:
    """Return the tree of a source, unpacking it the first time.

    The caller holds the tree's lock.

    Raises:
        InfraError: the source cannot be unpacked.
    """
    tree = WorkTree(folder)
    if tree.src.is_dir():
        return tree
    log.info("unpacking %s", source.origin)
    new = folder / "new"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    unpack(source, new)
    run(["sync", "-f", str(new)], timeout_s=SYNC_TIMEOUT_S)
    new.rename(tree.src)
    return tree


def copy_objects(tree: WorkTree, source: Path, target: Path, mark: str) -> None:
    """Begin an object folder as a copy of another one, with its times; ``target`` is new.

    A file named ``mark`` in it says so.

    The caller holds the tree's lock.  Times tell make what is older than its source, and
    the options each object was made with are beside it (kbuild's ``.cmd`` files): what is
    built in the copy is what would be built from nothing.

    Raises:
        InfraError: the disk is full.
    """
    beside = tree.spare
    shutil.rmtree(beside, ignore_errors=True)
    argv = ["cp", "-a", "--reflink=auto", str(source), str(beside)]
    run(argv, timeout_s=COPY_TIMEOUT_S)
    for path in (beside / "tools").rglob(".*.cmd"):
        _rename_in(path, source, target)
    (beside / mark).touch()
    beside.rename(target)


def _rename_in(path: Path, old: Path, new: Path) -> None:
    """Replace a folder's name in a file that keeps its times.

    The build of tools/ names its output by whole paths.  With another one objtool would be
    built again, and with it every object of the kernel, which kbuild has depend on objtool.
    """
    text = path.read_bytes()
    changed = text.replace(os.fsencode(f"{old}/"), os.fsencode(f"{new}/"))
    if changed != text:
        times = path.stat()
        path.write_bytes(changed)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def switch(tree: WorkTree, patches: Sequence[Patch], *, boxed: bool = False) -> tuple[str, ...]:
    """Make the tree the source plus ``patches``; return the paths whose content changed.

    With ``boxed`` they are applied in a box.

    The caller holds the tree's lock.

    Raises:
        SeriesError: a patch does not apply; the tree is as it was.
    """
    shutil.rmtree(tree.spare, ignore_errors=True)
    patched = tree.spare / "patched"
    patched.mkdir(parents=True)
    touched = sorted({name for patch in patches for name in patch.files})
    for name in touched:
        _refuse_symlinked(tree, name, patches)
        _copy(_original(tree, name), patched / name)
    try:
        apply(patches, patched, boxed=boxed)
        _vet_applied(tree, patched, patches)
    except SeriesError:
        shutil.rmtree(tree.spare)  # there may be a link in it
        raise
    for name in touched:
        _save_original(tree, name)
    changed = []
    for name in sorted({*_saved(tree.originals), *_saved(tree.absent)}):
        original = patched / name if name in touched else _original(tree, name)
        if not _same(original, tree.src / name):
            _replace(tree, original, tree.src / name)
            changed.append(name)
    shutil.rmtree(tree.spare)
    return tuple(changed)


def _vet_applied(tree: WorkTree, patched: Path, patches: Sequence[Patch]) -> None:
    """Refuse what git made of patches and is no file with text in it: links, submodules, modes.

    git and ``kernels.diff`` may read a line differently; what counts is what there is now.
    """
    touched = [name for patch in patches for name in patch.files]
    for at, folders, names in os.walk(patched):
        for name in (*folders, *names):
            path = Path(at) / name
            inside = str(path.relative_to(patched))
            if _is_plain(path, _original(tree, inside), inside, touched):
                continue
            culprits = [patch.name for patch in patches if inside in patch.files]
            raise SeriesError(
                f"makes what is no file with text in it: {inside}",
                where=", ".join(culprits) or patches[-1].name,
                next_step="take symbolic links, submodules and odd modes out of the series",
            )


def _is_plain(path: Path, before: Path, inside: str, touched: Sequence[str]) -> bool:
    mode = path.lstat().st_mode
    if stat.S_ISDIR(mode):
        # A submodule is an empty folder where no patch has a file.
        return any(path.iterdir()) or any(name.startswith(f"{inside}/") for name in touched)
    if stat.S_ISLNK(mode):
        return before.is_symlink() and _same(path, before)
    return stat.S_ISREG(mode) and not mode & SPECIAL_BITS


def _original(tree: WorkTree, name: str) -> Path:
    """Where the source's own version of a file is; it may not exist there."""
    saved = tree.originals / name
    if os.path.lexists(saved) or (tree.absent / name).exists():
        return saved
    return tree.src / name


def _save_original(tree: WorkTree, name: str) -> None:
    if os.path.lexists(tree.originals / name) or (tree.absent / name).exists():
        return
    exists = os.path.lexists(tree.src / name)
    beside = tree.spare / "saving"
    if exists:
        _copy(tree.src / name, beside)
    else:
        beside.touch()
    _sync(beside)
    saved = (tree.originals if exists else tree.absent) / name
    saved.parent.mkdir(parents=True, exist_ok=True)
    beside.replace(saved)


def _saved(folder: Path) -> list[str]:
    return [
        str((Path(at) / name).relative_to(folder))
        for at, _, names in os.walk(folder)
        for name in names
    ]


def _copy(source: Path, target: Path) -> None:
    if os.path.lexists(source):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)


def _same(first: Path, second: Path) -> bool:
    if not os.path.lexists(first) or not os.path.lexists(second):
        return os.path.lexists(first) == os.path.lexists(second)
    if _kind(first) != _kind(second):
        return False
    if first.is_symlink():
        return first.readlink() == second.readlink()
    return first.read_bytes() == second.read_bytes()


def _kind(path: Path) -> int:
    """Type and executable bit, which is all of a mode that git knows."""
    mode = path.lstat().st_mode
    return stat.S_IFMT(mode) | mode & 0o100


def _replace(tree: WorkTree, original: Path, target: Path) -> None:
    if not os.path.lexists(original):
        target.unlink(missing_ok=True)
        parent = target.parent
        while parent != tree.src and not any(parent.iterdir()):
            parent.rmdir()
            parent = parent.parent
        return
    beside = tree.spare / "replacing"
    _copy(original, beside)
    if not beside.is_symlink():
        # An original comes with its old time; to make, this is a change of now.
        os.utime(beside)
    _sync(beside)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside.replace(target)


def _sync(path: Path) -> None:
    if path.is_symlink():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refuse_symlinked(tree: WorkTree, name: str, patches: Sequence[Patch]) -> None:
    parent = (tree.src / name).parent
    while parent != tree.src:
        if parent.is_symlink():
            culprit = next(patch for patch in patches if name in patch.files)
            raise SeriesError(
                f"changes a file beyond a symbolic link: {name}",
                where=f"{culprit.name} ({culprit.subject})",
                next_step=f"patch the file that {parent.relative_to(tree.src)} leads to",
            )
        parent = parent.parent
