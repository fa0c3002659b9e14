"""Diffs as git and patch read them: files, hunks, names from the top, and functions they are in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NoReturn

from errors import SeriesError
from text import clean, is_unfit

HUNK = re.compile(r"@@ -([0-9]+)(?:,([0-9]+))? \+([0-9]+)(?:,([0-9]+))? @@")
# Digits of a line's number, which no file of a kernel needs.
LONGEST_NUMBER = 9
LONGEST_PATH = 4096
LONGEST_NAME = 255
# The deepest path of a kernel has about a dozen parts; programs that walk trees fail at a thousand.
MOST_PARTS = 64
# The largest patch of a release (generated register headers) has 10 MB, and 300,000 lines.
MOST_LINES = 1_000_000
# A release changes 13,000.
MOST_FILES = 20_000
MODE = re.compile(r"(?:new file mode|deleted file mode|old mode|new mode|index \S+) (.+)$")
# git reads octal digits with a sign and zeros before them, and takes any rights of a link.
PLAIN = re.compile(r"0*100[0-7]{3}\s*")
KINDS = {"120000": "a symbolic link", "160000": "a submodule"}
BINARY = re.compile(r"GIT binary patch$|Binary files .* differ$")
MOVED = re.compile(r"((?:rename|copy) (from|to) )(.+)$")
GIT = "diff --git "
OCTAL = re.compile(rb"\\([0-7]{3}|.)", re.S)
ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f"}
# The lab's own folders in a prepared tree begin so.
OBJECTS = "obj-"
RENAME, LEAVE_OUT = "rename it", "leave that file out"
# What is made of these at the top of a tree is built by nothing there.
COMPILED = (".c", ".h", ".S", ".rs", ".dts", ".dtsi")


@dataclass(frozen=True)
class Hunk:
    """One hunk: file, number there, first old line, and new line of its first change."""

    file: str
    number: int
    line: int
    header: str
    changed: int = 0


@dataclass(frozen=True)
class Diff:
    """All paths that a diff names, old and new, in order, and its hunks.

    ``text`` is what was read, each name behind ``a/`` or ``b/``; ``parts`` has the paths of each
    change of a file, and where it is in the lines of ``text``.
    """

    files: tuple[str, ...]
    hunks: tuple[Hunk, ...]
    text: str = field(default="", repr=False)
    parts: tuple[tuple[tuple[str, ...], slice], ...] = field(default=(), repr=False)


def read_diff(text: str, where: str, level: int | None = None) -> Diff:
    """Read the diffs in ``text``, which may have a mail around them.

    ``level`` is how many folders stand before every path (``patch -p``); None has the names say it.
    Raises SeriesError: a path outside the tree or that cannot be shown, a symbolic link, a
    submodule, a binary change, a hunk that was damaged on its way or has impossible numbers, more
    lines than any patch has, or a name that may be of several folders; ``where`` names the patch.
    """
    return _Reader(where, text).diff(level)


def hunk_numbers(match: re.Match[str], where: str) -> tuple[int, int, int, int]:
    """First line and count, old and new, of a ``HUNK``; SeriesError: no file has such numbers."""
    longest = max(len(digits or "") for digits in match.groups())
    if longest > LONGEST_NUMBER:
        what = f"has a hunk header with a number of {longest} digits: {clean(match[0], 60)}"
        raise SeriesError(what, where=where, next_step="make it anew with git format-patch")
    first_old, old, first_new, new = (int(digits or 1) for digits in match.groups())
    return first_old, old, first_new, new


@dataclass
class _File:
    """One file of a diff while it is read: names as written, and where in the text they are.

    ``old`` and ``new`` are None for ``/dev/null``; without a line of their own they are those of
    git's, ``by_git``.  ``moved`` are the paths in ``rename from`` and the like, without a prefix.
    """

    by_git: bool
    git_names: tuple[str, str] | None = None
    git_line: int = -1
    old_line: int = -1  # the new name is on the next one
    old: str | None = None
    new: str | None = None
    has_sides: bool = False
    is_made: bool = False
    moved: list[str] = field(default_factory=list)
    hunks: list[tuple[int, str, int]] = field(default_factory=list)

    @property
    def shown(self) -> str:
        """What to call it before its path is known."""
        return clean((self.new or self.old or "").removeprefix("b/"))

    @property
    def given(self) -> tuple[str, ...]:
        """The names that are there."""
        return tuple(name for name in (self.old, self.new) if name is not None)


class _Reader:
    def __init__(self, where: str, text: str) -> None:
        self._where = where
        if text.count("\n") > MOST_LINES:
            self._refuse(f"has {text.count(chr(10))} lines, more than {MOST_LINES}", "split it")
        self._text = text
        self._lines = lines = text.split("\n")
        self._every: list[_File] = []
        # Between "diff --git" and the first hunk: the only place where modes count.
        self._in_header = False
        self._vetted: set[str] = set()
        at = 0
        while at < len(lines):
            line = lines[at]
            if self._every and line.startswith("@@ -") and (match := HUNK.match(line)):
                at = self._hunk(self._every[-1], at, match)
            else:
                # Few lines of a mail are any of a diff's.
                at += self._outside(line.rstrip("\r"), at)

    def diff(self, level: int | None) -> Diff:
        """What was read, with the paths that the names stand for."""
        levels = [level] * len(self._every)
        if level is None:
            levels = levels_of(self._every)
        files: dict[str, None] = {}
        hunks: list[Hunk] = []
        counts: Counter[str] = Counter()
        changed: dict[int, str] = {}
        parts = []
        starts = [file.git_line if file.by_git else file.old_line for file in self._every]
        ends = [*starts, len(self._lines)][1:]
        for file, own, start, end in zip(self._every, levels, starts, ends, strict=True):
            old, new = self._paths(file, own, explicit=level is not None)
            named = tuple(dict.fromkeys(path for path in (old, new, *file.moved) if path))
            files.update(dict.fromkeys(named))
            parts.append((named, slice(start, end)))
            path = new or old or ""
            for first, header, at in file.hunks:
                counts[path] += 1
                hunks.append(Hunk(path, counts[path], first, header, at))
            changed |= self._spelled(file, old, new)
        lines = [changed.get(number, line) for number, line in enumerate(self._lines)]
        text = "\n".join(lines) if changed else self._text
        return Diff(tuple(files), tuple(hunks), text, tuple(parts))

    def _hunk(self, file: _File, at: int, match: re.Match[str]) -> int:
        """Go through a hunk, where "--- a/x" may be a removed line; return where it ends."""
        lines, last = self._lines, len(self._lines) - 1
        first, old, position, new = hunk_numbers(match, self._where)
        header, changed = lines[at], 0
        self._in_header = False
        while old > 0 or new > 0:
            at += 1
            if at > last or (at == last and not lines[at]):
                self._refuse("ends in the middle of a hunk", "have it sent again as a whole")
            kind = lines[at][:1]
            if kind == "\\":
                continue
            # Mailers strip the space of an empty line.
            is_old, is_new = kind in ("-", " ", "", "\r"), kind in ("+", " ", "", "\r")
            old, new = old - is_old, new - is_new
            if old < 0 or new < 0 or not (is_old or is_new):
                self._refuse(
                    f"was damaged on its way: line {at + 1} of the patch cannot stand in the hunk "
                    f"of {file.shown}: {clean(lines[at], 60)!r}",
                    "have it sent again unwrapped, or take it from git",
                )
            if is_old != is_new:
                changed = changed or position
            position += is_new
        file.hunks.append((first, header, changed))
        return at + 1

    def _outside(self, line: str, at: int) -> int:
        """One line that is in no hunk; return how many it is with those that belong to it."""
        if line.startswith(GIT):
            if len(line) > 3 * LONGEST_PATH:
                self._refuse(f"names a path that is too long: {clean(line, 60)}", RENAME)
            names = _both_names(line.removeprefix(GIT))
            file = _File(True, names, at, old=names[0], new=names[1])
            self._begin(file, in_header=True)
        elif line.startswith("--- ") and (new := self._other_side(at)):
            if not self._in_header or self._every[-1].has_sides:
                self._begin(_File(by_git=False), in_header=False)
            file = self._every[-1]
            file.old_line, file.has_sides = at, True
            file.old, file.new = self._side(line), self._side(new)
            file.is_made = file.is_made or file.old is None
            return 2
        elif self._in_header:
            file = self._every[-1]
            if match := MOVED.match(line):
                file.moved.append(_unquoted(match[3]))
            elif BINARY.match(line):
                self._refuse(f"changes a binary file: {file.shown}", LEAVE_OUT)
            elif (match := MODE.match(line)) and not PLAIN.fullmatch(match[1]):
                kind = KINDS.get(match[1], f"what is no plain file (mode {clean(match[1], 20)})")
                self._refuse(f"makes or changes {kind}: {file.shown}", LEAVE_OUT)
            elif line.startswith("new file mode"):
                file.is_made = True
        return 1

    def _other_side(self, at: int) -> str:
        """The line ``+++`` below a ``---``, if these begin a diff and not a paragraph."""
        following = self._lines[at + 1 : at + 3]
        if not following or not following[0].startswith("+++ "):
            return ""
        has_hunk = len(following) > 1 and following[1].startswith("@@ -")
        return following[0].rstrip("\r") if has_hunk or self._in_header else ""

    def _begin(self, file: _File, *, in_header: bool) -> None:
        self._in_header = in_header
        self._every.append(file)
        if len(self._every) > MOST_FILES:
            self._refuse(f"changes more than {MOST_FILES} files", "split it")

    def _side(self, line: str) -> str | None:
        """The name on a ``---`` or ``+++`` line; None for what is not there."""
        name = _unquoted(_tail(line)[0])
        if name == "/dev/null":
            return None
        if name.startswith("/"):
            self._outside_of_tree(name)
        return name

    def _paths(
        self, file: _File, level: int | None, *, explicit: bool
    ) -> tuple[str | None, str | None]:
        """Old and new path of one file, vetted."""
        for name in (*file.given, *(file.git_names or ()), *file.moved):
            if ".." in name.split("/"):
                self._outside_of_tree(name)
        if level is None:
            self._refuse(
                f"does not say in which folder {file.shown} is",
                "make it at the top of the kernel tree, with git diff or git format-patch",
            )
        old, new = paths_of(file, level)
        # Git falls back to its own line's, so they have to be fit, too.
        of_git: tuple[str | None, ...] = ()
        if file.git_names:
            own = _File(by_git=True, old=file.git_names[0], new=file.git_names[1])
            of_git = paths_of(own, level)
        for path in (old, new, *file.moved, *filter(None, of_git)):
            if path is not None and path not in self._vetted:
                self._vet(path, file)
        if new and "/" not in new and file.is_made and not explicit and new.endswith(COMPILED):
            self._refuse(
                f"makes {new} at the top of the tree, where nothing is built of it",
                "make it at the top of the kernel tree, without git's --relative; or give the "
                "level in a quilt series file: NAME -pN",
            )
        return old, new

    def _vet(self, name: str, file: _File) -> None:
        path, brief = PurePosixPath(name), clean(name, 60)
        parts = path.parts
        # Some file systems take the second for the first.
        is_git = any(part.lower().rstrip(". ") in (".git", "git~1") for part in parts)
        if path.is_absolute() or ".." in parts or is_git:
            self._outside_of_tree(name)
        if any(is_unfit(character) for character in name):
            self._refuse(f"names a path with control characters: {clean(name)}", RENAME)
        if len(name) > LONGEST_PATH or any(len(part) > LONGEST_NAME for part in parts):
            self._refuse(f"names a path that is too long: {brief}", RENAME)
        if len(parts) > MOST_PARTS:
            self._refuse(
                f"names a path of {len(parts)} parts, more than {MOST_PARTS}: {brief}", RENAME
            )
        if not name or str(path) != name or "\\" in name:
            shown = clean(name or file.shown)
            self._refuse(f"spells a path in a strange way: {shown!r}", "spell it plainly")
        if parts[0].startswith(OBJECTS):
            self._refuse(f"names a path that is kept for objects: {clean(name)}", RENAME)
        self._vetted.add(name)

    def _spelled(self, file: _File, old: str | None, new: str | None) -> dict[int, str]:
        """The lines with names, where they are not as git spells these paths."""
        lines: dict[int, str] = {}
        sides = [("--- ", "a/", old, file.old, 0), ("+++ ", "b/", new, file.new, 1)]
        for sign, prefix, path, written, below in sides if file.has_sides else ():
            if path is not None and written != f"{prefix}{path}":
                at = file.old_line + below
                lines[at] = f"{sign}{_quoted(prefix + path)}{_tail(self._lines[at])[1]}"
        first, last = f"a/{old or new}", f"b/{new or old}"
        if file.git_names not in (None, (first, last)) and (old or new):
            ends = "\r" if self._lines[file.git_line].endswith("\r") else ""
            lines[file.git_line] = f"{GIT}{_quoted(first)} {_quoted(last)}{ends}"
        return lines

    def _outside_of_tree(self, name: str) -> NoReturn:
        self._refuse(
            f"names a path outside the kernel tree: {clean(name)}",
            "take that path out of the patch",
        )

    def _refuse(self, what: str, next_step: str) -> NoReturn:
        raise SeriesError(what, where=self._where, next_step=next_step)


def _tail(line: str) -> tuple[str, str]:
    """The name on a ``---`` or ``+++`` line, and what is behind it."""
    name, tab, _ = line[4:].partition("\t")
    if not tab:
        name = DATE.sub("", name)
    return name.strip(), line[4 + len(name) :]


def _both_names(rest: str) -> tuple[str, str]:
    """The two names of a ``diff --git`` line."""
    if rest.startswith('"'):
        match = re.match(r'("(?:[^"\\]|\\.)*") (.+)$', rest)
        pair = (match[1], match[2]) if match else (rest, rest)
    elif match := re.match(r"(.+) (\"(?:[^\"\\]|\\.)*\")$", rest):
        pair = (match[1], match[2])
    else:
        # Of names with spaces, only equal ones can be told apart; git needs that too.
        half = len(rest) // 2
        first, second = rest[:half], rest[half + 1 :]
        alike = first == second or first.partition("/")[2] == second.partition("/")[2]
        if rest[half : half + 1] != " " or not alike:
            first, _, second = rest.partition(" ")
        pair = (first, second)
    return _unquoted(pair[0]), _unquoted(pair[1])


def _unquoted(name: str) -> str:
    """A path as git quotes it: in double quotes with C escapes, or as it is."""
    if len(name) < 2 or name[0] != '"' or name[-1] != '"':
        return name

    def character(match: re.Match[bytes]) -> bytes:
        word = match[1]
        return bytes([int(word, 8) & 0xFF]) if len(word) == 3 else ESCAPES.get(word, word)

    return OCTAL.sub(character, name[1:-1].encode(errors="surrogateescape")).decode(
        errors="replace"
    )


def _quoted(name: str) -> str:
    """A path as git writes it: in double quotes where it would be read in another way."""
    return f'"{name.replace(chr(34), chr(92) + chr(34))}"' if '"' in name else name


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
# Behind a name; GNU diff has a tab before it, of which mailers make blanks.  Only tried where
# these begin: a line may have megabytes of them.
DATE = re.compile(r"(?<!\s)\s+(?:\d{4}-\d\d-\d\d|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ).*$")


def of_kernel(files: Sequence[str]) -> bool:
    """Whether any of these paths can be one of a kernel's source."""
    return any(map(TOP.match, files))


