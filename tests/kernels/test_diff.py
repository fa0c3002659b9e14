"""Prefixes of paths in diffs, as many tools write them: what is listed is what git applies."""

import subprocess
from pathlib import Path

import pytest

from errors import SeriesError
from experiment.spec import SeriesSpec
from kernels.diff import MOST_FILES, MOST_LINES, MOST_PARTS, changed_functions, read_diff
from kernels.intake import take_in
from kernels.series import apply, known_series, read_patch
from tests.kernels.fake import Lab, files_of, keep, patches_of
from tests.test_errors import CHECKOUT

CHANGED = "@@ -1 +1 @@\n-x\n+y\n"
MADE = "@@ -0,0 +1 @@\n+y\n"


def plain(old: str, new: str, hunk: str = CHANGED) -> str:
    return f"--- {old}\n+++ {new}\n{hunk}"


def git(old: str, new: str, more: str = "", hunk: str = CHANGED) -> str:
    return f"diff --git {old} {new}\n{more}{plain(old, new, hunk)}"


def made(prefix: str, path: str) -> str:
    head = f"diff --git {prefix}{path} {prefix}{path}\nnew file mode 100644\n"
    return head + plain("/dev/null", prefix + path, MADE)


SPELLINGS = {
    "git": git("a/mm/x.c", "b/mm/x.c"),
    "index and work tree": git("i/mm/x.c", "w/mm/x.c"),
    "commit and index": git("c/mm/x.c", "i/mm/x.c"),
    "object and work tree": git("o/mm/x.c", "w/mm/x.c"),
    "two folders by git": git("1/mm/x.c", "2/mm/x.c"),
    "noprefix": git("mm/x.c", "mm/x.c"),
    "own prefixes": git("old/mm/x.c", "new/mm/x.c"),
    "no index": git("a/linux.orig/mm/x.c", "b/linux/mm/x.c"),
    "two files by git": git("mm/x.c.orig", "mm/x.c"),
    "two trees": plain("linux-6.12.orig/mm/x.c", "linux-6.12/mm/x.c"),
    "a tree called kernel": plain("kernel.orig/mm/x.c", "kernel/mm/x.c"),
    "one tree": plain("linux/mm/x.c", "linux/mm/x.c"),
    "two levels": plain("src/linux/mm/x.c", "src/linux/mm/x.c"),
    "here": plain("./mm/x.c", "./mm/x.c"),
    "no prefix": plain("mm/x.c", "mm/x.c"),
    "saved": plain("mm/x.c.orig", "mm/x.c"),
    "saved as old": plain("mm/x.c.old", "mm/x.c"),
    "mm-commits": plain("a/mm/x.c~a-name", "a/mm/x.c"),
    "quilt with dates": plain("linux.orig/mm/x.c\t2026-01-02 10:11:12", "linux/mm/x.c\t2026-01-02"),
    "dates behind blanks": plain("a/mm/x.c 2026-01-02 10:11:12 +0100", "b/mm/x.c Fri Jan  2 2026"),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_what_is_listed_is_what_git_changes(tmp_path: Path, name: str) -> None:
    (tmp_path / "mm").mkdir()
    (tmp_path / "mm/x.c").write_text("x\n")
    diff = read_diff(SPELLINGS[name], "x")
    assert diff.files == ("mm/x.c",)
    assert [hunk.file for hunk in diff.hunks] == ["mm/x.c"]
    (tmp_path / "x.patch").write_text(diff.text)
    apply([read_patch(tmp_path / "x.patch")], tmp_path)
    assert (tmp_path / "mm/x.c").read_text() == "y\n"
    assert read_diff(diff.text, "x") == diff


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (made("b/", "mm/new.c"), "mm/new.c"),
        (made("", "mm/new.c"), "mm/new.c"),
        (made("w/", "mm/new.c"), "mm/new.c"),
        (plain("/dev/null", "mm/new.c", MADE), "mm/new.c"),
        (plain("/dev/null", "linux/mm/new.c", MADE), "mm/new.c"),
        # What the name does not say, the other file of the patch does.
        (plain("l.orig/mm/x.c", "l/mm/x.c") + plain("/dev/null", "l/gpu/n.c", MADE), "gpu/n.c"),
        (git("mm/x.c", "mm/x.c") + made("", "gpu/new.c"), "gpu/new.c"),
        (made("b/", "LICENSE.txt"), "LICENSE.txt"),
    ],
)
def test_a_new_file_is_made_where_it_belongs(tmp_path: Path, text: str, path: str) -> None:
    (tmp_path / "mm").mkdir()
    (tmp_path / "mm/x.c").write_text("x\n")
    diff = read_diff(text, "x")
    assert path in diff.files
    (tmp_path / "x.patch").write_text(diff.text)
    apply([read_patch(tmp_path / "x.patch")], tmp_path)
    assert (tmp_path / path).read_text() == "y\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (made("b/", "new.c"), "makes new.c at the top of the tree"),
        (plain("/dev/null", "module/new.c", MADE), "in which folder module/new.c is"),
        (plain("filemap.c", "filemap.c"), "in which folder filemap.c is"),
        (plain("linux/../mm/x.c", "linux/../mm/x.c"), "outside the kernel tree"),
        (plain("/usr/src/linux/mm/x.c", "/usr/src/linux/mm/x.c"), "outside the kernel tree"),
        (made("b/", f"mm/{'a/' * MOST_PARTS}x.c"), f"of {MOST_PARTS + 2} parts, more than 64"),
        (made("", f"{'mm/' * 1000}x.c"), "of 1001 parts, more than 64"),
        (git("a/mm/x.c", "b/mm/x.c") + "x\n" * MOST_LINES, "lines, more than"),
        (SPELLINGS["git"] * (MOST_FILES + 1), f"more than {MOST_FILES} files"),
    ],
)
def test_what_is_nobodys_patch_is_refused(text: str, message: str) -> None:
    with pytest.raises(SeriesError, match=message):
        read_diff(text, "x")


