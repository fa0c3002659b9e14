from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import SeriesError
from kernels.series import apply, read_patch, reverted
from tests.kernels.fake import Lab, replace
from tests.kernels.posting import git


def contents(tree: Path) -> dict[str, tuple[bytes, bool]]:
    return {
        str(path.relative_to(tree)): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for path in sorted(tree.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    }


def edit(tree: Path) -> None:
    replace("mm/filemap.c", "index >> 4", "index >> 5")(tree)
    replace("mm/filemap.c", "int filemap_last(void)\n", "int filemap_last(void)\n/* --- x */\n")(
        tree
    )
    (tree / "mm/new.c").write_text("int fresh;\n")
    (tree / "mm/no newline.c").write_text("int last;")
    (tree / "mm/debug.c").unlink()
    (tree / "mm/slow.c").rename(tree / "mm/slower.c")
    with (tree / "mm/slower.c").open("a") as file:
        file.write("/* -- */\n")
    (tree / "Kconfig").chmod(0o755)


def test_a_patch_and_its_reverse_change_nothing(lab: Lab) -> None:
    before = contents(lab.source)
    (path,) = lab.series("all", edit)
    assert "rename from mm/slow.c" in path.read_text()
    apply([read_patch(path)], lab.source)
    assert contents(lab.source) != before
    back = path.with_name("0001-back.patch")
    back.write_text(reverted(path.read_text(), "x"))
    apply([read_patch(back)], lab.source)
    assert contents(lab.source) == before


def test_twice_is_the_patch_itself(lab: Lab) -> None:
    (path,) = lab.series("all", edit)
    text = path.read_text()
    twice = reverted(reverted(text, "x"), "x")
    assert sorted(twice.splitlines()) == sorted(text.splitlines())


def test_a_copy_is_refused() -> None:
    with pytest.raises(SeriesError, match="copies a file"):
        reverted("diff --git a/x b/y\ncopy from x\ncopy to y\n", "0001")


LINES = st.lists(st.sampled_from(["a", "b", "-- c", "++ d", "", "@@ e"]), max_size=12)


@settings(max_examples=25)
@given(before=LINES, after=LINES)
def test_any_change_of_a_file_goes_back(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], after: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("revert")
    tree = folder / "tree"
    tree.mkdir()
    git(tree, "init", "-q")
    (tree / "f").write_text("\n".join(before) + "\nend\n")
    git(tree, "add", "f")
    (tree / "f").write_text("\n".join(after) + "\nend\n")
    diff = subprocess.run(
        ["git", "-C", str(tree), "diff"], capture_output=True, text=True, check=True
    ).stdout
    shutil.rmtree(tree / ".git")
    if diff:
        patch = folder / "0001.patch"
        patch.write_text(reverted(diff, "x"))
        apply([read_patch(patch)], tree)
    assert (tree / "f").read_text() == "\n".join(before) + "\nend\n"
