import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import SeriesError
from kernels import worktree
from kernels.series import Patch, read_patch
from kernels.source import identify
from kernels.worktree import WorkTree, copy_objects, prepare, switch
from tests.kernels.fake import COMMENT, FASTER, GROWN, Lab, state
from tests.values import script


def add_file(tree: Path) -> None:
    (tree / "mm/new").mkdir()
    (tree / "mm/new/deep.c").write_text("int deep;\n")


def delete_file(tree: Path) -> None:
    (tree / "mm/slow.c").unlink()


def rename_file(tree: Path) -> None:
    (tree / "init.c").rename(tree / "main.c")


def make_executable(tree: Path) -> None:
    (tree / "scripts/configure.awk").chmod(0o755)


ARMS = {
    "none": (),
    "faster": (FASTER,),
    "grown": (GROWN, FASTER),
    "comment": (COMMENT,),
    "add": (add_file,),
    "delete": (delete_file,),
    "rename": (rename_file, add_file),
    "mode": (make_executable,),
}


def times(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def arms(lab: Lab) -> dict[str, list[Patch]]:
    return {
        name: [read_patch(path) for path in lab.series(name, *edits)] if edits else []
        for name, edits in ARMS.items()
    }


@pytest.fixture
def tree(lab: Lab) -> WorkTree:
    return prepare(identify(f"dir:{lab.source}", **lab.where), lab.cache / "tree")


def expected(lab: Lab, name: str) -> dict[str, tuple[bytes, int]]:
    with tempfile.TemporaryDirectory() as at:
        fresh = Path(at) / "tree"
        shutil.copytree(lab.source, fresh)
        for edit in ARMS[name]:
            edit(fresh)
        return state(fresh)


def test_any_walk_through_the_arms_ends_in_the_arm(
    lab: Lab, tree: WorkTree, arms: dict[str, list[Patch]]
) -> None:
    states = {name: expected(lab, name) for name in ARMS}

    @settings(max_examples=12)
    @given(st.lists(st.sampled_from(sorted(ARMS)), min_size=1, max_size=5))
    def walk(names: list[str]) -> None:
        for name in names:
            before, old = state(tree.src), times(tree.src)
            changed = switch(tree, arms[name])
            assert state(tree.src) == states[name]
            after = times(tree.src)
            for path in old.keys() & after.keys():
                differs = before[path] != states[name][path]
                assert (after[path] != old[path]) == differs, path
                assert (path in changed) == differs, path
                assert not differs or after[path] > old[path], path

    walk()


def test_a_tree_is_on_the_disk_before_it_has_its_name(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = tmp_path / "noted"
    program = script(tmp_path / "sync", f'cd "$1" && ls >{noted} && ls .. >>{noted}')
    monkeypatch.setattr(worktree, "SYNC", (str(program),))
    prepare(identify(f"dir:{lab.source}", **lab.where), lab.cache / "tree")
    names = noted.read_text().split()
    assert {"Makefile", "new"} <= {*names}
    assert "src" not in names


def test_folders_made_by_a_patch_go_with_it(tree: WorkTree, arms: dict[str, list[Patch]]) -> None:
    switch(tree, arms["add"])
    assert (tree.src / "mm/new/deep.c").exists()
    switch(tree, [])
    assert not (tree.src / "mm/new").exists()
    assert (tree.src / "mm/slow.c").exists()


def test_a_patch_that_does_not_apply_leaves_the_tree_as_it_was(
    tree: WorkTree, arms: dict[str, list[Patch]]
) -> None:
    switch(tree, arms["grown"])
    before, old = state(tree.src), times(tree.src)
    with pytest.raises(SeriesError):
        switch(tree, [*arms["add"], *arms["faster"], *arms["faster"]])
    assert state(tree.src) == before
    assert times(tree.src) == old


@pytest.mark.parametrize("survivors", [0, 1])
def test_killed_half_way_is_repaired_by_the_next_switch(
    lab: Lab,
    tree: WorkTree,
    arms: dict[str, list[Patch]],
    monkeypatch: pytest.MonkeyPatch,
    survivors: int,
) -> None:
    real = worktree._replace
    left = [survivors]

    def replace(*arguments: object) -> None:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(worktree, "_replace", replace)
    with pytest.raises(KeyboardInterrupt):
        switch(tree, arms["rename"])
    monkeypatch.undo()
    switch(tree, [])
    assert state(tree.src) == expected(lab, "none")


def test_a_killed_unpack_is_started_over(lab: Lab) -> None:
    folder = lab.cache / "tree"
    (folder / "new").mkdir(parents=True)
    (folder / "new/half").touch()
    tree = prepare(identify(f"dir:{lab.source}", **lab.where), folder)
    assert state(tree.src) == state(lab.source)
    assert sorted(path.name for path in folder.iterdir()) == ["contents.json", "src"]


def test_a_file_beyond_a_symbolic_link_is_refused(lab: Lab, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file.c").write_text("int mine;\n")
    (lab.source / "link").symlink_to(outside)
    tree = prepare(identify(f"dir:{lab.source}", **lab.where), lab.cache / "tree")
    path = tmp_path / "0001.patch"
    path.write_text("--- a/link/file.c\n+++ b/link/file.c\n@@ -1 +1 @@\n-int mine;\n+int yours;\n")
    with pytest.raises(SeriesError, match=r"beyond a symbolic link: link/file\.c"):
        switch(tree, [read_patch(path)])
    assert (outside / "file.c").read_text() == "int mine;\n"


def test_a_link_made_by_a_patch_is_not_followed_by_the_next(lab: Lab, tmp_path: Path) -> None:
    tree = prepare(identify(f"dir:{lab.source}", **lab.where), lab.cache / "tree")
    outside = tmp_path / "outside"
    outside.mkdir()
    make, use = tmp_path / "0001.patch", tmp_path / "0002.patch"
    make.write_text(
        "diff --git a/trap b/trap\nnew file mode 120000\n--- /dev/null\n+++ b/trap\n"
        f"@@ -0,0 +1 @@\n+{outside}\n\\ No newline at end of file\n"
    )
    use.write_text("--- /dev/null\n+++ b/trap/evil.c\n@@ -0,0 +1 @@\n+x\n")
    with pytest.raises(SeriesError, match="makes or changes a symbolic link: trap"):
        read_patch(make)
    unread = Patch(make, "a link", ("trap",), ())  # the second wall, should the first one fall
    with pytest.raises(SeriesError):
        switch(tree, [unread, read_patch(use)])
    assert list(outside.iterdir()) == []
    assert not os.path.lexists(tree.src / "trap")
    with pytest.raises(SeriesError, match="no file with text in it: trap"):
        switch(tree, [unread])
    assert not os.path.lexists(tree.src / "trap")
    assert not tree.spare.exists()


def test_a_copy_of_objects_is_named_where_the_build_names_its_own_folder(lab: Lab) -> None:
    """Or objtool is built again, and every object after it."""
    tree = prepare(identify(f"dir:{lab.source}", **lab.where), lab.cache / "tree")
    first, second = tree.objects("one"), tree.objects("two")
    command = first / "tools/objtool/.check.o.cmd"
    command.parent.mkdir(parents=True)
    command.write_text(f"cmd := gcc -c -o {first}/tools/objtool/check.o {tree.src}/tools/check.c\n")
    other = first / "tools/objtool/.other.o.cmd"
    other.write_text(f"cmd := gcc -c -o {first}-more/x.o\n")
    for path in (command, other):
        os.utime(path, ns=(10**18, 10**18 + 7))
    copy_objects(tree, first, second, "copied")
    copied = second / "tools/objtool/.check.o.cmd"
    assert copied.read_text() == command.read_text().replace(f"{first}/", f"{second}/")
    assert f"-o {second}/tools" in copied.read_text()
    assert copied.stat().st_mtime_ns == 10**18 + 7
    assert (second / "tools/objtool/.other.o.cmd").read_bytes() == other.read_bytes()
    assert (second / "copied").exists()
    assert not (first / "copied").exists()
