"""The same files give the same bytes, and an archive of a stranger writes nothing elsewhere."""

from __future__ import annotations

import gzip
import io
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from errors import InfraError, UsageError
from runs.archive import pack, unpack

FILES = {"b/two.txt": b"2" * 5000, "a.json": b"{}", "b/one": b""}


def hostile(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    """An archive with these members, as they are."""
    with tarfile.open(path, "w:gz") as tar:
        for member, content in members:
            member.size = len(content) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(content))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    pack(FILES, tmp_path / "x.tar.gz")
    into = tmp_path / "into"
    into.mkdir()
    assert sorted(unpack(tmp_path / "x.tar.gz", into)) == sorted(FILES)
    assert everything(into) == FILES


def test_the_same_files_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(FILES, tmp_path / "one.tar.gz")
    monkeypatch.setattr("time.time", lambda: 2e9)
    pack(dict(reversed(FILES.items())), tmp_path / "other.tar.gz")
    first, second = (tmp_path / f"{name}.tar.gz" for name in ("one", "other"))
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as tar:
        assert {(each.mtime, each.uid, each.uname) for each in tar} == {(0, 0, "")}


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="cannot be written"):
        pack(FILES, tmp_path / "nowhere/x.tar.gz")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (member("../outside"), "no plain name"),
        (member("a/../../outside"), "no plain name"),
        (member("/tmp/outside"), "no plain name"),
        (member("./outside"), "no plain name"),
        (member("a\\..\\outside"), "no plain name"),
        (member("a\nb"), "no plain name"),
        (member("x" * 300), "no plain name"),
        (member("link", tarfile.SYMTYPE, "/etc"), "a link or a device"),
        (member("link", tarfile.LNKTYPE, "../outside"), "a link or a device"),
        (member("pipe", tarfile.FIFOTYPE), "a link or a device"),
        (member("disk", tarfile.BLKTYPE), "a link or a device"),
        (member("good"), "is in it twice"),
    ],
)
def test_what_no_archive_of_ours_holds_is_refused(
    tmp_path: Path, wrong: tarfile.TarInfo, message: str
) -> None:
    into = tmp_path / "a/b/into"
    into.mkdir(parents=True)
    archive = hostile(tmp_path / "x.tar.gz", (member("good"), b"g"), (wrong, b"evil"))
    with pytest.raises(UsageError, match=message):
        unpack(archive, into)
    assert everything(tmp_path) == {
        "x.tar.gz": archive.read_bytes(), "a/b/into/good": b"g",
    }  # fmt: skip


def test_a_link_cannot_be_written_through(tmp_path: Path) -> None:
    into, outside = tmp_path / "into", tmp_path / "outside"
    into.mkdir()
    outside.mkdir()
    archive = hostile(
        tmp_path / "x.tar.gz",
        (member("way", tarfile.SYMTYPE, str(outside)), b""),
        (member("way/file"), b"evil"),
    )
    with pytest.raises(UsageError):
        unpack(archive, into)
    assert list(outside.iterdir()) == []


def test_a_bomb_ends_before_it_fills_the_disk(tmp_path: Path) -> None:
    pack({"zeros": bytes(8 << 20)}, tmp_path / "x.tar.gz")
    assert (tmp_path / "x.tar.gz").stat().st_size < 64 << 10
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(UsageError, match="more than any session"):
        unpack(tmp_path / "x.tar.gz", into, most_bytes=1 << 20)
    assert sum(map(len, everything(into).values())) <= 1 << 20


@pytest.mark.parametrize(
    "content",
    [b"", b"text", gzip.compress(b"text"), b"\x1f\x8b\x08\x00cut"],
    ids=["empty", "text", "no archive inside", "cut"],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tar.gz").write_bytes(content)
    with pytest.raises(UsageError) as caught:
        unpack(tmp_path / "x.tar.gz", tmp_path)
    assert "archive" in str(caught.value)


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no archive that can be read"):
        unpack(tmp_path / "none.tar.gz", tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.data())
def test_a_damaged_archive_is_refused_or_read_and_never_a_bug(
    tmp_path: Path, data: st.DataObject
) -> None:
    pack(FILES, tmp_path / "x.tar.gz")
    content = bytearray((tmp_path / "x.tar.gz").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "y.tar.gz").write_bytes(content[: data.draw(st.integers(0, len(content)))])
    into = tmp_path / f"into{len(list(tmp_path.iterdir()))}"
    into.mkdir()
    with suppress(UsageError):
        unpack(tmp_path / "y.tar.gz", into)


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../x", "./a", "a//b", "a\\b", "a\x1b]0;t\x07", "n" * 300]
)
def test_what_would_not_be_unpacked_is_not_packed(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no plain name"):
        pack({"a.json": b"{}", name: b"x"}, tmp_path / "x.tar.gz")
    assert list(tmp_path.iterdir()) == []
