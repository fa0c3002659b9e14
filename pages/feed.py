"""The changes of all tracks as an Atom feed (RFC 4287): the same bytes for the same history."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from history.change import NightlyChange
from history.wording import change_line
from pages import status
from pages.tracks import Track
from text import clean_line

NAME = "feed.xml"
MOST = 100
ATOM = "http://www.w3.org/2005/Atom"


def render(tracks: Sequence[Track]) -> str:
    """The newest changes that were judged, the last one first; addresses are below the feed's."""
    ElementTree.register_namespace("", ATOM)
    feed = ElementTree.Element(_name("feed"))
    recent = sorted(
        ((change, track) for track in tracks for change in track.changes),
        key=lambda both: (both[0].detected, both[0].id), reverse=True,
    )[:MOST]  # fmt: skip
    newest = max((track.last.night for track in tracks), default="1970-01-01")
    _text(feed, "id", "urn:twinboot:changes")
    _text(feed, "title", "Twinboot: changes")
    _text(feed, "updated", _time(newest))
    _text(ElementTree.SubElement(feed, _name("author")), "name", "Twinboot")
    _link(feed, "index.html")
    for change, track in recent:
        _entry(feed, change, track)
    ElementTree.indent(feed)
    body = ElementTree.tostring(feed, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body}\n'


def _entry(feed: ElementTree.Element, change: NightlyChange, track: Track) -> None:
    entry = ElementTree.SubElement(feed, _name("entry"))
    word = status.of_change(change).word
    size = f" {status.size(change)}" if status.size(change) else ""
    course = change.course
    _text(entry, "id", f"urn:twinboot:change:{change.id}")
    _text(entry, "title", f"{word}{size}: {course.case} {course.metric} ({course.experiment})")
    _text(entry, "updated", _time(change.detected))
    _link(entry, f"track/{track.name}.html#change-{change.id}")
    _text(entry, "summary", change_line(change))


def _name(tag: str) -> str:
    return f"{{{ATOM}}}{tag}"


def _text(parent: ElementTree.Element, tag: str, text: str) -> None:
    ElementTree.SubElement(parent, _name(tag)).text = clean_line(text)


def _link(parent: ElementTree.Element, to: str) -> None:
    ElementTree.SubElement(parent, _name("link"), {"href": to})


def _time(night: str) -> str:
    """Midnight of a night, as Atom writes times."""
    return f"{night}T00:00:00Z"
