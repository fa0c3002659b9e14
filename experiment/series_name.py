"""What kind of series a text names: pure, no look at any file system."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import unquote, urlsplit

Kind = Literal["folder", "file", "thread", "range"]

MESSAGE_ID = re.compile(r"[^\s<>/@]+@[^\s<>/@]+")
FILES = (".mbox", ".mbx", ".eml", ".patch", ".diff")
# Where "A..B" is a range and "../A" or "A/../B" is a path.
RANGE = re.compile(r"(?P<first>[^\s]*[^\s/.])\.\.(?P<last>[^\s/.][^\s]*)?")


def kind_of(name: str) -> Kind:
    """The kind of series that ``name`` asks for; a file without a known ending is a folder."""
    if name.startswith("git:") or RANGE.fullmatch(name):
        return "range"
    if message_id(name):
        return "thread"
    return "file" if name.endswith(FILES) else "folder"


def message_id(name: str) -> str:
    """The message-id in ``mid:ID``, ``<ID>``, ``ID`` or a link to an archive; else nothing."""
    if name.endswith(FILES):
        return ""
    bare = name.removeprefix("mid:")
    if bare.startswith("<") and bare.endswith(">"):
        bare = bare[1:-1]
    if re.match(r"https?://", name):
        parts = [unquote(part) for part in urlsplit(name).path.split("/")]
        bare = next((part for part in parts if MESSAGE_ID.fullmatch(part)), "")
    # A leading "-" would be an option to whoever gets it.
    return bare if MESSAGE_ID.fullmatch(bare) and not bare.startswith("-") else ""


def split_range(name: str) -> tuple[str, str, str] | None:
    """Repository (empty if none is named), first and last of ``git:REPOSITORY@A..B``."""
    place = ""
    if name.startswith("git:"):
        place, at, name = name.removeprefix("git:").partition("@")
        if not at or not place:
            return None
    match = RANGE.fullmatch(name)
    if match is None or name.startswith("-"):
        return None
    return place, match["first"], match["last"] or "HEAD"
