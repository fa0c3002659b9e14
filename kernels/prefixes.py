"""What stands before a path in a diff, and behind it: pure.

``git apply`` takes one folder off every name, since git writes ``a/mm/slab.c``.  Others write
``i/mm/slab.c`` (``diff.mnemonicPrefix``), ``mm/slab.c`` (``diff.noprefix``),
``linux-6.12/mm/slab.c``, ``mm/slab.c.orig`` or ``a/mm/slab.c~name``.  A kernel has had the same
folders at its top for many years, so that a name says how much of it is the path.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

# Of git: a and b, index, work tree, commit, object, and the two of --no-index.
LETTERS = frozenset("abiwco12")
TOP = re.compile(
    r"(?:Documentation|LICENSES|arch|block|certs|crypto|drivers|fs|include|init|io_uring|ipc|kernel"
    r"|lib|mm|net|rust|samples|scripts|security|sound|tools|usr|virt)/."
    r"|(?:COPYING|CREDITS|Kbuild|Kconfig|MAINTAINERS|Makefile|README|\.[^/]+)$"
)
# No level is looked for below so many folders: /usr/src/linux-6.12/mm is far enough.
MOST_LEVELS = 6
SAVED = re.compile(r"~[^/]*$|\.orig$")
# Names of copies that are also names of files, so only where the other side has the plain name.
COPIES = (".old", ".bak", ".save", "-orig", "-old", ".new")
# Behind a name; GNU diff has a tab before it, of which mailers make blanks.
DATE = re.compile(r"\s+(?:\d{4}-\d\d-\d\d|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ).*$")


@dataclass(frozen=True)
class Names:
    """Old and new name of one file of a diff as they are written; None for ``/dev/null``.

    ``by_git`` is of a ``diff --git``; ``moved_from`` the path in ``rename from`` or ``copy from``,
    which has no prefix.
    """

    old: str | None
    new: str | None
    by_git: bool = False
    moved_from: str = ""

    @property
    def given(self) -> tuple[str, ...]:
        """Those that are there."""
        return tuple(name for name in (self.old, self.new) if name is not None)


def of_kernel(files: Sequence[str]) -> bool:
    """Whether any of these paths can be one of a kernel's source."""
    return any(map(TOP.match, files))


def levels_of(every: Sequence[Names]) -> list[int | None]:
    """How many folders stand before the path, for each file of one patch.

    What a name does not say, the other files of the patch do, where these agree.  None where
    nothing says it.
    """
    levels = [_level(names) for names in every]
    common = Counter(level for level in levels if level is not None)
    agreed = next(iter(common)) if len(common) == 1 else None
    return [
        level if level is not None else _guess(names) if agreed is None else agreed
        for level, names in zip(levels, every, strict=True)
    ]


def paths_of(names: Names, level: int) -> tuple[str | None, str | None]:
    """Old and new path, without what stands before and behind them; empty where nothing is left."""
    old, new = (_stripped(name, level) for name in (names.old, names.new))
    # Git names exactly what it has, but for two files that are compared outside of a repository.
    if names.moved_from or old == new or (names.by_git and None in (old, new)):
        return old, new
    old = SAVED.sub("", old) if old else old
    if old is None or new is None:
        return old, new
    for ending in COPIES:
        old = new if old == f"{new}{ending}" else old
        new = old if new == f"{old}{ending}" else new
    return old, new


def _stripped(name: str | None, level: int) -> str | None:
    if name is None:
        return None
    parts = name.split("/", level)
    return parts[level] if len(parts) > level else ""


def _level(names: Names) -> int | None:
    """What the names of one file say by themselves."""
    given = names.given
    firsts = {name.partition("/")[0] for name in given if "/" in name}
    if names.moved_from and names.old and names.old.endswith(names.moved_from):
        return names.old.removesuffix(names.moved_from).count("/")
    with_letters = firsts <= LETTERS and all("/" in name for name in given)
    if with_letters and len(given) == 1:
        return 1 if TOP.match(given[0].partition("/")[2]) else None
    # Of a and b, linux.orig and linux, or both, as of git diff --no-index.
    for level in (1, 2) if with_letters or len(firsts) == 2 else ():
        paths = set(paths_of(names, level))
        if len(paths) == 1 and "" not in paths:
            return level
    if with_letters:
        return 1
    for level in range(MOST_LEVELS):
        if all(path is None or TOP.match(path) for path in paths_of(names, level)):
            return level
    return None


def _guess(names: Names) -> int | None:
    """The level of names with no folder of a kernel in them: those of another project's files."""
    given = names.given
    if not all("/" in name for name in given):
        return None
    if {name.partition("/")[0] for name in given} <= LETTERS:
        return 1
    if len(given) == 1 and not names.by_git:
        return None
    return 0 if len(set(given)) == 1 else 1
