"""What leads from a change to its cause: the commits, and the search among them."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from history.changes import NightlyChange, changes_of
from history.entry import Entry
from history.pages import blocks, site
from history.store import HistoryStore
from tests.history.factory import Nights
from tests.history.pages.made_up import hostile
from tests.values import but


@pytest.fixture(scope="module")
def nights() -> tuple[Entry, ...]:
    return tuple(Nights((0.0, 0.0, 0.02)).entries())


def of_git(entry: Entry) -> Entry:
    arms = tuple(
        but(arm, kernel=but(arm.kernel, source="git:/src/linux@v6.12")) for arm in entry.arms
    )
    return but(entry, arms=arms)


def a_change(nights: tuple[Entry, ...]) -> NightlyChange:
    return next(each for each in changes_of(nights, None) if each.kind == "step")


def test_a_change_between_commits_has_its_commands(nights: tuple[Entry, ...]) -> None:
    change = but(a_change(nights), commits="aaaaaaaaaaaa..bbbbbbbbbbbb")
    commands = dict(blocks.search(change, {entry.id: of_git(entry) for entry in nights}))
    assert commands["commits"].split()[-1] == change.commits
    words = commands["bisect"].split()
    assert words[words.index("--range") + 1] == change.commits
    assert words[words.index("--source") + 1] == "git:/src/linux"
    assert words[words.index("--metric") + 1] == change.course.metric
    assert words[words.index("--workloads") + 1] == change.course.case


def test_where_no_commit_is_known_nothing_is_named(nights: tuple[Entry, ...]) -> None:
    change = a_change(nights)
    entries = {entry.id: entry for entry in nights}
    assert blocks.search(but(change, commits=""), entries) == []
    moved = but(change, commits="a..b", kind="lab")
    assert blocks.search(moved, entries) == []
    by_package = but(change, commits="a..b")
    assert [what for what, _ in blocks.search(by_package, entries)] == ["commits"]


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
