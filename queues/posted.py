"""Mails as they come by: which are members of a series, of which one, and is it whole.  Pure.

Nothing in a mail is trusted: ids are hashed before they are compared or written, texts for
people are cleaned by ``kernels.mail``, and what is too large to be read is refused unread.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesHeaderParser
from email.utils import getaddresses
from fnmatch import fnmatchcase

from errors import SeriesError
from kernels.cleaning import clean
from kernels.mail import (
    BRACKETS,
    MESSAGE_ID,
    MOST_PATCHES,
    REPLY,
    Mail,
    header_of,
    name_of,
    read_mail,
    reading,
)
from kernels.series import LARGEST

LARGEST_HEAD = 1 << 18
LONGEST_REFERENCES = 1 << 14
# Tags of a subject that make it a posted patch: [PATCH mm-unstable v3 2/5], [RFC 0/3].
POSTED = re.compile(r"(?<![a-z])(patch|rfc)", re.I)
RESENT = re.compile(r"(?<![a-z])resend", re.I)
CHANGE_ID = re.compile(r"^change-id: (\S{1,200})\s*$", re.M)
# git send-email numbers the mails of a series in their ids, also where it threads nothing.
NUMBERED_ID = re.compile(r"^(\d{14}\.\d{1,10})-\d{1,4}-(.{1,200})$")
# Sender, root, version, total, and whether it was sent again.
Key = tuple[str, str, int, int, bool]


@dataclass(frozen=True)
class Posted:
    """A patch or cover letter: ``ids`` are hashes; ``references`` those it answers, oldest first.

    ``stem`` stands for the series in an id made by git, for mails that answer nothing.
    """

    mail: Mail
    id: str
    references: tuple[str, ...]
    sender: str
    stem: str
    resent: bool

    @property
    def change_id(self) -> str:
        """The id that b4 gives a series in all its versions, hashed, or nothing."""
        match = CHANGE_ID.search(self.mail.text)
        return digest(match[1]) if match else ""


@dataclass(frozen=True)
class Group:
    """The members of one version of a series that are there, by number; 0 is the cover letter."""

    key: Key
    members: Mapping[int, Posted]

    @property
    def total(self) -> int:
        """How many patches it says it has."""
        return self.key[3]

    @property
    def version(self) -> int:
        """Which posting it is."""
        return self.key[2]

    @property
    def root(self) -> str:
        """Where its thread begins."""
        return self.key[1]

    @property
    def missing(self) -> tuple[int, ...]:
        """The numbers of the patches that are not there."""
        return tuple(number for number in range(1, self.total + 1) if number not in self.members)

    @property
    def ordered(self) -> tuple[Posted, ...]:
        """Its mails, the cover letter first."""
        return tuple(self.members[number] for number in sorted(self.members))

    @property
    def title(self) -> str:
        """What it is called: by its cover letter, else by its first patch."""
        return self.ordered[0].mail.subject

    @property
    def author(self) -> str:
        """Who posted it."""
        return self.ordered[0].mail.author

    @property
    def id(self) -> str:
        """A short hash of what it is, the same whenever its mails are read again."""
        return digest("\n".join(map(str, self.key)))[:8]

    @property
    def words(self) -> str:
        """``v2 of "mm: make it fast" (A <a@example.org>)``."""
        return f'v{self.version} of "{self.title}" ({self.author})'


def read_posted(raw: bytes) -> Posted | None:
    """The member of a series that a mail is; None for anything else, such as a reply.

    Raises:
        SeriesError: too large, with a header too large, of too many patches, or it cannot
            be read.
    """
    with reading(raw):
        return _read(raw)


def _read(raw: bytes) -> Posted | None:
    if len(raw) > LARGEST:
        raise SeriesError(f"has more than {LARGEST >> 20} MiB", where=name_of(raw))
    head = re.split(rb"\r?\n\r?\n", raw[: LARGEST_HEAD + 4], maxsplit=1)[0]
    if len(head) > LARGEST_HEAD:
        what = f"has a header of more than {LARGEST_HEAD >> 10} KiB"
        raise SeriesError(what, where=name_of(raw))
    header = BytesHeaderParser().parsebytes(head)
    subject = header_of(header, "Subject")
    tags = BRACKETS.match(subject)
    if REPLY.match(subject) or tags is None or not POSTED.search(tags[1]):
        return None
    mail = read_mail(raw)
    if not mail.is_patch:
        return None
    if mail.total > MOST_PATCHES or mail.number > mail.total or mail.total == 0:
        what = f"{mail.place}: {mail.subject}: no such place in a series"
        raise SeriesError(what, where=name_of(raw))
    numbered = NUMBERED_ID.match(mail.message_id)
    own = digest(mail.message_id)
    return Posted(
        mail=mail,
        id=own,
        references=tuple(reference for reference in _references(header) if reference != own),
        sender=_sender(header),
        stem=digest("\n".join(numbered.groups())) if numbered and mail.total > 1 else "",
        resent=RESENT.search(tags[1]) is not None,
    )


def digest(text: str) -> str:
    """A hash of an id of somebody else's, short enough to be kept by the thousand."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]


def groups_of(posts: Iterable[Posted]) -> dict[Key, Group]:
    """The series that mails are members of; of two for one place the later one counts."""
    known = {post.id: post for post in posts}
    by_key: dict[Key, dict[int, Posted]] = {}
    for post in known.values():
        by_key.setdefault(key_of(post, known), {})[post.mail.number] = post
    return {key: Group(key, members) for key, members in by_key.items()}


def key_of(post: Posted, known: Mapping[str, Posted]) -> Key:
    """Which series a mail is a member of."""
    mail = post.mail
    return post.sender, root_of(post, known), mail.version, mail.total, post.resent


def root_of(post: Posted, known: Mapping[str, Posted]) -> str:
    """Where a mail's thread begins, as far as it is known: the same for all of a series."""
    visited = {post.id}
    while post.references:
        first = post.references[0]
        if first not in known or first in visited:
            return first
        visited.add(first)
        post = known[first]
    return post.stem or post.id


def touches(files: Iterable[str], paths: Sequence[str]) -> bool:
    """Whether a file is one of ``paths`` (folders, files, patterns), or none are named.

    "*" stands for any characters, "/" too.
    """
    return not paths or any(fits(file, path) for file in files for path in paths)


def fits(file: str, path: str) -> bool:
    """Whether a file is ``path``, lies below it, or is of that pattern."""
    if any(character in path for character in "*?["):
        return fnmatchcase(file, path)
    folder = path.rstrip("/")
    return file == folder or file.startswith(f"{folder}/")


def _references(header: Message) -> Iterable[str]:
    # A mailer may leave out either; the oldest comes first in References.
    for name in ("References", "In-Reply-To"):
        text = header_of(header, name, LONGEST_REFERENCES)
        yield from (digest(clean(identifier)) for identifier in MESSAGE_ID.findall(text))


def _sender(header: Message) -> str:
    (_, address), *_ = getaddresses([header_of(header, "From")]) or [("", "")]
    return clean(address).lower()
