"""One mail, and the mails of a file: what was posted, by whom, and the diff in it.  Pure.

Everything here comes from outside.  A header that breaks the rules is taken as it is
written, a charset nobody knows as Latin-1; nothing is executed and nothing followed.
What still cannot be read is a ``SeriesError`` that names the mail, whatever went wrong:
``reading`` is the one place for that.  Which mails are a series: ``kernels.threads``.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email import message_from_bytes
from email.message import Message
from email.parser import BytesHeaderParser
from email.utils import getaddresses, parsedate_to_datetime

from errors import LabError, SeriesError
from kernels.diff import read_diff
from kernels.packed import is_packed, unpacked
from kernels.series import LARGEST, LONGEST_HEADER, decoded_header
from text import clean

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
LONGEST_REFERENCES = 1 << 14
RAW_ID = re.compile(rb"^message-id:\s{0,80}<([^<>\s]{1,200})>", re.M | re.I)
RAW_SUBJECT = re.compile(rb"^subject:[ \t]{0,80}([^\r\n]{1,200})", re.M | re.I)
BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# "Python Specific Encodings" of the library's manual: no mailer's, and punycode takes a
# minute for 100 kB.
PYTHONS_OWN = frozenset(
    {"idna", "mbcs", "oem", "palmos", "punycode", "raw-unicode-escape", "undefined",
     "unicode-escape"}
)  # fmt: skip


@dataclass(frozen=True)
class Mail:
    """One mail: texts are decoded, and those for people are fit to be shown.

    ``number`` and ``total`` are those of ``[PATCH 2/5]``, 1 and 1 where there are none, 0 for a
    cover letter; a number may lie between two others, or beyond the total.  ``text`` is the body,
    and the diff where that is attached; ``attached`` has the patches of a mail that carries
    several.  ``author`` is who wrote the patch, ``poster`` who mailed it, from the address
    ``sender``.  ``references`` are hashes of the ids that it answers, oldest first, and ``stem``
    stands for the series in an id made by git, for mails that answer nothing.  ``date`` is in
    seconds since 1970, 0 where none can be read.  ``unread`` says which diff was left.
    """

    raw: bytes = field(repr=False)
    message_id: str
    subject: str
    author: str
    version: int
    number: float
    total: int
    is_reply: bool
    has_diff: bool
    text: str = field(repr=False)
    poster: str = ""
    sender: str = ""
    date: float = 0.0
    references: tuple[str, ...] = ()
    stem: str = ""
    is_tagged: bool = False
    is_resent: bool = False
    attached: tuple[Mail, ...] = field(default=(), repr=False)
    enclosed: tuple[bytes, ...] = field(default=(), repr=False)
    unread: str = ""

    @property
    def id(self) -> str:
        """A hash of its message-id, which is a stranger's words."""
        return digest(self.message_id)

    @property
    def is_patch(self) -> bool:
        """Whether it is a member of a series: a patch, or a cover letter."""
        return not self.is_reply and (self.has_diff or (self.number == 0 and self.total > 0))

    @property
    def is_posted(self) -> bool:
        """Whether its subject says so, too."""
        return self.is_patch and self.is_tagged

    @property
    def has_id(self) -> bool:
        """Whether its message-id is its own: git format-patch --stdout writes none."""
        return not self.message_id.endswith(NO_ID)

    @property
    def change_id(self) -> str:
        """The id that b4 gives a series in all its versions, hashed, or nothing."""
        match = CHANGE_ID.search(self.text)
        return digest(match[1]) if match else ""

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
    starts = [match.start() for match in POSTMARK.finditer(data) if _begins_a_mail(data, match)]
    if not starts:
        return [data] if data.strip() else []
    before = data[: starts[0]]
    if before.strip():
        head = re.split(rb"\r?\n\r?\n", before[:HEAD], maxsplit=1)[0]
        if b"multipart/" in head.lower():
            return [data]  # the postmark is that of a patch file which is attached
    ends = [*starts[1:], len(data)]
    mails = [
        re.sub(rb"^>(>*From )", rb"\1", data[data.index(b"\n", start) + 1 : end], flags=re.M)
        for start, end in zip(starts, ends, strict=True)
    ]
    return [before, *mails] if before.strip() else mails


