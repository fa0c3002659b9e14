"""The kernel inside an x86 boot image: release, compiler, and the ELF file it unpacks to.

A boot image is a set-up header (Documentation/arch/x86/boot.rst), a decompressor, and
the compressed kernel, where the header says it is.
"""

from __future__ import annotations

import bz2
import lzma
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from errors import UsageError
from host.process import run

SECTOR = 512
MAGIC_AT, MAGIC = 0x202, b"HdrS"
SETUP_SECTORS_AT = 0x1F1
VERSION_AT = 0x206
RELEASE_AT = 0x20E
PAYLOAD_AT = 0x248
# The first protocol that says where the payload is: 2.6.26.
PROTOCOL = 0x0208
DECOMPRESS_TIMEOUT_S = 120.0
BANNER = re.compile(rb"Linux version (\S+) \([^\0\n]*?\) \((?P<tools>[^\0\n]+)\) #")
ELF_MAGIC = b"\x7fELF"
# Behind the compressed bytes is their length when unpacked, which gzip has itself.
LENGTH_BYTES = 4


@dataclass(frozen=True)
class Image:
    """A boot image: its bytes, and what the header says."""

    path: Path
    release: str
    payload: bytes


def read(path: Path) -> Image:
    """Read the set-up header of a boot image.

    Raises:
        UsageError: the file is none for x86, or of a kernel before 2.6.26.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if data[MAGIC_AT : MAGIC_AT + 4] != MAGIC or len(data) < PAYLOAD_AT + 8:
        raise UsageError(
            "no x86 boot image", where=str(path), next_step="name a bzImage or vmlinuz file"
        )
    (protocol,) = struct.unpack_from("<H", data, VERSION_AT)
    if protocol < PROTOCOL:
        raise UsageError(f"boot protocol {protocol:#x}, older than 2.08", where=str(path))
    # 0 stands for 4, as the loaders of the first kernels had it.
    start = ((data[SETUP_SECTORS_AT] or 4) + 1) * SECTOR
    offset, length = struct.unpack_from("<II", data, PAYLOAD_AT)
    payload = data[start + offset : start + offset + length]
    if not length or len(payload) != length:
        raise UsageError("the boot image is cut short", where=str(path))
    return Image(path, _release(data), payload)


def extract(image: Image, into: Path) -> None:
    """Write the ELF file that the image unpacks to.

    Raises:
        UsageError: damaged, or compressed in a way that is not known.
        InfraError: the program that unpacks it is not installed.
    """
    into.write_bytes(_unpacked(image, into))
    with into.open("rb") as stream:
        if stream.read(4) != ELF_MAGIC:
            raise UsageError("what it unpacks to is no ELF file", where=str(image.path))


def compiler(vmlinux: bytes) -> str:
    """Compiler and linker, as the kernel's own banner names them; empty where it does not."""
    match = BANNER.search(vmlinux)
    return match["tools"].decode(errors="replace") if match else ""


def _release(data: bytes) -> str:
    (offset,) = struct.unpack_from("<H", data, RELEASE_AT)
    text = data[offset + SECTOR :][:256].partition(b"\0")[0] if offset else b""
    return text.decode(errors="replace").partition(" ")[0]


def _unpacked(image: Image, beside: Path) -> bytes:
    packed = image.payload
    try:
        if packed.startswith(b"\x1f\x8b"):
            return zlib.decompressobj(wbits=31).decompress(packed)
        if packed.startswith(b"\xfd7zXZ\0") or packed.startswith(b"]\0\0"):
            return lzma.LZMADecompressor().decompress(packed)
        if packed.startswith(b"BZh"):
            return bz2.BZ2Decompressor().decompress(packed)
    except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
        raise UsageError(f"the kernel in it is damaged: {error}", where=str(image.path)) from None
    for magic, program in ((b"\x28\xb5\x2f\xfd", "zstd"), (b"\x02\x21\x4c\x18", "lz4")):
        if packed.startswith(magic):
            source, target = beside.with_suffix(".packed"), beside.with_suffix(".unpacked")
            source.write_bytes(packed[:-LENGTH_BYTES])
            argv = [program, "-d", "-f", "-q", str(source), str(target)]
            argv = argv if program == "lz4" else [*argv[:-1], "-o", argv[-1]]
            run(argv, timeout_s=DECOMPRESS_TIMEOUT_S)
            data = target.read_bytes()
            source.unlink()
            target.unlink()
            return data
    if packed.startswith(ELF_MAGIC):
        return packed
    raise UsageError(
        f"the kernel in it is compressed in an unknown way ({packed[:4].hex()})",
        where=str(image.path),
        next_step="known are gzip, xz, lzma, bzip2, lz4 and zstd",
    )
