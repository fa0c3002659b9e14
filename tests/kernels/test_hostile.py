"""What a mail may try, and that it gets no further than a message."""

import base64
import gzip
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import SeriesError
from experiment.series_name import kind_of, message_id, split_range
from experiment.spec import SeriesSpec
from kernels import intake
from kernels import mail as mails
from kernels.build import provide
from kernels.diff import read_diff
from kernels.intake import take_in
from kernels.mail import as_patch, read_mail, read_mails
from kernels.series import apply, read_patch, reverted
from tests.kernels.fake import FASTER, GROWN, Lab, keep, patches_of
from tests.kernels.posting import DIFF, LONG, ODD, UNREADABLE, Post, mbox, post
from tests.values import data
from text import clean, is_unfit

pytestmark = pytest.mark.slow

NEW = "new file mode 100644\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+x\n"
LINK = (
    "diff --git a/{0} b/{0}\nnew file mode 120000\n--- /dev/null\n+++ b/{0}\n"
    "@@ -0,0 +1 @@\n+/etc\n\\ No newline at end of file\n"
)


def hostile(lab: Lab, diff: str, **headers: str) -> SeriesSpec:
    """A posted patch whose diff is replaced."""
    (mail,) = post(lab, FASTER)
    for name, value in headers.items():
        mail = mail.with_header(name, value)
    path = lab.checkout / "hostile.mbox"
    path.write_bytes(mbox([Post(mail.headers, f"words\n---\n{diff}--\n2.39\n")]))
    return SeriesSpec(path="hostile.mbox")


@pytest.mark.parametrize(("diff", "message"), data(__file__, "refused_before_anything_is_applied"))
def test_refused_before_anything_is_applied(lab: Lab, diff: str, message: str) -> None:
    before = sorted(lab.source.rglob("*"))
    with pytest.raises(SeriesError) as caught:
        keep(hostile(lab, diff), **lab.where)
    assert message in caught.value.what
    assert not any(is_unfit(character) for character in str(caught.value).replace("\n", ""))
    assert sorted(lab.source.rglob("*")) == before
    assert not (lab.cache / "series").exists()


def test_headers_with_escapes_are_shown_harmless(lab: Lab) -> None:
    evil = "=?utf-8?q?=1B=5D0=3Bowned=07_=E2=80=AEtxt_=3Cscript=3E?="
    (mail,) = post(lab, FASTER)
    mail = mail.with_header("Subject", f"[PATCH] mm: {evil}")
    mail = mail.with_header("From", f"{evil} <a@example.org>")
    path = lab.checkout / "x.mbox"
    path.write_bytes(mbox([mail]))
    spec = keep(SeriesSpec(path="x.mbox"), **lab.where)
    (record,) = take_in(spec, **lab.where).records
    (patch,) = patches_of(spec, **lab.where)
    for text in (record.title, record.author, read_patch(patch).subject, patch.name):
        assert clean(text) == text
    assert record.title == "mm: ?]0;owned? ?txt <script>"
    assert patch.name == "0001-mm-0-owned-txt-script.patch"


def test_git_and_the_reader_must_see_the_same_files(lab: Lab, tmp_path: Path) -> None:
    """A patch that only git would read is refused, whatever it hides."""
    path = tmp_path / "0001-x.patch"
    path.write_text("From: x\n\n--- a/mm/slow.c\n+++ b/mm/slow.c\n@@ -1,2 +1,2 @@\n-x\n+y\n z\n")
    patch = read_patch(path)
    path.write_text("--- /dev/null\n+++ b/mm/new.c\n@@ -0,0 +1 @@\n+x\n")
    with pytest.raises(SeriesError, match=r"changes in it that a reader does not: mm/new\.c"):
        apply([patch], lab.source)
    assert not (lab.source / "mm/new.c").exists()