def read_mails(data: bytes, where: str) -> tuple[Mail, ...]:
    """Read an mbox file's mails in its order; mails that are enclosed in one follow it.

    Raises:
        SeriesError: more mails than a thread has, or one that cannot be read.
    """
    mails: list[Mail] = []
    waiting = [(0, raw) for raw in reversed(split_mbox(data))]
    while waiting:
        if len(mails) + len(waiting) > MOST_MAILS:
            raise SeriesError(
                f"has {len(mails) + len(waiting)} mails, more than {MOST_MAILS}",
                where=where,
                next_step="cut the thread out of the mailbox",
            )
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
    tags, subject = _tags_of(full)
    body = _Body(message)
    inside = _in_body(body.text)
    if inside.get("Subject"):
        own_tags, subject = _tags_of(inside["Subject"])
        tags = tags or own_tags
    count = COUNT.search(tags)
    version = VERSION.search(tags)
    ids = MESSAGE_ID.findall(header_of(message, "Message-ID"))
    identifier = clean(ids[0]) if ids else f"{hashlib.sha256(raw).hexdigest()[:32]}{NO_ID}"
    poster, sender = _address(header_of(message, "From"))
    numbered = NUMBERED_ID.match(identifier)
    total = int(count[2]) if count else 1
    mail = Mail(
        raw=raw,
        message_id=identifier,
        subject=clean(subject),
        author=_address(inside.get("From", ""))[0] or poster,
        version=int(version[1]) if version else 1,
        number=float(count[1]) if count else 1.0,
        total=total,
        is_reply=_is_reply(full),
        has_diff=DIFF.search(body.text) is not None,
        text=body.text,
        poster=poster,
        sender=sender,
        date=_date(message),
        references=tuple(each for each in _references(message) if each != digest(identifier)),
        stem=digest("\n".join(numbered.groups())) if numbered and total > 1 else "",
        is_tagged=bool(POSTED.search(tags) or count or version),
        is_resent=RESENT.search(tags) is not None,
        enclosed=body.enclosed,
        unread=body.unread,
    )
    if mail.number == 0 and not mail.has_diff and mail.references and "\n>" in f"\n{mail.text}":
        return replace(mail, is_reply=True)  # a question that kept the cover letter's subject
    return _carrying(mail, body.patches) if len(body.patches) > 1 else mail


def _carrying(mail: Mail, patches: list[str]) -> Mail:
    """A mail that carries several patches, which are a series by themselves."""
    series = []
    for number, text in enumerate(patches, 1):
        inside = _in_body(text)
        subject = clean(_tags_of(inside.get("Subject", ""))[1]) or mail.subject
        author = _address(inside.get("From", ""))[0] or mail.author
        series.append(
            replace(mail, subject=subject, author=author, number=float(number), total=len(patches),
                    text=text, has_diff=True)
        )  # fmt: skip
    return replace(
        mail, number=1.0, total=1, has_diff=True, attached=tuple(series),
        text="\n".join([mail.text, *patches]),
    )  # fmt: skip


