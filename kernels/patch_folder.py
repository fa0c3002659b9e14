"""Which files of a folder are a series, and in which order they apply.

A ``series`` file of quilt's says it: in the folder, in ``patches/`` or ``debian/patches/`` in it,
or beside a folder ``patches``.  Without one these are all patches of the folder, in the order in
which people count: 2 before 10.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from errors import UsageError
from text import clean

SERIES_FOLDER = Path("configs/series")
ORDER = "series"
ENDINGS = (".patch", ".diff")
COVER = "cover-letter"
# Where people keep patches in what they name.
INSIDE = ("", "patches", "debian/patches")
# The most lines of a series file, and files of a folder, that are looked at.
MOST_ENTRIES = 10_000
# git format-patch -v2 puts its files beside those of the version before.
FORMATTED = re.compile(r"(?:v(?P<version>\d{1,3})-)?\d{4}-.")
# "stg export" says what its series applies to.
BASE = re.compile(r"^# This series applies on GIT commit ([0-9a-f]{12,64})\s*$", re.M)


@dataclass(frozen=True)
class PatchFile:
    """One patch of a folder; ``level`` is that of ``-pN`` in a series file, None where none is."""

    path: Path
    level: int | None = None
    reverse: bool = False


@dataclass(frozen=True)
class PatchFolder:
    """The patches of a folder in their order; ``ordered_by`` is the series file, if there is one.

    ``left_out`` names what looks like a patch there and is none of them.
    """

    patches: tuple[PatchFile, ...]
    covers: tuple[Path, ...] = ()
    left_out: tuple[str, ...] = ()
    ordered_by: Path | None = None
    base_commit: str = ""

    @property
    def files(self) -> tuple[Path, ...]:
        """The patches' own files."""
        return tuple(patch.path for patch in self.patches)

    @property
    def is_plain(self) -> bool:
        """Whether names alone say what the series is: the folder can stand for it."""
        return self.ordered_by is None and all(
            patch.path.suffix == ENDINGS[0] for patch in self.patches
        )


def known_series(checkout: Path) -> tuple[str, ...]:
    """Folders with patches that come with the lab, relative to the checkout."""
    folders = {patch.parent for patch in (checkout / SERIES_FOLDER).glob("*/*.patch")}
    return tuple(sorted(str(folder.relative_to(checkout)) for folder in folders))


def read_folder(checkout: Path, path: str) -> PatchFolder:
    """The patch files of a series; cover letters are apart.

    Raises:
        UsageError: no such folder, no patch in it (the known series are named), or a series file
            that names what is not there.
    """
    named = checkout / Path(path).expanduser()
    if named.name == ORDER and named.is_file():
        named = named.parent
    if named.is_dir():
        quilt = _quilt(named)
        if quilt is not None:
            return quilt
        if any(_patches_in(named)):
            return _by_names(named)
    known = known_series(checkout)
    near = difflib.get_close_matches(str(SERIES_FOLDER / Path(path).name), known, 5, 0.0)
    there = ", ".join(near) or "none comes with the lab"
    raise UsageError(
        f"no {' or '.join(f'*{ending}' for ending in ENDINGS)} file in this folder"
        if named.is_dir()
        else "no such file or folder",
        where=clean(path),
        next_step=f"name a folder of patches, or a series of the lab's: {there}"
        + (" (./lab.py list has all)" if len(known) > len(near) else ""),
    )


def _quilt(folder: Path) -> PatchFolder | None:
    """The series as a series file has it, where there is one."""
    places = [(folder / inside / ORDER, folder / inside) for inside in INSIDE]
    # Quilt also looks for the file where it is run, which is beside the patches' folder.
    places += [(folder / ORDER, folder / "patches")]
    places += [(folder.parent / ORDER, folder)] if folder.name == "patches" else []
    there = [(order, patches) for order, patches in places if order.is_file() and patches.is_dir()]
    if not there:
        return None
    if all(folder in patches.parents for _, patches in there) and any(_patches_in(folder)):
        return None  # patches of its own come before those of a folder in it
    for order, patches in there:
        first = next(_lines(order), None)
        if first is not None and (patches / first[1]).is_file():
            return _in_order(order, patches)
    return _in_order(*there[0])


