"""Where a mail may have its diff, and how its text is made plain."""

import bz2
import gzip
import lzma
import subprocess
from email import message_from_bytes
from email.message import EmailMessage
from email.mime.message import MIMEMessage
from email.mime.multipart import MIMEMultipart
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import SeriesError
from experiment.spec import SeriesSpec
from kernels.diff import read_diff
from kernels.intake import read_series, take_in
from kernels.mail import Mail, as_patch, message_of, read_mail, read_mails, unmet
from kernels.products import unpacked
from kernels.threads import Thread, select
from tests.kernels.fake import keep
from tests.kernels.posting import mbox
from tests.queues.archive import diff, patch, series
from tests.values import data, spaced
from tests.waiting import completed

DIFF = (
    "diff --git a/mm/x.c b/mm/x.c\n--- a/mm/x.c\n+++ b/mm/x.c\n@@ -1,3 +1,4 @@ int f(void)\n"
    " {\n+\tint i;\n \n \treturn 0;\n"
)
FILE = (
    "From 0123456789abcdef0123456789abcdef01234567 Mon Sep 17 00:00:00 2001\n"
    "From: Ben <ben@example.org>\nDate: Mon, 2 Feb 2026 10:00:00 +0000\n"
    "Subject: [PATCH {0}/2] mm: =?utf-8?q?caf=C3=A9?=\n of {0}\n\nWhy.\n---\n{1}-- \n2.47\n"
)


def outer(subject: str = "[PATCH] mm: x", text: str = "Please test.\n") -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "Ada L <ada@example.org>", subject
    mail["Message-ID"] = "<a@example.org>"
    mail.set_content(text)
    return mail


def taken(raw: bytes) -> Thread:
    return select(read_mails(raw, "x.eml"), "x.eml")


def files(mail: Mail) -> tuple[str, ...]:
    return read_diff(mail.text, "x").files


@pytest.mark.parametrize(
    "kind",
    [*spaced("text/x-diff text/x-patch text/plain application/octet-stream application/x-patch")],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress])
@pytest.mark.parametrize("disposition", ["attachment", "inline"])
def test_an_attached_diff_is_read(kind: str, pack: type[bytes], disposition: str) -> None:
    major, minor = kind.split("/")
    mail = outer()
    mail.add_attachment(
        pack(DIFF.encode()), major, minor, filename="x.patch", disposition=disposition
    )
    (member,) = taken(mail.as_bytes()).patches
    assert (files(member), member.subject, member.is_posted) == (("mm/x.c",), "mm: x", True)


def test_an_attached_patch_file_says_who_wrote_it() -> None:
    mail = outer("Re: it is slow")
    mail.add_attachment(FILE.format(1, DIFF).encode(), "text", "x-patch", filename="0001.patch")
    (member,) = taken(mail.as_bytes()).patches
    assert (member.subject, member.author) == ("mm: café of 1", "Ben <ben@example.org>")
    assert (member.poster, member.sender) == ("Ada L <ada@example.org>", "ada@example.org")
    assert read_mails(mail.as_bytes(policy=mail.policy.clone(cte_type="8bit")), "x")[0].has_diff


def test_several_attached_patches_are_a_series() -> None:
    mail = outer("[PATCH 0/2] mm: two")
    for number, text in ((1, DIFF), (2, DIFF.replace("x.c", "y.c"))):
        name = f"{number:04d}.patch"
        mail.add_attachment(FILE.format(number, text).encode(), "text", "x-diff", filename=name)
    thread = taken(mail.as_bytes())
    assert [member.subject for member in thread.patches] == ["mm: café of 1", "mm: café of 2"]
    assert [files(member) for member in thread.patches] == [("mm/x.c",), ("mm/y.c",)]
    member = read_mail(mail.as_bytes())
    assert (member.is_posted, member.place, files(member)) == (True, "v1 1/1", ("mm/x.c", "mm/y.c"))


def test_a_diff_in_the_text_counts_and_another_one_that_is_attached_is_named() -> None:
    mail = outer(text=DIFF)
    mail.add_attachment(DIFF.encode(), "text", "x-diff", filename="same.patch")
    assert taken(mail.as_bytes()).findings == ()
    mail.add_attachment(DIFF.replace("x.c", "y.c").encode(), "text", "x-diff", filename="b.patch")
    thread = taken(mail.as_bytes())
    assert files(thread.patches[0]) == ("mm/x.c",)
    assert "has a diff in its text, and 1 more attached" in thread.findings[0]


def test_other_attachments_are_no_part_of_a_patch() -> None:
    mail = outer(text=DIFF)
    mail.add_attachment(b"\0\1\2" * 100, "image", "png", filename="x.png")
    mail.add_attachment(b"int main;\n", "text", "plain", filename="repro.c")
    assert "int main" not in taken(mail.as_bytes()).patches[0].text


