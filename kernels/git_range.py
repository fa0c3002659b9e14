"""Commits of git repositories: a range, a branch of the tree one stands in, who came first."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from errors import InfraError, UsageError
from experiment.series_name import split_range
from host.process import Finished, paste, run
from kernels.mail import slug
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


OF_PARENTS = (
    "-p", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color",
    "--unified=3", "--diff-algorithm=myers", "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip
LOG_FORMAT = "%H%x00%P%x00%an <%ae>%x00%s"


@dataclass(frozen=True)
class Line:
    """A line of commits: the one before the first, and those that change a file.

    ``commits`` are full names, in the order of the patches.
    """

    base: str
    commits: tuple[str, ...]


def write_line(repository: str, between: str, into: Path, *, checkout: Path) -> Line:
    """Write the commits of ``A..B`` in ``repository`` as patch files into ``into``.

    Raises:
        UsageError: no such repository or commits, or no commit in the range that changes
            anything.
    """
    parts = split_range(between)
    if parts is None or parts[0]:
        raise UsageError(
            "is not a range of commits", where=clean(between), next_step="--range A..B"
        )
    folder = checkout / Path(repository).expanduser()
    if not folder.is_dir():
        raise UsageError(
            f"no such repository: {clean(repository)}", where="--source",
            next_step="--source git:REPOSITORY",
        )  # fmt: skip
    first, last = (commit_of(folder, word, clean(between)) for word in parts[1:])
    output = run_git(
        folder, "log", "--first-parent", "--reverse", f"--format={LOG_FORMAT}", f"{first}..{last}"
    ).stdout
    base, commits = "", []
    for line in output.splitlines():
        commit, parents, author, subject = line.split("\0", 3)
        parent = parents.split(" ")[0]
        if not parent:
            raise UsageError(
                "reaches back to a commit without a parent", where=clean(between),
                next_step="begin the range at one of its ancestors",
            )  # fmt: skip
        base = base or parent
        diff = run_git(folder, "diff-tree", *OF_PARENTS, parent, commit).stdout
        if not diff.strip():
            continue
        commits.append(commit)
        name = f"{len(commits):04d}-{slug(subject)}.patch"
        head = f"From: {clean(author)}\nSubject: [PATCH] {clean(subject)}\n\n---\n\n"
        (into / name).write_text(head + diff, errors="surrogateescape")
    if not commits:
        raise UsageError(
            "there is no commit in the range that changes a file",
            where=clean(between),
            next_step="see git log --first-parent",
        )
    return Line(base, tuple(commits))


HEAD = "HEAD"
KEPT = "work-trees"
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
