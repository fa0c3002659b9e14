"""One mail, and the mails of a file: what was posted, by whom, and the diff in it.  Pure.

Everything here comes from outside.  A header that breaks the rules is taken as it is
written, a charset nobody knows as Latin-1; nothing is executed and nothing followed.
What still cannot be read is a ``SeriesError`` that names the mail, whatever went wrong:
``reading`` is the one place for that.  Which mails are a series: ``kernels.threads``.
"""

from __future__ import annotations

import codecs
import hashlib
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from email.message import Message
from email.parser import BytesHeaderParser, BytesParser
from email.policy import Compat32
from email.utils import getaddresses, parsedate_to_datetime

from errors import LabError, SeriesError
from kernels.diff import MOST_LINES, read_diff
from kernels.products import is_packed, unpacked
from kernels.series import LARGEST, LONGEST_HEADER, decoded_header, too_large
from text import clean, counted

MOST_MAILS = 5000
# Mails in mails, as digests and "forward as attachment" make them.
DEEPEST_ENCLOSED = 3
# Only a line that looks like a postmark starts a mail: prose has lines with "From ", too.
# (Bounded, since a line of megabytes would be tried in every way.)
POSTMARK = re.compile(
    rb"^From \S{1,200} [^\n]{0,80}?\d\d:\d\d[^\n]{0,40}?(?:19|20)\d\d[^\n]{0,40}\n", re.M
)
REPLY = re.compile(
    r"^\s*(?:re|aw|sv|vs|fwd?|wg|tr|antw|odp|res|ynt|答复|回复)\s*(?:\[\d+\])?\s*[:\uff1a]", re.I
)
BRACKETS = re.compile(r"^\s*((?:\[[^\]]*\]\s*)+)(.*)$", re.S)
# [PATCH 2/5], [PATCH 2.5/5], [PATCH 2 of 5]
COUNT = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d{1,2})?)(?:/| of )(\d{1,4})(?![\w.])")
VERSION = re.compile(r"(?:(?<![a-z0-9])|(?<=patch))v(\d{1,3})(?![a-z0-9])", re.I)
# Tags of a subject that make it a posted patch: [PATCH mm-unstable v3 2/5], [RFC 0/3].
POSTED = re.compile(r"(?<![a-z])(patch|rfc)", re.I)
RESENT = re.compile(r"(?<![a-z])resend", re.I)
DIFF = re.compile(r"^(?:diff --git |--- \S.*\n\+\+\+ \S.*\n@@ )", re.M)
QUOTED_DIFF = re.compile(r"^(?:> ?)+diff --git ", re.M)
MESSAGE_ID = re.compile(r"<([^<>\s]+)>")
CHANGE_ID = re.compile(r"^change-id: (\S{1,200})\s*$", re.M)
# git send-email numbers the mails of a series in their ids, also where it threads nothing.
NUMBERED_ID = re.compile(r"^(\d{14}\.\d{1,10})-\d{1,4}-(.{1,200})$")
PGP_SIGNED = "-----BEGIN PGP SIGNED MESSAGE-----"
PGP_SIGNATURE = "-----BEGIN PGP SIGNATURE-----"
NO_ID = "@no-message-id.invalid"
# A line of a header, which may stand in a body, too: after scissors, or a line of so many dashes.
FIELD = re.compile(r"([A-Za-z][A-Za-z0-9-]{0,60}):[ \t](.*)")
SCISSORS = (">8", "8<", ">%", "%<")
RULER = 20
HEAD = 1 << 16
# A header that every reader of mails ends at the same line.
PLAIN_HEADER = re.compile(rb"(?:[!-9;-~]+:[^\r\n]*\r?\n(?:[ \t][^\r\n]*\r?\n)*)+\r?\n")
# What a mail has more than the patch in it, at the most: that is encoded in base64.
ENCODING = 1.4
LONGEST_REFERENCES = 1 << 14
# Of a field with parameters, for which Python's parser looks in quadratic time.
LONGEST_CONTENT = 1 << 10
# Python's parser holds each line against all parts that it is in; this takes two seconds.
PART = re.compile(rb"content-type:\s*(?:multipart|message)/", re.I)
MOST_HELD = 20_000_000
DEEPEST = 1000  # where Python's recursion ends
RAW_ID = re.compile(rb"^message-id:\s{0,80}<([^<>\s]{1,200})>", re.M | re.I)
RAW_SUBJECT = re.compile(rb"^subject:[ \t]{0,80}([^\r\n]{1,200})", re.M | re.I)
BOMS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# "Python Specific Encodings" of the library's manual: no mailer's, and punycode takes a
# minute for 100 kB.
PYTHONS_OWN = {"idna", "mbcs", "oem", "palmos", "punycode", "raw-unicode-escape", "undefined"}
PYTHONS_OWN |= {"unicode-escape"}
ANSWERS = ("References", "In-Reply-To")
BASE_COMMIT = re.compile(r"^base-commit: ([0-9a-f]{12,64})\b", re.M)
NEED = re.compile(r"^prerequisite-(patch-id|message-id|change-id):[ \t]*<?([^\s<>]{1,250})>?", re.M)
MOST_NAMED = 3
SLUG = 52
ENCODED = re.compile(rb"^content-transfer-encoding: *(quoted-printable|base64)", re.M | re.I)
MOST_OF_HEAD = 1 << 16
HEADERS = re.compile(rb"^(?:diff --git |--- \S|\+\+\+ \S)[^\r\n]*(\r?)\n", re.M)


