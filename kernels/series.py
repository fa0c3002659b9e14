"""A series: ordered patches, applied with the semantics of ``git apply``."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from email.header import decode_header, make_header
from pathlib import Path, PurePosixPath

from host.errors import SeriesError, UsageError
from host.process import run

SERIES_FOLDER = Path("configs/series")
APPLY_TIMEOUT_S = 120.0
# The user's git settings (apply.whitespace) and a surrounding hook's variables
# (GIT_DIR) would change what "applies" means.
FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
FAILED = re.compile(r"patch failed: (?P<file>.+):(?P<line>\d+)$", re.M)


@dataclass(frozen=True)
class Hunk:
    """One hunk: the file it changes, its number in that file, its first old line."""

    file: str
    number: int
    line: int
    header: str


@dataclass(frozen=True)
class Patch:
    """One patch file, read: ``files`` are all paths it names, old and new."""

    path: Path
    subject: str
    files: tuple[str, ...]
    hunks: tuple[Hunk, ...]

    @property
    def name(self) -> str:
        """The file's name, which is how messages call the patch."""
        return self.path.name


def known_series(checkout: Path) -> tuple[str, ...]:
    """Folders with patches that come with the lab, relative to the checkout."""
    found = {patch.parent for patch in (checkout / SERIES_FOLDER).glob("*/*.patch")}
    return tuple(sorted(str(folder.relative_to(checkout)) for folder in found))


def series_patches(checkout: Path, path: str) -> tuple[Path, ...]:
    """The patch files of a series in the order of their names; cover letters are left out.

    Raises:
        UsageError: no such folder, or no patch in it; the known series are named.
    """
    folder = checkout / Path(path).expanduser()
    patches = [
        patch for patch in sorted(folder.glob("*.patch")) if "cover-letter" not in patch.name
    ]
    if patches:
        return tuple(patches)
    known = known_series(checkout)
    close = difflib.get_close_matches(path, known, 1) or difflib.get_close_matches(
        str(SERIES_FOLDER / path), known, 1
    )
    hint = f"did you mean {close[0]}? " if close else ""
    raise UsageError(
        "no *.patch file in this folder" if folder.is_dir() else "no such folder",
        where=path,
        next_step=f"{hint}known series: {', '.join(known) or 'none'}",
    )


def read_patch(path: Path) -> Patch:
    """Read a patch's subject, the files it touches and its hunks.

    Raises:
        UsageError: the file cannot be read.
        SeriesError: the patch names a path outside the tree.
    """
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None
    files: dict[str, None] = {}
    hunks: list[Hunk] = []
    old = new = 0
    current = ""
    for line in text.split("\n"):
        if old > 0 or new > 0:  # inside a hunk, where "--- a/x" may be a removed line
            old -= line[:1] != "+" and line[:1] != "\\"
            new -= line[:1] != "-" and line[:1] != "\\"
            continue
        if match := HUNK.match(line):
            old, new = (int(match[i] or 1) for i in (2, 4))
            number = sum(hunk.file == current for hunk in hunks) + 1
            hunks.append(Hunk(current, number, int(match[1]), line))
            continue
        for name in _names(line.rstrip("\r")):
            current = name
            files[name] = None
    outside = [name for name in files if _is_outside(name)]
    if outside:
        raise SeriesError(
            f"names a path outside the kernel tree: {outside[0]}",
            where=path.name,
            next_step="take that path out of the patch",
        )
    return Patch(path, _subject(text) or path.stem, tuple(files), tuple(hunks))


def apply_argv(patch: Path, *, check: bool = False) -> list[str]:
    """The command that applies ``patch`` in the current folder, whatever encloses it."""
    return ["git", "apply", *(["--check"] if check else []), str(patch)]


def apply(patches: Sequence[Patch], folder: Path) -> None:
    """Apply the patches in ``folder``, one after another, each checked as a whole first.

    Raises:
        SeriesError: one does not apply; names patch, source file, line and hunk.
            Patches before it stay applied.
    """
    isolated = [word for name in FOREIGN for word in ("-u", name)]
    env = {
        "GIT_CEILING_DIRECTORIES": str(folder.resolve().parent),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C",
    }
    for patch in patches:
        for check in (True, False):
            done = run(
                ["env", *isolated, *apply_argv(patch.path.resolve(), check=check)],
                timeout_s=APPLY_TIMEOUT_S,
                cwd=folder,
                env=env,
                check=False,
            )
            if done.returncode != 0:
                raise _does_not_apply(patch, done.stderr)


def _does_not_apply(patch: Patch, said: str) -> SeriesError:
    match = FAILED.search(said)
    if match is None:
        what = f"does not apply: {said.strip() or 'git apply gave no reason'}"
    else:
        what = f"does not apply to {match['file']} at line {match['line']}"
        of_file = [hunk for hunk in patch.hunks if hunk.file == match["file"]]
        for hunk in of_file:
            if hunk.line == int(match["line"]):
                what += f" (hunk {hunk.number} of {len(of_file)}: {hunk.header})"
    return SeriesError(
        what,
        where=f"{patch.name} ({patch.subject})",
        next_step="rebase the series onto this kernel source, or choose its own base as source",
    )


def _names(line: str) -> list[str]:
    """Paths named by a header line; ``a/`` and ``b/`` are stripped as ``-p1`` does."""
    if match := re.match(r"diff --git (?:\"?a/)(.+?)\"? \"?b/(.+?)\"?$", line):
        return [match[1], match[2]]
    if match := re.match(r"(?:rename|copy) (?:from|to) (.+)$", line):
        return [match[1]]
    if match := re.match(r"(?:---|\+\+\+) ([^\t]+)", line):
        name = match[1].strip()
        return [] if name == "/dev/null" or "/" not in name else [name.partition("/")[2]]
    return []


def _is_outside(name: str) -> bool:
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts or ".git" in path.parts


def _subject(text: str) -> str:
    match = re.search(r"^Subject: (.+(?:\n[ \t].+)*)", text, re.M)
    if match is None:
        return ""
    subject = re.sub(r"\s*\n[ \t]+", " ", match[1])
    plain = str(make_header(decode_header(subject)))
    return re.sub(r"^(\[[^\]]*\]\s*)+", "", plain).strip()
