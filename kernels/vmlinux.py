"""Symbols of an image that somebody else built: unpacked, and read from its kallsyms."""

from __future__ import annotations

import itertools
import re
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from errors import InfraError, UsageError
from host.process import run
from kernels import products
from kernels.products import MOST_BYTES

TOKENS = 256
DIGITS = b"".join(b"%d\0" % digit for digit in range(10))
FIRST_DIGIT = ord("0")
# Of every table: since 7.1 the smaller one.
ALIGNMENTS = (8, 4)
PER_MARKER = 256
# 256 names after the last marker; few names have more than 100 bytes packed.
LONGEST_TAIL = PER_MARKER * 128
# More than the tables between markers and tokens ever took; a multiple of 4.
WINDOW = 4 << 20
# x86-64: where the kernel's image is mapped, and where its first byte is, without a shift.
TEXT = 0xFFFFFFFF81000000
KERNEL_LOW, KERNEL_END = 0xFFFFFFFF80000000, 0xFFFFFFFFC0000000


class KallsymsError(InfraError):
    """There are no such tables, or they are laid out in a way that is not known."""


@dataclass(frozen=True)
class Symbol:
    """One symbol: address, type as ``nm`` prints it, and name."""

    address: int
    kind: str
    name: str


def symbols(image: bytes) -> list[Symbol]:
    """Every symbol of an unpacked kernel, in their order; KallsymsError: not to be found."""
    errors = []
    for align in ALIGNMENTS:
        try:
            table, tokens, index_end = _tokens(image, align)
            count_at, packed = _names(image, *_markers(image, table), align)
            texts = (b"".join(tokens[byte] for byte in name) for name in packed)
            names = [text.decode(errors="replace") for text in texts]
            if align == ALIGNMENTS[0]:
                addresses = _addresses(image, count_at, index_end, len(packed))
            else:
                addresses = _relative_addresses(image, index_end, names)
            return [
                Symbol(at, name[0], name[1:]) for at, name in zip(addresses, names, strict=True)
            ]
        except KallsymsError as error:
            errors.append(error)
        except (struct.error, IndexError) as error:
            errors.append(KallsymsError(f"the tables are cut short: {error}"))
    raise errors[0]


def system_map(symbols: list[Symbol]) -> str:
    """The symbols as the lines of a System.map, by address."""
    ordered = sorted(symbols, key=lambda symbol: symbol.address)
    return "".join(f"{each.address:016x} {each.kind} {each.name}\n" for each in ordered)