@dataclass(frozen=True)
class Mail:
    """One mail: texts are decoded, and those for people are fit to be shown.

    ``number`` and ``total`` are those of ``[PATCH 2/5]``, 1 and 1 where there are none, 0 for a
    cover letter; a number may lie between two others, or beyond the total.  ``text`` is the body,
    and the diff where that is attached; ``attached`` has the patches of a mail that carries
    several.  ``author`` is who wrote the patch, ``poster`` who mailed it, from the address
    ``sender``.  ``references`` are hashes of the ids that it answers, oldest first, and ``stem``
    stands for the series in an id made by git, for mails that answer nothing.  ``date`` is in
    seconds since 1970, 0 where none can be read.  ``unread`` says which diff was left.  ``id`` is
    a hash of its message-id, which is a stranger's words and, unless ``has_id``, made here: git
    format-patch --stdout writes none.  ``change_id`` is a hash of the id that b4 gives a series in
    all its versions.
    """

    raw: bytes = field(repr=False)
    message_id: str
    id: str
    has_id: bool
    change_id: str
    subject: str
    author: str
    poster: str
    sender: str
    date: float
    version: int
    number: float
    total: int
    is_reply: bool
    is_tagged: bool
    is_resent: bool
    has_diff: bool
    text: str = field(repr=False)
    references: tuple[str, ...]
    stem: str
    unread: str
    enclosed: tuple[bytes, ...] = field(repr=False)
    attached: tuple[Mail, ...] = field(default=(), repr=False)

    @property
    def is_patch(self) -> bool:
        """Whether it is a member of a series: a patch, or a cover letter."""
        return not self.is_reply and (self.has_diff or (self.number == 0 and self.total > 0))

    @property
    def is_posted(self) -> bool:
        """Whether its subject says so, too."""
        return self.is_patch and self.is_tagged

    @property
    def place(self) -> str:
        """``v2 3/5``, as messages name a place in a series."""
        return f"v{self.version} {self.number:g}/{self.total}"


