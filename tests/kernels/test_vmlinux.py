"""Names and addresses out of a stripped kernel's own tables."""

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import UsageError
from kernels import addresses, symbols, vmlinux
from kernels.vmlinux import KallsymsError, system_map
from tests.kernels import shipped
from tests.kernels.shipped import SYMBOLS, TEXT, tables


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return shipped.elf(tmp_path_factory.mktemp("elf"))


def image(path: Path, payload: bytes) -> Path:
    path.write_bytes(shipped.boot_image(payload))
    return path


@pytest.mark.parametrize("how", ["gzip", "xz", "zstd", "lz4"])
def test_kernel_comes_out_as_it_went_in(kernel: bytes, tmp_path: Path, how: str) -> None:
    kernel_image = vmlinux.read(image(tmp_path / "bzImage", shipped.packed(kernel, how, tmp_path)))
    assert kernel_image.release == "6.1.2-test"
    vmlinux.extract(kernel_image, tmp_path / "vmlinux")
    data = (tmp_path / "vmlinux").read_bytes()
    assert data == kernel
    assert vmlinux.compiler(data) == "gcc-12 (Test) 12.2.0, GNU ld 2.40"
    assert vmlinux.compiler(b"Linux version of a tale") == ""
    assert len(symbols.build_id(tmp_path / "vmlinux")) == 40
    left = {path.name for path in tmp_path.iterdir()} - {"plain", "packed"}
    assert left == {"bzImage", "vmlinux"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no x86 boot image"),
        (b"\x7fELF" + bytes(2000), "no x86 boot image"),
        (shipped.boot_image(b"\x1f\x8b" + bytes(5000))[:3000], "cut short"),
        (shipped.boot_image(b""), "cut short"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "bzImage"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=message):
        vmlinux.read(path)


def test_boot_image_of_an_old_protocol_is_refused(tmp_path: Path) -> None:
    data = bytearray(shipped.boot_image(b"\x1f\x8b"))
    struct.pack_into("<H", data, 0x206, 0x204)
    (tmp_path / "bzImage").write_bytes(data)
    with pytest.raises(UsageError, match=r"0x204, older than 2\.08"):
        vmlinux.read(tmp_path / "bzImage")


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"\x1f\x8b" + b"x" * 50, "damaged"),
        (b"\xfd7zXZ\0" + b"x" * 50, "damaged"),
        (b"BZh9" + b"x" * 50, "damaged"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 50, "damaged"),
        (b"\x89LZO" + bytes(50), "unknown way"),
    ],
)
def test_payload_that_cannot_be_unpacked(tmp_path: Path, payload: bytes, message: str) -> None:
    kernel_image = vmlinux.read(image(tmp_path / "bzImage", payload))
    with pytest.raises(UsageError, match=message):
        vmlinux.extract(kernel_image, tmp_path / "vmlinux")


def test_a_payload_that_unpacks_to_more_than_any_kernel_or_to_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound holds while it is unpacked: a bomb of a kilobyte is never whole in memory."""
    payload = shipped.packed(b"\x7fELF" + b"\0" * 5_000_000, "gzip", tmp_path)
    monkeypatch.setattr(vmlinux, "MOST_BYTES", {"program": 1 << 20})
    with pytest.raises(UsageError, match="is damaged: it is larger than any"):
        vmlinux.extract(vmlinux.read(image(tmp_path / "bzImage", payload)), tmp_path / "vmlinux")
    payload = shipped.packed(b"a text", "gzip", tmp_path)
    with pytest.raises(UsageError, match="no ELF file"):
        vmlinux.extract(vmlinux.read(image(tmp_path / "bzImage", payload)), tmp_path / "vmlinux")


NAMES = st.text("abcdefghlp_0123456789.$", min_size=1, max_size=140)
SYMBOL = st.tuples(st.sampled_from("tTdDbr"), NAMES, st.integers(0, 2**24))
MANY = st.integers(257, 600).flatmap(lambda n: st.lists(SYMBOL, min_size=n, max_size=n))


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"old": True},
        {"percpu": True},
        {"old": True, "percpu": True},
        # As since 7.1: the place of the table follows from the first byte of the image.
        {"own_places": True},
    ],
)
def test_what_was_packed_comes_out(layout: dict[str, bool]) -> None:
    @settings(max_examples=5)
    @given(MANY)
    def comes_out(made: list[tuple[str, str, int]]) -> None:
        named = [("T", "_text", 0), *made]
        unpacked = vmlinux.symbols(tables(named, **layout))
        assert [(s.kind, s.name, s.address - TEXT) for s in unpacked] == named

    comes_out()


def test_absolute_addresses_stay_what_they_are() -> None:
    made = [("A", "fixed_percpu_data", -4096), *SYMBOLS]
    unpacked = vmlinux.symbols(tables(made, percpu=True))
    assert unpacked[0].address == 4096
    assert unpacked[1].address == TEXT


def test_written_as_a_system_map_that_the_probe_reads() -> None:
    table = addresses.parse(system_map(vmlinux.symbols(tables(SYMBOLS))))
    assert table.at["schedule"] == (TEXT + 0x100,)
    assert table.at["helper_1234567890"] == (TEXT + 0x180, TEXT + 0x200)
    assert table.ranges == ((TEXT, TEXT + 0x1000),)


@pytest.mark.parametrize("data", [b"", b"0\x001\x002\x00" * 9, bytes(5000), bytes(range(256)) * 9])
def test_no_tables(data: bytes) -> None:
    with pytest.raises(KallsymsError, match="no table of tokens"):
        vmlinux.symbols(data)


@settings(max_examples=80)
@given(at=st.integers(0, 2**12), byte=st.integers(0, 255), cut=st.integers(0, 2**12))
def test_damage_is_noticed_or_harms_no_more_than_a_name(at: int, byte: int, cut: int) -> None:
    whole = tables(SYMBOLS)
    data = bytearray(whole[: len(whole) - cut % len(whole)])
    if data:
        data[at % len(data)] = byte
    try:
        unpacked = vmlinux.symbols(bytes(data))
    except KallsymsError:
        return
    assert len(unpacked) == len(SYMBOLS)
