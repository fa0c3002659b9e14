"""One prepared tree for a source, moved from arm to arm by changing only what differs.

A file keeps its modification time unless its content changes, so that make builds the second arm
from the first arm's objects.  Before a file is first changed its original is saved beside the tree:
what every file should hold follows from originals and patches alone, and a switch that was killed
is repaired by the next one.

A tree is used again only where it is known to be its source but for changed files; else it is
unpacked anew, so that nothing of a series, its build or a full disk is in the next one's.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from errors import InfraError, LabError, SeriesError, UsageError
from files import sha256_of
from host import folders
from host.process import run
from kernels import config
from kernels.cache import tree_folder
from kernels.diff import OBJECTS
from kernels.git_range import require_files, run_git
from kernels.series import Patch, apply
from kernels.source import Source, existing, identify, require_source, stamp_of, unpack
from results import door
from text import clean

log = logging.getLogger(__name__)

# Set-user-id and the like.
SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
# The largest file of a kernel has 20 MiB.
LARGEST_FILE = 64 << 20
SYNC = ("sync", "-f")
SYNC_TIMEOUT_S = 600.0
COPY_TIMEOUT_S = 600.0
# What the source consists of by path, and the paths of files that may differ from it.
CONTENTS, CHANGED = "contents.json", "changed.json"
# What a path is where it is no file: a folder, or what no source has.
FOLDER, OTHER = "folder", "device, pipe or socket"
# Where an option begins, and about the same for git grep.
OPTION_LINE = re.compile(r"^[ \t]*(?:menu)?config[ \t]+(\w+)", re.M)
GREP = "^[[:space:]]*(menu)?config[[:space:]]"


@dataclass(frozen=True)
class WorkTree:
    """The folder of one source: ``src`` is the tree, object folders are its children.

    kbuild names sources relatively ("..") only for an object folder right inside the tree; so no
    path of this machine gets into an object, and ccache hits wherever the cache is.
    """

    folder: Path

    @property
    def src(self) -> Path:
        """The kernel tree in the state of the last arm."""
        return self.folder / "src"

    @property
    def spare(self) -> Path:
        """Scratch on the same file system; nothing in it is worth keeping."""
        return self.folder / "spare"

    @property
    def patched(self) -> Path:
        """The files that patches change, while they are applied."""
        return self.spare / "patched"

    def objects(self, key: str) -> Path:
        """The object folder of one configuration."""
        return self.src / f"{OBJECTS}{key}"

    def original(self, name: str) -> Path:
        """Where the source's own version of a changed file is, by a hash of its path."""
        return self.folder / "originals" / hashlib.sha256(os.fsencode(name)).hexdigest()


class _Content(NamedTuple):
    """What a path is, by kind and digest, and a stamp that differs when it was written to."""

    what: str
    stamp: str


def prepare(source: Source, folder: Path) -> WorkTree:
    """The tree of a source, unpacked if not as it was left; InfraError: it cannot be unpacked."""
    tree = WorkTree(folder)
    if tree.src.is_dir():
        if not (strange := _strange(tree)):
            for objects in tree.src.glob(f"{OBJECTS}*"):
                try:
                    for _ in folders.entries(objects):
                        pass
                except (OSError, folders.StrangeFolderError) as error:
                    log.warning("%s is thrown away: %s", objects, error)
                    folders.remove(objects)
            return tree
        log.warning("%s is unpacked again, and its objects are lost: %s", folder, strange)
    log.info("unpacking %s", source.origin)
    new = folder / "new"
    folders.remove(folder)
    folder.mkdir(parents=True)
    unpack(source, new)
    door.write(folder, CONTENTS, json.dumps(_contents_of(new, {})))
    run([*SYNC, str(new)], timeout_s=SYNC_TIMEOUT_S)
    new.rename(tree.src)
    return tree