def _lines(order: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Number, name and options of each line of a series file that names a patch."""
    text = order.read_text(encoding="utf-8-sig", errors="replace")
    for number, line in enumerate(text.splitlines()[:MOST_ENTRIES], 1):
        words = re.sub(r"(^|\s)#.*", "", line).split()
        if words:
            yield number, words[0], words[1:]


def _in_order(order: Path, folder: Path) -> PatchFolder:
    patches: list[PatchFile] = []
    there = [str(path.relative_to(folder)) for path in _patches_below(folder)]
    for number, name, options in _lines(order):
        where = f"{clean(str(order))}:{number}"
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise UsageError(
                f"names a patch outside of the folder: {clean(name)}",
                where=where,
                next_step="copy it into the folder",
            )
        if not (folder / path).is_file():
            close = difflib.get_close_matches(name, there, 5)
            raise UsageError(
                f"no such patch: {clean(name)}",
                where=where,
                next_step=f"did you mean {clean(' or '.join(close))}?"
                if close
                else "add it, or put # before the line",
            )
        patches.append(PatchFile(folder / path, *_options(options, where)))
    if not patches:
        raise UsageError(
            "names no patch", where=clean(str(order)), next_step="take a # away, or the file"
        )
    taken = {str(patch.path.relative_to(folder)) for patch in patches}
    left_out = [name for name in there if name not in taken and COVER not in name]
    base = BASE.search(order.read_text(encoding="utf-8", errors="replace"))
    covers = [path for path in _patches_below(folder) if COVER in path.name]
    return PatchFolder(
        tuple(patches), tuple(covers), tuple(left_out), order, base[1] if base else ""
    )


def _options(words: list[str], where: str) -> tuple[int | None, bool]:
    """The level and whether to turn it around, of what stands behind a patch's name."""
    level, reverse = None, False
    for word in re.sub(r"-p\s+", "-p", " ".join(words)).split():
        if word == "-R":
            reverse = True
        elif word == "-pab":
            level = 1
        elif re.fullmatch(r"-p\d", word):
            level = int(word[2:])
        else:
            raise UsageError(
                f"unknown option of a patch: {clean(word)}",
                where=where,
                next_step="one of: -p0, -p1, ... -p9, -pab, -R",
            )
    return level, reverse


def _by_names(folder: Path) -> PatchFolder:
    patches = sorted(_patches_in(folder), key=lambda path: as_counted(path.name))
    versions = {path: FORMATTED.match(path.name) for path in patches}
    numbers = {path: int(match["version"] or 1) for path, match in versions.items() if match}
    newest = max(numbers.values(), default=1)
    older: list[Path] = []
    if len(numbers) == len(patches):
        older = [path for path in patches if numbers[path] != newest]
    files = [path for path in patches if path not in older]
    others = [
        path
        for path in _patches_below(folder)
        if path.parent != folder or path.name.startswith(".")
    ]
    covers = [path for path in files if COVER in path.name]
    return PatchFolder(
        tuple(PatchFile(path) for path in files if COVER not in path.name),
        tuple(covers),
        tuple(str(path.relative_to(folder)) for path in (*older, *others)),
    )


def _patches_in(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.suffix in ENDINGS and not path.name.startswith(".") and path.is_file():
            yield path


def _patches_below(folder: Path) -> list[Path]:
    """All files that are named like patches, in the order in which people count."""
    paths: list[Path] = []
    for number, path in enumerate(folder.rglob("*")):
        if number >= MOST_ENTRIES:
            break
        if path.suffix in ENDINGS and path.is_file():
            paths.append(path)
    return sorted(paths, key=lambda path: as_counted(str(path)))


def as_counted(name: str) -> tuple[tuple[str, int], ...]:
    """A key by which names with numbers in them sort as people count."""
    parts = re.split(r"([0-9]+)", name)
    numbers = [*(int(digits) for digits in parts[1::2]), 0]
    return tuple(zip(parts[::2], numbers, strict=True))
