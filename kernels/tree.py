"""A kernel tree with a branch in it, as a source and a series: what a developer stands in.

Nothing in the tree is changed, neither files nor index nor refs.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from errors import UsageError
from experiment.series_name import split_range
from kernels.git_range import DIFF, commit_of, merge_base, require_files, run_git
from kernels.patch_text import slug
from text import clean

HEAD = "HEAD"
KEPT = "work-trees"
SHORT = 12
# Else git refreshes the index by the way.
QUIET = ("--no-optional-locks",)


@dataclass(frozen=True)
class TreeSeries:
    """A series of a tree: as ``--source`` and ``--series`` name it; ``notes`` are for people."""

    source: str
    series: tuple[str, ...]
    notes: tuple[str, ...]


def tree_at(here: Path) -> Path:
    """The top of the kernel tree, a git work tree, that a folder lies in.

    Raises:
        UsageError: there is none.
    """
    top = run_git(here, "rev-parse", "--show-toplevel", check=False).stdout.strip()
    # Of the commit: a sparse checkout may have neither as a file.
    listed = ("ls-tree", "--name-only", "--full-tree", HEAD, "Makefile", "Kconfig")
    if not top or len(run_git(here, *listed, check=False).stdout.split()) != 2:
        raise UsageError(
            "not a git work tree of a kernel",
            where=clean(str(here.absolute())),
            next_step="go into one, or name a series: ./lab.py run --series git:PATH@A..B "
            "--source git:PATH@A",
        )
    if "@" in top:
        raise UsageError(
            "a kernel tree below a folder with @ in its name", where=clean(top),
            next_step="go into a git worktree of it elsewhere: git worktree add FOLDER",
        )  # fmt: skip
    return Path(top)


def series_of(tree: Path, commits: str, *, base: str, uncommitted: bool, cache: Path) -> TreeSeries:
    """A range ``A..B``, or a branch on top of ``base``; with ``uncommitted`` changes on top of it.

    The kernel's source is the commit that the series starts from.  Changes that are not
    committed are written into the cache as a diff; files that git does not know are not in it.

    Raises:
        UsageError: no such commits, nothing that is changed, or words that contradict.
    """
    first, last = _ends(commits, base, uncommitted)
    where = clean(f"{tree}: {commits or base or '--dirty'}")
    tip, head = commit_of(tree, last, where), commit_of(tree, HEAD, where)
    start = tip
    series: list[str] = []
    if first:
        start = merge_base(tree, commit_of(tree, first, where), tip, where)
        series.append(f"git:{tree}@{first}..{_branch(tree) if last == HEAD else last}")
    require_files(tree, start, tip, where)
    changed, unknown = _status(tree)
    notes = [f"source: {_words(tree, start)}"]
    if uncommitted:
        if tip != head:
            raise UsageError(
                f"uncommitted changes are on top of HEAD, not of {clean(last)}",
                where=where, next_step="leave out --dirty, or name a range that ends at HEAD",
            )  # fmt: skip
        if not changed:
            raise UsageError(
                "there are no uncommitted changes", where=where,
                next_step="git add files that git does not know, or leave out --dirty",
            )  # fmt: skip
        series.append(str(_keep_diff(tree, cache)))
        notes.append(f"uncommitted: {_files(changed)}")
        if unknown:
            notes.append(f"left out, since git does not know it: {_files(unknown)}")
    elif changed and tip == head:
        notes.append(f"left out, since not committed: {_files(changed)} (--dirty has it in)")
    if first:
        count = run_git(tree, "rev-list", "--count", f"{start}..{tip}").stdout.strip()
        notes.insert(1, f"series: {count} commits up to {_words(tree, tip)}")
    return TreeSeries(f"git:{tree}@{start}", tuple(series), tuple(notes))


def _ends(commits: str, base: str, uncommitted: bool) -> tuple[str, str]:
    """First and last of the range; no first where only the uncommitted changes are asked for."""
    parts = split_range(commits) if commits else None
    if parts and (base or parts[0]):
        raise UsageError(
            "a range of this tree needs no --base and no repository", where=clean(commits),
            next_step="write A..B, or --base A and the branch",
        )  # fmt: skip
    if parts:
        return parts[1], parts[2]
    if base:
        return base, commits or HEAD
    if uncommitted and not commits:
        return "", HEAD
    raise UsageError(
        f"{clean(commits)!r} is not a range of commits" if commits else "no range is named",
        where="tree",
        next_step="write A..B (HEAD~3..), or BRANCH --base MAINLINE, or --dirty",
    )


def _branch(tree: Path) -> str:
    """The branch that is checked out, by which a session is called, or HEAD."""
    name = run_git(tree, "symbolic-ref", "--quiet", "--short", HEAD, check=False).stdout.strip()
    # A name with more in it than a range may have is not worth a refusal.
    return name if split_range(f"x..{name}") == ("", "x", name) else HEAD


def _words(tree: Path, commit: str) -> str:
    subject = run_git(tree, "show", "-s", "--format=%s", commit).stdout.strip()
    return f'{commit[:SHORT]} ("{clean(subject, 72)}")'


def _status(tree: Path) -> tuple[list[str], list[str]]:
    """Files that differ from HEAD, and files that git neither knows nor ignores."""
    output = run_git(tree, *QUIET, "status", "--porcelain", "-z", "--no-renames").stdout
    names = [(entry[:2], entry[3:]) for entry in output.split("\0") if entry]
    changed = [name for state, name in names if state != "??"]
    return changed, [name for state, name in names if state == "??"]


def _files(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{clean(', '.join(names[:3]))}{more}"


def _keep_diff(tree: Path, cache: Path) -> Path:
    """The uncommitted changes as a file, named for the branch and for what is in it."""
    folder = cache / KEPT
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f".{os.getpid()}.new"
    # Into a file: what is no UTF-8 stays as it is.
    run_git(tree, *QUIET, "diff", *DIFF, f"--output={beside}", HEAD)
    digest = hashlib.sha256(beside.read_bytes()).hexdigest()[:8]
    return beside.replace(folder / f"{slug(_branch(tree)).lower()}-uncommitted-{digest}.diff")