def _strange(tree: WorkTree) -> str:
    """Why a tree is not its source (changed files left to :func:`switch`); empty where it is."""
    try:
        before = {
            name: _Content(*content)
            for name, content in json.loads(door.read(tree.folder, CONTENTS, door.LINES)).items()
        }
        changed = frozenset(changed_files(tree))
        now = _contents_of(tree.src, before)
        originals = {
            name: _content_of(saved, saved.lstat(), None).what
            for name in changed
            if os.path.lexists(saved := tree.original(name))
        }
    except (OSError, ValueError, TypeError, AttributeError, LabError) as error:
        return f"{type(error).__name__}: {error}"
    lost = [
        name
        for name in changed
        if originals.get(name, FOLDER) != (before[name].what if name in before else FOLDER)
    ]
    between = {above for name in changed for above in folders_of(name)}
    odd = [
        name
        for name in {*before, *now}
        # Nearly all are what they were.
        if (before.get(name) is not now.get(name) or name in changed)
        and _is_odd(
            before.get(name), now.get(name), changed=name in changed, between=name in between
        )
    ]
    if lost or odd:
        return f"{clean(min((*lost, *odd)))} is not as it was ({len(lost) + len(odd)} of such)"
    written = {name: now[name] for name in before.keys() & now.keys() - changed}
    if any(before[name].stamp != content.stamp for name, content in written.items()):
        door.write(tree.folder, CONTENTS, json.dumps({**before, **written}))
    return ""


def _is_odd(before: _Content | None, now: _Content | None, *, changed: bool, between: bool) -> bool:
    """Whether neither the source nor a changed file explains what is there."""
    what = now.what if now else FOLDER
    if changed:
        return what == OTHER or (what == FOLDER and now is not None and not between)
    if now is not None and now.what == FOLDER:
        return not between and (before is None or before.what != FOLDER)
    return what != (before.what if before else "")


def folders_of(name: str) -> tuple[str, ...]:
    """The folders that a path lies in."""
    parts = name.split("/")
    return tuple("/".join(parts[:end]) for end in range(1, len(parts)))


def _contents_of(top: Path, known: Mapping[str, _Content]) -> dict[str, _Content]:
    """What a tree holds by path, without objects; not read again is what ``known`` has."""
    return {
        name: _content_of(entry, entry.stat(follow_symlinks=False), known.get(name))
        for name, entry in folders.entries(top, apart=OBJECTS)
    }


def _content_of(
    place: os.PathLike[str], status: os.stat_result, known: _Content | None
) -> _Content:
    stamp, mode = stamp_of(status), status.st_mode
    if stat.S_ISDIR(mode):
        return _Content(FOLDER, "")
    if known and known.stamp == stamp:
        return known
    if stat.S_ISLNK(mode):
        return _Content(f"link {Path(place).readlink()}", stamp)
    if not stat.S_ISREG(mode):
        return _Content(OTHER, stamp)
    return _Content(f"{'program' if mode & 0o100 else 'file'} {sha256_of(Path(place))}", stamp)


def changed_files(tree: WorkTree) -> list[str]:
    """Paths in the source that are not as they came, by what the last switch wrote."""
    if not door.exists(tree.folder, CHANGED):
        return []
    return list(json.loads(door.read(tree.folder, CHANGED, door.LINES)))


def copy_objects(tree: WorkTree, source: Path, target: Path, mark: str) -> None:
    """Begin an object folder as a copy of another one, with its times; ``target`` is new.

    A file named ``mark`` in it says so. The caller holds the tree's lock.  Times tell make what is
    older than its source, and the options each object was made with are beside it (kbuild's
    ``.cmd`` files): what is built in the copy is what would be built from nothing.
    Raises InfraError: the disk is full.
    """
    beside = tree.spare
    folders.remove(beside)
    argv = ["cp", "-a", "--reflink=auto", str(source), str(beside)]
    run(argv, timeout_s=COPY_TIMEOUT_S)
    # The build of tools/ names its output by whole paths.  With another one objtool would be
    # built again, and with it every object of the kernel, which kbuild has depend on objtool.
    for name, entry in folders.entries(beside / "tools") if (beside / "tools").is_dir() else ():
        path = Path(entry.path)
        if entry.name.startswith(".") and name.endswith(".cmd"):
            text, times = path.read_bytes(), path.stat()
            path.write_bytes(text.replace(os.fsencode(f"{source}/"), os.fsencode(f"{target}/")))
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    (beside / mark).touch()
    beside.rename(target)


