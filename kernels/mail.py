"""Mails and threads: which patches a thread holds, in which order.  Pure.

Everything here comes from outside.  A header that breaks the rules is taken as it is
written, a charset nobody knows as Latin-1; nothing is executed and nothing followed.
What still cannot be read is a ``SeriesError`` that names the mail, whatever went wrong:
``reading`` is the one place for that.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from email.parser import BytesHeaderParser
from email.utils import getaddresses

from errors import LabError, SeriesError
from kernels.cleaning import clean
from kernels.series import LONGEST_HEADER, decoded_header

LARGEST_MBOX = 256 << 20
MOST_MAILS = 5000
MOST_PATCHES = 1000
# Only a line that looks like a postmark starts a mail: prose has lines with "From ", too.
# (Bounded, since a line of megabytes would be tried in every way.)
POSTMARK = re.compile(
    rb"^From \S{1,200} [^\n]{0,80}?\d\d:\d\d[^\n]{0,40}?(?:19|20)\d\d[^\n]{0,40}\n", re.M
)
REPLY = re.compile(r"^\s*(re|aw|sv|fwd?|antw)\s*(\[\d+\])?:", re.I)
BRACKETS = re.compile(r"^\s*((?:\[[^\]]*\]\s*)+)(.*)$", re.S)
COUNT = re.compile(r"(?<![\w.])(\d{1,4})/(\d{1,4})(?![\w.])")
VERSION = re.compile(r"(?:(?<!\w)|(?<=patch))v(\d{1,3})(?!\w)", re.I)
DIFF = re.compile(r"^(?:diff --git |--- \S.*\n\+\+\+ \S.*\n@@ )", re.M)
BASE_COMMIT = re.compile(r"^base-commit: ([0-9a-f]{12,64})\s*$", re.M)
PREREQUISITE = re.compile(r"^prerequisite-patch-id: [0-9a-f]{12,64}\s*$", re.M)
MESSAGE_ID = re.compile(r"<([^<>\s]+)>")
HEAD = 1 << 16
RAW_ID = re.compile(rb"^message-id:\s{0,80}<([^<>\s]{1,200})>", re.M | re.I)
RAW_SUBJECT = re.compile(rb"^subject:[ \t]{0,80}([^\r\n]{1,200})", re.M | re.I)
# "Python Specific Encodings" of the library's manual: no mailer's, and punycode takes a
# minute for 100 kB.
PYTHONS_OWN = frozenset(
    {"idna", "mbcs", "oem", "palmos", "punycode", "raw-unicode-escape", "undefined",
     "unicode-escape"}
)  # fmt: skip


@dataclass(frozen=True)
class Mail:
    """One mail: texts are decoded, and those for people are fit to be shown.

    ``number`` and ``total`` are those of ``[PATCH 2/5]``, 1 and 1 where there are
    none, 0 for a cover letter; ``text`` is the body and everything attached as text.
    """

    raw: bytes = field(repr=False)
    message_id: str
    subject: str
    author: str
    version: int
    number: int
    total: int
    is_reply: bool
    has_diff: bool
    text: str = field(repr=False)

    @property
    def is_patch(self) -> bool:
        """Whether it is a member of a series: a patch, or a cover letter."""
        return not self.is_reply and (self.has_diff or (self.number == 0 and self.total > 0))

    @property
    def place(self) -> str:
        """``v2 3/5``, as messages name a place in a series."""
        return f"v{self.version} {self.number}/{self.total}"


@dataclass(frozen=True)
class Thread:
    """The newest series of a thread: patches in order, cover letter, all its mails.

    ``mails`` are those to hand on: the members of the series and the replies.
    """

    version: int
    patches: tuple[Mail, ...]
    cover: Mail | None
    mails: tuple[Mail, ...]
    findings: tuple[str, ...]

    @property
    def base_commit(self) -> str:
        """The commit the series says it is based on, or nothing."""
        members = [self.cover, *self.patches] if self.cover else list(self.patches)
        commits = [match[1] for mail in members if (match := BASE_COMMIT.search(mail.text))]
        return commits[0] if commits else ""


def split_mbox(data: bytes) -> list[bytes]:
    """The mails of an mbox file, or the one mail of a file without a postmark."""
    starts = [match.start() for match in POSTMARK.finditer(data) if _begins_a_mail(data, match)]
    if not starts or data[: starts[0]].strip():
        return [data] if data.strip() else []
    ends = [*starts[1:], len(data)]
    return [
        re.sub(rb"^>(>*From )", rb"\1", data[data.index(b"\n", start) + 1 : end], flags=re.M)
        for start, end in zip(starts, ends, strict=True)
    ]


def read_mails(data: bytes, where: str) -> tuple[Mail, ...]:
    """Read an mbox file's mails in its order.

    Raises:
        SeriesError: too large, more mails than a thread has, or one that cannot be read.
    """
    if len(data) > LARGEST_MBOX:
        raise too_large(len(data), where)
    raw = split_mbox(data)
    if len(raw) > MOST_MAILS:
        raise SeriesError(
            f"has {len(raw)} mails, more than {MOST_MAILS}",
            where=where,
            next_step="cut the thread out of the mailbox",
        )
    return tuple(read_mail(mail, where) for mail in raw)


def too_large(size: int, where: str) -> SeriesError:
    """The refusal of a mailbox of ``size`` bytes."""
    return SeriesError(
        f"has {size >> 20} MiB, more than {LARGEST_MBOX >> 20}",
        where=where,
        next_step="cut the thread out of the mailbox",
    )


@contextmanager
def reading(raw: bytes, where: str = "") -> Iterator[None]:
    """Any failure inside is one of this mail, which came from ``where``.

    Python's email package promises no set of exceptions: brackets in an address are a
    RecursionError, a charset that is no ASCII a CharsetError, and there are more.

    Raises:
        SeriesError: the mail cannot be read; names it and the exception.
    """
    try:
        yield
    except (LabError, MemoryError):
        raise
    except Exception as error:
        raise SeriesError(
            f"cannot be read as a mail: {type(error).__name__}: {clean(str(error), 80)}",
            where=": ".join(filter(None, [where, name_of(raw)])),
            next_step="leave this mail out, or have it sent again",
        ) from error


def name_of(raw: bytes) -> str:
    """What to call a mail that may not be readable: its id, else its subject, else its hash."""
    head = raw[:HEAD]
    for pattern, shape in ((RAW_ID, "<{}>"), (RAW_SUBJECT, '"{}"')):
        if match := pattern.search(head):
            return shape.format(clean(match[1].decode(errors="replace")))
    return f"a mail without a name, SHA-256 {hashlib.sha256(raw).hexdigest()[:12]}"


def read_mail(raw: bytes, where: str = "") -> Mail:
    """Read one mail, which came from ``where``.

    Raises:
        SeriesError: it cannot be read.
    """
    with reading(raw, where):
        return _read(raw)


def _read(raw: bytes) -> Mail:
    message = _parsed(raw)
    full = header_of(message, "Subject")
    brackets = BRACKETS.match(full)
    tags, subject = (brackets[1], brackets[2]) if brackets else ("", full)
    text = body_of(message)
    count = COUNT.search(tags)
    version = VERSION.search(tags)
    ids = MESSAGE_ID.findall(header_of(message, "Message-ID"))
    # git format-patch --stdout writes none, and threads are made of them.
    identifier = f"{hashlib.sha256(raw).hexdigest()[:32]}@no-message-id.invalid"
    return Mail(
        raw=raw,
        message_id=clean(ids[0]) if ids else identifier,
        subject=clean(subject),
        author=_author(header_of(message, "From")),
        version=int(version[1]) if version else 1,
        number=int(count[1]) if count else 1,
        total=int(count[2]) if count else 1,
        is_reply=REPLY.match(full) is not None,
        has_diff=DIFF.search(text) is not None,
        text=text,
    )


def _parsed(raw: bytes) -> Message:
    try:
        return message_from_bytes(raw)
    except RecursionError:
        # Parts in parts, a thousand deep: nobody's patch.  Its header stands for it.
        return BytesHeaderParser().parsebytes(raw)


def body_of(message: Message) -> str:
    """All text parts of a mail, transfer encoding and charset undone."""
    parts = []
    for part in message.walk():
        if part.is_multipart() or part.get_content_maintype() != "text":
            continue
        if part.get_content_subtype() == "html":
            continue
        payload = part.get_payload(decode=True)
        content = payload if isinstance(payload, bytes) else b""
        charset = str(part.get_content_charset("utf-8"))
        parts.append(_as_text(content, charset))
    return "\n".join(parts)


def select(mails: Sequence[Mail], where: str) -> Thread:
    """The newest version of the series in a thread.

    Raises:
        SeriesError: no patch, a patch that is missing, or two that claim one place.
    """
    by_id = {mail.message_id: mail for mail in mails}  # copies by several lists are one
    members = [mail for mail in by_id.values() if mail.is_patch]
    replies = tuple(mail for mail in by_id.values() if not mail.is_patch)
    if not any(mail.has_diff for mail in members):
        raise SeriesError(
            f"no patch in {len(mails)} mails", where=where, next_step="check which thread it is"
        )
    findings = []
    version = max(mail.version for mail in members)
    older = sorted({mail.version for mail in members} - {version})
    if older:
        versions = ", ".join(f"v{number}" for number in older)
        findings.append(f"holds {versions} and v{version}; v{version}, the newest, is taken")
    newest = [mail for mail in members if mail.version == version]
    total = max(mail.total for mail in newest)
    for stray in (mail for mail in newest if mail.total != total):
        if stray.total != 1:
            raise SeriesError(
                f"holds two series of v{version}: {stray.place} ({stray.subject}) is not one of "
                f"{total} patches",
                where=where,
                next_step="put each series into an mbox of its own",
            )
        findings.append(f"a patch outside of the series is left out: {stray.subject}")
    at = _places([mail for mail in newest if mail.total == total], findings, where)
    if total > MOST_PATCHES:
        raise SeriesError(
            f"has {total} patches, more than {MOST_PATCHES}", where=where, next_step="split it"
        )
    missing = [f"{number}/{total}" for number in range(1, total + 1) if number not in at]
    if missing:
        words = "is missing" if len(missing) == 1 else "are missing"
        hint = f", or take v{version} out to measure v{older[-1]}" if older else ""
        raise SeriesError(
            f"v{version}: {clean(', '.join(missing))} {words}",
            where=where,
            next_step=f"add what is missing{hint}",
        )
    patches = tuple(at[number] for number in range(1, total + 1))
    cover = at.get(0)
    needed = sum(len(PREREQUISITE.findall(mail.text)) for mail in at.values())
    if needed:
        findings.append(f"needs {needed} patches that are not part of it (prerequisite-patch-id)")
    numbered = ([cover] if cover else []) + list(patches)
    return Thread(version, patches, cover, (*numbered, *replies), tuple(findings))


def _places(mails: Sequence[Mail], findings: list[str], where: str) -> dict[int, Mail]:
    at: dict[int, Mail] = {}
    for mail in mails:
        there = at.get(mail.number)
        if there is not None and there.subject != mail.subject:
            raise SeriesError(
                f"two mails are {mail.place}: {there.subject!r} and {mail.subject!r}",
                where=where,
                next_step="put each series into an mbox of its own",
            )
        if there is not None:
            findings.append(f"{mail.place} was sent twice; the later one in the mailbox is taken")
        at[mail.number] = mail
    return at


def _begins_a_mail(data: bytes, postmark: re.Match[bytes]) -> bool:
    """Whether a header follows; git leaves no blank line before, where it signs nothing."""
    follows = data[postmark.end() : postmark.end() + 80]
    return re.match(rb">?[A-Za-z][A-Za-z0-9-]*:", follows) is not None


def header_of(message: Message, name: str, longest: int = LONGEST_HEADER) -> str:
    """The first header of a name, decoded, on one line and cut; empty where there is none."""
    for key, value in message.raw_items():
        if key.lower() == name.lower():
            # Bytes that are not ASCII come as surrogates; no mail may have them, many do.
            text = _as_text(str(value)[:longest].encode(errors="surrogateescape"), "utf-8")
            return decoded_header(re.sub(r"\r?\n[ \t]+", " ", text))
    return ""


def _author(value: str) -> str:
    (name, address), *_ = getaddresses([value]) or [("", "")]
    return clean(f"{name} <{address}>" if name and address else name or address or value)


def _as_text(content: bytes, charset: str) -> str:
    for name in (charset, "utf-8"):
        try:
            if codecs.lookup(name).name in PYTHONS_OWN:
                continue
            text = content.decode(name)
            # UTF-7 can spell half of a surrogate pair, which nothing can write down again.
            text.encode()
        except (LookupError, ValueError):
            continue
        return text
    return content.decode("latin-1")