def levels_of(every: Sequence[_File]) -> list[int | None]:
    """How many folders stand before the path, for each file; where agreed, by the other files."""
    levels = [_level(file) for file in every]
    common = Counter(level for level in levels if level is not None)
    agreed = next(iter(common)) if len(common) == 1 else None
    return [
        level if level is not None else _guess(file) if agreed is None else agreed
        for level, file in zip(levels, every, strict=True)
    ]


def paths_of(file: _File, level: int) -> tuple[str | None, str | None]:
    """Old and new path, without what stands before and behind them; empty where nothing is left."""
    old, new = (
        None if name is None else "".join(name.split("/", level)[level:])
        for name in (file.old, file.new)
    )
    # Git names exactly what it has, but for two files that are compared outside of a repository.
    if file.moved or old == new or (file.by_git and None in (old, new)):
        return old, new
    old = SAVED.sub("", old) if old else old
    if old is None or new is None:
        return old, new
    for ending in COPIES:
        old = new if old == f"{new}{ending}" else old
        new = old if new == f"{old}{ending}" else new
    return old, new


def _level(file: _File) -> int | None:
    """What the names of one file say by themselves."""
    given = file.given
    firsts = {name.partition("/")[0] for name in given if "/" in name}
    if file.moved and file.old and file.old.endswith(file.moved[0]):
        return file.old.removesuffix(file.moved[0]).count("/")
    with_letters = firsts <= LETTERS and all("/" in name for name in given)
    if with_letters and len(given) == 1:
        return 1 if TOP.match(given[0].partition("/")[2]) else None
    # Of a and b, linux.orig and linux, or both, as of git diff --no-index.
    for level in (1, 2) if with_letters or len(firsts) == 2 else ():
        paths = set(paths_of(file, level))
        if len(paths) == 1 and "" not in paths:
            return level
    if with_letters:
        return 1
    for level in range(MOST_LEVELS):
        if all(path is None or TOP.match(path) for path in paths_of(file, level)):
            return level
    return None