def test_alternatives_and_signatures() -> None:
    mail = outer(text=DIFF)
    mail.add_alternative("<pre>diff --git</pre>", subtype="html")
    signed = MIMEMultipart("signed", protocol="application/pgp-signature")
    for part in (mail, outer(text="-----BEGIN PGP SIGNATURE-----\n")):
        for name in ("From", "Subject", "Message-ID"):
            signed[name] = mail[name]
            del part[name]
        signed.attach(part)
    raw = signed.as_bytes()
    assert files(taken(raw).patches[0]) == ("mm/x.c",)


def test_mails_in_a_mail() -> None:
    digest = MIMEMultipart("digest")
    digest["From"], digest["Subject"] = "list@example.org", "linux-mm Digest, Vol 1, Issue 2"
    for post in series("a", 2):
        digest.attach(MIMEMessage(message_from_bytes(post.encoded())))
    thread = taken(digest.as_bytes())
    assert [member.subject for member in thread.patches] == ["mm: step 1 of a", "mm: step 2 of a"]
    assert thread.cover is not None


@pytest.mark.parametrize(
    ("mail", "why"),
    [
        (lambda: _html(), "its diff is in HTML only"),
        (lambda: outer(text="> " + DIFF.replace("\n", "\n> ")), "its diff is a quotation"),
        (lambda: _attached(b"\0\1\2"), "no diff can be read in its attachment x.patch"),
        (lambda: _attached(gzip.compress(DIFF.encode())[:40]), "is damaged"),
        (lambda: _attached(b"PK\x03\x04"), "is a zip archive"),
    ],
)
def test_a_diff_that_cannot_be_read_is_named(mail: object, why: str) -> None:
    raw = mail().as_bytes()  # type: ignore[operator]
    with pytest.raises(SeriesError, match=why) as caught:
        taken(raw)
    assert "<a@example.org>" in caught.value.what
    assert "as text" in caught.value.next_step
    assert why in read_mail(raw).unread


def _html() -> EmailMessage:
    mail = outer()
    mail.set_content(f"<pre>{DIFF}</pre>", subtype="html")
    return mail


def _attached(content: bytes) -> EmailMessage:
    mail = outer()
    mail.add_attachment(content, "application", "octet-stream", filename="x.patch")
    return mail


def flowed(text: str, *, stuffed: bool, filled: bool) -> bytes:
    lines = [f" {line}" if stuffed and line.startswith(" ") else line for line in text.split("\n")]
    body = "\n".join(lines)
    if filled:
        body = body.replace("int f(void)", "int \nf(void)")
    head = "From: a@b\nSubject: [PATCH] x\nContent-Type: text/plain; format=flowed\n"
    return f"{head}\n{body}".encode()


@pytest.mark.parametrize("stuffed", [True, False])
@pytest.mark.parametrize("filled", [True, False])
def test_filled_lines_are_undone(stuffed: bool, filled: bool) -> None:
    text = read_mail(flowed(DIFF, stuffed=stuffed, filled=filled)).text
    assert text == (DIFF if not filled or stuffed else text)
    assert read_diff(text, "x").files == ("mm/x.c",)
    assert "\n \treturn 0;" in text


@pytest.mark.parametrize(
    ("before", "title", "author"), data(__file__, "the_header_in_a_body_names_the_author")
)
def test_the_header_in_a_body_names_the_author(before: str, title: str, author: str) -> None:
    mail = read_mail(outer(text=before + DIFF).as_bytes())
    assert (mail.subject, mail.author) == (title, author)
    assert mail.poster == "Ada L <ada@example.org>"


def test_a_file_of_mails_without_a_first_postmark() -> None:
    raw = mbox(series("a", 2))
    thread = taken(raw[raw.index(b"\n") + 1 :])
    assert thread.cover is not None
    assert len(thread.patches) == 2