def digest(text: str) -> str:
    """A hash of an id of somebody else's, short enough to be kept by the thousand."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]


def diff_of(text: str) -> str:
    """The part of a mail from its first diff on, as it is compared with others."""
    match = DIFF.search(text)
    lines = text[match.start() :].split("\n") if match else []
    # What a list or a mailer puts below a patch begins after git's signature.
    whole = "\n".join(line.rstrip() for line in lines)
    return whole.partition("\n--\n")[0].rstrip()


def split_mbox(data: bytes) -> list[bytes]:
    """The mails of an mbox file, or the one mail of a file without a postmark."""
    starts = [
        match.start()
        for match in POSTMARK.finditer(data)
        # A header follows; git leaves no blank line before, where it signs nothing.
        if re.match(rb">?[A-Za-z][A-Za-z0-9-]*:", data[match.end() : match.end() + 80])
    ]
    before = data[: starts[0]] if starts else data
    head = re.split(rb"\r?\n\r?\n", before[:HEAD], maxsplit=1)[0]
    if before.strip() and b"multipart/" in head.lower():
        return [data]  # a postmark in it is that of a patch file which is attached
    mails = [
        re.sub(rb"^>(>*From )", rb"\1", data[data.index(b"\n", start) + 1 : end], flags=re.M)
        for start, end in itertools.pairwise([*starts, len(data)])
    ]
    return [before, *mails] if before.strip() else mails


def read_mails(data: bytes, where: str) -> tuple[Mail, ...]:
    """An mbox file's mails, then those enclosed in each; SeriesError: too many, or one."""
    mails: list[Mail] = []
    parts = split_mbox(data)
    waiting = [(0, raw) for raw in reversed(parts)]
    while waiting:
        count = len(mails) + len(waiting)
        if count > MOST_MAILS:
            what = f"has {count} mails, more than {MOST_MAILS}"
            raise SeriesError(what, where=where, next_step="cut the thread out of the mailbox")
        depth, raw = waiting.pop()
        mails.append(read_mail(raw, where))
        if depth < DEEPEST_ENCLOSED:
            waiting += [(depth + 1, inner) for inner in reversed(mails[-1].enclosed)]
    return tuple(mails)


@contextmanager
def reading(raw: bytes, where: str = "") -> Iterator[None]:
    """Any failure inside is one of this mail, which came from ``where``.

    Python's email package promises no set of exceptions: brackets in an address are a
    RecursionError, a charset that is no ASCII a CharsetError, and there are more.
    Raises SeriesError: the mail cannot be read; names it and the exception.
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
    """Read one mail, which came from ``where``; SeriesError: unreadable, or too large."""
    # What no patch can be is not read.
    if len(raw) > ENCODING * LARGEST:
        raise too_large(len(raw), where)
    lines = raw.count(b"\n") + raw.count(b"\r") - raw.count(b"\r\n")
    if lines > MOST_LINES:
        what = f"has {lines} lines, more than {MOST_LINES}"
        raise SeriesError(what, where=where, next_step="split it")
    if lines * min(inner := len(PART.findall(raw)), DEEPEST) > MOST_HELD:
        what = f"has {lines} lines in {inner} parts with parts"
        raise SeriesError(what, where=where, next_step="send its patches as mails of their own")
    with reading(raw, where):
        try:
            message = message_of(raw)
        except RecursionError:
            # Parts in parts, a thousand deep: nobody's patch.  Its header stands for it.
            message = BytesHeaderParser(policy=_Bounded()).parsebytes(raw)
        return _of_message(raw, message)


class _Bounded(Compat32):
    """Python's policy, with an end to each field: of 300,000 parameters it made hours."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        """A field's name and the value in its lines."""
        name, value = super().header_source_parse(sourcelines)
        is_content = name.lower().startswith("content-")
        return name, value[: LONGEST_CONTENT if is_content else LONGEST_REFERENCES]


def message_of(raw: bytes) -> Message:
    """A mail as Python's parser reads it, which goes through each line of a body, twice."""
    if header := PLAIN_HEADER.match(raw, 0, HEAD):
        message = BytesHeaderParser(policy=_Bounded()).parsebytes(header[0])
        if message.get_content_maintype() not in ("multipart", "message"):
            message.set_payload(raw[header.end() :].decode("ascii", "surrogateescape"))
            return message
    return BytesParser(policy=_Bounded()).parsebytes(raw)


