"""What a diff changes, read as strictly as it is hostile: pure, text in, hunks out.

A patch may come from anybody's mail.  What could leave the tree, replace a file by
a link, or carry what nobody can read is refused before anything is applied.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from errors import SeriesError
from kernels.cleaning import clean, is_unfit

HUNK = re.compile(r"@@ -([0-9]+)(?:,([0-9]+))? \+([0-9]+)(?:,([0-9]+))? @@")
# Digits of a line's number, which no file of a kernel needs.
LONGEST_NUMBER = 9
LONGEST_PATH = 4096
LONGEST_NAME = 255
MODE = re.compile(r"(?:new file mode|deleted file mode|old mode|new mode|index \S+) (\d{6})$")
KINDS = {"120000": "a symbolic link", "160000": "a submodule"}
BINARY = re.compile(r"GIT binary patch$|Binary files .* differ$")
MOVED = re.compile(r"(?:rename|copy) (?:from|to) (.+)$")
OCTAL = re.compile(rb"\\([0-7]{3}|.)", re.S)
ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f"}
# The lab's own folders in a prepared tree begin so.
OBJECTS = "obj-"


@dataclass(frozen=True)
class Hunk:
    """One hunk: the file it changes, its number in that file, its first old line.

    ``changed`` is the line of the new file at which its first change is.
    """

    file: str
    number: int
    line: int
    header: str
    changed: int = 0


@dataclass(frozen=True)
class Diff:
    """All paths that a diff names, old and new, in order, and its hunks."""

    files: tuple[str, ...]
    hunks: tuple[Hunk, ...]


def read_diff(text: str, where: str) -> Diff:
    """Read the diffs in ``text``, which may have a mail around them.

    Raises:
        SeriesError: a path outside the tree or that cannot be shown, a symbolic link,
            a submodule, a binary change, or a hunk that was damaged on its way or has
            impossible numbers;
            ``where`` names the patch.
    """
    return _Reader(where).read(text)


def hunk_numbers(match: re.Match[str], where: str) -> tuple[int, int, int, int]:
    """First line and count of lines in the old file, then in the new one, of a ``HUNK``.

    Raises:
        SeriesError: a number that no file can have; ``where`` names the patch.
    """
    longest = max(len(digits or "") for digits in match.groups())
    if longest > LONGEST_NUMBER:
        raise SeriesError(
            f"has a hunk header with a number of {longest} digits: {clean(match[0], 60)}",
            where=where,
            next_step="make it anew with git format-patch",
        )
    first_old, old, first_new, new = (int(digits or 1) for digits in match.groups())
    return first_old, old, first_new, new


class _Reader:
    def __init__(self, where: str) -> None:
        self._where = where
        self._files: dict[str, None] = {}
        self._hunks: list[Hunk] = []
        self._current = ""
        self._of_current = 0
        # Between "diff --git" and the first hunk: the only place where modes count.
        self._in_header = False
        self._expects_new = False
        self._at = 0  # line of the new file

    def read(self, text: str) -> Diff:
        lines = text.split("\n")
        old = new = 0
        for number, line in enumerate(lines, 1):
            if old > 0 or new > 0:  # inside a hunk, where "--- a/x" may be a removed line
                old, new = self._inside(number, line, old, new, last=number == len(lines))
            elif self._current and (match := HUNK.match(line)):
                first, old, self._at, new = hunk_numbers(match, self._where)
                self._of_current += 1
                self._hunks.append(Hunk(self._current, self._of_current, first, line))
                self._in_header = False
            else:
                following = lines[number] if number < len(lines) else ""
                self._outside(line.rstrip("\r"), following)
        if old > 0 or new > 0:
            self._refuse("ends in the middle of a hunk", "have it sent again as a whole")
        return Diff(tuple(self._files), tuple(self._hunks))

    def _inside(self, number: int, line: str, old: int, new: int, *, last: bool) -> tuple[int, int]:
        if last and not line:
            self._refuse("ends in the middle of a hunk", "have it sent again as a whole")
        kind = line[:1].replace("\r", "") or " "  # mailers strip the space of an empty line
        if kind in " -":
            old -= 1
        if kind in " +":
            new -= 1
        if kind in "-+" and not self._hunks[-1].changed:
            self._hunks[-1] = replace(self._hunks[-1], changed=self._at)
        self._at += kind in " +"
        if kind not in " -+\\" or old < 0 or new < 0:
            self._refuse(
                f"was damaged on its way: line {number} of the patch cannot stand in the hunk of "
                f"{self._current}: {clean(line, 60)!r}",
                "have it sent again unwrapped, or take it from git",
            )
        return old, new

    def _outside(self, line: str, following: str) -> None:
        if line.startswith("diff --git "):
            self._in_header = True
            self._current, self._of_current = "", 0
            if len(line) > 3 * LONGEST_PATH:
                self._refuse(f"names a path that is too long: {clean(line, 60)}", "rename it")
            for name in _both_names(line.removeprefix("diff --git ")):
                self._name(name)
        elif line.startswith("--- ") and following.startswith("+++ "):
            self._side(line)
            self._expects_new = True
        elif line.startswith("+++ ") and self._expects_new:
            self._side(line)
            self._expects_new = False
        elif self._in_header:
            self._header(line)

    def _header(self, line: str) -> None:
        if match := MOVED.match(line):
            self._name(_unquoted(match[1]))
        elif BINARY.match(line):
            self._refuse(f"changes a binary file: {clean(self._current)}", "leave that file out")
        elif (match := MODE.match(line)) and match[1] in KINDS:
            self._refuse(
                f"makes or changes {KINDS[match[1]]}: {clean(self._current)}",
                "leave that file out",
            )

    def _side(self, line: str) -> None:
        """A ``---`` or ``+++`` line; its prefix is stripped as ``-p1`` does."""
        name = _unquoted(re.split(r"\t", line[4:], maxsplit=1)[0].strip())
        if name == "/dev/null" or "/" not in name:
            return
        if name.startswith("/"):
            self._outside_of_tree(name)
        self._name(name.partition("/")[2])

    def _name(self, name: str) -> None:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or any(map(_is_git, path.parts)):
            self._outside_of_tree(name)
        if any(is_unfit(character) for character in name):
            self._refuse(f"names a path with control characters: {clean(name)}", "rename it")
        if len(name) > LONGEST_PATH or any(len(part) > LONGEST_NAME for part in path.parts):
            self._refuse(f"names a path that is too long: {clean(name, 60)}", "rename it")
        if not name or str(path) != name or "\\" in name:
            self._refuse(f"spells a path in a strange way: {clean(name)!r}", "spell it plainly")
        if path.parts[0].startswith(OBJECTS):
            self._refuse(f"names a path that is kept for objects: {clean(name)}", "rename it")
        if name != self._current:
            self._current, self._of_current = name, 0
        self._files[name] = None

    def _outside_of_tree(self, name: str) -> None:
        self._refuse(
            f"names a path outside the kernel tree: {clean(name)}",
            "take that path out of the patch",
        )

    def _refuse(self, what: str, next_step: str) -> None:
        raise SeriesError(what, where=self._where, next_step=next_step)


def _both_names(rest: str) -> list[str]:
    """The two names of a ``diff --git`` line, without ``a/`` and ``b/``."""
    if rest.startswith('"'):
        match = re.match(r'("(?:[^"\\]|\\.)*") (.+)$', rest)
        pair = (match[1], match[2]) if match else (rest, rest)
    elif match := re.match(r"(.+) (\"(?:[^\"\\]|\\.)*\")$", rest):
        pair = (match[1], match[2])
    else:
        # Of names with spaces, only equal ones can be told apart; git needs that too.
        half = len(rest) // 2
        if rest[half : half + 1] == " " and rest[2:half] == rest[half + 3 :]:
            pair = (rest[:half], rest[half + 1 :])
        else:
            first, _, second = rest.partition(" ")
            pair = (first, second)
    plain = [_unquoted(name) for name in pair]
    return [name.partition("/")[2] if name[:2] in ("a/", "b/") else name for name in plain]


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


def _is_git(part: str) -> bool:
    # Some file systems take the second for the first.
    return part.lower().rstrip(". ") in (".git", "git~1")