def test_too_large(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    (mail,) = post(lab, FASTER)
    (lab.checkout / "big.mbox").write_bytes(mbox([mail]))
    monkeypatch.setattr(mails, "MOST_MAILS", 0)
    with pytest.raises(SeriesError, match="has 1 mails, more than 0"):
        keep(SeriesSpec(path="big.mbox"), **lab.where)
    monkeypatch.undo()
    monkeypatch.setattr(intake, "LARGEST", 10)
    with pytest.raises(SeriesError, match=r"0\.0 MiB, more than 32"):
        keep(SeriesSpec(path="big.mbox"), **lab.where)
    sparse = lab.checkout / "sparse.mbox"
    with sparse.open("wb") as stream:
        stream.truncate(300 << 20)
    with pytest.raises(SeriesError, match="has 300 MiB, more than 256"):
        keep(SeriesSpec(path="sparse.mbox"), **lab.where)


@pytest.mark.parametrize("head", ["", "Subject: [PATCH] x\n\n"])
def test_what_no_patch_can_be_by_its_size_is_not_read(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    monkeypatch.setattr(mails, "message_of", lambda *_: pytest.fail("it is read"))
    hunk = "@@ -1 +1 @@\n-a\n+b\n"
    for size, what in ((32 << 20, r"has \d+ lines"), (45 << 20, r"has 45\.0 MiB, more than 32")):
        text = head + DIFF.partition("@@")[0] + hunk * (size // len(hunk))
        (lab.checkout / "big.patch").write_text(text)
        with pytest.raises(SeriesError, match=what):
            keep(SeriesSpec(path="big.patch"), **lab.where)


def test_lines_of_a_whole_series_are_counted_before_any_hunk_is_read(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.series("two", FASTER, GROWN)
    monkeypatch.setattr(intake, "MOST_LINES", 20)
    monkeypatch.setattr(intake, "patch_of", lambda *_: pytest.fail("it is read"))
    with pytest.raises(SeriesError, match=r"has \d+ lines, more than 20"):
        keep(SeriesSpec(path="configs/series/two"), **lab.where)


def test_a_file_name_in_a_folder_with_escapes_is_refused(lab: Lab) -> None:
    (path,) = lab.series("evil", FASTER)
    path.rename(path.with_name("0001-\x1b[2J.patch"))
    with pytest.raises(SeriesError) as caught:
        keep(SeriesSpec(path="configs/series/evil"), **lab.where)
    assert "\x1b" not in str(caught.value)


SPECIAL = data(__file__, "special")
TARGET = "/etc/hostname\n\\ No newline at end of file"
MODULE = "Subproject commit 3594e94c04db171e2767224db355f514b13715c5"


@pytest.mark.parametrize(
    ("mode", "content", "boxed"),
    [
        *(
            (f"{before}120{last}", TARGET, boxed)
            for boxed in (False, True)
            for before, last in (
                ("", "000"),
                ("", "000 "),
                ("", "000\t"),
                ("", "000 x"),
                ("0", "000"),
                (" ", "000"),
                ("", "777"),
                ("", "644"),
            )
        ),
        *((mode, MODULE, False) for mode in ("160000", "160000 ", "0160000", "160644")),
    ],
)
def test_git_makes_no_link_and_no_submodule_of_any_spelling(
    lab: Lab, mode: str, content: str, boxed: bool
) -> None:
    patch = lab.checkout / "0001-special.patch"
    patch.write_text(SPECIAL.format(mode=mode, content=content))
    with pytest.raises(SeriesError):
        provide(lab.request([patch], boxed=boxed))
    assert [path for path in lab.cache.rglob("l") if path.is_symlink()] == []
    assert list(lab.cache.glob("trees/*/src/mm/l")) == []


def test_a_message_that_speaks_of_diffs_is_no_diff() -> None:
    text = (
        "Subject: [PATCH] x\n\n+++ is faster than ---\n@@ -1 +1 @@\n--- before\nGIT binary patch\n"
        "new file mode 120000\n---\n a | 1 +\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n-- \n2.39\n"
    )
    assert read_diff(text, "x").files == ("a",)


def test_reading_takes_linear_time() -> None:
    started = time.process_time()
    with pytest.raises(SeriesError, match="too long"):
        read_diff('diff --git a/x b/x\ndiff --git a "' + '" "' * 500_000 + "\n", "x")
    blank = "--- a/mm/x.c" + " " * 1_000_000 + "x\n+++ b/mm/x.c\n@@ -1 +1 @@\n-a\n+b\n"
    with pytest.raises(SeriesError, match="too long"):
        read_diff(blank, "x")
    read_mail(b"Subject: " + b"[" * 200_000 + b"\n\n" + b"--- " * 100_000)
    read_mails(b"From x 00:00:00 2026\n" * 20_000, "x")
    read_mails(b"From x " + b"00:00 " * 200_000 + b"\n", "x")
    clean("\x1b" * 10_000_000)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_mail_that_cannot_be_read_is_an_error_of_the_series(lab: Lab, name: str) -> None:
    (lab.checkout / "thread.mbox").write_bytes(b"From a 00:00:00 2026\n" + UNREADABLE[name])
    with pytest.raises(SeriesError) as caught:
        keep(SeriesSpec(path="thread.mbox"), **lab.where)
    assert "cannot be read as a mail" in caught.value.what or "5000 digits" in caught.value.what
    assert name in caught.value.where
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", ODD)
def test_a_mail_that_breaks_a_rule_is_read_all_the_same(name: str) -> None:
    started = time.process_time()
    mail = read_mail(ODD[name])
    assert mail.has_diff
    assert read_diff(mail.text, "x").files == ("mm/x.c",)
    assert read_diff(as_patch(mail, 1, 1).decode(), "x").files == ("mm/x.c",)
    assert time.process_time() - started < 5


def test_a_number_that_no_file_has_is_refused_turned_around_too() -> None:
    # Before the first file it is prose to the reader.
    with pytest.raises(SeriesError, match="5000 digits"):
        reverted(f"@@ -{LONG} +1 @@\n{DIFF}", "x")
    assert "@@ -1 +1 @@" in reverted(f"@@ -999999999 +1 @@\n-x\n+y\n{DIFF}", "x")


@given(st.text(max_size=60))
def test_any_name_has_a_kind(name: str) -> None:
    assert kind_of(name) in ("folder", "file", "thread", "range", "link")
    assert kind_of(f"https://{name}") in ("thread", "link")
    assert not message_id(name).startswith("-")


@pytest.mark.parametrize(("name", "kind"), data(__file__, "kinds"))
def test_kinds(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_parts_of_names() -> None:
    assert message_id("https://lore.kernel.org/all/a%2Bc@b.org/T/#u") == "a+c@b.org"
    assert message_id("mid:-oops@b") == ""
    assert split_range("git:/a@b@v1..v2") == ("/a", "b@v1", "v2")
    assert split_range("v1..") == ("", "v1", "HEAD")
    assert split_range("v1...v2") is None
    assert split_range("-x..y") is None


MIXED = b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n'
HEAD = b"From: a <a@b.c>\nSubject: [PATCH] x\nMIME-Version: 1.0\n"
GZ = b"Content-Type: application/gzip\nContent-Transfer-Encoding: base64\n\n"
# Mails that a parser of Python's takes minutes or hours for.
SLOW: dict[str, Callable[[], bytes]] = {
    "parameters": lambda: b"Content-Type: text/plain" + b"; a=b" * 300_000 + b"\n\n",
    "quotes": lambda: b"Content-Type: text/plain" + b';"' * 1_000_000 + b"\n\n",
    "parameters of a part": lambda: (
        MIXED % (0, 0) + b"Content-Type: x/y" + b"; a=b" * 300_000 + b"\n\n"
    ),
    "lines of another kind": lambda: MIXED % (0, 0) + b"--b0\r\r" * 1_000_000,
    "attachments of 32 MiB": lambda: (
        MIXED % (0, 0)
        + b"\n--b0\n".join([GZ + base64.b64encode(gzip.compress(b"\0x\n" * (10 << 20)))] * 100)
    ),
    "flowed lines": lambda: (
        b"Content-Type: text/plain; format=flowed\n\n"
        + DIFF.encode()
        + b"a " * 20
        + b"\na " * 900_000
    ),
    "parts in parts": lambda: (
        b"".join(MIXED % (n, n) for n in range(400)) + b"\n" + b"x\n" * 900_000
    ),
}


@pytest.mark.parametrize("name", SLOW)
def test_what_python_reads_in_quadratic_time_is_cut_or_refused(name: str) -> None:
    mail = SLOW[name]()
    started = time.process_time()
    other = b"From x Mon Jan 1 00:00:00 2026\n"
    for several in (b"", other + HEAD + b"\n\n" + other):
        with suppress(SeriesError):
            read_mails(several + HEAD + mail, "x")
    assert time.process_time() - started < 5


def test_parts_in_parts_a_thousand_deep_are_a_mail_without_text() -> None:
    parts = (f'Content-Type: multipart/mixed; boundary="{n}"\n\n--{n}\n' for n in range(3000))
    mail = read_mail(f"Subject: [PATCH v2] mm: x\nFrom: a@b\n{''.join(parts)}\ntext\n".encode())
    assert (mail.subject, mail.version, mail.text, mail.is_patch) == ("mm: x", 2, "", False)