def switch(tree: WorkTree, patches: Sequence[Patch], *, boxed: bool = False) -> tuple[str, ...]:
    """Make the tree the source plus ``patches``; return the paths whose content changed.

    With ``boxed`` they are applied in a box. The caller holds the tree's lock.
    Raises SeriesError: a patch does not apply; the tree is as it was.
    """
    folders.remove(tree.spare)
    patched = tree.patched
    patched.mkdir(parents=True)
    former = frozenset(changed_files(tree))
    touched = sorted({name for patch in patches for name in patch.files})
    for name in touched:
        _refuse_strange(tree, name, patches)
        _copy(_original(tree, name, former), patched / name)
    try:
        apply(patches, patched, boxed=boxed)
        _vet_applied(tree, patched, patches, former)
    except SeriesError:
        folders.remove(tree.spare)  # there may be a link in it
        raise
    for name in {*touched} - former:
        saved, beside = tree.original(name), tree.spare / "saving"
        saved.unlink(missing_ok=True)
        if _is_file(tree.src / name):
            _copy(tree.src / name, beside)
            saved.parent.mkdir(exist_ok=True)
            beside.replace(saved)
    intended = {name: tree.original(name) for name in former}
    intended |= {name: patched / name for name in touched}
    door.write(tree.folder, CHANGED, json.dumps(sorted(intended)))
    changed = [name for name in sorted(intended) if not _same(intended[name], tree.src / name)]
    # A folder may be where a file was, and the other way round.
    gone = [name for name in changed if not _is_file(intended[name])]
    for name in gone:
        (tree.src / name).unlink(missing_ok=True)
    for above in sorted({above for name in gone for above in folders_of(name)}, reverse=True):
        with suppress(OSError):  # there is something else in it
            (tree.src / above).rmdir()
    for name in changed:
        if _is_file(intended[name]):
            _replace(tree, intended[name], tree.src / name)
    door.write(tree.folder, CHANGED, json.dumps(touched))
    kept = {tree.original(name) for name in touched}
    for saved in tree.original("").parent.glob("*"):
        if saved not in kept:
            saved.unlink()
    folders.remove(tree.spare)
    return tuple(changed)


def _vet_applied(
    tree: WorkTree, patched: Path, patches: Sequence[Patch], former: Collection[str]
) -> None:
    """Refuse what git made of patches and is no file with text in it: links, submodules, modes.

    git and ``kernels.diff`` may read a line differently; what counts is what there is now.
    """
    inhabited = {above for patch in patches for name in patch.files for above in folders_of(name)}
    for inside, entry in folders.entries(patched):
        path, before = Path(entry.path), _original(tree, inside, former)
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            # A submodule is an empty folder where no patch has a file.
            is_plain = inside in inhabited or any(path.iterdir())
        elif stat.S_ISLNK(mode):
            is_plain = before.is_symlink() and _same(path, before)
        else:
            is_plain = stat.S_ISREG(mode) and not mode & SPECIAL_BITS
        if is_plain:
            continue
        culprits = [patch.name for patch in patches if inside in patch.files]
        what = f"makes what is no file with text in it: {clean(inside)}"
        step = "take symbolic links, submodules and odd modes out of the series"
        raise SeriesError(what, where=", ".join(culprits) or patches[-1].name, next_step=step)


def _original(tree: WorkTree, name: str, changed: Collection[str]) -> Path:
    """Where the source's own version of a file is; it may not exist there."""
    return tree.original(name) if name in changed else tree.src / name


def _is_file(path: Path) -> bool:
    """Whether there is a file or a link, which may lead nowhere."""
    return path.is_symlink() or path.is_file()


def _copy(source: Path, target: Path) -> None:
    if _is_file(source):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)


def _same(first: Path, second: Path) -> bool:
    if not _is_file(first) or not _is_file(second):
        return _is_file(first) == _is_file(second)
    # Type and executable bit, which is all of a mode that git knows.
    modes = [path.lstat().st_mode for path in (first, second)]
    if len({stat.S_IFMT(mode) | mode & 0o100 for mode in modes}) > 1:
        return False
    if first.is_symlink():
        return first.readlink() == second.readlink()
    return first.read_bytes() == second.read_bytes()


def _replace(tree: WorkTree, original: Path, target: Path) -> None:
    beside = tree.spare / "replacing"
    _copy(original, beside)
    if not beside.is_symlink():
        os.utime(beside)  # an original has its old time; to make, this is a change of now
    target.parent.mkdir(parents=True, exist_ok=True)
    beside.replace(target)


def _refuse_strange(tree: WorkTree, name: str, patches: Sequence[Patch]) -> None:
    """Refuse a path that no file of a kernel has, or that leads out of the tree."""
    above = folders_of(name)
    linked = next((each for each in above if (tree.src / each).is_symlink()), "")
    if linked:
        what = f"changes a file beyond a symbolic link: {clean(name)}"
        next_step = f"patch the file that {linked} leads to"
    elif len(above) >= folders.MOST_PARTS:
        parts = f"{len(above) + 1} parts, more than {folders.MOST_PARTS}"
        what = f"has a path of {parts}: {clean(name, 60)}"
        next_step = "put the file into a folder nearer to the top"
    else:
        return
    culprit = next(patch for patch in patches if name in patch.files)
    raise culprit.error(what, next_step)


