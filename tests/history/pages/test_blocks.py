"""What leads from a change to its cause: the commits, and the search among them."""

import pytest

from history.changes import NightlyChange, changes_of
from history.entry import Entry
from history.pages import blocks
from tests.history.factory import Nights
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
