"""The same files give the same bytes, and an archive of a stranger writes nothing elsewhere."""

import gzip
import io
import tarfile
import time
from pathlib import Path

import pytest

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


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InfraError, match="cannot be written"):
        pack(FILES, tmp_path / "file/x.tar.gz")


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
    assert everything(tmp_path) == {"x.tar.gz": archive.read_bytes()}


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


def header(name: str, size: int, kind: bytes) -> bytes:
    info = member(name, kind)
    info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def extended(*records: str) -> bytes:
    """A pax header with these records, each ``KEY=VALUE``."""
    lines = []
    for record in records:
        size = next(n for n in range(1, 10_000) if len(f"{n} {record}\n") == n)
        lines.append(f"{size} {record}\n")
    content = "".join(lines).encode()
    return header("p", len(content), b"x") + padded(content)


SPARSE = extended(
    "GNU.sparse.major=1",
    "GNU.sparse.minor=0",
    "GNU.sparse.name=a",
    f"GNU.sparse.realsize={1 << 36}",
)
HEADERS = {
    "a header of a GiB": (header("x", 1 << 30, b"x"), "no archive"),
    "a long name of a GiB": (header("x", 1 << 30, b"L"), "no archive"),
    "a file with holes of 64 GiB": (SPARSE + header("a", 512, b"0"), "."),
    "a file with holes, as of old": (header("a", 0, b"S"), "a link or a device"),
    "a size that is another": (extended("size=99999999999") + header("a", 1, b"0"), "more than"),
    "headers without end": (extended("path=a") * 60_001, "no archive"),
    "a record that is longer than its header": (
        header("x", 12, b"x") + padded(b"99 path=../a") + header("a", 0, b"0"),
        ".",
    ),
    "no number": (header("a", 0, b"0").replace(b"00000000000", b"9" * 11), "no archive"),
    "a file without an end": (header("a", 1 << 20, b"0"), "no archive"),
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_is_bounded_while_it_is_read(kind: str, tmp_path: Path) -> None:
    content, message = HEADERS[kind]
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(content + bytes(1024), 1))
    into = tmp_path / "into"
    into.mkdir()
    began = time.process_time()
    with pytest.raises(UsageError, match=message):
        unpack(tmp_path / "x.tar.gz", into)
    # CPU time of this process, whatever else the host does; it took minutes.
    assert time.process_time() - began < 5
    assert sum(map(len, everything(into).values())) < 1 << 20


def test_what_tar_packs_again_is_read(tmp_path: Path) -> None:
    names = ("short", "long/" + "x" * 150, "ü" * 60)
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        with tarfile.open(tmp_path / f"{form}.tar.gz", "w:gz", format=form) as tar:
            for name in names:
                info = member(name)
                info.size, info.mtime = 4, 1.5
                tar.addfile(info, io.BytesIO(b"text"))
        into = tmp_path / f"into{form}"
        into.mkdir()
        assert unpack(tmp_path / f"{form}.tar.gz", into) == names
        assert everything(into) == dict.fromkeys(names, b"text")


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../x", "./a", "a//b", "a\\b", "a\x1b]0;t\x07", "n" * 300]
)
def test_what_would_not_be_unpacked_is_not_packed(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no plain name"):
        pack({"a.json": b"{}", name: b"x"}, tmp_path / "x.tar.gz")
    assert list(tmp_path.iterdir()) == []
