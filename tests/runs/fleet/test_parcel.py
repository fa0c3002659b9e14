"""Files and answers on their way: the same when they arrive, and nothing else than these."""

import os
import pickle
import uuid
import zlib
from pathlib import Path
from typing import IO

import fsspec
import pytest
from fsspec import AbstractFileSystem

from errors import InfraError, UsageError
from guests.channel import Ending
from guests.exact import Outcome
from runs.fleet import parcel
from runs.fleet.parcel import Answer, Artefact, ArtefactStore, answer_of, held_in, unpacked

OUTCOME = Outcome({}, Ending("done", "it ended", ("a", "b")), 1.5, 2.0, bytes(range(256)))
ANSWER = Answer("tcp://a:1", "a", OUTCOME, raw={"result": bytes(range(256)), "empty": b""})


def test_what_is_sent_arrives() -> None:
    assert unpacked(ANSWER.packed()) == ANSWER


class Planted:
    """What runs a command where it is unpickled."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.made),)


def test_nothing_that_a_worker_sends_is_run(tmp_path: Path) -> None:
    sent = pickle.dumps(Planted(tmp_path / "made"))
    for data in (sent, zlib.compress(sent)):
        with pytest.raises(InfraError, match="a worker's answer cannot be read"):
            answer_of(data)
    assert not (tmp_path / "made").exists()


def test_neither_bombs_nor_other_values_are_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcel, "LARGEST", 1 << 20)
    for text in (b"[" * (2 << 20), b"[" * 9999, b"[{}]"):
        with pytest.raises(InfraError, match="cannot be read"):
            unpacked(zlib.compress(text))


def test_files_that_no_run_has_are_no_answer() -> None:
    many = {f"f{n}": b"" for n in range(200_000)}
    for raw in (many, {"../x": b""}, {"..": b""}, {"a\0": b""}, {"": b""}):
        run, snapshot = Answer("a", "a", OUTCOME, raw=raw), Answer("a", "a", None, snapshot_raw=raw)
        for answer in (run, snapshot):
            with pytest.raises(InfraError, match=r"has 200000 files|no name of a run's file"):
                unpacked(answer.packed())


@pytest.fixture(params=["folder", "file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtefactStore:
    urls = {
        "folder": str(tmp_path / "store"),
        "file": f"file://{tmp_path}/store",
        "memory": f"memory://{uuid.uuid4().hex}",
    }
    return ArtefactStore(urls[request.param])


def file(tmp_path: Path, content: bytes = b"content" * 999) -> Path:
    path = tmp_path / "bzImage"
    path.write_bytes(content)
    return path


def blob(tmp_path: Path, artefact: Artefact) -> Path:
    return tmp_path / "store" / "blobs" / artefact.sha256


def test_what_is_put_is_fetched(store: ArtefactStore, tmp_path: Path) -> None:
    kept = store.put(file(tmp_path))
    fetched = store.fetch(kept, tmp_path / "there")
    assert fetched.read_bytes() == b"content" * 999
    assert fetched == held_in(tmp_path / "there", kept)
    assert store.put(file(tmp_path)) == kept


def test_a_file_damaged_in_the_store_is_named(tmp_path: Path) -> None:
    store = ArtefactStore(str(tmp_path / "store"))
    kept = store.put(file(tmp_path))
    blob(tmp_path, kept).write_bytes(b"Content" * 999)
    with pytest.raises(InfraError, match="bzImage is damaged") as error:
        store.fetch(kept, tmp_path / "there")
    assert kept.sha256 in error.value.next_step
    assert not held_in(tmp_path / "there", kept).exists()


def test_one_that_arrives_damaged_is_fetched_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtefactStore(str(tmp_path / "store"))
    kept = store.put(file(tmp_path))
    fetched = []
    whole = ArtefactStore._read_into

    def damaged_once(self: ArtefactStore, artefact: Artefact, path: Path) -> str:
        fetched.append(path)
        digest = whole(self, artefact, path)
        if len(fetched) == 1:
            return "0" * 64
        return digest

    monkeypatch.setattr(ArtefactStore, "_read_into", damaged_once)
    assert store.fetch(kept, tmp_path / "there").exists()
    assert len(fetched) == 2


def test_a_file_damaged_on_the_way_to_disk_is_noticed_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtefactStore(str(tmp_path / "store"))
    kept = store.put(file(tmp_path))
    there = store.fetch(kept, tmp_path / "there")
    there.write_bytes(b"Content" * 999)
    monkeypatch.setattr(parcel, "VERIFIED", {})
    assert store.fetch(kept, tmp_path / "there").read_bytes() == b"content" * 999


def test_what_is_not_there_is_named_with_the_store(tmp_path: Path) -> None:
    store = ArtefactStore(str(tmp_path / "store"))
    with pytest.raises(InfraError, match="is not there") as error:
        store.fetch(Artefact("bzImage", "0" * 64, 1), tmp_path / "there")
    assert "--store" in error.value.next_step


def test_an_unknown_kind_of_store(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be opened"):
        ArtefactStore("nonsense://bucket/x").put(file(tmp_path))


def test_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file, no folder")
    with pytest.raises(InfraError, match="cannot be written"):
        ArtefactStore(str(tmp_path / "store")).put(file(tmp_path))


class Unreachable(AbstractFileSystem):  # type: ignore[misc]
    """A store behind a network that is down; its driver has errors of its own."""

    protocol = "unreachable"

    class EndpointError(Exception):
        pass

    def _fail(self, *path: object, **more: object) -> None:
        raise self.EndpointError("could not connect to\nthe endpoint")

    size = cat_file = get_file = pipe_file = makedirs = _fail


def test_a_store_that_cannot_be_reached_is_the_hosts_trouble(tmp_path: Path) -> None:
    fsspec.register_implementation("unreachable", Unreachable, clobber=True)
    store = ArtefactStore("unreachable://bucket/x")
    artefact = Artefact("bzImage", "0" * 64, 1)
    calls = (lambda: store.put(file(tmp_path)), lambda: store.fetch(artefact, tmp_path / "there"))
    for call in calls:
        with pytest.raises(InfraError, match="cannot be read: could not connect to the endpoint"):
            call()


@pytest.mark.parametrize("kind", ["link", "pipe", "larger"])
def test_what_lies_in_a_store_by_an_artefacts_name_is_not_believed(
    kind: str, tmp_path: Path
) -> None:
    store, cache = ArtefactStore(str(tmp_path / "store")), tmp_path / "cache"
    artefact = store.put(file(tmp_path))
    blob = tmp_path / "store/blobs" / artefact.sha256
    blob.unlink()
    if kind == "link":
        # Of the same size, so that only its kind tells.
        (tmp_path / "private").write_bytes(b"x" * artefact.size)
        blob.symlink_to(tmp_path / "private")
    elif kind == "pipe":
        os.mkfifo(blob)
    else:
        with blob.open("wb") as sink:
            sink.truncate(1 << 40)
    with pytest.raises(InfraError, match=r"is a link|is no plain file|more than"):
        store.fetch(artefact, cache)
    assert not list(cache.rglob(artefact.sha256))


class Endless(AbstractFileSystem):  # type: ignore[misc]
    """A store whose server says a size and sends what it likes."""

    protocol = "endless"

    def size(self, path: str) -> int:
        return 10

    def open(self, path: str, mode: str = "rb", **more: object) -> IO[bytes]:
        return Path("/dev/zero").open("rb")

    def isdir(self, path: str) -> bool:
        return False


@pytest.mark.parametrize("most_s", [1000.0, -1.0])
def test_a_server_that_sends_for_ever_is_cut_off(
    most_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec.register_implementation("endless", Endless, clobber=True)
    monkeypatch.setattr(parcel, "FETCH_S", most_s)
    size = 10 if most_s > 0 else 1 << 40
    monkeypatch.setattr(Endless, "size", lambda self, path: size)
    artefact = Artefact("bzImage", "0" * 64, size)
    with pytest.raises(InfraError, match="it sends more than"):
        ArtefactStore("endless://x").fetch(artefact, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"] == []