def _guess(file: _File) -> int | None:
    """The level of names with no folder of a kernel in them: those of another project's files."""
    given = file.given
    if not all("/" in name for name in given):
        return None
    if {name.partition("/")[0] for name in given} <= LETTERS:
        return 1
    if len(given) == 1 and not file.by_git:
        return None
    return 0 if len(set(given)) == 1 else 1


# Kernel style: a function begins in the first column, and its name is before a parenthesis.
BEGINS = re.compile(r"[A-Za-z_][^;=#]*?\b([A-Za-z_][A-Za-z0-9_]*)\(")
# "diff", "index" and the like stand outside of hunks; these begin lines in them.
NO_FUNCTIONS = {"if", "for", "while", "switch", "return", "sizeof", "defined", "EXPORT_SYMBOL"}


def changed_functions(text: str, where: str) -> tuple[str, ...]:
    """Names of the functions in which lines change, in order; SeriesError: impossible numbers."""
    names: dict[str, None] = {}
    old = new = 0
    current = ""
    for line in text.split("\n"):
        if old <= 0 and new <= 0:
            if match := HUNK.match(line):
                _, old, _, new = hunk_numbers(match, where)
                current = _begins(line[match.end() :].strip())
            continue
        kind, body = line[:1] or " ", line[1:]
        old -= kind in " -"
        new -= kind in " +"
        current = _begins(body) or current
        if kind in "+-" and body.strip() and current:
            names[current] = None
        if body.startswith("}"):
            current = ""
    return tuple(names)


def _begins(line: str) -> str:
    match = BEGINS.match(line)
    if match is None or line.rstrip().endswith(";") or match[1] in NO_FUNCTIONS:
        return ""
    return match[1]