class _Body:
    """The text of a mail: its body, and the diff that is attached to it.

    ``patches`` are the attached diffs where the body has none; of two that say the same one counts.
    """

    def __init__(self, message: Message) -> None:
        self.unread = ""
        self.enclosed: tuple[bytes, ...] = ()
        self.patches: list[str] = []
        words: list[str] = []
        pages: list[str] = []
        waiting = [message]
        while waiting:
            part = waiting.pop()
            kind, payload = part.get_content_type(), part.get_payload()
            if isinstance(payload, list):
                parts = [each for each in reversed(payload) if isinstance(each, Message)]
                if kind == "message/rfc822":
                    self.enclosed = (*self.enclosed, *(each.as_bytes() for each in parts))
                else:
                    waiting += parts
            elif kind == "text/html":
                pages.append(_content(part))
            elif kind == "text/plain" and not part.get_filename():
                words.append(_content(part))
            else:
                self._attachment(part, kind)
        self.text = "\n".join(words)
        kept = {diff_of(text) for text in words}
        if any(kept):
            beside = [text for text in self.patches if diff_of(text) not in kept]
            if beside:
                self.unread = f"has a diff in its text, and {len(beside)} more attached"
            self.patches = []
        if len(self.patches) == 1:
            # The patch file's own header before the words around it.
            self.text = "\n".join([*self.patches, *words] if _in_body(self.patches[0]) else
                                  [*words, *self.patches])  # fmt: skip
        elif not self.patches and not any(kept):
            self._explain(pages)

    def _attachment(self, part: Message, kind: str) -> None:
        name = clean(str(part.get_filename() or kind))
        try:
            text = _content(part, is_packed(_payload(part)))
        except SeriesError as error:
            self.unread = f"its attachment {name} {error.what}"
            return
        if DIFF.search(text) and diff_of(text) not in map(diff_of, self.patches):
            self.patches.append(text)
        elif not DIFF.search(text) and name.endswith((".patch", ".diff")):
            self.unread = f"no diff can be read in its attachment {name}"

    def _explain(self, pages: list[str]) -> None:
        if any("diff --git" in page or "@@ -" in page for page in pages):
            self.unread = "its diff is in HTML only"
        elif QUOTED_DIFF.search(self.text):
            self.unread = self.unread or "its diff is a quotation"


