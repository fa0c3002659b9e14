"""A range of commits as patch files, whatever the repository's settings are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from errors import InfraError, UsageError
from experiment.series_name import split_range
from host.process import Finished, paste, run
from text import clean

TIMEOUT_S = 300.0
# More than any series has.
MOST_COMMITS = 1000
SHORT = 12
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
    # Where history was cut off, all that is left of it would be the range.
    base = merge_base(folder, first, last, clean(name))
    require_diffs(folder, base, last, clean(name))
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
    return base


def merge_base(folder: Path, first: str, last: str, where: str) -> str:
    """The commit that two commits have in common.

    Raises:
        UsageError: there is none, or none in a shallow clone.
    """
    base = run_git(folder, "merge-base", first, last, check=False).stdout.strip()
    if not base:
        cut = is_shallow(folder)
        raise UsageError(
            f"{clean(first[:12])} and {clean(last[:12])} have no commit in common"
            + (" in this shallow clone" if cut else ""),
            where=where,
            next_step=deepen(folder) if cut else "name the branch that this one started from",
        )
    return base


def is_shallow(folder: Path) -> bool:
    """Whether history was cut off when the repository was cloned."""
    argv = ("rev-parse", "--is-shallow-repository")
    return run_git(folder, *argv, check=False).stdout.strip() == "true"


def deepen(folder: Path) -> str:
    """The command that gets more of a shallow clone's history."""
    return f"git -C {folder} fetch --deepen=1000, or --unshallow for all of it"


def require_files(folder: Path, base: str, last: str, where: str) -> None:
    """Refuse a partial clone that lacks files of a commit, or of those behind it up to another.

    The lab fetches nothing by itself: of a kernel these are 86,000 files, one after the other.

    Raises:
        UsageError: says how many are missing, and the command that fetches them at once.
    """
    if is_partial(folder):
        more = _between(folder, base, last) if last != base else ()
        missing = _missing(folder, (base, *more))
        if missing:
            raise _partial(folder, missing, base, last, where)


def require_diffs(folder: Path, base: str, last: str, where: str) -> None:
    """The same of the files alone that commits change.

    Raises:
        UsageError: as :func:`require_files`.
    """
    if is_partial(folder):
        commits = _between(folder, base, last)
        # Trees are compared by their hashes, so this reads no file.
        changed = run_git(
            folder, "log", "--no-renames", "--name-only", "-z", "--format=", f"{base}..{last}"
        ).stdout.split("\0")
        names = sorted({name for name in changed if name.strip("\n")})
        missing = _missing(folder, (base, *commits), names) if names else 0
        if missing:
            raise _partial(folder, missing, base, last, where)


def is_partial(folder: Path) -> bool:
    """Whether files were left out when the repository was cloned."""
    return bool(_filtered_remote(folder))


def _filtered_remote(folder: Path) -> str:
    argv = ("config", "--get-regexp", r"^remote\..*\.(promisor|partialclonefilter)$")
    keys = run_git(folder, *argv, check=False).stdout.split()
    return keys[0].removeprefix("remote.").rpartition(".")[0] if keys else ""


def _between(folder: Path, base: str, last: str) -> tuple[str, ...]:
    most = MOST_COMMITS + 1
    return tuple(run_git(folder, "rev-list", f"-{most}", f"{base}..{last}").stdout.split())


def _missing(folder: Path, commits: Sequence[str], names: Sequence[str] = ()) -> int:
    """How many of the files of these commits are not in the repository."""
    listing = ("rev-list", "--objects", "--no-walk", "--missing=print", *commits, "--", *names)
    output = run_git(folder, "--literal-pathspecs", *listing).stdout
    return sum(line.startswith("?") for line in output.splitlines())


def _partial(folder: Path, missing: int, base: str, last: str, where: str) -> UsageError:
    git = paste(["git", "-C", str(folder)])
    commits = (
        base[:SHORT]
        if base == last
        else (f"{base[:SHORT]} $({git} rev-list {base[:SHORT]}..{last[:SHORT]})")
    )
    return UsageError(
        f"a partial clone without {missing} of the files that are needed (git clone --filter), "
        "and the lab fetches nothing by itself",
        where=where,
        next_step=f"{git} rev-list --objects --no-walk --missing=print {commits} | "
        f"sed -n 's/^?//p' | {git} fetch --no-tags --no-write-fetch-head --filter=blob:none "
        f"--stdin {_filtered_remote(folder)}",
    )


def commit_of(folder: Path, ref: str, where: str) -> str:
    """The commit that ``ref`` names in a repository.

    Raises:
        UsageError: it names none.
    """
    commit = find_commit(folder, ref)
    if not commit:
        raise UsageError(
            f"git does not know {clean(ref)}", where=where,
            next_step=deepen(folder) if is_shallow(folder)
            else f"git -C {folder} fetch, or see git -C {folder} branch -a",
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
