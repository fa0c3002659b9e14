"""A range of commits as patch files, whatever the repository's settings are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from errors import InfraError, UsageError
from experiment.series_name import split_range
from host.process import Finished, paste, run
from kernels.cleaning import clean

TIMEOUT_S = 300.0
# What git says of a repository of another user.
DUBIOUS = "detected dubious ownership"
# In place of a ref: the files as they are, with what is not committed.
WORK_TREE = "WORKTREE"
# Settings of the repository that would change what a diff, or a patch, looks like.
DIFF = (
    "--src-prefix=a/", "--dst-prefix=b/", "--no-renames", "--no-ext-diff", "--no-textconv",
    "--no-color", "--full-index", "--unified=3", "--diff-algorithm=myers",
    "--inter-hunk-context=0",
)  # fmt: skip
FORMAT = (
    "--no-signature", "--zero-commit", "--no-attach", "--no-thread", "--no-cover-letter",
    "--no-notes", "--no-base", "--no-signoff", "--no-numbered", "--subject-prefix=PATCH",
    "--suffix=.patch", "--encode-email-headers", *DIFF,
)  # fmt: skip


def write_patches(name: str, into: Path, *, checkout: Path, repository: str = "") -> str:
    """Write the commits of ``git:REPOSITORY@A..B`` into ``into``; return the commit before them.

    Raises:
        UsageError: no such repository or commits, none or merges in the range.
    """
    parts = split_range(name)
    place = (parts[0] or repository) if parts else ""
    if parts is None or not place:
        raise UsageError(
            "is not a range of commits in a repository",
            where=clean(name),
            next_step="write git:REPOSITORY@A..B",
        )
    folder = checkout / Path(place).expanduser()
    if not folder.is_dir():
        raise UsageError(
            f"no such repository: {clean(place)}", where=clean(name),
            next_step="write git:REPOSITORY@A..B",
        )  # fmt: skip
    first, last = (commit_of(folder, word, clean(name)) for word in parts[1:])
    between = f"{first}..{last}"
    if run_git(folder, "rev-list", "--merges", "-1", between).stdout.strip():
        raise UsageError(
            "there are merges in the range, and a merge is no patch",
            where=clean(name),
            next_step="name a range without merges, or rebase it",
        )
    run_git(folder, "format-patch", "--quiet", *FORMAT, "-o", str(into), between)
    if not any(into.iterdir()):
        raise UsageError(
            "there is no commit in the range", where=clean(name), next_step="see git log"
        )
    return run_git(folder, "merge-base", first, last).stdout.strip()


def commit_of(folder: Path, ref: str, where: str) -> str:
    """The commit that ``ref`` names in a repository.

    Raises:
        UsageError: it names none.
    """
    commit = find_commit(folder, ref)
    if not commit:
        raise UsageError(
            f"git does not know {clean(ref)}", where=where,
            next_step=f"git -C {folder} fetch, or see git -C {folder} branch -a",
        )  # fmt: skip
    return commit


def find_commit(folder: Path, ref: str) -> str:
    """The commit that ``ref`` names in a repository, or nothing."""
    arguments = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"]
    return run_git(folder, *arguments, check=False).stdout.strip()


def head_of(folder: Path, where: str) -> str:
    """The commit that is checked out, for a user who named none.

    Raises:
        UsageError: there is none, or files that git knows differ from it.
    """
    status = run_git(folder, "status", "--porcelain", "--untracked-files=no", check=False)
    # A bare repository has no files, and so no status.
    changed = status.stdout.splitlines() if status.returncode == 0 else []
    if changed:
        raise UsageError(
            f"{len(changed)} files are changed and not committed, as {clean(changed[0][3:])}",
            where=where,
            next_step="write @HEAD behind the path to leave them out, "
            f"@{WORK_TREE} to have them in, or commit them",
        )
    return commit_of(folder, "HEAD", where)


def work_tree_of(folder: Path, where: str) -> str:
    """A commit of the files as they are; neither files nor branches are touched.

    It is what ``git stash`` would keep: files that git does not know are not in it.

    Raises:
        UsageError: the repository has no work tree.
    """
    who = ("-c", "user.name=twinboot", "-c", "user.email=twinboot@localhost")
    stash = run_git(folder, *who, "stash", "create", check=False)
    if stash.returncode:
        raise UsageError(
            f"git cannot keep its work tree: {clean(stash.tail())}", where=where,
            next_step="name a commit or a branch",
        )  # fmt: skip
    return stash.stdout.strip() or commit_of(folder, "HEAD", where)


def run_git(folder: Path, *arguments: Sequence[str] | str, check: bool = True) -> Finished:
    """Run git in a repository, whatever the user's settings are.

    Raises:
        UsageError: the repository is somebody else's.
        InfraError: with ``check``, a status other than 0.
    """
    # Git reads no settings of a repository that somebody else owns: they name programs to run.
    finished = run(
        ["git", "-C", str(folder), "-c", "core.quotePath=true", *map(str, arguments)],
        timeout_s=TIMEOUT_S,
        env={
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "LC_ALL": "C",
        },
        check=False,
    )
    if DUBIOUS in finished.stderr:
        raise UsageError(
            "a repository that somebody else owns, whose settings may run programs as you",
            where=clean(str(folder)),
            next_step="clone it, and name the clone",
        )
    if check and finished.returncode:
        raise InfraError(
            f"exit status {finished.returncode}\n{finished.tail()}", where=paste(finished.argv),
            next_step="run it by hand",
        )  # fmt: skip
    return finished
