"""Commits of git repositories: a range, a branch of the tree one stands in, who came first."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from errors import InfraError, UsageError
from experiment.series_name import split_range
from files import sha256_of
from host.process import Finished, TimedOutError, paste, run
from kernels.mail import slug
from kernels.series import PLAIN_GIT
from text import clean, enumerated, words

# Of a command, and of what it may wait for without doing anything.
TIMEOUT_S, IDLE_S = 300.0, 10.0
# What git may print or write into a file, and take for itself besides the files that it maps.
MOST_BYTES, MOST_MEMORY = 256 << 20, 2 << 30
MEMORY = re.compile("out of memory|cannot allocate memory", re.I)
# More than any series has.
MOST_COMMITS = 1000
SHORT = 12
# What git says of a repository of another user.
DUBIOUS = "detected dubious ownership"
HEAD = "HEAD"
# In place of a ref: the files as they are, with what is not committed.
WORK_TREE = "WORKTREE"
KEPT = "work-trees"
# Else git refreshes the index by the way.
QUIET = ("--no-optional-locks",)
# Of a submodule git asks a git of its own, with settings of its own.
STATUS = ("status", "--porcelain", "--ignore-submodules=all")
# Settings of the repository that would change what a diff, or a patch, looks like.
DIFF = words(
    "--src-prefix=a/ --dst-prefix=b/ --no-renames --no-ext-diff --no-textconv --no-color "
    "--full-index --unified=3 --diff-algorithm=myers --inter-hunk-context=0"
)
FORMAT = words(
    "--no-signature --zero-commit --no-attach --no-thread --no-cover-letter --no-notes --no-base "
    "--no-signoff --no-numbered --subject-prefix=PATCH --suffix=.patch --encode-email-headers"
)
ENVIRONMENT = {**PLAIN_GIT, "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
SETTINGS = words(
    "core.quotePath=true core.fsmonitor=false core.hooksPath=/dev/null log.showSignature=false "
    "submodule.recurse=false"
)
FILTERS = r"^filter\..*\.(clean|smudge|process|required)$"
LOG_FORMAT = "%H%x00%P%x00%an <%ae>%x00%s"


def write_patches(name: str, into: Path, *, checkout: Path, repository: str = "") -> str:
    """Write a range's commits; return the one before.  UsageError: none, or merges in it."""
    folder, first, last = _named(name, checkout, repository, bare=False)
    between = f"{first}..{last}"
    # Where history was cut off, all that is left of it would be the range.
    base = merge_base(folder, first, last, clean(name))
    require_files(folder, base, last, clean(name), changed_only=True)
    count = int(run_git(folder, "rev-list", "--count", between).stdout)
    if count > MOST_COMMITS:
        what = f"has {count} commits, more than {MOST_COMMITS}"
        raise UsageError(what, where=clean(name), next_step="name a shorter range")
    if run_git(folder, "rev-list", "--merges", "-1", between).stdout.strip():
        what = "there are merges in the range, and a merge is no patch"
        step = "name a range without merges, or rebase it"
        raise UsageError(what, where=clean(name), next_step=step)
    run_git(folder, "format-patch", "--quiet", *FORMAT, *DIFF, "-o", str(into), between)
    if not any(into.iterdir()):
        raise UsageError(
            "there is no commit in the range", where=clean(name), next_step="see git log"
        )
    return base


def write_line(
    name: str, into: Path, *, checkout: Path, repository: str
) -> tuple[str, tuple[str, ...]]:
    """Write ``A..B`` along its first parents, a merge as one patch, into ``into``.

    Returns the commit before the first, and those that change a file; UsageError: there are none.
    """
    folder, first, last = _named(name, checkout, repository, bare=True)
    argv = ("log", "--first-parent", "--reverse", f"--format={LOG_FORMAT}", f"{first}..{last}")
    base, commits = "", []
    for line in run_git(folder, *argv).stdout.splitlines():
        commit, parents, author, subject = line.split("\0", 3)
        parent = parents.split(" ")[0]
        if not parent:
            what = "reaches back to a commit without a parent"
            step = "begin the range at one of its ancestors"
            raise UsageError(what, where=clean(name), next_step=step)
        base = base or parent
        diff = run_git(folder, "diff-tree", "-p", *DIFF, parent, commit).stdout
        if diff.strip():
            commits.append(commit)
            head = f"From: {clean(author)}\nSubject: [PATCH] {clean(subject)}\n\n---\n\n"
            file = into / f"{len(commits):04d}-{slug(subject)}.patch"
            file.write_text(head + diff, errors="surrogateescape")
    if not commits:
        what = "there is no commit in the range that changes a file"
        raise UsageError(what, where=clean(name), next_step="see git log --first-parent")
    return base, tuple(commits)


