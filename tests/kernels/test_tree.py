"""A real git tree with a branch in it, as a source and a series."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from errors import UsageError
from experiment.spec import SeriesSpec
from kernels.git_range import series_of, tree_at
from kernels.series import apply, read_patch
from tests.kernels.fake import COMMENT, FASTER, GROWN, Lab, keep, patches_of
from tests.kernels.posting import git


@pytest.fixture
def tree(lab: Lab) -> Path:
    """``mainline`` with two commits, and on its first one a branch ``topic/fast`` with two."""
    where = lab.source
    git(where, "init", "-q", "-b", "mainline")
    commit(where, "Linux 6.12")
    git(where, "branch", "topic/fast")
    (where / "README").write_text("mainline goes on\n")
    commit(where, "Linux 6.13")
    git(where, "checkout", "-q", "topic/fast")
    for number, edit in enumerate((FASTER, GROWN), 1):
        edit(where)
        commit(where, f"mm: step {number}")
    return where


def commit(tree: Path, subject: str) -> None:
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", subject)


def state(tree: Path) -> dict[str, str]:
    """Every file, the index and the refs of a repository; its objects may grow."""
    return {
        str(path.relative_to(tree)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in tree.rglob("*")
        if path.is_file() and "objects" not in path.parts
    }


def subjects(lab: Lab, series: tuple[str, ...]) -> list[str]:
    first, *stack = series
    spec = SeriesSpec(path=first, stack=tuple(stack))
    return [read_patch(path).subject for path in patches_of(spec, **lab.where)]


def rev(tree: Path, ref: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(tree), "rev-parse", ref], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_a_range_on_the_commit_it_starts_from(lab: Lab, tree: Path) -> None:
    before = state(tree)
    chosen = series_of(tree, "HEAD~2..", base="", uncommitted=False, cache=lab.cache)
    assert chosen.source == f"git:{tree}@{rev(tree, 'HEAD~2')}"
    assert chosen.series == (f"git:{tree}@HEAD~2..topic/fast",)
    assert subjects(lab, chosen.series) == ["mm: step 1", "mm: step 2"]
    assert [note.partition(":")[0] for note in chosen.notes] == ["source", "series"]
    assert chosen.notes[0].endswith('("Linux 6.12")')
    assert chosen.notes[1].startswith("series: 2 commits up to ")
    assert state(tree) == before


@pytest.mark.parametrize("revision", ["topic/fast", ""])
def test_a_branch_on_top_of_one_that_went_on(lab: Lab, tree: Path, revision: str) -> None:
    chosen = series_of(tree, revision, base="mainline", uncommitted=False, cache=lab.cache)
    assert chosen.source.endswith(f"@{rev(tree, 'HEAD~2')}")
    assert subjects(lab, chosen.series) == ["mm: step 1", "mm: step 2"]


def test_changes_that_are_not_committed_are_a_patch(lab: Lab, tree: Path) -> None:
    COMMENT(tree)
    git(tree, "add", "-A")  # staged, and one more that is not
    raw = (tree / "mm/slow.c").read_bytes() + b"/* latin: \xe9 */\n"
    (tree / "mm/slow.c").write_bytes(raw)
    (tree / "mm/new.c").write_text("int x;\n")
    before = state(tree)
    chosen = series_of(tree, "", base="", uncommitted=True, cache=lab.cache)
    assert state(tree) == before
    assert chosen.source == f"git:{tree}@{rev(tree, 'HEAD')}"
    assert chosen.notes[1:] == (
        "uncommitted: mm/filemap.c, mm/slow.c",
        "left out, since git does not know it: mm/new.c",
    )
    (diff,) = chosen.series
    assert Path(diff).name.startswith("topic-fast-uncommitted-")
    spec = SeriesSpec(path=diff)
    target = lab.checkout / "target"
    git(tree, "worktree", "add", "-q", "--detach", str(target), "HEAD")
    apply([read_patch(path) for path in patches_of(spec, **lab.where)], target)
    assert (target / "mm/slow.c").read_bytes() == raw
    # The same changes have the same name, and so the same kernel.
    assert series_of(tree, "", base="", uncommitted=True, cache=lab.cache).series == chosen.series
    keep(spec, **lab.where)


def test_changes_on_top_of_a_range(lab: Lab, tree: Path) -> None:
    COMMENT(tree)
    left = series_of(tree, "HEAD~1..", base="", uncommitted=False, cache=lab.cache)
    assert left.notes[-1] == "left out, since not committed: mm/filemap.c (--dirty has it in)"
    assert len(left.series) == 1
    chosen = series_of(tree, "HEAD~1..", base="", uncommitted=True, cache=lab.cache)
    assert chosen.source.endswith(rev(tree, "HEAD~1"))
    assert [subject.partition("-uncommitted")[0] for subject in subjects(lab, chosen.series)] == [
        "mm: step 2", "topic-fast",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("revision", "base", "uncommitted", "message"),
    [
        ("", "", False, "no range is named"),
        ("topic/fast", "", False, "'topic/fast' is not a range"),
        ("HEAD~1..", "mainline", False, "needs no --base"),
        ("nothing..", "", False, "git does not know nothing"),
        ("HEAD..HEAD~1", "", False, "no commit in the range"),
        ("", "", True, "there are no uncommitted changes"),
        ("HEAD~2..HEAD~1", "", True, "on top of HEAD, not of HEAD~1"),
        ("orphan", "mainline", False, "no commit in common"),
    ],
)
def test_what_cannot_be_meant(
    lab: Lab, tree: Path, revision: str, base: str, uncommitted: bool, message: str
) -> None:
    git(tree, "checkout", "-q", "--orphan", "orphan")
    commit(tree, "another history")
    git(tree, "checkout", "-q", "topic/fast")

    def taken() -> None:
        chosen = series_of(tree, revision, base=base, uncommitted=uncommitted, cache=lab.cache)
        subjects(lab, chosen.series)

    with pytest.raises(UsageError) as caught:
        taken()
    assert message in caught.value.what
    assert caught.value.next_step


def test_a_tree_is_the_same_from_any_folder_in_it_and_in_a_worktree(lab: Lab, tree: Path) -> None:
    assert tree_at(tree / "mm") == tree
    beside = lab.checkout / "beside"
    git(tree, "worktree", "add", "-q", "--detach", str(beside), "mainline")
    assert tree_at(beside) == beside
    chosen = series_of(beside, "HEAD~1..", base="", uncommitted=False, cache=lab.cache)
    # Nothing is checked out that has a name.
    assert chosen.series == (f"git:{beside}@HEAD~1..HEAD",)


def test_what_is_no_kernel_tree(tmp_path: Path, lab: Lab) -> None:
    with pytest.raises(UsageError, match="not a git work tree of a kernel"):
        tree_at(lab.source)  # a tarball's tree
    git(lab.checkout, "init", "-q")
    with pytest.raises(UsageError, match="not a git work tree of a kernel"):
        tree_at(lab.checkout)
