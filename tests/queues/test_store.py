"""The queue on disk: what is written whole, who holds what, and what is not ours."""

import dataclasses
import json
import threading
from pathlib import Path

import pytest
from pydantic import ValidationError

from errors import InfraError, UsageError
from queues.store import QueueEntry, QueueStore, id_of, put, stamp
from runs.request import Request
from tests.queues.made_up import queued
from tests.values import but


@pytest.fixture
def store(tmp_path: Path) -> QueueStore:
    return QueueStore(tmp_path / "queue")


def test_an_entry_comes_back_as_it_was_put(store: QueueStore) -> None:
    entry = queued(store, "a", priority=-2, author="A <a@example.org>", version=3)
    assert store.find(entry.id) == entry
    assert QueueStore(store.folder).read().entries == (entry,)
    assert json.loads((store.folder / "queue.json").read_text())["format"] == "twinboot queue"


def test_the_same_request_is_the_same_entry(store: QueueStore) -> None:
    entry = queued(store, "a")
    assert not store.add(but(entry, priority=9))
    assert store.find(entry.id).priority == 0
    other = Request(series=("mid:a@example.org",), workloads="filemap-thp")
    assert id_of(other) != entry.id
    assert id_of(entry.question) == entry.id
    # Younger options are part of an id where they are given, and ids that exist stay.
    assert id_of(dataclasses.replace(other, max_seeds=16)) != id_of(other)
    assert id_of(dataclasses.replace(other, guest="smoke")) != id_of(other)
    # As it was before there was the option: what waits in a queue is not queued twice.
    assert id_of(Request(series=("configs/series/noop",))) == "noop-19ac5291"


def test_put_moves_up_queues_again_and_leaves_what_is_done(store: QueueStore) -> None:
    entry = queued(store, "a")
    assert put(store, entry) == "is queued already"
    assert put(store, but(entry, priority=4)) == ("is queued already, now with priority 4")
    store.save(but(entry, state="removed"))
    assert put(store, entry) == "requeued"
    assert store.find(entry.id).state == "waiting"
    store.save(but(entry, state="done", code=0))
    assert put(store, entry) == "done already; see retry"
    with store.claim() as nothing:
        assert nothing is None


@pytest.mark.slow
def test_who_takes_an_entry_has_it_alone(store: QueueStore) -> None:
    first, second = queued(store, "a"), queued(store, "b")
    with store.claim() as claimed:
        assert claimed == first
        # By its file it waits still, and its lock is held.
        with QueueStore(store.folder).claim() as two:
            assert two == second
            with store.claim() as three:
                assert three is None
            with pytest.raises(UsageError, match="is being measured"), store.change(first.id):
                pass
    with store.claim() as again:
        assert again == first


def test_an_entry_that_ended_meanwhile_is_not_taken(store: QueueStore) -> None:
    first = queued(store, "a")
    read = store.read()
    store.save(but(first, state="done", code=0))
    store.read = lambda: read  # type: ignore[method-assign]
    with store.claim() as entry:
        assert entry is None


def test_a_lock_held_for_an_instant_hides_nothing(store: QueueStore) -> None:
    entry = queued(store, "a")
    held, over = threading.Event(), threading.Event()

    def change() -> None:
        with store.change(entry.id):
            held.set()
            over.wait(0.3)

    thread = threading.Thread(target=change)
    thread.start()
    held.wait()
    with store.claim() as taken:
        assert taken == entry
    over.set()
    thread.join()


def test_a_torn_entry_is_named_and_stays(store: QueueStore) -> None:
    good = queued(store, "a")
    torn = store.folder / "entries" / "torn-01234567.json"
    torn.write_text(good.model_dump_json()[:100])
    newer = store.folder / "entries" / "newer-01234567.json"
    newer.write_text(good.model_dump_json()[:-1] + ',"colour":"red"}')
    read = store.read()
    assert read.entries == (good,)
    assert [problem.partition(":")[0] for problem in read.problems] == [newer.name, torn.name]
    assert "colour: unknown key" in read.problems[0]
    assert torn.exists()
    with pytest.raises(InfraError, match="no entry of this version"), store.change(torn.stem):
        pass


def test_an_entry_is_identified_by_how_it_begins(store: QueueStore) -> None:
    first, second = queued(store, "abc"), queued(store, "abd")
    assert store.find(first.id[:3]) == first
    for name in ("ab", "x", "", "../queue"):
        with pytest.raises(UsageError, match=r"no such entry|more than one"):
            store.find(name)
    assert store.find(second.id) == second


@pytest.mark.parametrize(
    "head",
    [
        None,
        "{",
        '{"format": "twinboot history"}',
        '"text"',
        '{"format": "twinboot queue", "schema_version": 9}',
    ],
)
def test_a_folder_that_is_no_queue_is_left_alone(tmp_path: Path, head: str | None) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    if head is not None:
        (folder / "queue.json").write_text(head)
    with pytest.raises(UsageError, match="no queue of this lab's"):
        QueueStore(folder)
    assert (folder / "thesis.txt").read_text() == "mine"


def test_a_queue_that_was_half_made_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "queue"
    (folder / "entries").mkdir(parents=True)
    (folder / ".queue.json.123.new").write_text("{")
    store = QueueStore(folder)
    queued(store, "a")
    assert len(QueueStore(folder).read().entries) == 1


def test_again_is_a_new_session_unless_the_host_ended_it() -> None:
    entry = QueueEntry(id="a-1", question=Request(series=("x",)), added=stamp(), began=stamp())
    failed = but(entry, state="failed", blame="host", tries=2)
    assert (failed.requeued().session, failed.requeued().tries) == ("a-1", 0)
    assert failed.requeued(anew=True).session == "a-1-2"
    broken = but(entry, state="failed", blame="series")
    assert broken.requeued().session == "a-1-2"
    assert but(broken.requeued(), state="done").requeued().session == "a-1-2"
    unbegun = but(entry, state="removed", began="")
    assert unbegun.requeued().session == "a-1"


def test_time_order_is_text_order() -> None:
    stamps = [stamp() for _ in range(9)]
    assert sorted(stamps) == stamps
    assert {len(each) for each in stamps} == {len("1970-01-01T00:00:00.000000Z")}


def test_an_id_names_no_file_but_its_own(store: QueueStore) -> None:
    good = queued(store, "a")
    for bad in ("../evil", "", ".hidden", "a/b", "x" * 200):
        with pytest.raises(ValidationError):
            QueueEntry.model_validate({**good.model_dump(), "id": bad})
    with pytest.raises(ValidationError):
        QueueEntry.model_validate({**good.model_dump(), "mailbox": "../evil.mbox"})
    (store.folder / "entries" / "copy.json").write_text(good.model_dump_json())
    assert store.read().problems == (f"copy.json: is of another name: it holds {good.id}",)
