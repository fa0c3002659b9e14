"""What kind of series a text names, and where what is named on a command line lies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

Kind = Literal["folder", "file", "thread", "range", "link"]

MESSAGE_ID = re.compile(r"[^\s<>/@]+@[^\s<>/@]+")
LINK = re.compile(r"[a-z][a-z0-9+.-]*://", re.I)
FILES = tuple(
    f"{kind}{packed}"
    for kind in (".mbox", ".mbx", ".eml", ".patch", ".diff")
    for packed in ("", ".gz", ".xz", ".zst", ".bz2")
)
# Where "A..B" is a range and "../A" or "A/../B" is a path.
RANGE = re.compile(r"(?P<first>[^\s]*[^\s/.])\.\.(?P<last>[^\s/.][^\s]*)?")


def kind_of(name: str) -> Kind:
    """The kind of series of a name, a folder without a known ending; a ``link`` is not fetched."""
    if LINK.match(name):
        return "thread" if message_id(name) else "link"
    if name.startswith("git:") or RANGE.fullmatch(name):
        return "range"
    if message_id(name):
        return "thread"
    return "file" if split_mail(name)[0].endswith(FILES) else "folder"


def message_id(name: str) -> str:
    """The message-id in ``mid:ID``, ``<ID>``, ``ID`` or a link to an archive; else nothing."""
    bare = name.removeprefix("mid:")
    if bare.startswith("<") and bare.endswith(">"):
        bare = bare[1:-1]
    if LINK.match(name):
        bare = _in_link(name)
    elif split_mail(name)[0].endswith(FILES):
        return ""
    # A leading "-" would be an option to whoever gets it.
    return bare if MESSAGE_ID.fullmatch(bare) and not bare.startswith("-") else ""


def _in_link(link: str) -> str:
    """The message-id in a link to an archive of mails, or nothing."""
    try:
        parts = urlsplit(link)
    except ValueError:  # brackets around what is no address
        return ""
    if parts.scheme.lower() not in ("http", "https"):
        return ""
    names = [unquote(part) for part in parts.path.split("/")]
    # What is called like a file is one, though there be an @ in its name.
    return next(
        (name for name in names if MESSAGE_ID.fullmatch(name) and not name.endswith(FILES)), ""
    )


def split_mail(name: str) -> tuple[str, str]:
    """File and message-id of ``FILE#MESSAGE-ID``, one mail of a mailbox; else all, and nothing."""
    place, mark, identifier = name.partition("#")
    identifier = identifier.removeprefix("mid:").removeprefix("<").removesuffix(">")
    is_mail = mark and MESSAGE_ID.fullmatch(identifier) and (place.endswith(FILES) or "/" in place)
    return (place, identifier) if is_mail else (name, "")


def split_range(name: str) -> tuple[str, str, str] | None:
    """Repository (empty if none is named), first and last of ``git:REPOSITORY@A..B``."""
    place = ""
    if name.startswith("git:"):
        place, at, name = name.removeprefix("git:").partition("@")
        if not at or not place:
            return None
    match = RANGE.fullmatch(name)
    if match is None or name.startswith("-") or LINK.match(name):
        return None
    return place, match["first"], match["last"] or "HEAD"


def from_here(name: str, *, here: Path, checkout: Path) -> str:
    """A series or source of a command line, relative to ``here``; not found: the checkout.

    An empty name stays so.
    """
    kind, colon, rest = name.partition(":")
    if colon and kind in ("git", "dir", "tarball", "image"):
        place, at, more = rest.partition("@") if kind in ("git", "image") else (rest, "", "")
        if kind == "image" and at:
            more = _absolute(more, here, checkout)
        return f"{kind}:{_absolute(place, here, checkout)}{at}{more}"
    if not name or colon or kind_of(name) in ("thread", "range"):
        return name
    file, mail = split_mail(name)
    return _absolute(file, here, checkout) + (f"#{mail}" if mail else "")


def _absolute(place: str, here: Path, checkout: Path) -> str:
    path = here / Path(place).expanduser()
    if not path.exists() or (here == checkout and not place.startswith("~")):
        return place
    return str(path)