def _named(name: str, checkout: Path, repository: str, *, bare: bool) -> tuple[Path, str, str]:
    """The repository of a range, which a ``bare`` one does not name, and its two commits."""
    what = "is not a range of commits in a repository"
    parts = split_range(name)
    place = parts[0] or repository if parts else ""
    if parts and place and not (bare and parts[0]):
        folder = checkout / Path(place).expanduser()
        if folder.is_dir():
            first, last = (commit_of(folder, word, clean(name)) for word in parts[1:])
            return folder, first, last
        what = f"no such repository: {clean(place)}"
    step = "write A..B, with --source git:PATH" if bare else "write git:REPOSITORY@A..B"
    raise UsageError(what, where=clean(name), next_step=step)


def merge_base(folder: Path, first: str, last: str, where: str) -> str:
    """The commit that two have in common; UsageError: none, or none in a shallow clone."""
    base = run_git(folder, "merge-base", first, last, check=False).stdout.strip()
    if not base:
        cut = _deepen(folder)
        raise UsageError(
            f"{clean(first[:SHORT])} and {clean(last[:SHORT])} have no commit in common"
            + (" in this shallow clone" if cut else ""),
            where=where,
            next_step=cut or "name the branch that this one started from",
        )
    return base


def _deepen(folder: Path) -> str:
    """The command that gets more of a history that was cut off when it was cloned, or nothing."""
    argv = ("rev-parse", "--is-shallow-repository")
    cut = run_git(folder, *argv, check=False).stdout.strip() == "true"
    return f"git -C {folder} fetch --deepen=1000, or --unshallow for all of it" if cut else ""


def require_files(
    folder: Path, base: str, last: str, where: str, *, changed_only: bool = False
) -> None:
    """Refuse a partial clone that lacks files of a range (or those that it changes).

    The lab fetches nothing by itself.  Raises UsageError: says how many, and what fetches them.
    """
    argv = ("config", "--get-regexp", r"^remote\..*\.(promisor|partialclonefilter)$")
    keys = run_git(folder, *argv, check=False).stdout.split()
    if not keys:
        return
    remote = keys[0].removeprefix("remote.").rpartition(".")[0]
    between = f"{base}..{last}"
    commits = [base]
    if last != base:
        commits += run_git(folder, "rev-list", f"-{MOST_COMMITS + 1}", between).stdout.split()
    names: list[str] = []
    if changed_only:
        # Trees are compared by their hashes, so this reads no file.
        log = ("log", "--no-renames", "--name-only", "-z", "--format=", between)
        names = sorted(
            {name for name in run_git(folder, *log).stdout.split("\0") if name.strip("\n")}
        )
        if not names:
            return
    listing = ("rev-list", "--objects", "--no-walk", "--missing=print")
    output = run_git(folder, "--literal-pathspecs", *listing, *commits, "--", *names).stdout
    missing = sum(line.startswith("?") for line in output.splitlines())
    if missing:
        git = paste(["git", "-C", str(folder)])
        words = base[:SHORT]
        if last != base:
            words += f" $({git} rev-list {base[:SHORT]}..{last[:SHORT]})"
        raise UsageError(
            f"a partial clone without {missing} of the files that are needed (git clone --filter), "
            "and the lab fetches nothing by itself",
            where=where,
            next_step=f"{git} {' '.join(listing)} {words} | sed -n 's/^?//p' | {git} fetch "
            f"--no-tags --no-write-fetch-head --filter=blob:none --stdin {remote}",
        )


def commit_of(folder: Path, ref: str, where: str) -> str:
    """The commit that ``ref`` names in a repository.  Raises UsageError: it names none."""
    commit = find_commit(folder, ref)
    if not commit:
        step = _deepen(folder) or f"git -C {folder} fetch, or see git -C {folder} branch -a"
        raise UsageError(f"git does not know {clean(ref)}", where=where, next_step=step)
    return commit


def find_commit(folder: Path, ref: str) -> str:
    """The commit that ``ref`` names in a repository, or nothing."""
    arguments = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"]
    return run_git(folder, *arguments, check=False).stdout.strip()