def _of_message(raw: bytes, message: Message) -> Mail:
    full = header_of(message, "Subject")
    tags, subject = _tags_of(full)
    # A list may put its name before the "Re:".
    is_reply = bool(REPLY.match(full) or REPLY.match(subject))
    text, patches, enclosed, unread = _body(message)
    inside = _in_body(text)
    if inside.get("Subject"):
        own_tags, subject = _tags_of(inside["Subject"])
        tags = tags or own_tags
    count, version = COUNT.search(tags), VERSION.search(tags)
    number, total = (float(count[1]), int(count[2])) if count else (1.0, 1)
    ids = MESSAGE_ID.findall(header_of(message, "Message-ID"))
    message_id = clean(ids[0]) if ids else f"{hashlib.sha256(raw).hexdigest()[:32]}{NO_ID}"
    poster, sender = _address(header_of(message, "From"))
    author = _address(inside.get("From", ""))[0] or poster
    # A mailer may leave out either; the oldest comes first in References.
    answered = " ".join(header_of(message, n, LONGEST_REFERENCES) for n in ANSWERS)
    references = [digest(clean(each)) for each in MESSAGE_ID.findall(answered)]
    references = [each for each in references if each != digest(message_id)]
    numbered = NUMBERED_ID.match(message_id)
    change_id = CHANGE_ID.search(text)
    has_diff = DIFF.search(text) is not None
    try:
        date = parsedate_to_datetime(header_of(message, "Date")).timestamp()
    except (ValueError, OverflowError, OSError, IndexError, TypeError):
        date = 0.0
    if number == 0 and not has_diff and references and "\n>" in f"\n{text}":
        is_reply = True  # a question that kept the cover letter's subject
    mail = Mail(
        raw=raw,
        message_id=message_id,
        id=digest(message_id),
        has_id=not message_id.endswith(NO_ID),
        change_id=digest(change_id[1]) if change_id else "",
        subject=clean(subject),
        author=author,
        poster=poster,
        sender=sender,
        date=date,
        version=int(version[1]) if version else 1,
        number=number,
        total=total,
        is_reply=is_reply,
        is_tagged=bool(POSTED.search(tags) or count or version),
        is_resent=RESENT.search(tags) is not None,
        has_diff=has_diff,
        text=text,
        references=tuple(references),
        stem=digest("\n".join(numbered.groups())) if numbered and total > 1 else "",
        unread=unread,
        enclosed=enclosed,
    )
    if len(patches) < 2:
        return mail
    series = []  # by themselves
    for place, patch in enumerate(patches, 1):
        inside = _in_body(patch)
        series.append(
            replace(
                mail,
                subject=clean(_tags_of(inside.get("Subject", ""))[1]) or mail.subject,
                author=_address(inside.get("From", ""))[0] or author,
                number=float(place),
                total=len(patches),
                text=patch,
                has_diff=True,
            )
        )
    text = "\n".join([text, *patches])
    return replace(mail, number=1.0, total=1, has_diff=True, attached=tuple(series), text=text)


def _body(message: Message) -> tuple[str, list[str], tuple[bytes, ...], str]:
    """The text of a mail, with the diff that is attached to it, and what else is in it.

    These are the attached diffs where the body has none and there are several, of two that say the
    same one; the mails that are enclosed; and which diff was left, and why.
    """
    enclosed: list[bytes] = []
    words: list[str] = []
    pages: list[str] = []
    patches: dict[str, str] = {}
    unread = ""
    left = LARGEST  # of bytes to unpack: a thousand attachments of 30 kB are 30 GB
    waiting = [message]
    while waiting:
        part = waiting.pop()
        kind = part.get_content_type()
        # Python decodes the payload of any other part by whatever charset it claims.
        if part.is_multipart() and isinstance(payload := part.get_payload(), list):
            parts = [each for each in reversed(payload) if isinstance(each, Message)]
            if kind == "message/rfc822":
                enclosed += [each.as_bytes() for each in parts]
            else:
                waiting += parts
        elif kind == "text/html":
            pages.append(_content(part))
        elif kind == "text/plain" and not part.get_filename():
            words.append(_content(part))
        else:
            name = clean(str(part.get_filename() or kind))
            try:
                content = _attached(part, left)
                left -= min(left, len(content))
                attached = _content(part, content)
            except SeriesError as error:
                both = f"or one before it: all may have {LARGEST >> 20} MiB, none be damaged"
                unread = f"its attachment {name} {error.what if left == LARGEST else both}"
                left //= 2
                continue
            # What has zeros is a program.
            if "\0" not in attached[:4096] and DIFF.search(attached):
                patches.setdefault(diff_of(attached), attached)
            elif name.endswith((".patch", ".diff")):
                unread = f"no diff can be read in its attachment {name}"
    text = "\n".join(words)
    if any(DIFF.search(each) for each in words):
        beside = patches and patches.keys() - {diff_of(each) for each in words}
        if beside:
            unread = f"has a diff in its text, and {len(beside)} more attached"
        patches = {}
    elif len(patches) == 1:
        (patch,) = patches.values()
        # The patch file's own header before the words around it.
        text = "\n".join([patch, *words] if _in_body(patch) else [*words, patch])
    elif not patches:
        in_html = any("diff --git" in page or "@@ -" in page for page in pages)
        quoted = "its diff is a quotation" if QUOTED_DIFF.search(text) else ""
        unread = "its diff is in HTML only" if in_html else unread or quoted
    return text, list(patches.values()), tuple(enclosed), unread


