"""A few files of a kernel's source, where it can be had without unpacking it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from host.process import run
from kernels.cache import tree_folder
from kernels.git_range import require_files, run_git
from kernels.source import Source, identify, require_source
from kernels.worktree import WorkTree, untouched
from text import clean

TIMEOUT_S = 120.0
# Of one command line; names have at most 4096 bytes, and a line 2 MiB.
CHUNK = 200


@dataclass(frozen=True)
class Present:
    """Which of the paths there are, and which of the folders at the top that they are below."""

    files: tuple[str, ...]
    folders: tuple[str, ...]


def lay_out(
    source: str, names: Sequence[str], into: Path, *, checkout: Path, cache: Path
) -> Present | None:
    """Copy those of ``names`` that a source has into a folder; None where it is not at hand.

    Raises:
        UsageError, InfraError: there is no such source, or git cannot read it.
    """
    kind, _, place = source.partition(":")
    if source.startswith("deb:linux-image-") or kind == "image":
        return None
    if kind == "dir":
        top = checkout / Path(place).expanduser()
        if not top.is_dir():
            return None
        require_source(source, top)
        return _from_tree(names, into, top, lambda name: top / name)
    identity = identify(source, checkout=checkout, cache=cache)
    tree = WorkTree(tree_folder(cache, identity.key))
    if not tree.src.is_dir():
        return _from_git(identity, names, into) if kind == "git" else None
    return _from_tree(names, into, tree.src, untouched(tree))


def _from_tree(
    names: Sequence[str], into: Path, top: Path, place_of: Callable[[str], Path]
) -> Present:
    present = []
    for name in names:
        place = place_of(name)
        # A folder of the tree that is a link leads elsewhere; building refuses it by name.
        if place.is_symlink() or not place.is_file():
            continue
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(place, into / name)
        present.append(name)
    return Present(tuple(present), _folders(names, lambda folder: (top / folder).is_dir()))


def _from_git(source: Source, names: Sequence[str], into: Path) -> Present:
    """Of a repository, by an archive of these files alone.

    Raises:
        UsageError: it is a partial clone, and some of the source is not in it.
    """
    place, tree = source.origin, source.tree_id
    listed = _listed(place, tree, names)
    # Git lists no folder for itself where something in it is asked for, too.
    above = _listed(place, tree, [name.partition("/")[0] for name in names if "/" in name])
    files = [name for name in names if listed.get(name) == "blob"]
    require_files(place, tree, tree, clean(str(place)))
    for chunk in _chunks(files):
        archive = into.with_name("files.tar")
        argv = ["--literal-pathspecs", "archive", "-o", str(archive), tree, "--", *chunk]
        run_git(place, *argv)
        run(["tar", "-C", str(into), "-xf", str(archive)], timeout_s=TIMEOUT_S)
    return Present(tuple(files), _folders(names, lambda folder: above.get(folder) == "tree"))


def _listed(place: Path, tree: str, names: Sequence[str]) -> dict[str, str]:
    """The kinds of those paths that a tree of git's has."""
    kinds: dict[str, str] = {}
    for chunk in _chunks(names):
        output = run_git(place, "--literal-pathspecs", "ls-tree", "-z", tree, "--", *chunk).stdout
        for entry in filter(None, output.split("\0")):
            head, _, name = entry.partition("\t")
            kinds[name] = head.split()[1]
    return kinds


def _folders(names: Iterable[str], is_folder: Callable[[str], bool]) -> tuple[str, ...]:
    tops = dict.fromkeys(name.partition("/")[0] for name in names if "/" in name)
    return tuple(top for top in tops if is_folder(top))


def _chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), CHUNK):
        yield names[start : start + CHUNK]
