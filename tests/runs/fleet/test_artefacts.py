"""Files by content: verified when they arrive, fetched again once, then named."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec import AbstractFileSystem

from errors import InfraError, UsageError
from kernels import cache as kernel_cache
from kernels.cache import Kernel
from results.record import KernelIdentity
from runs.fleet import artefacts
from runs.fleet.artefacts import Artefact, ArtefactStore, held_in


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
    monkeypatch.setattr(artefacts, "VERIFIED", {})
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
    calls = (
        lambda: store.kernel("k" * 32, tmp_path),
        lambda: store.put(file(tmp_path)),
        lambda: store.fetch(artefact, tmp_path / "there"),
    )
    for call in calls:
        with pytest.raises(InfraError, match="cannot be read: could not connect to the endpoint"):
            call()


def kernel(cache: Path) -> Kernel:
    identity = KernelIdentity(
        key="k" * 32,
        release="6.12",
        source="s",
        patches=(),
        flavour="perf",
        compiler="gcc",
        config_sha256="0",
        code_key="c",
    )
    with kernel_cache.staged(cache, identity.key) as folder:
        (folder / "bzImage").write_bytes(b"image")
        (folder / "System.map").write_bytes(b"map")
        (folder / kernel_cache.IDENTITY).write_text(identity.model_dump_json())
    cached = kernel_cache.load(cache, identity.key)
    assert cached is not None
    return cached


def test_a_kernel_arrives_as_if_it_had_been_built_here(
    store: ArtefactStore, tmp_path: Path
) -> None:
    made = kernel(tmp_path / "one")
    files = store.put_files(made)
    assert store.kernel(files.key, tmp_path) is None
    store.sign(files, tmp_path)
    assert store.kernel(files.key, tmp_path) == files
    arrived = store.fetch_kernel(files, tmp_path / "two")
    assert arrived.identity == made.identity
    assert {path.name: path.read_bytes() for path in arrived.folder.iterdir()} == {
        path.name: path.read_bytes() for path in made.folder.iterdir()
    }


def test_a_kernel_whose_list_or_file_is_gone_is_not_there(tmp_path: Path) -> None:
    store = ArtefactStore(str(tmp_path / "store"))
    files = store.put_files(kernel(tmp_path / "one"))
    store.sign(files, tmp_path)
    assert store.kernel("x" * 32, tmp_path) is None
    text = tmp_path / "store" / "kernels" / f"{files.key}.json"
    whole = text.read_text()
    text.write_text(whole.replace("bzImage", "bzimage"))
    assert store.kernel(files.key, tmp_path) is None
    text.write_text(whole)
    (image,) = (each for each in files.files if each.name == "bzImage")
    blob(tmp_path, image).unlink()
    assert store.kernel(files.key, tmp_path) is None


def test_a_kernel_that_somebody_else_names_for_a_key_is_not_there(tmp_path: Path) -> None:
    store = ArtefactStore(str(tmp_path / "store"))
    good, planted = (store.put_files(kernel(tmp_path / name)) for name in ("good", "planted"))
    store.sign(good, tmp_path / "client")
    key = tmp_path / "client" / "fleet" / "store.key"
    assert key.stat().st_mode & 0o777 == 0o600
    # As the client of another cache: whoever can write to the store can do that.
    store.sign(planted, tmp_path / "other")
    assert store.kernel(good.key, tmp_path / "client") is None
    assert store.kernel(good.key, tmp_path / "other") == planted
    # And its own signature of one kernel is none of another.
    place = tmp_path / "store" / "kernels"
    store.sign(good, tmp_path / "client")
    (place / f"{'x' * 32}.json").write_bytes((place / f"{good.key}.json").read_bytes())
    assert store.kernel("x" * 32, tmp_path / "client") is None


GOOD: dict[str, Any] = {"name": "bzImage", "sha256": "0" * 64, "size": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"sha256": "../../victim"},
        {"sha256": "0" * 63},
        {"sha256": "0" * 64 + "\n"},
        {"name": "../bzImage"},
        {"name": "a/b"},
        {"name": ""},
        {"name": ".."},
        {"size": -1},
    ],
    ids=str,
)
def test_what_leads_out_of_a_folder_is_no_artefact(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no artefact"):
        Artefact(**{**GOOD, **wrong})


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
