"""A patch file as git would have written it, from what a mailer made of it.  Pure."""

from __future__ import annotations

import re

from kernels.mail import Mail

SLUG = 52
ENCODED = re.compile(rb"^content-transfer-encoding: *(quoted-printable|base64)", re.M | re.I)
HEAD = 1 << 16


def plain(content: bytes, mail: Mail) -> bytes:
    """A patch file as git would have written it, where a mailer encoded it or its line ends."""
    if ENCODED.search(content[:HEAD]) and mail.has_diff:
        return as_patch(mail, mail.number, mail.total)
    return line_ends(content)


def line_ends(content: bytes) -> bytes:
    """LF where every line ends in CRLF, which a source with some CR never gives."""
    lines = content.count(b"\n")
    return content.replace(b"\r\n", b"\n") if content.count(b"\r\n") == lines else content


def as_patch(mail: Mail, number: int, total: int) -> bytes:
    """A mail as a patch file: author, subject, message-id, and its body decoded."""
    body = line_ends(mail.text.encode(errors="surrogateescape"))
    head = [
        f"From: {mail.author}",
        f"Subject: [PATCH {number}/{total}] {mail.subject}",
        *([] if mail.message_id.endswith(".invalid") else [f"Message-ID: <{mail.message_id}>"]),
    ]
    return "\n".join([*head, "", ""]).encode() + body


def slug(subject: str) -> str:
    """A subject as git names a patch file: letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9._]+|\.{2,}", "-", subject)[:SLUG].strip("-.") or "patch"
