from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from errors import SeriesError, UsageError
from kernels.patch_folder import known_series, read_folder
from kernels.series import apply, read_patch
from tests.kernels.fake import COMMENT, FASTER, GROWN, Lab

HEADER = "From: T <t@example.org>\nSubject: [PATCH] a subject\n\n---\n"


def written(folder: Path, text: str, name: str = "0001-x.patch") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_patches_come_in_the_order_of_their_names(lab: Lab) -> None:
    patches = lab.series("two", FASTER, COMMENT)
    assert read_folder(lab.checkout, "configs/series/two").files == tuple(patches)
    assert [path.name[:4] for path in patches] == ["0001", "0002"]


def test_cover_letter_is_no_patch(lab: Lab) -> None:
    patches = lab.series("two", FASTER)
    (patches[0].parent / "0000-cover-letter.patch").write_text("From: T\nSubject: [PATCH 0/1]\n")
    assert read_folder(lab.checkout, "configs/series/two").files == tuple(patches)


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


@pytest.mark.parametrize(
    ("header", "subject"),
    [
        ("Subject: [PATCH v4 2/4] mm: a thing", "mm: a thing"),
        ("Subject: [RFC] [PATCH] mm: a\n thing that goes on", "mm: a thing that goes on"),
        ("Subject: =?UTF-8?q?mm:=20caf=C3=A9?=", "mm: café"),
        ("From: nobody", "x"),
    ],
)
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


@pytest.mark.parametrize("name", ["../evil.c", "mm/../../evil.c", "/etc/passwd", ".git/config"])
def test_path_outside_of_the_tree_is_refused(lab: Lab, tmp_path: Path, name: str) -> None:
    text = f"{HEADER}--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n"
    with pytest.raises(SeriesError, match="outside the kernel tree"):
        read_patch(written(tmp_path, text))


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


def test_apply_one_after_another(lab: Lab) -> None:
    patches = [read_patch(path) for path in lab.series("three", FASTER, COMMENT, GROWN)]
    apply(patches, lab.source)
    text = (lab.source / "mm/filemap.c").read_text()
    assert "index >> 5" in text
    assert "index * 37" in text


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