def _aligned(offset: int, align: int) -> int:
    return -(-offset // align) * align


def _tokens(image: bytes, align: int) -> tuple[int, list[bytes], int]:
    """Where the table of tokens is, the tokens, and where their index ends."""
    at = image.find(DIGITS)
    while at >= 0:
        start = at
        for _ in range(FIRST_DIGIT):
            start = image.rfind(b"\0", 0, start - 1) + 1
        tokens, end = [], start
        for _ in range(TOKENS):
            stop = image.find(b"\0", end)
            tokens.append(image[end:stop])
            end = stop + 1
        index = _aligned(end, align)
        expected = np.cumsum([0, *(len(token) + 1 for token in tokens[:-1])])
        offsets = image[index : index + 2 * TOKENS]
        if offsets == expected.astype("<u2").tobytes():
            return start, tokens, index + 2 * TOKENS
        at = image.find(DIGITS, at + 1)
    raise KallsymsError("no table of tokens")


def _markers(image: bytes, table: int) -> tuple[int, list[int]]:
    """The array that rises from 0 before the tokens, and where; 6.2 has one in between."""
    low = max(table - WINDOW, table % 4)
    words = np.frombuffer(image[low:table], "<u4")
    # Where a run of rising words begins, with the end of the last one behind them.
    begins = [0, *(np.flatnonzero(words[1:] <= words[:-1]) + 1).tolist(), len(words)]
    for begin, end in reversed(list(itertools.pairwise(begins))):
        if end - begin > 1 and words[begin] == 0:
            return low + 4 * begin, words[begin:end].tolist()
    raise KallsymsError("no table of markers")


def _names(
    image: bytes, markers_at: int, markers: list[int], align: int
) -> tuple[int, list[bytes]]:
    """Where the number of symbols is, and their packed names."""
    least, most = (len(markers) - 1) * PER_MARKER, len(markers) * PER_MARKER
    last = markers_at - markers[-1]
    first = max(last - LONGEST_TAIL, align) // align * align
    for start in range(first, last, align):
        (count,) = struct.unpack_from("<I", image, start - align)
        if least < count <= most:
            packed, end = _walk(image, start, count, markers_at, markers)
            if packed and _aligned(end, align) == _aligned(markers_at, align):
                return start - align, packed
    raise KallsymsError("no table of names fits that of the markers")


def _walk(
    image: bytes, start: int, count: int, limit: int, markers: list[int]
) -> tuple[list[bytes], int]:
    """The packed names from ``start`` and their end; none if they do not keep to the markers."""
    at, packed = start, []
    for number in range(count):
        if number % PER_MARKER == 0 and at - start != markers[number // PER_MARKER]:
            return [], 0
        length = image[at]
        at += 1
        if length & 0x80:
            length = (length & 0x7F) | (image[at] << 7)
            at += 1
        if not length or at + length > limit:
            return [], 0
        packed.append(image[at : at + length])
        at += length
    return packed, at


def _addresses(image: bytes, count_at: int, index_end: int, count: int) -> list[int]:
    """Addresses of all symbols; the two places where their tables have been so far."""
    size, align = 4 * count, ALIGNMENTS[0]
    after = _aligned(index_end, align)  # since 6.4
    before = count_at - align - _aligned(size, align)
    places = ((after, _aligned(after + size, align)), (before, count_at - align))
    for offsets_at, base_at in places:
        if offsets_at < 0 or base_at + align > len(image):
            continue
        (base,) = struct.unpack_from("<Q", image, base_at)
        if not KERNEL_LOW <= base < KERNEL_END:
            continue
        offsets = np.frombuffer(image, "<i4", count, offsets_at).astype(np.int64)
        if (offsets < 0).any():
            # KALLSYMS_ABSOLUTE_PERCPU: what is not negative is an address as it is.
            return [base - 1 - o if o < 0 else o for o in offsets.tolist()]
        return [base + o for o in offsets.tolist()]
    raise KallsymsError("no table of addresses")


def _relative_addresses(image: bytes, index_end: int, names: list[str]) -> list[int]:
    """Addresses since 7.1: each counted from its place; the image's first byte says where."""
    at = _aligned(index_end, ALIGNMENTS[-1])
    offsets = np.frombuffer(image, "<i4", len(names), at).astype(np.int64)
    from_first = offsets + 4 * np.arange(len(names))
    first = next((n for n, name in enumerate(names) if name[1:] in ("_text", "_stext")), None)
    if first is None:
        raise KallsymsError("no symbol for the first byte of the image")
    addresses = [TEXT + int(each - from_first[first]) for each in from_first]
    if not all(KERNEL_LOW <= each < KERNEL_END for each in addresses):
        raise KallsymsError("no table of addresses")
    return addresses


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
LZ4 = b"\x02\x21\x4c\x18"  # the old format, which no library here reads
# Behind the compressed bytes is their length when unpacked, which gzip has itself.
LENGTH_BYTES = 4


@dataclass(frozen=True)
class Image:
    """A boot image: its bytes, and what the header says."""

    path: Path
    release: str
    payload: bytes


def read(path: Path) -> Image:
    """Read a boot image's header; UsageError: none for x86, or of one before 2.6.26."""
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
    (release_at,) = struct.unpack_from("<H", data, RELEASE_AT)
    text = data[release_at + SECTOR :][:256].partition(b"\0")[0] if release_at else b""
    return Image(path, text.decode(errors="replace").partition(" ")[0], payload)


def extract(image: Image, into: Path) -> None:
    """Write the ELF file that the image unpacks to.

    Raises UsageError: damaged, or an unknown compression; InfraError: a program is missing.
    """
    payload = image.payload
    if products.is_packed(payload):
        whole = payload if payload.startswith(b"\x1f\x8b") else payload[:-LENGTH_BYTES]
        try:
            payload = products.plain(whole, MOST_BYTES["program"])
            if len(payload) > MOST_BYTES["program"]:
                raise ValueError("it is larger than any")
        except products.DAMAGED as error:
            what = f"the kernel in it is damaged: {error}"
            raise UsageError(what, where=str(image.path)) from None
    elif payload.startswith(LZ4):
        source, target = into.with_suffix(".packed"), into.with_suffix(".unpacked")
        source.write_bytes(payload[:-LENGTH_BYTES])
        argv = ["lz4", "-d", "-f", "-q", str(source), str(target)]
        run(argv, timeout_s=DECOMPRESS_TIMEOUT_S)
        payload = target.read_bytes()
        source.unlink()
        target.unlink()
    elif not payload.startswith(ELF_MAGIC):
        what = f"the kernel in it is compressed in an unknown way ({payload[:4].hex()})"
        step = "known are gzip, xz, lzma, bzip2, lz4 and zstd"
        raise UsageError(what, where=str(image.path), next_step=step)
    if not payload.startswith(ELF_MAGIC):
        raise UsageError("what it unpacks to is no ELF file", where=str(image.path))
    into.write_bytes(payload)


def compiler(vmlinux: bytes) -> str:
    """Compiler and linker, as the kernel's own banner names them; empty where it does not."""
    match = BANNER.search(vmlinux)
    return match["tools"].decode(errors="replace") if match else ""