def _attached(part: Message, most: int) -> bytes:
    """What is attached, without its packing; raises as ``kernels.products.unpacked``."""
    content = _payload(part)
    is_plain = part.get_content_maintype() == "text" and not is_packed(content)
    return content if is_plain else unpacked(content, "", most)


def _payload(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _content(part: Message, content: bytes | None = None) -> str:
    """The text of a part: transfer encoding, charset and flowed lines undone."""
    content = _payload(part) if content is None else content
    is_text = part.get_content_maintype() == "text"
    text = as_text(content, str(part.get_content_charset("utf-8")))
    if text.lstrip().startswith(PGP_SIGNED):
        text = re.sub(r"^- ", "", text.partition("\n\n")[2].partition(PGP_SIGNATURE)[0], flags=re.M)
    flowed = is_text and str(part.get_param("format", "")).lower() == "flowed"
    return _unflowed(text) if flowed and DIFF.search(text) else text


def _unflowed(text: str) -> str:
    """A diff in format=flowed (RFC 3676) as it was before; what can be read as it is stays."""
    lines = text.split("\n")
    context = [line for line in lines if line.startswith(" ") and line.rstrip()]
    forms = [text]
    if context and all(line.startswith("  ") for line in context):
        # Every line that began with a space got one more.
        lines = [line.removeprefix(" ") for line in lines]
        forms.insert(0, "\n".join(lines))
    joined = [lines[:1]]
    for before, line in itertools.pairwise(lines):
        if before.endswith(" ") and before != "-- " and line[:1] not in ("", *" -+@\\"):
            joined[-1].append(line)
        else:
            joined.append([line])
    for form in (*forms, "\n".join(map("".join, joined))):
        with suppress(SeriesError):
            read_diff(form, "")
            return form
    return forms[0]


def _in_body(text: str) -> dict[str, str]:
    """The fields of a header in the body, also behind scissors or a ruler: of people's patches."""
    diff = DIFF.search(text)
    lines = text[: min(diff.start() if diff else HEAD, HEAD)].split("\n")
    starts = [0]
    for number, line in enumerate(lines, 1):
        marks = line.strip()
        is_cut = "--" in marks and any(mark in marks for mark in SCISSORS)
        is_ruler = len(marks) >= RULER and set(marks) == {"-"}
        if is_ruler or (is_cut and set(marks) <= set("- ><8%")):
            starts.append(number)
    for start in starts:
        fields: dict[str, str] = {}
        last = line = ""
        for line in itertools.dropwhile(lambda line: not line.strip("\r"), lines[start:]):
            if line.startswith("From ") and not fields:
                continue
            if match := FIELD.match(line):
                last = match[1].capitalize()
                fields.setdefault(last, match[2].strip())
            elif line[:1] in (" ", "\t") and line.strip() and fields:
                fields[last] = f"{fields[last]} {line.strip()}"
            else:
                break
        if not line.strip() and ("@" in fields.get("From", "") or fields.get("Subject")):
            return {key: decoded_header(value[:LONGEST_HEADER]) for key, value in fields.items()}
    return {}


def _tags_of(subject: str) -> tuple[str, str]:
    """What a subject has in brackets before its words, and the words."""
    match = BRACKETS.match(subject)
    return (match[1], match[2]) if match else ("", subject)


def header_of(message: Message, name: str, longest: int = LONGEST_HEADER) -> str:
    """The first header of a name, decoded, on one line and cut; empty where there is none."""
    for key, value in message.raw_items():
        if key.lower() == name.lower():
            # Bytes that are not ASCII come as surrogates; no mail may have them, many do.
            text = as_text(str(value)[:longest].encode(errors="surrogateescape"), "utf-8")
            return decoded_header(re.sub(r"\r?\n[ \t]+", " ", text))
    return ""


def _address(value: str) -> tuple[str, str]:
    """A mailbox as it is shown, and its address alone."""
    (name, address), *_ = getaddresses([value]) or [("", "")]
    shown = f"{name} <{address}>" if name and address else name or address or value
    return clean(shown), clean(address).lower()


def as_text(content: bytes, charset: str = "utf-8") -> str:
    """Bytes as text: by their own mark, by their charset, else as UTF-8 or Latin-1."""
    marked = next((name for mark, name in BOMS.items() if content.startswith(mark)), charset)
    for name in (marked.replace("utf-8", "utf-8-sig"), "utf-8"):
        with suppress(LookupError, ValueError):
            if codecs.lookup(name).name not in PYTHONS_OWN:
                text = content.decode(name)
                # UTF-7 can spell half of a surrogate pair, which nothing can write down again.
                text.encode()
                return text
    return content.decode("latin-1")


def unmet(
    text: str, name: str, offered: set[str], patch_ids: Callable[[], set[str]]
) -> tuple[str, ...]:
    """What a series needs that none before it is (``offered`` are their ids), a finding each."""
    needs: dict[str, list[str]] = {"message-id": [], "change-id": [], "patch-id": []}
    for kind, identifier in dict.fromkeys(NEED.findall(text)):
        needs[kind].append(identifier)
    findings = []
    for kind, named, series in (
        ("message-id", "of <{}>", "mid:{}"),
        ("change-id", "with change-id {}", "THAT"),
    ):
        # A change-id may have a version behind a colon, as no id of a mail does.
        lacking = [each for each in needs[kind] if not {each, each.partition(":")[0]} & offered]
        findings += [
            f"needs the series {named.format(clean(each))} (prerequisite-{kind}), which is not "
            f"part of it; measure it on top: --series {series.format(clean(each))} --series {name}"
            for each in lacking[:MOST_NAMED]
        ]
        if more := len(lacking[MOST_NAMED:]):
            findings.append(
                f"needs {more} more series that are not part of it (prerequisite-{kind})"
            )
    there = patch_ids() if needs["patch-id"] else set()
    lacking = [clean(each)[:12] for each in needs["patch-id"] if each not in there]
    if lacking:
        named = ", ".join(lacking[:MOST_NAMED]) + (", ..." if len(lacking) > MOST_NAMED else "")
        findings.append(
            f"needs {counted(len(lacking), 'patch')} not part of it (prerequisite-patch-id {named}"
            f"); measure it on top of their series: --series THAT --series {name}"
        )
    return tuple(findings)


def plain(content: bytes, mail: Mail) -> bytes:
    """A patch file as git would have written it, where a mailer encoded it or its line ends."""
    if ENCODED.search(content[:MOST_OF_HEAD]) and mail.has_diff:
        return as_patch(mail, mail.number, mail.total)
    return line_ends(content)


def line_ends(content: bytes) -> bytes:
    """LF where the headers of diffs, or all lines, end in CRLF; hunks alone may have it."""
    ends = HEADERS.findall(content) or re.findall(rb"(\r?)\n", content)
    return content.replace(b"\r\n", b"\n") if ends and all(ends) else content


def as_patch(mail: Mail, number: float, total: int) -> bytes:
    """A mail as a patch file: author, subject, message-id, decoded body; a bare diff as it was."""
    if not (mail.poster or mail.subject):
        return line_ends(mail.raw)
    body = line_ends(mail.text.encode(errors="surrogateescape"))
    head = [
        *([f"From: {mail.author}"] if mail.author else []),
        f"Subject: [PATCH {number:g}/{total}] {mail.subject}",
        *([f"Message-ID: <{mail.message_id}>"] if mail.has_id else []),
    ]
    return "\n".join([*head, "", ""]).encode() + body


def slug(subject: str) -> str:
    """A subject as git names a patch file: letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9._]+|\.{2,}", "-", subject)[:SLUG].strip("-.") or "patch"
