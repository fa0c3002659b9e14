"""A range as patches along its first parents: each point is the tree of a commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from errors import UsageError
from experiment.spec import SeriesSpec
from kernels.git_range import write_line
from kernels.series import apply, read_patch
from tests.kernels.fake import Lab, patches_of
from tests.kernels.posting import git, repository


def edit_slow(tree: Path) -> None:
    with (tree / "mm/slow.c").open("a") as file:
        file.write("/* more */\n")


def merged(lab: Lab) -> Path:
    """base - one - merge (of a side branch with two commits) - nothing - last."""
    folder = repository(lab, edit_slow)
    git(folder, "checkout", "-qb", "side", "base")
    for number in range(2):
        (folder / f"mm/side{number}.c").write_text("int side;\n")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", f"side {number}")
    git(folder, "checkout", "-q", "topic")
    git(folder, "merge", "-q", "--no-ff", "-m", "merge the side", "side")
    git(folder, "commit", "-q", "--allow-empty", "-m", "nothing")
    (folder / "init.c").write_text((folder / "init.c").read_text() + "/* end */\n")
    git(folder, "commit", "-qam", "init: é last")
    return folder


def test_each_prefix_is_the_tree_of_its_commit(lab: Lab, tmp_path: Path) -> None:
    folder = merged(lab)
    into = tmp_path / "into"
    into.mkdir()
    line = write_line(str(folder), "base..topic", into, checkout=lab.checkout)
    assert line.base == git(folder, "rev-parse", "base")
    # Both commits of the side are one patch, the empty one is none.
    assert [git(folder, "log", "-1", "--format=%s", commit) for commit in line.commits] == [
        "mm: commit 0", "merge the side", "init: é last",
    ]  # fmt: skip
    patches = patches_of(SeriesSpec(path=str(into)), **lab.where)
    assert len(patches) == 3
    tree = tmp_path / "tree"
    subprocess.run(["git", "worktree", "add", "-q", tree, "base"], cwd=folder, check=True)
    for patch, commit in zip(patches, line.commits, strict=True):
        apply([read_patch(patch)], tree)
        git(tree, "add", "-A")
        assert git(tree, "write-tree") == git(folder, "rev-parse", f"{commit}^{{tree}}")


def test_settings_of_the_repository_change_nothing(lab: Lab, tmp_path: Path) -> None:
    folder = merged(lab)
    written = []
    for name in ("one", "other"):
        into = tmp_path / name
        into.mkdir()
        write_line(str(folder), "base..topic", into, checkout=lab.checkout)
        written.append({path.name: path.read_bytes() for path in into.iterdir()})
        with (folder / ".git/config").open("a") as file:
            file.write("[diff]\n\tnoprefix = true\n\tcontext = 9\n[log]\n\tshowSignature = true\n")
    assert written[0] == written[1]


@pytest.mark.parametrize(
    ("place", "between", "message"),
    [
        ("", "base..nowhere", "git does not know nowhere"),
        ("", "topic..base", "no commit in the range"),
        ("", "topic~1..topic~1", "no commit in the range"),
        ("", "topic", "is not a range"),
        ("", "git:x@base..topic", "is not a range"),
        ("nowhere", "base..topic", "no such repository"),
    ],
)
def test_what_is_no_range_is_refused(
    lab: Lab, tmp_path: Path, place: str, between: str, message: str
) -> None:
    folder = merged(lab)
    with pytest.raises(UsageError, match=message):
        write_line(place or str(folder), between, tmp_path, checkout=lab.checkout)
