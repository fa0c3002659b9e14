from __future__ import annotations

import struct
from pathlib import Path

import pytest

from errors import UsageError
from kernels import symbols, vmlinux
from tests.kernels import shipped


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
    assert len(symbols.build_id(tmp_path / "vmlinux")) == 40
    left = {path.name for path in tmp_path.iterdir()} - {"plain", "packed"}
    assert left == {"bzImage", "vmlinux"}


def test_a_kernel_without_a_banner_names_no_compiler() -> None:
    assert vmlinux.compiler(b"Linux version of a tale") == ""


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
        (b"\x89LZO" + bytes(50), "unknown way"),
    ],
)
def test_payload_that_cannot_be_unpacked(tmp_path: Path, payload: bytes, message: str) -> None:
    kernel_image = vmlinux.read(image(tmp_path / "bzImage", payload))
    with pytest.raises(UsageError, match=message):
        vmlinux.extract(kernel_image, tmp_path / "vmlinux")


def test_a_payload_that_unpacks_to_more_than_any_kernel_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound holds while it is unpacked: a bomb of a kilobyte is never whole in memory."""
    payload = shipped.packed(b"\x7fELF" + b"\0" * 5_000_000, "gzip", tmp_path)
    monkeypatch.setattr(vmlinux, "MOST_BYTES", {"program": 1 << 20})
    with pytest.raises(UsageError, match="is damaged: it is larger than any"):
        vmlinux.extract(vmlinux.read(image(tmp_path / "bzImage", payload)), tmp_path / "vmlinux")


def test_damaged_zstd_is_named(tmp_path: Path) -> None:
    kernel_image = vmlinux.read(image(tmp_path / "bzImage", b"\x28\xb5\x2f\xfd" + b"x" * 50))
    with pytest.raises(UsageError, match="the kernel in it is damaged"):
        vmlinux.extract(kernel_image, tmp_path / "vmlinux")


def test_payload_that_is_no_kernel(tmp_path: Path) -> None:
    payload = shipped.packed(b"a text", "gzip", tmp_path)
    with pytest.raises(UsageError, match="no ELF file"):
        vmlinux.extract(vmlinux.read(image(tmp_path / "bzImage", payload)), tmp_path / "vmlinux")
