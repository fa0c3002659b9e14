"""A patch file as git would have written it, from what a mailer made of it.  Pure."""

from __future__ import annotations

import re

from kernels.mail import Mail

SLUG = 52
ENCODED = re.compile(rb"^content-transfer-encoding: *(quoted-printable|base64)", re.M | re.I)
HEAD = 1 << 16
HEADERS = re.compile(rb"^(?:diff --git |--- \S|\+\+\+ \S)[^\r\n]*(\r?)\n", re.M)


def plain(content: bytes, mail: Mail) -> bytes:
    """A patch file as git would have written it, where a mailer encoded it or its line ends."""
    if ENCODED.search(content[:HEAD]) and mail.has_diff:
        return as_patch(mail, mail.number, mail.total)
    return line_ends(content)


def line_ends(content: bytes) -> bytes:
    """LF where the headers of diffs end in CRLF, or all lines: git never writes them so.

    A source file with CRLF has them in hunks alone, and a list's footer may end in LF.
    """
    ends = HEADERS.findall(content) or re.findall(rb"(\r?)\n", content)
    return content.replace(b"\r\n", b"\n") if ends and all(ends) else content


def as_patch(mail: Mail, number: float, total: int) -> bytes:
    """A mail as a patch file: author, subject, message-id, and its body decoded."""
    body = line_ends(mail.text.encode(errors="surrogateescape"))
    head = [
        f"From: {mail.author}",
        f"Subject: [PATCH {number:g}/{total}] {mail.subject}",
        *([f"Message-ID: <{mail.message_id}>"] if mail.has_id else []),
    ]
    return "\n".join([*head, "", ""]).encode() + body


def slug(subject: str) -> str:
    """A subject as git names a patch file: letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9._]+|\.{2,}", "-", subject)[:SLUG].strip("-.") or "patch"