def settled_commit(folder: Path, ref: str, where: str) -> str:
    """The commit of a ref; without one that which is checked out, if nothing is changed.

    ``WORK_TREE`` is a commit of the files as they are: neither files nor branches are touched.  It
    is what ``git stash`` would keep, so files that git does not know are not in it.
    Raises UsageError: there is none; files that git knows differ from it; or it has no work tree.
    """
    if ref == WORK_TREE:
        _top_of(folder, where)
        who = ("-c", "user.name=twinboot", "-c", "user.email=twinboot@localhost")
        stash = run_git(folder, *who, "stash", "create", check=False)
        if stash.returncode:
            what = f"git cannot keep its work tree: {clean(stash.tail())}"
            raise UsageError(what, where=where, next_step="name a commit or a branch")
        return stash.stdout.strip() or commit_of(folder, HEAD, where)
    if not ref:
        status = run_git(folder, *STATUS, "--untracked-files=no", check=False)
        # A bare repository has no files, and so no status.
        changed = status.stdout.splitlines() if status.returncode == 0 else []
        if changed:
            raise UsageError(
                f"{len(changed)} files are changed and not committed, as {clean(changed[0][3:])}",
                where=where,
                next_step=f"write @{HEAD} behind the path to leave them out, @{WORK_TREE} to have "
                "them in, or commit them",
            )
    return commit_of(folder, ref or HEAD, where)


def run_git(
    folder: Path, *arguments: str, check: bool = True, stdin_text: str | None = None
) -> Finished:
    """Run git, whatever the settings of user and repository, which may be a stranger's.

    Raises UsageError: it is another user's, git waits, as for a pipe among its files, or gives more
    than any kernel has; InfraError: git failed.
    """
    bounds = ("prlimit", f"--data={MOST_MEMORY}", f"--fsize={MOST_BYTES}", "--")
    where = clean(str(folder))
    limited = partial(run, timeout_s=(TIMEOUT_S, IDLE_S), env=ENVIRONMENT, check=False)
    git = ["git", "-C", str(folder)]
    listing = [*git, "config", "--null", "--name-only", "--get-regexp", FILTERS]
    try:
        # Settings by which no one of the repository's names a program to run.
        filters = [name for name in limited(listing).stdout.split("\0") if name]
        settings = [f"{name}={'false' if name.endswith('.required') else ''}" for name in filters]
        settings = [word for each in (*SETTINGS, *settings) for word in ("-c", each)]
        with tempfile.TemporaryFile() as output:
            argv = [*bounds, *git, *QUIET, *settings, *arguments]
            finished = limited(argv, stdin_text=stdin_text, output=output)
            if finished.returncode != -signal.SIGXFSZ:
                output.seek(0)
                finished = replace(finished, stdout=output.read().decode(errors="replace"))
    except TimedOutError as error:
        what = f"git {clean(arguments[0])} {error.what}, as at a pipe among its files"
        raise UsageError(what, where=where, next_step="clone it, and name the clone") from None
    if DUBIOUS in finished.stderr:
        what = "a repository that somebody else owns, whose settings may run programs as you"
        raise UsageError(what, where=where, next_step="clone it, and name the clone")
    if finished.returncode == -signal.SIGXFSZ or MEMORY.search(finished.stderr):
        what = f"git {clean(arguments[0])} gives more than {MOST_BYTES >> 20} MiB, or takes "
        what += f"more than {MOST_MEMORY >> 30} GiB of memory: no kernel's history does"
        raise UsageError(what, where=where, next_step="name another repository, or a shorter range")
    if check and finished.returncode:
        what = f"exit status {finished.returncode}\n{finished.tail()}"
        raise InfraError(what, where=paste(finished.argv), next_step="run it by hand")
    return finished


@dataclass(frozen=True)
class TreeSeries:
    """A series of a tree: as ``--source`` and ``--series`` name it; ``notes`` are for people."""

    source: str
    series: tuple[str, ...]
    notes: tuple[str, ...]


def tree_at(here: Path) -> Path:
    """The top of the kernel tree (git) that a folder lies in; UsageError: there is none."""
    top = _top_of(here, clean(str(here.absolute())))
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
        what = "a kernel tree below a folder with @ in its name"
        step = "go into a git worktree of it elsewhere: git worktree add FOLDER"
        raise UsageError(what, where=clean(top), next_step=step)
    return Path(top)


def _top_of(folder: Path, where: str) -> str:
    """The top of a work tree, if it has one; UsageError: settings place it in another's folder."""
    top = run_git(folder, "rev-parse", "--show-toplevel", check=False).stdout.strip()
    own = ("rev-parse", "--absolute-git-dir")
    places = [run_git(Path(each), *own, check=False).stdout for each in (folder, top or folder)]
    if places[0] != places[1]:
        what = f"its settings say that its files are those of {clean(top)} (core.worktree)"
        raise UsageError(what, where=where, next_step="name a commit, or clone the repository")
    return top


