"""Mails as they come by: which are posted, and what they touch.  Pure.

What is too large to be read is refused unread.  Which mails are a series: ``kernels.threads``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from errors import SeriesError
from kernels.mail import Mail, name_of, read_mail, reading
from kernels.series import LARGEST
from kernels.threads import MOST_PATCHES

LARGEST_HEAD = 1 << 18
# Patches that are sent after a series, as [PATCH 3/2].
MOST_BESIDE = 9


def read_posted(raw: bytes) -> Mail:
    """A mail that came by; ``Mail.is_posted`` says whether it is a member of a series.

    Raises:
        SeriesError: too large, with a header too large, of too many patches, or it cannot
            be read.
    """
    with reading(raw):
        if len(raw) > LARGEST:
            raise SeriesError(f"has more than {LARGEST >> 20} MiB", where=name_of(raw))
        head = re.split(rb"\r?\n\r?\n", raw[: LARGEST_HEAD + 4], maxsplit=1)[0]
        if len(head) > LARGEST_HEAD:
            what = f"has a header of more than {LARGEST_HEAD >> 10} KiB"
            raise SeriesError(what, where=name_of(raw))
        mail = read_mail(raw)
        if mail.is_posted and not (
            0 < mail.total <= MOST_PATCHES and mail.number <= mail.total + MOST_BESIDE
        ):
            what = f"{mail.place}: {mail.subject}: no such place in a series"
            raise SeriesError(what, where=name_of(raw))
        return mail


def why_not_posted(mail: Mail) -> str:
    """Why a mail that has a diff is no member of a series; nothing where it has none."""
    if mail.has_diff:
        return "a reply" if mail.is_reply else "no [PATCH] in its subject"
    if any(b"diff --git " in raw for raw in mail.enclosed):
        return "a mail that encloses others"
    return mail.unread


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