@pytest.mark.parametrize("how", ["gz", "xz", "bz2", "zst", "two-gz"])
def test_packed_mailboxes(tmp_path: Path, how: str) -> None:
    raw = mbox(series("a", 2))
    programs = {"gz": "gzip", "xz": "xz", "bz2": "bzip2", "zst": "zstd"}
    if how in programs:
        packed = subprocess.run(
            [programs[how], "-c"], input=raw, capture_output=True, check=True
        ).stdout
    else:
        packed = gzip.compress(raw[:300]) + gzip.compress(raw[300:])
    assert unpacked(packed, "x") == raw
    path = tmp_path / "t.mbox"
    path.write_bytes(packed)
    spec = keep(SeriesSpec(path=str(path)), checkout=tmp_path, cache=tmp_path)
    (record,) = take_in(spec, checkout=tmp_path, cache=tmp_path).records
    assert (record.title, len(record.patches)) == ("mm: make it fast", 2)
    with pytest.raises(SeriesError, match="is damaged and cannot be unpacked"):
        unpacked(packed[: len(packed) // 2], "x")
    with pytest.raises(SeriesError, match="more than 0"):
        unpacked(packed, "x", 100)


def test_a_bomb_is_not_unpacked() -> None:
    for packed in (gzip.compress(bytes(16 << 20)), lzma.compress(bytes(16 << 20))):
        with pytest.raises(SeriesError, match="has 1 MiB, more than 1"):
            unpacked(packed, "x", 1 << 20)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"PK\x03\x04x", "is a zip archive"),
        (b"<!DOCTYPE html><p>", "is a page for a browser"),
        (b"%PDF-1.7", "is a PDF"),
        (bytes(257) + b"ustar\0", "is a tar archive"),
    ],
)
def test_what_holds_no_mails_is_named(data: bytes, what: str) -> None:
    with pytest.raises(SeriesError, match=what):
        read_series(data, "x")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_bare_diff_of_another_systems_shell(encoding: str) -> None:
    (mail,) = read_series(DIFF.replace("\n", "\r\n").encode(encoding), "x.diff").patches
    assert as_patch(mail, 1, 1) == DIFF.encode()


def test_line_ends_of_a_mailer_with_a_lists_footer() -> None:
    raw = patch("[PATCH] mm: x", "a").encoded().replace(b"\n", b"\r\n") + b"--\nlist\n"
    assert b"\r" not in as_patch(read_series(raw, "x").patches[0], 1, 1)


def test_what_a_series_needs_is_a_finding_until_it_is_there(tmp_path: Path) -> None:
    first = series("a", 1)
    needs = (
        f"{first[0].body}change-id: 20260202-b\nprerequisite-change-id: 20260101-a:v3\n"
        "prerequisite-message-id: <a-0@example.org>\n"
        f"prerequisite-patch-id: {patch_id(diff('mm/filemap.c'))}\n"
    )
    (tmp_path / "a.mbox").write_bytes(
        mbox([patch("[PATCH 0/1] a", "a-0", body="x\n\nchange-id: 20260101-a\n"), first[1]])
    )
    second = series("b", 1, file="mm/slub.c")
    (tmp_path / "b.mbox").write_bytes(mbox([patch("[PATCH 0/1] b", "b-0", body=needs), second[1]]))

    def findings(*names: str) -> list[str]:
        spec = SeriesSpec(path=names[0], stack=names[1:])
        spec = keep(spec, checkout=tmp_path, cache=tmp_path / "cache")
        records = take_in(spec, checkout=tmp_path, cache=tmp_path / "cache").records
        return [line for record in records for line in record.findings]

    lines = findings("b.mbox")
    assert [line.partition(", which")[0].partition(" (")[0] for line in lines] == [
        "needs the series of <a-0@example.org>",
        "needs the series with change-id 20260101-a:v3",
        "needs 1 patch not part of it",
    ]
    assert all("--series b.mbox" in line for line in lines)
    assert "--series mid:a-0@example.org --series b.mbox" in lines[0]
    assert findings("a.mbox", "b.mbox") == []
    assert unmet("> prerequisite-change-id: x", "x", set(), set) == ()
    ids = "".join(f"prerequisite-message-id: <{n}@x>\n" for n in range(100_000))
    *named, rest = unmet(ids, "x", {"1@x"}, set)
    assert [line.split()[4] for line in named] == ["<0@x>", "<2@x>", "<3@x>"]
    assert rest.startswith("needs 99996 more series")


def patch_id(text: str) -> str:
    done = completed(["git", "patch-id", "--stable"], input=text)
    return done.stdout.split()[0]


@given(
    st.lists(
        st.sampled_from(
            [
                "Subject: [PATCH] x\n",
                "From: a@example.org\r\n",
                "Content-Type: text/plain; charset=latin-1\n",
                "Content-Type: multipart/mixed; boundary=b\n",
                "Content-Type: message/rfc822\n",
                "Content-Transfer-Encoding: base64\n",
                "Content-Transfer-Encoding: quoted-printable\n",
                " goes on\n",
                "no field\n",
                "lone: \rreturn\n",
                "From x@y Thu Jan  1 00:00:00 1970\n",
                "--b\n",
                "\n",
                "\r\n",
                "eA==\n",
                "=3D \xff",
            ]
        ),
        max_size=9,
    )
)
def test_a_mail_of_one_part_is_read_as_pythons_parser_reads_it(lines: list[str]) -> None:
    raw = "".join(lines).encode("latin-1")
    quick, whole = message_of(raw), message_from_bytes(raw)
    assert quick.items() == whole.items()
    assert quick.is_multipart() == whole.is_multipart()
    if not whole.is_multipart():
        assert quick.get_payload(decode=True) == whole.get_payload(decode=True)
        assert quick.get_payload() == whole.get_payload()