def lay_out(
    source: str, names: Sequence[str], into: Path, *, checkout: Path, cache: Path
) -> frozenset[str] | None:
    """Copy those of ``names`` that a source has into a folder.

    Returns these, and which of the folders at its top that ``names`` are below there are; None
    where it is not at hand.
    """
    tree = _at_hand(source, checkout, cache)
    if tree is None:
        return None
    if isinstance(tree, Source):
        return _from_git(tree, names, into)
    top, own = tree
    # A folder of the tree that is a link leads elsewhere; building refuses it by name.
    places = {name: own(name) for name in names}
    files = {n: at for n, at in places.items() if at.is_file() and not at.is_symlink()}
    for name, file in files.items():
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, into / name)
    return frozenset({*files, *(each for each in _tops(names) if (top / each).is_dir())})


def require_known(source: str, *, checkout: Path, cache: Path) -> None:
    """Raise UsageError where there is no such package, path or ref, or it is no kernel's."""
    with suppress(InfraError):  # a package that is not installed yet
        _at_hand(source, checkout, cache)


def options_of(source: str, *, checkout: Path, cache: Path) -> frozenset[str] | None:
    """Names of all options of a source, of whatever architecture; None where it is not at hand."""
    tree = _at_hand(source, checkout, cache)
    if tree is None:
        return None
    if isinstance(tree, Source):
        require_files(tree.origin, tree.tree_id, tree.tree_id, clean(str(tree.origin)))
        arguments = ("grep", "-h", "-E", GREP, tree.tree_id, "--", "*Kconfig*")
        texts = [run_git(tree.origin, *arguments, check=False).stdout]
    else:
        top, own = tree
        paths = [own(str(path.relative_to(top))) for path in config.kconfigs(top)]
        texts = [path.read_text(errors="replace") for path in paths if path.is_file()]
    return frozenset(name for text in texts for name in OPTION_LINE.findall(text))


def _at_hand(
    source: str, checkout: Path, cache: Path
) -> Source | tuple[Path, Callable[[str], Path]] | None:
    """A tree of git; or the top of a folder, and where its own version of a path is; or neither."""
    kind, _, place = source.partition(":")
    if source.startswith("deb:linux-image-") or kind == "image":
        return None
    if kind == "dir":
        top = existing(source, checkout / Path(place).expanduser(), "folder")
        require_source(source, top)
        return top, lambda name: top / name
    identity = identify(source, checkout=checkout, cache=cache)
    if kind == "git":
        return identity
    tree = WorkTree(tree_folder(cache, identity.key))
    # One that nothing is known of is unpacked anew before it is used, and may hold anything.
    if not (tree.src.is_dir() and (tree.folder / CONTENTS).is_file()):
        return None
    changed = frozenset(changed_files(tree))
    return tree.src, lambda name: _original(tree, name, changed)


def _from_git(source: Source, names: Sequence[str], into: Path) -> frozenset[str]:
    """Of a repository; UsageError: a partial clone lacks some."""
    import pygit2  # for few calls
    from pygit2.enums import FileMode

    where = clean(str(source.origin))
    require_files(source.origin, source.tree_id, source.tree_id, where)
    lines = "".join(f"{source.tree_id}:{name}\n" for name in names)
    batch = ("cat-file", "--batch-check=%(objectsize)")
    sizes = run_git(source.origin, *batch, stdin_text=lines).stdout.splitlines()
    if any(size.isdigit() and int(size) > LARGEST_FILE for size in sizes):
        what = f"has a file of more than {LARGEST_FILE >> 20} MiB, and no kernel has"
        raise UsageError(what, where=where, next_step="name another source")
    top = pygit2.Repository(str(source.origin))[source.tree_id]
    assert isinstance(top, pygit2.Tree)
    files = []
    for name in names:
        with suppress(KeyError):
            entry = top[name]
            if isinstance(entry, pygit2.Blob) and entry.filemode != FileMode.LINK:
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                (into / name).write_bytes(entry.data)
                files.append(name)
    folders = {str(entry.name) for entry in top if isinstance(entry, pygit2.Tree)}
    return frozenset({*files, *(_tops(names) & folders)})


def _tops(names: Iterable[str]) -> set[str]:
    return {name.partition("/")[0] for name in names if "/" in name}