def test_renames_and_modes_without_prefixes() -> None:
    rename = "similarity index 100%\nrename from mm/x.c\nrename to fs/x.c\n"
    mode = "diff --git mm/y.c mm/y.c\nold mode 100644\nnew mode 100755\n"
    for prefixes in (("", ""), ("i/", "w/"), ("a/", "b/")):
        head = f"diff --git {prefixes[0]}mm/x.c {prefixes[1]}fs/x.c\n"
        diff = read_diff(head + rename + mode, "x")
        assert diff.files == ("mm/x.c", "fs/x.c", "mm/y.c")
        assert diff.text.count("diff --git a/mm/") == 2


def test_a_level_that_is_given_is_the_level() -> None:
    text = plain("linux/drivers/mm/x.c", "linux/drivers/mm/x.c")
    assert read_diff(text, "x").files == ("drivers/mm/x.c",)
    assert read_diff(text, "x", 2).files == ("mm/x.c",)
    assert read_diff(text, "x", 0).files == ("linux/drivers/mm/x.c",)
    with pytest.raises(SeriesError, match="strange way"):
        read_diff(text, "x", 5)


def test_a_diff_of_git_without_prefixes_is_taken_in(lab: Lab) -> None:
    subprocess.run(["git", "init", "-q"], cwd=lab.source, check=True)
    subprocess.run(["git", "add", "-A"], cwd=lab.source, check=True)
    source = lab.source / "mm/filemap.c"
    source.write_text(source.read_text() + "\n/* more */\n")
    (lab.source / "mm/new.c").write_text("int x;\n")
    subprocess.run(["git", "add", "-N", "mm/new.c"], cwd=lab.source, check=True)
    for setting in ("diff.noprefix=true", "diff.mnemonicPrefix=true", "diff.noprefix=false"):
        argv = ["git", "-c", setting, "diff"]
        diff = subprocess.run(argv, cwd=lab.source, check=True, capture_output=True).stdout
        (lab.checkout / "x.diff").write_bytes(diff)
        spec = keep(SeriesSpec(path="x.diff"), **lab.where)
        (record,) = take_in(spec, **lab.where).records
        assert record.patches[0].files == ("mm/filemap.c", "mm/new.c")
        assert b"+++ b/mm/new.c" in patches_of(spec, **lab.where)[0].read_bytes()


WITHIN = "@@ -10,3 +10,3 @@ static int in_heading(struct page *page)\n a\n-\tb;\n+\tc;\n d\n"
BEGUN = "@@ -1,6 +1,6 @@\n }\n \n-int first(int a)\n+int first(long a)\n {\n \tint b;\n }\n"
AFTER = "@@ -5,4 +5,5 @@ int before(void)\n \treturn 0;\n }\n \n+int variable;\n #include <x.h>\n"
NEW = "@@ -0,0 +1,4 @@\n+static void fresh(\n+\tint a)\n+{\n+}\n"
SIGNED = f"{WITHIN}-- \n2.39.5\n"


@pytest.mark.parametrize(
    ("hunks", "names"),
    [
        (WITHIN, ("in_heading",)),
        (BEGUN, ("first",)),
        (AFTER, ()),
        (NEW, ("fresh",)),
        (SIGNED, ("in_heading",)),
        (WITHIN + NEW + WITHIN, ("in_heading", "fresh")),
        ("@@ -1,2 +1,2 @@\n-EXPORT_SYMBOL(x);\n+EXPORT_SYMBOL_GPL(x);\n #\n", ()),
    ],
)
def test_changed_functions(hunks: str, names: tuple[str, ...]) -> None:
    text = f"--- a/mm/x.c\n+++ b/mm/x.c\n{hunks}"
    assert changed_functions(text, "x.patch") == names


def test_those_of_a_posted_series() -> None:
    (path,) = [name for name in known_series(CHECKOUT) if name.endswith("filemap-walks")]
    texts = [patch.read_text() for patch in files_of(CHECKOUT, path)]
    functions = [changed_functions(text, "x") for text in texts]
    assert all(functions)
    assert "__filemap_add_folio" in {name for names in functions for name in names}
