from __future__ import annotations

import gzip
import io
import lzma
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guests import channel
from guests.channel import ChannelError, decode, fingerprint
from tests.guests.framing import archived, framed, sent

FILES = {"./uname": b"Linux\n", "./4k/after/proc/vmstat": b"pgfault 1\n" * 100, "./empty": b""}
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=30)


def test_what_is_sent_arrives() -> None:
    assert decode(sent(FILES)) == {name.removeprefix("./"): FILES[name] for name in FILES}


@settings(max_examples=50)
@given(st.dictionaries(NAMES.filter(lambda name: name not in (".", "..")), st.binary()))
def test_any_files_arrive(files: dict[str, bytes]) -> None:
    assert decode(sent({f"./{name}": content for name, content in files.items()})) == files


@pytest.mark.parametrize("kept", [0, 5, 40, 90, 200])
def test_truncated(kept: int) -> None:
    with pytest.raises(ChannelError, match=r"no result header|of \d+ bytes arrived"):
        decode(sent(FILES)[:kept])


def test_every_truncation_is_noticed() -> None:
    whole = sent(FILES)
    for kept in range(len(whole)):
        with pytest.raises(ChannelError):
            decode(whole[:kept])


def test_one_changed_bit() -> None:
    data = bytearray(sent(FILES))
    data[-20] ^= 1
    with pytest.raises(ChannelError, match="checksum of the result does not match"):
        decode(bytes(data))


def test_more_bytes_than_announced() -> None:
    data = sent(FILES)
    length = len(data.partition(b"\n")[2])
    with pytest.raises(ChannelError, match=f"^{length + 1} of {length} bytes arrived$"):
        decode(data + b"\n")


@pytest.mark.parametrize(
    "header",
    [b"", b"\n", b"TWINBOOT1 3\nabc", b"TWINBOOT2 0 00\n", b"TWINBOOT1 -1 00\n", b"\xff\xfe 1 2\n",
     "TWINBOOT1 ٣ 00\n".encode(), b"TWINBOOT1 " + b"9" * 5000 + b" 00\n"],
)  # fmt: skip
def test_no_header(header: bytes) -> None:
    with pytest.raises(ChannelError, match="no result header"):
        decode(header)


@pytest.mark.parametrize(
    "payload",
    [b"", b"plain text", gzip.compress(b"no tar in here" * 100), archived(FILES),
     gzip.compress(archived(FILES))[:-30], lzma.compress(archived(FILES))],
    ids=["nothing", "text", "no tar", "not compressed", "gzip cut", "another compression"],
)  # fmt: skip
def test_no_archive(payload: bytes) -> None:
    with pytest.raises(ChannelError, match="not a gzip'ed tar"):
        decode(framed(payload))


def test_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MAX_BYTES", 1 << 20)
    assert len(decode(sent({"zeros": bytes(900_000)}))["zeros"]) == 900_000
    with pytest.raises(ChannelError, match="larger than 1048576 bytes"):
        decode(sent({"zeros": bytes(2 << 20)}))


def test_bomb_within_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    # A tar reader that guesses compressions would unpack this a second time.
    monkeypatch.setattr(channel, "MAX_BYTES", 1 << 20)
    inner = lzma.compress(archived({"zeros": bytes(8 << 20)}))
    assert len(inner) < 1 << 20
    with pytest.raises(ChannelError, match="not a gzip'ed tar"):
        decode(framed(gzip.compress(inner)))


def with_holes(size: str) -> bytes:
    """A sparse member: a few bytes of archive that read as ``size`` zeros."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("holes")
        content = b"0\n".ljust(512, b"\0")
        member.size = len(content)
        member.pax_headers = {
            "GNU.sparse.major": "1", "GNU.sparse.minor": "0",
            "GNU.sparse.name": "holes", "GNU.sparse.realsize": size,
        }  # fmt: skip
        archive.addfile(member, io.BytesIO(content))
    return framed(gzip.compress(stream.getvalue()))


def test_bomb_of_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MAX_BYTES", 1 << 20)
    assert decode(with_holes("1024")) == {"holes": bytes(1024)}
    for size in (8 << 20, 1 << 80, -1):
        with pytest.raises(ChannelError, match="larger than 1048576 bytes"):
            decode(with_holes(str(size)))


def test_header_that_tarfile_itself_stumbles_over() -> None:
    with pytest.raises(ChannelError, match="not a gzip'ed tar: ValueError"):
        decode(with_holes("many"))


def test_names_that_climb_are_only_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    names = ("../outside", "/etc/twinboot-was-here", f"{tmp_path}/absolute")
    assert set(decode(sent(dict.fromkeys(names, b"x")))) == set(names)
    assert [path.name for path in tmp_path.rglob("*")] == ["home"]
    assert not Path("/etc/twinboot-was-here").exists()


def test_links_and_devices_are_left_out() -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo(f"kind-{kind.decode()}")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    assert decode(framed(gzip.compress(stream.getvalue()))) == {}


@settings(max_examples=150)
@given(st.binary(max_size=2000))
def test_decode_raises_nothing_else_on_any_bytes(data: bytes) -> None:
    for candidate in (data, framed(data)):
        with pytest.raises(ChannelError):
            decode(candidate)
    with suppress(ChannelError):
        # Zeros alone are an archive of nothing.
        assert decode(framed(gzip.compress(data, 1))) == {}


@settings(max_examples=300)
@given(st.data())
def test_decode_raises_nothing_else_on_a_damaged_archive(data: st.DataObject) -> None:
    """Damage that the checksum covers: what a confused guest might really send."""
    formats = (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
    stream = io.BytesIO()
    with tarfile.open(
        fileobj=stream, mode="w", format=data.draw(st.sampled_from(formats))
    ) as archive:
        member = tarfile.TarInfo("é" * 120)
        member.size, member.mtime = 5, 0.5
        archive.addfile(member, io.BytesIO(b"hello"))
    plain = bytearray(stream.getvalue())
    used = len(bytes(plain).rstrip(b"\0"))
    for _ in range(data.draw(st.integers(1, 6))):
        plain[data.draw(st.integers(0, used - 1))] = data.draw(st.integers(0, 255))
    del plain[data.draw(st.integers(0, len(plain))) :]
    try:
        files = decode(framed(gzip.compress(bytes(plain), 1)))
    except ChannelError:
        return
    assert all(isinstance(content, bytes) for content in files.values())


def test_fingerprint_is_of_names_and_contents_in_any_order() -> None:
    digest = fingerprint({"a": b"1", "b": b"2"})
    assert digest == fingerprint({"b": b"2", "a": b"1"})
    others = [{"a": b"1"}, {"a": b"2", "b": b"1"}, {"a": b"12", "b": b""}, {"ab": b"1", "b": b"2"}]
    assert digest not in [fingerprint(files) for files in others]
