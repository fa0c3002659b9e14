"""Series on disk: folders in their order, patches as git applies them, what a build executes."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import SeriesError, UsageError
from experiment.spec import SeriesSpec
from kernels.diff import read_diff
from kernels.intake import take_in
from kernels.series import (
    apply,
    as_counted,
    host_code,
    known_series,
    read_folder,
    read_patch,
    reverted,
    who_runs_it,
)
from results.record import SeriesRecord
from tests.kernels.fake import FASTER, GROWN, Lab, files_of, git, keep, patches_of, replace, state
from tests.values import data, spaced
from tests.waiting import completed

HEADER = "From: T <t@example.org>\nSubject: [PATCH] a subject\n\n---\n"


def written(folder: Path, text: str, name: str = "0001-x.patch") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_unknown_and_empty_folders_name_the_known_series(lab: Lab) -> None:
    lab.series("faster", FASTER)
    (lab.checkout / "configs/series/empty").mkdir()
    with pytest.raises(UsageError) as missing:
        read_folder(lab.checkout, "configs/series/fastr")
    assert missing.value.what == "no such file or folder"
    assert missing.value.next_step.endswith("a series of the lab's: configs/series/faster")
    with pytest.raises(UsageError) as bare:
        read_folder(lab.checkout, "faster")
    assert "configs/series/faster" in bare.value.next_step
    with pytest.raises(UsageError, match=r"no \*\.patch or \*\.diff file in this folder"):
        read_folder(lab.checkout, "configs/series/empty")
    assert known_series(lab.checkout) == ("configs/series/faster",)


@pytest.mark.parametrize(("header", "subject"), data(__file__, "subject_is_without_its_brackets"))
def test_subject_is_without_its_brackets(tmp_path: Path, header: str, subject: str) -> None:
    assert read_patch(written(tmp_path, f"{header}\n\n---\n")).subject == subject


def test_files_are_old_and_new_names(tmp_path: Path) -> None:
    text = HEADER + (
        "diff --git a/old.c b/new.c\nsimilarity index 90%\nrename from old.c\nrename to new.c\n"
        "diff --git a/gone.c b/gone.c\ndeleted file mode 100644\n"
        "--- a/gone.c\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "--- linux.orig/quilt.c\t2026-01-01\n+++ linux/quilt.c\t2026-01-02\n@@ -1 +1 @@\n-x\n+y\n"
    )
    assert read_patch(written(tmp_path, text)).files == ("old.c", "new.c", "gone.c", "quilt.c")


def test_removed_lines_that_look_like_headers_are_no_files(tmp_path: Path) -> None:
    text = HEADER + (
        "--- a/x.c\n+++ b/x.c\n@@ -1,3 +1,3 @@\n--- a/not/this.c\n+++ b/nor/this.c\n one\n two\n"
        "-- \n2.4\n"
    )
    patch = read_patch(written(tmp_path, text))
    assert patch.files == ("x.c",)
    assert [hunk.line for hunk in patch.hunks] == [1]


def test_git_itself_refuses_it_too(tmp_path: Path) -> None:
    """Were our reading of a header ever fooled, git apply is the second wall."""
    folder = tmp_path / "tree"
    folder.mkdir()
    text = f"{HEADER}--- /dev/null\n+++ b/../evil.c\n@@ -0,0 +1 @@\n+x\n"
    path = written(tmp_path, HEADER)
    patch = read_patch(path)
    path.write_text(text)
    with pytest.raises(SeriesError, match="does not apply"):
        apply([patch], folder)
    assert not (tmp_path / "evil.c").exists()


def test_an_enclosing_repository_does_not_matter(lab: Lab) -> None:
    subprocess.run(["git", "init", "-q", str(lab.source.parent)], check=True)
    patches = [read_patch(path) for path in lab.series("one", FASTER)]
    apply(patches, lab.source)
    assert "index >> 5" in (lab.source / "mm/filemap.c").read_text()


def test_the_users_git_settings_do_not_matter(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lab.series("one", FASTER)[0]
    config = tmp_path / "gitconfig"
    config.write_text("[apply]\n\twhitespace = error-all\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    path.write_text(path.read_text().replace("index >> 5;", "index >> 5; "))
    apply([read_patch(path)], lab.source)
    assert "index >> 5; \n" in (lab.source / "mm/filemap.c").read_text()


@pytest.mark.parametrize("boxed", [True, False])
def test_a_patch_that_a_full_disk_keeps_from_being_applied_is_not_to_blame(
    tmp_path: Path, small_disk: Path, boxed: bool
) -> None:
    lines = "+x\n" * 10_000
    new = "diff --git a/mm/x.c b/mm/x.c\nnew file mode 100644\n--- /dev/null\n+++ b/mm/x.c\n"
    patch = read_patch(written(tmp_path, f"{HEADER}{new}@@ -0,0 +1,10000 @@\n{lines}"))
    with (small_disk / "filler").open("wb") as stream:
        free = shutil.disk_usage(small_disk).free
        os.posix_fallocate(stream.fileno(), 0, free - (8 << 10))
    with pytest.raises(OSError, match="No space left"):
        apply([patch], small_disk, boxed=boxed)
    (small_disk / "filler").unlink()
    shutil.rmtree(small_disk / "mm", ignore_errors=True)
    apply([patch], small_disk, boxed=boxed)


def test_patch_that_does_not_apply_is_named_with_file_line_and_hunk(lab: Lab) -> None:
    paths = lab.series("both", GROWN, FASTER)
    text = (lab.source / "mm/filemap.c").read_text()
    (lab.source / "mm/filemap.c").write_text(text.replace("index >> 4", "index >> 7"))
    with pytest.raises(SeriesError) as caught:
        apply([read_patch(path) for path in paths], lab.source)
    assert caught.value.where == f"{paths[1].name} (mm: both, step 2)"
    assert caught.value.what.startswith("does not apply to mm/filemap.c at line ")
    assert "(hunk 1 of 1: @@ -" in caught.value.what
    assert "index >> 7" in (lab.source / "mm/filemap.c").read_text()


def test_missing_source_file_is_named(lab: Lab) -> None:
    paths = lab.series("one", FASTER)
    (lab.source / "mm/filemap.c").unlink()
    with pytest.raises(SeriesError, match=r"mm/filemap\.c: No such file"):
        apply([read_patch(path) for path in paths], lab.source)


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
    before = state(lab.source)
    (path,) = lab.series("all", edit)
    assert "rename from mm/slow.c" in path.read_text()
    apply([read_patch(path)], lab.source)
    assert state(lab.source) != before
    back = path.with_name("0001-back.patch")
    back.write_text(reverted(path.read_text(), "x"))
    apply([read_patch(back)], lab.source)
    assert state(lab.source) == before


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
    diff = completed(["git", "-C", str(tree), "diff"]).stdout
    shutil.rmtree(tree / ".git")
    if diff:
        patch = folder / "0001.patch"
        patch.write_text(reverted(diff, "x"))
        apply([read_patch(patch)], tree)
    assert (tree / "f").read_text() == "\n".join(before) + "\nend\n"


def diff(file: str, *lines: str, made: str = "") -> str:
    head = f"diff --git a/{file} b/{file}\n"
    old = "/dev/null" if made else f"a/{file}"
    head += f"new file mode {made}\n" if made else ""
    body = "".join(f"+{line}\n" for line in lines)
    return f"{head}--- {old}\n+++ b/{file}\n@@ -0,0 +1,{len(lines)} @@\n{body}"


@pytest.mark.parametrize(
    ("lines", "is_named"),
    [
        (["if (strncmp(current->comm,", '\t    "fio", 3))'], True),
        (['if (strstr(boot_command_line, "nokaslr"))'], True),
        (["if (boot_cpu_has(X86_FEATURE_HYPERVISOR))"], True),
        (['pr_warn("%s: bad offset", current->comm);', "strcmp(a, b);"], False),
    ],
)
def test_code_that_asks_who_runs_it_is_a_finding(lines: list[str], is_named: bool) -> None:
    text = diff("mm/before.c", "x") + diff("mm/filemap.c", *lines)
    assert [each.partition(" ")[0] for each in who_runs_it([read_diff(text, "")])] == [
        "mm/filemap.c"
    ] * is_named


def executed(*texts: str) -> tuple[str, ...]:
    return host_code(read_diff(text, "") for text in texts)


@pytest.mark.parametrize(
    ("text", "reason"), data(__file__, "what_a_build_executes_is_named_with_a_reason")
)
def test_what_a_build_executes_is_named_with_a_reason(text: str, reason: str) -> None:
    file = text.partition(" b/")[2].partition("\n")[0]
    assert executed(diff("mm/before.c", "x") + text + diff("mm/after.c", "x")) == (
        f"{file} ({reason})",
    )


@pytest.mark.parametrize("text", data(__file__, "code_of_the_kernel_is_not"))
def test_code_of_the_kernel_is_not(text: str) -> None:
    assert executed(text) == ()


def test_a_name_is_read_as_git_reads_it() -> None:
    quoted = '"%s/\\115akefile"'
    sides = [quoted % "a", quoted % "b"]
    octal = "diff --git {0} {1}\n--- {0}\n+++ {1}\n@@ -1 +1 @@\n-a\n+b\n".format(*sides)
    assert executed(octal) == ("Makefile (a makefile)",)
    # Git takes names from these lines where its own says nothing.
    moved = "diff --git a/a.c b/c.c\nsimilarity index 100%\nrename from mm/a b.c\n"
    assert executed(moved + "rename to mm/Makefile\n") == ("mm/Makefile (a makefile)",)
    # Words around a diff are none, whatever they look like.
    words = "Subject: [PATCH] x\n\n--- a/\x1b]52;c;aGk=\x07Makefile\n+++ b/Makefile\n\n---\n"
    assert executed(words + diff("mm/x.c", "x")) == ()


def test_a_removed_and_a_renamed_script_are_named_too() -> None:
    removed = "diff --git a/scripts/x b/scripts/x\ndeleted file mode 100644\n--- a/scripts/x\n"
    removed += "+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    renamed = "diff --git a/mm/x.c b/scripts/y.c\nsimilarity index 100%\nrename from mm/x.c\n"
    renamed += "rename to scripts/y.c\n"
    plain = "--- a/scripts/z\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    assert [each.partition(" ")[0] for each in executed(removed, renamed, plain)] == [
        "scripts/x",
        "scripts/y.c",
        "scripts/z",
    ]


LETTERS = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]


def patch(number: int, subject: str = "", prefix: str = "a/") -> str:
    """The patch that makes a file 0 1 2 ... longer by its number, after the one before."""
    head = f"From: T <t@example.org>\nSubject: {subject}\n\n" if subject else ""
    before = LETTERS[number - 2]
    other = "b/" if prefix == "a/" else prefix
    return (
        f"{head}--- {prefix}mm/x.c\n+++ {other}mm/x.c\n@@ -{number - 1} +{number - 1},2 @@\n"
        f" {before}\n+{LETTERS[number - 1]}\n"
    )


def folder(lab: Lab, files: dict[str, str]) -> Path:
    top = lab.checkout / "mine"
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    return top


def read_in(lab: Lab, path: Path) -> tuple[str, SeriesRecord]:
    """What the patches that are taken in add, in their order, and their record."""
    spec = keep(SeriesSpec(path=str(path)), **lab.where)
    (record,) = take_in(spec, **lab.where).records
    texts = [each.read_text() for each in patches_of(spec, **lab.where)]
    assert all("--- a/mm/x.c" in text for text in texts)
    return "".join(text.rstrip()[-1] for text in texts), record


def test_numbers_sort_as_people_count() -> None:
    names = ["10.patch", "2.patch", "0003-x.patch", "a10b2", "a10b10", "a9"]
    assert sorted(names, key=as_counted) == [
        *spaced("2.patch 0003-x.patch 10.patch a9 a10b2 a10b10")
    ]


@pytest.mark.parametrize("named", ["", "patches", "patches/series"])
@pytest.mark.parametrize("place", ["patches/series", "series"])
def test_a_series_file_orders_and_leaves_out(lab: Lab, place: str, named: str) -> None:
    order = "# of this folder\n\nz.patch -p1\nsub/y.txt  -p0 # why\n#x.patch\nw.diff\n"
    top = folder(
        lab,
        {
            place: order,
            "patches/z.patch": patch(2),
            "patches/sub/y.txt": patch(3, prefix=""),
            "patches/x.patch": patch(9),
            "patches/w.diff": patch(4),
            "patches/v.patch": patch(8),
        },
    )
    if named == "patches/series" != place:
        named = place
    added, record = read_in(lab, top / named)
    assert added == "bcd"
    assert [each.subject for each in record.patches] == ["z", "y", "w"]
    assert f"in the order of {top / place}" in record.findings
    assert "left out: v.patch, x.patch" in record.findings


def test_a_patch_that_is_turned_around(lab: Lab) -> None:
    top = folder(lab, {"series": "a.patch\na.patch -R\n", "a.patch": patch(2)})
    spec = keep(SeriesSpec(path=str(top)), **lab.where)
    first, second = (path.read_text() for path in patches_of(spec, **lab.where))
    assert first.endswith("\n a\n+b\n")
    assert second.endswith("\n a\n-b\n")


@pytest.mark.parametrize(
    ("order", "message"), data(__file__, "a_series_file_that_is_wrong_is_named_by_line")
)
def test_a_series_file_that_is_wrong_is_named_by_line(lab: Lab, order: str, message: str) -> None:
    top = folder(lab, {"series": order, "a.patch": patch(2), "b.patch": patch(3)})
    with pytest.raises(UsageError, match=message):
        read_in(lab, top)


def test_a_commit_that_stgit_exported_for(lab: Lab) -> None:
    order = f"# This series applies on GIT commit {'ab' * 20}\na.patch\n"
    _, record = read_in(lab, folder(lab, {"series": order, "a.patch": patch(2)}))
    assert record.base_commit == "ab" * 20


def test_without_a_series_file_two_comes_before_ten(lab: Lab) -> None:
    files = {f"{number}.patch": patch(number) for number in range(2, 13)}
    top = folder(lab, {**files, "old/1.patch": patch(2), ".3.patch": patch(3), "README": "x"})
    added, record = read_in(lab, top)
    assert added == "bcdefghijkl"
    assert record.findings == ("left out: .3.patch, old/1.patch",)


def test_mails_saved_by_their_subjects_have_their_numbers_in_these(lab: Lab) -> None:
    top = folder(
        lab,
        {"alpha.patch": patch(3, "[PATCH 2/3] alpha"), "beta.patch": patch(2, "[PATCH 1/3] beta")},
    )
    added, record = read_in(lab, top)
    assert added == "bc"
    assert "in the order of the subjects' numbers, which is not that of names" in record.findings
    assert "1 of 3 patches are not in it: 3/3" in record.findings


def test_the_newest_of_versions_that_were_formatted_into_one_folder(lab: Lab) -> None:
    top = folder(
        lab,
        {
            "0001-x.patch": patch(9),
            "v2-0001-x.patch": patch(8),
            "v10-0001-x.patch": patch(2),
            "v10-0002-y.patch": patch(3),
            "v10-0000-cover-letter.patch": "Subject: [PATCH v10 0/2] all\n",
        },
    )
    added, record = read_in(lab, top)
    assert (added, record.title) == ("bc", "all")
    assert record.findings == ("left out: 0001-x.patch, v2-0001-x.patch",)


def test_a_folder_of_plain_patches_stands_for_itself(lab: Lab) -> None:
    top = folder(lab, {"2.patch": patch(2), "10.patch": patch(3)})
    assert keep(SeriesSpec(path=str(top)), **lab.where).kept == ""
    assert [path.name for path in files_of(lab.checkout, str(top))] == ["2.patch", "10.patch"]


def test_a_series_is_bounded_as_a_whole(lab: Lab) -> None:
    many = {f"{number}.patch": patch(2) + "x" * (1 << 20) for number in range(40)}
    with pytest.raises(SeriesError, match=r"has 40\.0 MiB, more than 32"):
        read_in(lab, folder(lab, many))
