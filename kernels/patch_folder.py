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
from itertools import islice
from pathlib import Path, PurePosixPath

from errors import UsageError
from experiment.frozen import likely
from experiment.series_name import FILES, kind_of, split_mail
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
LEVEL = re.compile(r"-p(\d)")


@dataclass(frozen=True)
class PatchFile:
    """One patch of a folder; ``level`` is that of ``-pN`` in a series file, None where none is."""

    path: Path
    level: int | None = None
    reverse: bool = False


@dataclass(frozen=True)
class PatchFolder:
    """The patches of a folder in their order; ``ordered_by`` is the series file, if there is one.

    ``left_out`` names what looks like a patch there and is none of them; the folder can stand for
    the series where ``is_plain``: names alone say what it is.
    """

    patches: tuple[PatchFile, ...]
    covers: tuple[Path, ...]
    left_out: tuple[str, ...]
    is_plain: bool
    ordered_by: Path | None = None
    base_commit: str = ""


def known_series(checkout: Path) -> tuple[str, ...]:
    """Folders with patches that come with the lab, relative to the checkout."""
    folders = {patch.parent for patch in (checkout / SERIES_FOLDER).rglob("*.patch")}
    return tuple(sorted(str(folder.relative_to(checkout)) for folder in folders))


def read_folder(checkout: Path, path: str) -> PatchFolder:
    """The patch files of a series, covers apart; UsageError: none, or one named is not there."""
    named = checkout / Path(path).expanduser()
    if named.name == ORDER and named.is_file():
        named = named.parent
    if named.is_dir():
        own = [path for path in named.iterdir() if path.suffix in ENDINGS and path.is_file()]
        own = [path for path in own if not path.name.startswith(".")]
        places = [(named / inside / ORDER, named / inside) for inside in INSIDE]
        # Quilt also looks for the file where it is run, which is beside the patches' folder.
        places.append((named / ORDER, named / "patches"))
        if named.name == "patches":
            places.append((named.parent / ORDER, named))
        orders = [(order, at) for order, at in places if order.is_file() and at.is_dir()]
        # Patches of its own come before those of a folder in it.
        if orders and not (own and all(named in patches.parents for _, patches in orders)):
            for order, patches in orders:
                first = next(_lines(order), None)
                if first is not None and (patches / first[1]).is_file():
                    return _in_order(order, patches)
            return _in_order(*orders[0])
        if own:
            return _by_names(named, sorted(own, key=lambda path: as_counted(path.name)))
    raise missing(path, checkout)


def missing(name: str, checkout: Path) -> UsageError:
    """What is wrong with a file or folder that holds no series, with what is most like it."""
    place = checkout / split_mail(name)[0]
    if kind_of(name) == "file":
        what, beside = "no such file", sorted(path.name for path in place.parent.glob("*"))
        near = likely(place.name, (each for each in beside if each.endswith(FILES)))
        step = f"name an mbox or patch file{f'; beside it are {near}' if near else ''}"
    else:
        what = "no such file or folder"
        if place.expanduser().is_dir():
            what = "no *.patch or *.diff file in this folder"
        near = likely(name, known_series(checkout)) or "none comes with the lab"
        step = f"name a folder of patches, or a series of the lab's: {near}"
    return UsageError(what, where=clean(name), next_step=clean(step))


def _lines(order: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Number, name and options of each line of a series file that names a patch."""
    text = order.read_text(encoding="utf-8-sig", errors="replace")
    for number, line in enumerate(text.splitlines()[:MOST_ENTRIES], 1):
        words = re.sub(r"(^|\s)#.*", "", line).split()
        if words:
            yield number, words[0], words[1:]


def _in_order(order: Path, folder: Path) -> PatchFolder:
    """The series as a series file has it."""
    below = _patches_below(folder)
    there = [str(path.relative_to(folder)) for path in below]
    patches: list[PatchFile] = []
    for number, name, options in _lines(order):
        what = step = ""
        level, reverse = None, False
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            what = f"names a patch outside of the folder: {clean(name)}"
            step = "copy it into the folder"
        elif not (folder / path).is_file():
            close = clean(" or ".join(difflib.get_close_matches(name, there, 5)))
            what = f"no such patch: {clean(name)}"
            step = f"did you mean {close}?" if close else "add it, or put # before the line"
        for word in re.sub(r"-p\s+", "-p", " ".join(options)).split():
            if word == "-R":
                reverse = True
            elif match := LEVEL.fullmatch(word.replace("-pab", "-p1")):
                level = int(match[1])
            elif not what:
                what = f"unknown option of a patch: {clean(word)}"
                step = "one of: -p0, -p1, ... -p9, -pab, -R"
        if what:
            raise UsageError(what, where=f"{clean(str(order))}:{number}", next_step=step)
        patches.append(PatchFile(folder / path, level, reverse))
    if not patches:
        step = "take a # away, or the file"
        raise UsageError("names no patch", where=clean(str(order)), next_step=step)
    taken = {str(patch.path.relative_to(folder)) for patch in patches}
    base = BASE.search(order.read_text(encoding="utf-8", errors="replace"))
    return PatchFolder(
        tuple(patches),
        tuple(path for path in below if COVER in path.name),
        tuple(name for name in there if name not in taken and COVER not in name),
        False,
        order,
        base[1] if base else "",
    )


def _by_names(folder: Path, own: list[Path]) -> PatchFolder:
    versions = [FORMATTED.match(path.name) for path in own]
    numbers = [int(match["version"] or 1) if match else 0 for match in versions]
    # Only where all are so formatted are those of another version older.
    newest = max(numbers) if all(versions) else None
    older = [path for path, n in zip(own, numbers, strict=True) if newest not in (None, n)]
    files = [path for path in own if path not in older and COVER not in path.name]
    others = [path for path in _patches_below(folder) if path not in own]
    return PatchFolder(
        tuple(map(PatchFile, files)),
        tuple(path for path in own if path not in older and COVER in path.name),
        tuple(str(path.relative_to(folder)) for path in (*older, *others)),
        all(path.suffix == ENDINGS[0] for path in files),
    )


def _patches_below(folder: Path) -> list[Path]:
    """All files that are named like patches, in the order in which people count."""
    paths = islice(folder.rglob("*"), MOST_ENTRIES)
    patches = [path for path in paths if path.suffix in ENDINGS and path.is_file()]
    return sorted(patches, key=lambda path: as_counted(str(path)))


def as_counted(name: str) -> tuple[tuple[str, int], ...]:
    """A key by which names with numbers in them sort as people count."""
    parts = re.split(r"([0-9]+)", name)
    numbers = [*(int(digits) for digits in parts[1::2]), 0]
    return tuple(zip(parts[::2], numbers, strict=True))
