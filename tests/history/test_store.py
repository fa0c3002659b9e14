"""The history on disk: many writers, torn files, other versions, hostile contents."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from history.entry import Entry
from history.store import HistoryStore
from results.door import StoreError
from tests.history.factory import Nights
from tests.values import but

HOSTILE = "<script>alert(1)</script>\n::error::x\x1b[31m\u202e\u2028,;\"'`|=cmd()\x00%0A"


@pytest.fixture
def store(tmp_path: Path) -> HistoryStore:
    return HistoryStore(tmp_path / "history")


def entries(count: int = 3, **more: object) -> list[Entry]:
    return Nights((0.0,) * count, **more).entries()  # type: ignore[arg-type]


def test_what_is_added_is_read_in_the_order_of_nights(store: HistoryStore) -> None:
    made = entries(5)
    for entry in (made[3], made[0], made[4], made[2], made[1]):
        assert store.add(entry)
    assert list(store.read().entries) == made
    assert store.read().problems == ()


def test_a_session_added_twice_is_one_entry(store: HistoryStore) -> None:
    entry = entries(1)[0]
    assert store.add(entry)
    assert not store.add(entry)
    assert len(store.read().entries) == 1


def test_an_unfinished_session_gives_way_to_the_whole_one(store: HistoryStore) -> None:
    whole = entries(1)[0]
    case = whole.cases[0]
    arms = tuple(but(arm, failed=5) for arm in case.arms)
    partial = but(whole, cases=(but(case, arms=arms),))
    store.add(partial)
    assert store.add(whole)
    assert not store.add(partial)
    assert store.read().entries == (whole,)


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(StoreError, match="no history"):
        HistoryStore(tmp_path).add(entries(1)[0])
    (tmp_path / "history.json").write_text('["another"]')
    with pytest.raises(StoreError, match="not the head of a history"):
        HistoryStore(tmp_path).read()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_torn_file_is_named_and_left_where_it_is(store: HistoryStore, share: float) -> None:
    made = entries(3)
    for entry in made:
        store.add(entry)
    path = store.path(made[1])
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    read = store.read()
    assert list(read.entries) == [made[0], made[2]]
    assert [problem.path for problem in read.problems] == [path]
    assert "torn" in read.problems[0].words
    assert path.exists()
    # Added again, it is whole.
    assert store.add(made[1])
    assert len(store.read().entries) == 3


def test_an_entry_of_a_newer_lab_is_named_and_stays(store: HistoryStore) -> None:
    entry = entries(1)[0]
    store.add(entry)
    data = json.loads(store.path(entry).read_text())
    store.path(entry).write_text(json.dumps({**data, "schema_version": 6, "more": 1}))
    read = store.read()
    assert read.entries == ()
    assert "schema_version 6; this lab reads 5" in read.problems[0].words


@pytest.mark.parametrize(
    ("key", "value"),
    [("experiment", "../../etc"), ("guest", "a/b"), ("night", "2026-13-01"), ("arms", [])],
)
def test_names_that_would_leave_the_folder_are_no_entry(
    store: HistoryStore, key: str, value: object
) -> None:
    entry = entries(1)[0]
    store.add(entry)
    data = json.loads(store.path(entry).read_text())
    store.path(entry).write_text(json.dumps({**data, key: value}))
    assert key in store.read().problems[0].words


def test_many_writers_at_once_lose_nothing(store: HistoryStore) -> None:
    made = entries(40)
    with ThreadPoolExecutor(8) as pool:
        # Twice each: the same session may be added by two jobs.
        list(pool.map(store.add, [*made, *made]))
    assert list(store.read().entries) == made
    left = [path.name for path in store.folder.rglob(".*") if path.is_file()]
    assert left == []


def test_two_branches_that_both_grew_merge_without_conflict(tmp_path: Path) -> None:
    top = tmp_path / "repository"
    store = HistoryStore(top / "history")
    made = entries(6, functions=True)

    def git(*words: str) -> None:
        env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        who = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
        subprocess.run(
            ["git", "-C", str(top), *who, *words], check=True, capture_output=True, env=env
        )

    def commit(subject: str) -> None:
        git("add", ".")
        git("commit", "-m", subject)

    top.mkdir()
    git("init", "-b", "main")
    store.add(made[0])
    commit("first")
    git("checkout", "-b", "other")
    for entry in (made[1], made[2], made[3]):
        store.add(entry)
    commit("three")
    git("checkout", "main")
    for entry in (made[3], made[4], made[5]):
        store.add(entry)
    commit("three others, one of them the same")
    git("merge", "other")
    assert list(store.read().entries) == made


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_any_bytes_are_an_entry_or_a_problem(tmp_path: Path, data: bytes) -> None:
    store = HistoryStore(tmp_path / "fuzzed")
    made = entries(1)[0]
    store.add(made)
    odd = store.path(made).with_name("0.json")
    odd.write_bytes(data)
    read = store.read()
    assert read.entries == (made,)
    assert len(read.problems) == 1
    assert "\n" not in str(read.problems[0].words)


def test_hostile_texts_come_back_as_they_were_and_start_nothing(store: HistoryStore) -> None:
    entry = entries(1)[0]
    case = entry.cases[0]
    arms = tuple(but(arm, label=HOSTILE) for arm in entry.arms)
    failed = but(case.arms[0], failures=(HOSTILE,))
    case = but(case, title=HOSTILE, arms=(failed, *case.arms[1:]))
    entry = but(
        entry,
        session=HOSTILE,
        title=HOSTILE,
        link=HOSTILE,
        arms=arms,
        cases=(case,),
        setting={HOSTILE: HOSTILE},
        findings=(HOSTILE,),
    )
    store.add(entry)
    path = store.path(entry)
    assert path.read_bytes().count(b"\n") == 1
    assert path.parent.parent.parent == store.folder
    assert store.read().entries == (entry,)
