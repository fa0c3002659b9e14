"""A range of commits, merges too, as patches along its first parents.

What a merge brought in is one patch, so that every point of the line is the tree of a
commit: what bisecting a range needs, and what ``git format-patch`` does not give.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from errors import UsageError
from experiment.series_name import split_range
from kernels.git_range import commit_of, run_git
from kernels.patch_text import slug
from text import clean

DIFF = (
    "-p", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color",
    "--unified=3", "--diff-algorithm=myers", "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip
FORMAT = "%H%x00%P%x00%an <%ae>%x00%s"


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
        folder, "log", "--first-parent", "--reverse", f"--format={FORMAT}", f"{first}..{last}"
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
        diff = run_git(folder, "diff-tree", *DIFF, parent, commit).stdout
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