def series_of(tree: Path, commits: str, *, base: str, uncommitted: bool, cache: Path) -> TreeSeries:
    """A range ``A..B``, or a branch on top of ``base``; with ``uncommitted`` changes on top of it.

    The kernel's source is the commit that the series starts from.  Changes that are not
    committed are written into the cache as a diff; files that git does not know are not in it.
    Raises UsageError: no such commits, nothing that is changed, or words that contradict.
    """
    first, last = _ends(commits, base, uncommitted)
    where = clean(f"{tree}: {commits or base or '--dirty'}")
    start = tip = commit_of(tree, last, where)
    head = commit_of(tree, HEAD, where)
    # The branch that is checked out, by which a session is called.
    branch = run_git(tree, "symbolic-ref", "--quiet", "--short", HEAD, check=False).stdout.strip()
    # A name with more in it than a range may have is not worth a refusal.
    branch = branch if split_range(f"x..{branch}") == ("", "x", branch) else HEAD
    if first:
        start = merge_base(tree, commit_of(tree, first, where), tip, where)
    require_files(tree, start, tip, where)
    notes = [f"source: {_words(tree, start)}"]
    series: list[str] = []
    # What is not committed may be all there is.
    if first and not (uncommitted and start == tip):
        series.append(f"git:{tree}@{first}..{branch if last == HEAD else last}")
        count = run_git(tree, "rev-list", "--count", f"{start}..{tip}").stdout.strip()
        notes.append(f"series: {count} commits up to {_words(tree, tip)}")
    output = run_git(tree, *STATUS, "-z", "--no-renames").stdout
    entries = [entry for entry in output.split("\0") if entry]
    unknown = [entry[3:] for entry in entries if entry[:2] == "??"]
    changed = [entry[3:] for entry in entries if entry[:2] != "??"]
    names = clean(enumerated(changed, most=3))
    if not uncommitted:
        if changed and tip == head:
            notes.append(f"left out, since not committed: {names} (--dirty has it in)")
        return TreeSeries(f"git:{tree}@{start}", tuple(series), tuple(notes))
    if tip != head:
        what = f"uncommitted changes are on top of HEAD, not of {clean(last)}"
        step = "leave out --dirty, or name a range that ends at HEAD"
        raise UsageError(what, where=where, next_step=step)
    if not changed:
        step = "git add files that git does not know, or leave out --dirty"
        raise UsageError("there are no uncommitted changes", where=where, next_step=step)
    notes.append(f"uncommitted: {names}")
    if unknown:
        known_to_none = clean(enumerated(unknown, most=3))
        notes.append(f"left out, since git does not know it: {known_to_none}")
    folder = cache / KEPT
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f".{os.getpid()}.new"
    # Into a file: what is no UTF-8 stays as it is.
    run_git(tree, "diff", *DIFF, "--ignore-submodules=all", f"--output={beside}", HEAD)
    name = f"{slug(branch).lower()}-uncommitted-{sha256_of(beside)[:8]}.diff"
    diff = beside.replace(folder / name)
    return TreeSeries(f"git:{tree}@{start}", (*series, str(diff)), tuple(notes))


def changes_of(tree: Path, base: str) -> bytes:
    """What known files of a tree change of a commit, as a diff; raises as :func:`run_git`."""
    diff = run_git(tree, "diff", *DIFF, "--ignore-submodules=all", "--binary", base).stdout
    return diff.encode(errors="surrogateescape")


def _words(tree: Path, commit: str) -> str:
    subject = run_git(tree, "show", "-s", "--format=%s", commit).stdout.strip()
    return f'{commit[:SHORT]} ("{clean(subject, 72)}")'


def _ends(commits: str, base: str, uncommitted: bool) -> tuple[str, str]:
    """First and last of the range; no first where only the uncommitted changes are asked for."""
    parts = split_range(commits) if commits else None
    if parts and (base or parts[0]):
        what = "a range of this tree needs no --base and no repository"
        step = "write A..B, or --base A and the branch"
        raise UsageError(what, where=clean(commits), next_step=step)
    if parts:
        return parts[1], parts[2]
    if base:
        return base, commits or HEAD
    if uncommitted and not commits:
        return "", HEAD
    what = f"{clean(commits)!r} is not a range of commits" if commits else "no range is named"
    step = "write A..B (HEAD~3..), or BRANCH --base MAINLINE, or --dirty"
    raise UsageError(what, where="tree", next_step=step)
