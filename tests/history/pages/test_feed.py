"""The Atom feed: every change once, at addresses that the site has."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from history.pages import site
from history.store import HistoryStore
from tests.history.factory import Nights
from tests.history.pages.made_up import hostile

ATOM = {"a": site.ATOM}


def made(tmp_path: Path, *, strange: bool = False) -> site.SitePages:
    store = HistoryStore(tmp_path / "history")
    for entry in Nights((0.0, 0.0, 0.02, 0.0)).entries():
        store.add(hostile(entry) if strange else entry)
    return site.build(store, tmp_path / "site")


def test_every_change_leads_to_its_place(tmp_path: Path) -> None:
    folder = made(tmp_path).folder
    root = ElementTree.parse(folder / site.FEED).getroot()
    entries = root.findall("a:entry", ATOM)
    assert entries
    ids = [entry.findtext("a:id", "", ATOM) for entry in entries]
    assert len(set(ids)) == len(ids)
    for entry in entries:
        link = entry.find("a:link", ATOM)
        assert link is not None
        page, _, anchor = link.get("href", "").partition("#")
        assert f'id="{anchor}"' in (folder / page).read_text()
    times = [entry.findtext("a:updated", "", ATOM) for entry in entries]
    assert times == sorted(times, reverse=True)
    assert (folder / "index.html").read_text().count('href="feed.xml"') == 2


def test_hostile_names_are_text(tmp_path: Path) -> None:
    text = (made(tmp_path, strange=True).folder / site.FEED).read_text()
    ElementTree.fromstring(text)
    assert "<script" not in text
    assert "\x1b" not in text
