"""What a stranger may put into a folder: nothing of it is followed, waited for or read for ever."""

import os
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results import door
from results.door import StoreError

SECRET = "a secret of the reader's"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A file that is not the folder's."""
    path = tmp_path / "private" / "key"
    path.parent.mkdir()
    path.write_text(SECRET)
    return path


@pytest.fixture
def top(tmp_path: Path) -> Path:
    folder = tmp_path / "theirs"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "plain").write_text("text")
    return folder


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))


def _large(path: Path) -> None:
    with path.open("wb") as sink:
        sink.truncate(1 << 40)


ODD: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, private: path.symlink_to(private),
    "link that leads nowhere": lambda path, private: path.symlink_to("nowhere"),
    "link in a circle": lambda path, private: path.symlink_to(path.name),
    "link to itself by /proc": lambda path, private: path.symlink_to("/proc/self/fd/0"),
    "pipe": lambda path, private: os.mkfifo(path),
    "socket": lambda path, private: _socket(path),
    "device by a link": lambda path, private: path.symlink_to("/dev/zero"),
    "folder": lambda path, private: path.mkdir(),
    "a sparse TiB": lambda path, private: _large(path),
}


@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_plain_file_is_named_and_not_read(kind: str, top: Path, private: Path) -> None:
    ODD[kind](top / "below" / "odd", private)
    with pytest.raises(StoreError) as caught:
        door.read(top, "below/odd")
    assert str(caught.value).startswith(f"{top}/below/odd: ")
    assert SECRET not in str(caught.value)
    if kind != "a sparse TiB":
        with pytest.raises(StoreError):
            door.append(top, "below/odd", b"{}\n")
    assert private.read_text() == SECRET


@pytest.mark.parametrize("kind", ODD)
def test_what_is_written_takes_its_place_and_nothing_behind_it(
    kind: str, top: Path, private: Path
) -> None:
    ODD[kind](top / "below" / "odd", private)
    if kind == "folder":
        with pytest.raises(IsADirectoryError):
            door.write(top, "below/odd", "new")
    else:
        door.write(top, "below/odd", "new")
        assert door.read(top, "below/odd") == b"new"
        assert not (top / "below" / "odd").is_symlink()
    assert private.read_text() == SECRET
    # Nothing is left beside.
    assert sorted(path.name for path in (top / "below").iterdir()) == ["odd", "plain"]


def test_what_is_written_is_on_disk_before_its_name_and_then_the_name(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system may bring a rename to disk before the bytes: an empty file is what is left."""
    synced: list[tuple[str, int, list[str]]] = []

    def note(descriptor: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        size = 0 if place.is_dir() else place.stat().st_size
        synced.append((place.name, size, sorted(each.name for each in top.glob("[!.]*"))))

    monkeypatch.setattr(os, "fsync", note)
    door.write(top, "whole", b"bytes")
    door.append(top, "lines", b"one\n")
    (beside, *of_bytes), *rest = synced
    assert beside.startswith(".whole.")
    assert of_bytes == [5, ["below"]]
    assert rest == [
        (top.name, 0, ["below", "whole"]),
        ("lines", 4, ["below", "lines", "whole"]),
    ]


def test_a_link_on_the_way_is_not_followed(top: Path, private: Path) -> None:
    (top / "years").symlink_to(private.parent)
    attempts: list[Callable[[], object]] = [
        lambda: door.read(top, "years/key"),
        lambda: door.write(top, "years/key", "new"),
        lambda: door.append(top, "years/key", b"new\n"),
        lambda: door.remove(top, "years/key"),
        lambda: door.names(top, "years"),
        lambda: door.exists(top, "years/key"),
        lambda: door.make_folder(top, "years/more"),
    ]
    for attempt in attempts:
        with pytest.raises(StoreError, match="years: is a link, which is not followed"):
            attempt()
    assert [path.name for path in private.parent.iterdir()] == ["key"]
    assert private.read_text() == SECRET


def test_the_folder_itself_may_be_reached_by_a_link(top: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(top)
    assert door.read(tmp_path / "latest", "below/plain") == b"text"


@pytest.mark.parametrize(
    "name", ["../private/key", "below/../../private/key", "/etc/passwd", "", ".", "a\0b"]
)
def test_a_name_stays_below_its_folder(name: str, top: Path, private: Path) -> None:
    for attempt in (door.read, door.remove, lambda top, name: door.write(top, name, "new")):
        with pytest.raises(StoreError):
            attempt(top, name)
    assert private.read_text() == SECRET


def test_a_file_with_a_second_name_is_not_written_to(top: Path, private: Path) -> None:
    os.link(private, top / "runs.jsonl")
    with pytest.raises(StoreError, match="second name"):
        door.append(top, "runs.jsonl", b"{}\n")
    door.write(top, "runs.jsonl", "new")
    assert private.read_text() == SECRET


def test_a_file_that_grows_while_it_is_read_has_the_same_bound(top: Path) -> None:
    with door.opened(top, "below/plain", 10):
        (top / "below" / "plain").write_text("x" * 11)
        with pytest.raises(StoreError, match="more than"):
            door.read(top, "below/plain", 10)


def test_a_file_that_is_named_may_be_a_link_and_no_pipe(top: Path, private: Path) -> None:
    (top / "link").symlink_to(private)
    with door.opened_named(top / "link", 100) as file:
        assert file.read().decode() == SECRET
    os.mkfifo(top / "pipe")
    with pytest.raises(StoreError, match="is no plain file"), door.opened_named(top / "pipe", 100):
        pass


def test_what_is_not_there_is_an_error_of_the_system_with_the_whole_path(top: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        door.read(top, "below/none")
    assert caught.value.filename == str(top / "below" / "none")
    assert not door.exists(top, "none/none")
    assert door.names(top, "none") == []
    assert door.names(top, "below") == ["plain"]
    assert door.names(top, folders=True) == ["below"]
    door.remove(top, "none/none")


def test_more_names_than_any_folder_has_are_refused(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "MOST_NAMES", 1)
    (top / "below" / "other").write_text("")
    with pytest.raises(StoreError, match="more than 1 names"):
        door.names(top, "below")


@pytest.fixture
def few_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
def test_nothing_stays_open_whatever_is_refused(top: Path, private: Path) -> None:
    for number, make in enumerate(ODD.values()):
        make(top / "below" / f"odd{number}", private)
    for _ in range(100):
        for name in door.names(top, "below"):
            for name_or_below in (name, f"{name}/x"):
                try:
                    door.read(top, f"below/{name_or_below}")
                except (StoreError, FileNotFoundError):
                    continue


@given(st.text(max_size=40))
def test_any_name_is_read_or_refused(name: str) -> None:
    try:
        door.read(Path("/proc/self/fdinfo"), name)
    except (StoreError, OSError):
        return


def test_a_folder_without_an_end_is_none_of_a_session(tmp_path: Path) -> None:
    below = tmp_path / "/".join("a" * door.DEEPEST)
    below.mkdir(parents=True)
    door.require_plain(tmp_path)
    (below / "a").mkdir()
    with pytest.raises(StoreError, match="more than 16 folders deep"):
        door.require_plain(tmp_path)
