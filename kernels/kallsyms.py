"""Names and addresses out of a kernel that was stripped: the tables behind /proc/kallsyms.

``scripts/kallsyms.c`` of the kernel writes them into its read-only data: names packed by a
table of 256 tokens, a marker at every 256th name, and addresses as offsets from a base.
Nothing says where they are.  The token table is found by the ten digits, each of which is
its own token; all else follows from it, and every step is checked against another table.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass

import numpy as np

from errors import InfraError

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
    """Every symbol of an unpacked kernel, in the order of its tables.

    Raises:
        KallsymsError: they cannot be found.
    """
    errors = []
    for align in ALIGNMENTS:
        try:
            return _symbols(image, align)
        except KallsymsError as error:
            errors.append(error)
        except (struct.error, IndexError) as error:
            errors.append(KallsymsError(f"the tables are cut short: {error}"))
    raise errors[0]


def _symbols(image: bytes, align: int) -> list[Symbol]:
    table, tokens, index_end = _tokens(image, align)
    count_at, packed = _names(image, *_markers(image, table), align)
    texts = (b"".join(tokens[byte] for byte in name) for name in packed)
    names = [text.decode(errors="replace") for text in texts]
    if align == ALIGNMENTS[0]:
        addresses = _addresses(image, count_at, index_end, len(packed))
    else:
        addresses = _relative_addresses(image, index_end, names)
    return [
        Symbol(address, name[0], name[1:]) for address, name in zip(addresses, names, strict=True)
    ]


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
    """The array before the table of tokens that rises from 0, and where it is.

    6.2 and 6.3 have one more table of the same length in between (``seqs_of_names``),
    which does not rise.
    """
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
    """Addresses of all symbols since 7.1: each is counted from its own place in the table.

    Where the table itself is follows from the symbol that is the first byte of the image.
    """
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