def _payload(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _content(part: Message, packed: bool = False) -> str:
    """The text of a part: transfer encoding, packing, charset and flowed lines undone."""
    content = _payload(part)
    is_text = part.get_content_maintype() == "text"
    if not is_text or packed:
        content = unpacked(content, "", LARGEST)
        if b"\0" in content[:4096] and not content.startswith(tuple(mark for mark, _ in BOMS)):
            return ""
    text = as_text(content, str(part.get_content_charset("utf-8")))
    if text.lstrip().startswith(PGP_SIGNED):
        text = re.sub(r"^- ", "", text.partition("\n\n")[2].partition(PGP_SIGNATURE)[0], flags=re.M)
    flowed = is_text and str(part.get_param("format", "")).lower() == "flowed"
    return _unflowed(text) if flowed and DIFF.search(text) else text


def _unflowed(text: str) -> str:
    """A diff in a text of format=flowed (RFC 3676), as it was before a mailer filled its lines.

    Many mailers say so and change nothing: what can be read as it is stays.
    """
    lines = text.split("\n")
    context = [line for line in lines if line.startswith(" ") and line.rstrip()]
    forms = [text]
    if context and all(line.startswith("  ") for line in context):
        # Every line that began with a space got one more.
        lines = [line.removeprefix(" ") for line in lines]
        forms.insert(0, "\n".join(lines))
    joined = lines[:1]
    for line in lines[1:]:
        goes_on = (
            joined[-1].endswith(" ") and joined[-1] != "-- " and line[:1] not in ("", *" -+@\\")
        )
        joined[-1:] = [joined[-1] + line] if goes_on else [joined[-1], line]
    for form in (*forms, "\n".join(joined)):
        try:
            read_diff(form, "")
        except SeriesError:
            continue
        return form
    return forms[0]


def _in_body(text: str) -> dict[str, str]:
    """The header that a body begins with, or what follows scissors or a ruler: its fields.

    Mails of other people's patches have it, and files that git made; it names an author or a
    subject, or it is none.
    """
    diff = DIFF.search(text)
    head = text[: min(diff.start() if diff else HEAD, HEAD)]
    for start in _beginnings(head):
        fields: dict[str, str] = {}
        last = ""
        for line in head[start:].lstrip("\r\n").split("\n"):
            if line.startswith("From ") and not fields:
                continue
            if match := FIELD.match(line):
                last = match[1].capitalize()
                fields.setdefault(last, match[2].strip())
            elif line[:1] in (" ", "\t") and line.strip() and fields:
                fields[last] = f"{fields[last]} {line.strip()}"
            else:
                break
        if line.strip() or not ("@" in fields.get("From", "") or fields.get("Subject")):
            continue
        return {key: decoded_header(value[:LONGEST_HEADER]) for key, value in fields.items()}
    return {}


def _beginnings(head: str) -> Iterator[int]:
    """Where a header may stand in a body."""
    yield 0
    at = 0
    for line in head.split("\n"):
        at += len(line) + 1
        marks = line.strip()
        is_cut = "--" in marks and any(mark in marks for mark in SCISSORS)
        if (is_cut and set(marks) <= set("- ><8%")) or (
            len(marks) >= RULER and set(marks) == {"-"}
        ):
            yield at


def _tags_of(subject: str) -> tuple[str, str]:
    """What a subject has in brackets before its words, and the words."""
    match = BRACKETS.match(subject)
    return (match[1], match[2]) if match else ("", subject)


def _is_reply(subject: str) -> bool:
    """Whether a subject is that of an answer; a list may put its name before that."""
    return bool(REPLY.match(subject) or REPLY.match(_tags_of(subject)[1]))


def _references(message: Message) -> Iterator[str]:
    # A mailer may leave out either; the oldest comes first in References.
    for name in ("References", "In-Reply-To"):
        text = header_of(message, name, LONGEST_REFERENCES)
        yield from (digest(clean(identifier)) for identifier in MESSAGE_ID.findall(text))


def _date(message: Message) -> float:
    try:
        return parsedate_to_datetime(header_of(message, "Date")).timestamp()
    except (ValueError, OverflowError, OSError, IndexError, TypeError):
        return 0.0


def _parsed(raw: bytes) -> Message:
    try:
        return message_from_bytes(raw)
    except RecursionError:
        # Parts in parts, a thousand deep: nobody's patch.  Its header stands for it.
        return BytesHeaderParser().parsebytes(raw)


def _begins_a_mail(data: bytes, postmark: re.Match[bytes]) -> bool:
    """Whether a header follows; git leaves no blank line before, where it signs nothing."""
    follows = data[postmark.end() : postmark.end() + 80]
    return re.match(rb">?[A-Za-z][A-Za-z0-9-]*:", follows) is not None


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
    marked = next((name for mark, name in BOMS if content.startswith(mark)), charset)
    for name in (marked.replace("utf-8", "utf-8-sig"), "utf-8"):
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


BASE_COMMIT = re.compile(r"^base-commit: ([0-9a-f]{12,64})\b", re.M)
NEED = re.compile(r"^prerequisite-(patch-id|message-id|change-id):[ \t]*<?([^\s<>]{1,250})>?", re.M)
MOST_NAMED = 3


def offers(text: str, message_ids: Iterable[str]) -> set[str]:
    """The ids under which a later series may ask for the one with this text and these mails."""
    return {*message_ids, *CHANGE_ID.findall(text)}


def unmet(
    text: str, name: str, offered: set[str], patch_ids: Callable[[], set[str]]
) -> tuple[str, ...]:
    """What a series called ``name`` needs and those before it do not have, a finding each.

    ``patch_ids`` makes the ids of the patches before it, by git, where any are needed.
    """
    needs: dict[str, dict[str, None]] = {}
    for kind, identifier in NEED.findall(text):
        needs.setdefault(kind, {})[identifier] = None
    findings = []
    for identifier in needs.get("message-id", {}):
        if identifier not in offered:
            findings.append(
                f"needs the series of <{clean(identifier)}> (prerequisite-message-id), which is "
                f"not part of it; measure it on top: --series mid:{clean(identifier)} "
                f"--series {name}"
            )
    for identifier in needs.get("change-id", {}):
        if identifier.partition(":")[0] not in offered:
            findings.append(
                f"needs the series with change-id {clean(identifier)} (prerequisite-change-id), "
                f"which is not part of it; measure it on top: --series THAT --series {name}"
            )
    patches_needed = needs.get("patch-id", {})
    lacking = list(patches_needed.keys() - patch_ids()) if patches_needed else []
    if lacking:
        lacking = [identifier for identifier in patches_needed if identifier in lacking]
        named = ", ".join(clean(identifier)[:12] for identifier in lacking[:MOST_NAMED])
        more = ", ..." if len(lacking) > MOST_NAMED else ""
        count = "1 patch" if len(lacking) == 1 else f"{len(lacking)} patches"
        findings.append(
            f"needs {count} not part of it (prerequisite-patch-id {named}{more}); measure it on "
            f"top of their series: --series THAT --series {name}"
        )
    return tuple(findings)
