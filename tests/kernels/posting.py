"""Series as they arrive by mail: made by git, changed as mailers change them."""

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from email.header import Header
from pathlib import Path

from tests.kernels.fake import Lab, commit_all, git


@dataclass(frozen=True)
class Post:
    """One mail: headers in order, body as text."""

    headers: tuple[tuple[str, str], ...]
    body: str
    charset: str = "utf-8"

    def header(self, name: str) -> str:
        same = name.lower()
        return next((value for key, value in self.headers if key.lower() == same), "")

    def with_header(self, name: str, value: str) -> "Post":
        others = tuple(pair for pair in self.headers if pair[0].lower() != name.lower())
        return replace(self, headers=(*others, (name, value)))

    def encoded(self) -> bytes:
        head = "".join(f"{key}: {value}\n" for key, value in self.headers)
        return f"{head}\n".encode() + self.body.encode(self.charset)


def mbox(posts: Sequence[Post]) -> bytes:
    """An mbox file of these mails, in this order."""
    return b"".join(
        b"From mboxrd@z Thu Jan  1 00:00:00 1970\n" + post.encoded() + b"\n" for post in posts
    )


def post(lab: Lab, *edits: Callable[[Path], None], version: int = 1, cover: str = "") -> list[Post]:
    """What git would send for ``edits`` of the source: cover letter (if named), patches."""
    scratch = lab.checkout / f"posted-{version}"
    out = lab.checkout / f"out-{version}"
    shutil.copytree(lab.source, scratch)
    commit_all(scratch)
    for number, edit in enumerate(edits, 1):
        edit(scratch)
        git(scratch, "add", "-A")
        message = f"mm: change number {number}\n\nIt has a reason.\n"
        git(scratch, "commit", "-qm", message, "--allow-empty")
    options = ["--cover-letter"] if cover else []
    form = ("-q", "--thread", "-n", f"-v{version}", *options)
    git(scratch, "format-patch", *form, "-o", str(out), f"-{len(edits)}")
    posts = [read(path) for path in sorted(out.glob("*.patch"))]
    if cover:
        subject = posts[0].header("Subject").replace("*** SUBJECT HERE ***", cover)
        posts[0] = posts[0].with_header("Subject", subject)
    for folder in (scratch, out):
        shutil.rmtree(folder)
    return posts


def read(path: Path) -> Post:
    head, _, body = path.read_text().partition("\n\n")
    lines = re.sub(r"\n[ \t]+", " ", head.split("\n", 1)[1]).splitlines()
    pairs = [line.partition(": ") for line in lines]
    return Post(tuple((key, value) for key, _, value in pairs), body)


def reply(to: Post, text: str, sender: str = "Rev Iewer <rev@example.org>") -> Post:
    """A reply with ``text``, as to a review."""
    identity = re.sub(r"\W", "", sender)
    return Post(
        (
            ("From", sender),
            ("Subject", f"Re: {to.header('Subject')}"),
            ("Date", "Fri, 2 Jan 2026 00:00:00 +0000"),
            ("Message-Id", f"<{identity}.{abs(hash(text))}@example.org>"),
            ("In-Reply-To", to.header("Message-Id")),
        ),
        f"> It has a reason.\n\nFine.\n\n{text}\n",
    )


def encoded_word(text: str, charset: str) -> str:
    return Header(text, charset).encode()


def repository(lab: Lab, *edits: Callable[[Path], None]) -> Path:
    """The source as a repository: tag ``base``, and one commit an edit on ``topic``."""
    folder = lab.checkout / "repository"
    shutil.copytree(lab.source, folder)
    commit_all(folder)
    git(folder, "tag", "base")
    for number, edit in enumerate(edits):
        edit(folder)
        git(folder, "commit", "-qam", f"mm: commit {number}")
    return folder


# Mails that Python's email package, or a reader of diffs, fails on in ways of its own.
DIFF = "diff --git a/mm/x.c b/mm/x.c\n--- a/mm/x.c\n+++ b/mm/x.c\n@@ -1 +1 @@\n-x\n+y\n"
LONG = "9" * 5000


def mail(name: str, *headers: str, body: str = DIFF) -> bytes:
    """A posted patch with these headers besides an id and a subject; ``name`` makes both."""
    lines = [f"Message-ID: <{name}@example.org>", f"Subject: [PATCH] mm: {name}", *headers]
    return "\n".join([*lines, "", body]).encode()


# Each cannot be read.
UNREADABLE = {
    # ValueError, "embedded null character", in Message.get_content_charset
    "nul-charset": mail(
        "nul-charset", "From: a@b.org", "Content-Type: text/plain; charset*=x\0''y"
    ),
    # more digits than int() takes
    "hunk-line": mail("hunk-line", "From: a@b.org", body=DIFF.replace("-1 ", f"-{LONG} ")),
    "hunk-count": mail("hunk-count", "From: a@b.org", body=DIFF.replace("+1 ", f"+1,{LONG} ")),
}
# Each breaks a rule, and is read all the same.
ODD = {
    # email.errors.CharsetError, which is no ValueError
    "header-charset": mail("odd", "From: a@b.org").replace(b"odd\n", b"=?utf-\xd9\xa3?q?x?=\n", 1),
    "body-charset": mail("odd", "From: a@b.org", "Content-Type: text/plain; charset=klingon"),
    # LookupError: a codec, but not one of text
    "zlib": mail("odd", "From: a@b.org", "Content-Type: text/plain; charset=zlib"),
    # half of a surrogate pair, which cannot be written into a patch file again
    "utf-7": mail(
        "odd", "From: a@b.org", "Content-Type: text/plain; charset=utf-7", body=f"+2AA-\n{DIFF}"
    ),
    "escape": mail(
        "odd",
        "From: a@b.org",
        "Content-Type: text/plain; charset=unicode_escape",
        body=f"\\ud800\n{DIFF}",
    ),
    # takes minutes for 100 kB where it is decoded, as Python does of what is not all ASCII
    "punycode": mail(
        "odd",
        "From: a@b.org",
        "Content-Type: text/plain; charset=punycode",
        body=f"{DIFF}-- \n\xe9{'a' * 200_000}-{'b99b' * 200_000}\n",
    ),
}
