import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guests.probe import counts
from guests.probe.counts import CountsError
from guests.probe.plugin import LARGEST, PROGRAM_AT, STATIC_AT, UserMap, user_map
from tests.values import data

Row = tuple[int, int, int, int, int, int, int]
# Without the last four numbers it is in no object, and nothing was missed.
LockRow = tuple[int, ...]
HELD, ADDS, TAKES = 0xFFFF888000001000, 0xFFFFFFFF81000120, 0xFFFFFFFF81000200
IN_SLAB, NOWHERE = (counts.OF_SLAB + 64, 7, 6, 3), (0, 0, 0, 0)
LOCKS: list[LockRow] = [
    (1, 0, HELD, ADDS, 0, 5, 500, 0, 0, 2, *IN_SLAB),
    (2, 3, HELD + 0x1000, 0, 0, 1, 70, 1, 9, 0, *NOWHERE),
]
PAIRS: list[LockRow] = [(2, counts.PAIR, HELD, ADDS, TAKES, 2, 0, 3, 99, 0, *NOWHERE)]
MISSES: list[tuple[int, ...]] = [
    (1, 5, 0xFFFFFFFF81000000, 9, 8, 7, 6, 5, 4, 3),
    (2, 1, 0x400000, 0, 0, 0, 0, 0, 0, 1),
]
MOVES: list[tuple[int, ...]] = [
    (1, 0, 0xFFFFFFFF82000040, 0xFFFFFFFF81000000, 0x400000, 7, 2, 9, 0xFF00, 0xFF)
]
INTERRUPTIONS: list[tuple[int, ...]] = [
    (1, 0, 0xFFFFFFFF81000000, 0xFFFFFFFF81000120, 7),
    (2, 1, 0xFFFFFFFF81000000, 0x400000, 5),
]
PATHS: list[tuple[int, ...]] = [(0, 0, 0), (0, 0, 0xFFFFFFFF81000000), (1, 0, 0xFFFFFFFF81000120)]
STACKS: list[tuple[int, ...]] = [(1, 1, 70, 3), (1, 2, 9, 0)]
SLABS = [(b"xfs_inode", 952, 1), (b"kmalloc-64", 64, 3)]
OTHERS: dict[str, Any] = {
    "misses": MISSES,
    "moves": MOVES,
    "slabs": SLABS,
    "interruptions": INTERRUPTIONS,
    "paths": PATHS,
    "stacks": STACKS,
}
# Of each instruction: loads, stores, atomics, barriers, divisions, system.
KINDS: tuple[tuple[int, ...], ...] = ((0, 0, 0, 0, 0, 0), (3, 2, 1, 0, 1, 0))
ROWS: list[Row] = [(1, 0, 0, 5, 1, 0xFFFFFFFF81000000, 3), (2, 0, 1, 1, 0, 0x400000, 1 << 40)]


def written(
    rows: list[Row],
    *,
    vcpus: int = 2,
    window: int = 0,
    version: int = counts.VERSION,
    spans: int = 0,
    locks: Sequence[LockRow] = (),
    lost: int = 0,
    misses: Sequence[tuple[int, ...]] = (),
    unmapped: int = 0,
    kinds: Sequence[tuple[int, ...]] = KINDS,
    moves: Sequence[tuple[int, ...]] = (),
    slabs: Sequence[tuple[bytes, int, int]] = (),
    interruptions: Sequence[tuple[int, ...]] | None = None,
    paths: Sequence[tuple[int, ...]] = (),
    stacks: Sequence[tuple[int, ...]] = (),
) -> bytes:
    """A file as probe.c documents it."""
    forms = bool(misses), bool(moves), interruptions is not None, bool(paths)
    header = struct.pack("<8sIIQQQQQQ", b"TWINPROB", version, vcpus, window, spans, *forms)
    tables = (rows, locks, misses, kinds, moves, slabs, interruptions or (), paths, stacks)
    trailer = struct.pack("<II10Q", 0xFFFFFFFF, lost, *map(len, tables), unmapped)
    blocks = b"".join(struct.pack("<IIHHIQQ", *row) for row in rows)
    blocks += b"".join(struct.pack("<II12Q", *(*row, 0, 0, 0, 0)[:14]) for row in locks)
    blocks += b"".join(struct.pack("<II8Q", *row) for row in misses)
    blocks += b"".join(struct.pack("<6H", *kind) for kind in kinds)
    blocks += b"".join(struct.pack("<II8Q", *row) for row in moves)
    blocks += b"".join(struct.pack("<40sII", *slab) for slab in slabs)
    blocks += b"".join(struct.pack("<II3Q", *row) for row in interruptions or ())
    blocks += b"".join(struct.pack("<IIQ", *row) for row in paths)
    return header + blocks + b"".join(struct.pack("<IIQQ", *row) for row in stacks) + trailer


WHOLE, WITH_LOCKS = written(ROWS), written(ROWS, locks=LOCKS)


def test_all_tables_are_as_they_were_written() -> None:
    waited: list[Row] = [(1, 0, 1, 0, 0, counts.SPAN + 1, 77)]
    given = {"locks": [*PAIRS, *LOCKS], **OTHERS}
    counted = counts.parse(
        written([*ROWS, *waited], window=7, spans=2, lost=3, unmapped=2, **given)
    )
    tables = {"rows": ROWS, "spans": waited, "locks": LOCKS, "pairs": PAIRS, **OTHERS}
    assert {name: [*map(tuple, getattr(counted, name).tolist())] for name in tables} == tables
    assert (counted.vcpus, counted.window, counted.span_count) == (2, 7, 2)
    assert (counted.lost_locks, counted.unmapped) == (3, 2)
    second = counted.in_phase(2)
    tables_of_it = (second.rows, second.locks, second.pairs, second.moves)
    assert [*map(len, tables_of_it)] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("more", "watched"), data(__file__, "what_nobody_looked_for_differs_from_what_never_was")
)
def test_what_nobody_looked_for_differs_from_what_never_was(
    more: dict[str, Any], watched: str
) -> None:
    counted = counts.parse(written(ROWS, **more))
    kinds = ("modelled", "shared", "interrupted", "stacked")
    assert [kind for kind in kinds if getattr(counted, kind)] == [watched] * bool(watched)


def test_kinds_of_a_block_are_a_row_of_their_table() -> None:
    counted = counts.parse(written(ROWS))
    assert counted.kinds[counted.rows["kinds"]].tolist() == [list(KINDS[1]), list(KINDS[0])]
    assert counted.kinds.shape == (2, len(KINDS[0]))
    # A run without phases has no rows.
    assert len(counts.parse(written([])).rows) == 0


def test_cut_anywhere_it_is_refused() -> None:
    whole = written(ROWS, locks=LOCKS, **OTHERS)
    for length in range(len(whole)):
        with pytest.raises(CountsError):
            counts.parse(whole[:length])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # A row in the middle is lost.
        (WHOLE[:64] + WHOLE[96:], "cut short after 208 bytes"),
        (WITH_LOCKS[:128] + WITH_LOCKS[208:], "cut short after"),
        (b"\x7fELF" + bytes(100), r"not written by the probe: b'\\x7fELF"),
        (written(ROWS, version=1), "version 1 of the probe's file, not 9"),
        (written(ROWS, vcpus=1), "with 1 vCPUs"),
        (written(ROWS, kinds=KINDS[:1]), "kinds that are not there: of 1"),
        (written(ROWS, interruptions=[(1, 3, 0, 0, 1)]), "of a kind that is none: of 3"),
    ],
)
def test_what_is_no_whole_file_of_this_probe_is_named(content: bytes, message: str) -> None:
    with pytest.raises(CountsError, match=message):
        counts.parse(content)


LOADER = """\
\tlinux-vdso.so.1 (0x00007ffff7fc8000)
\tlibaio.so.1 => /lib/x86_64-linux-gnu/libaio.so.1 (0x00007ffff7eb1000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007ffff7c1c000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007ffff7fca000)
"""
MAP = user_map(LOADER)


def names(*addresses: int, places: UserMap = MAP) -> list[str]:
    return [
        next(iter(places.fold(np.array([address], np.uint64), np.array([1], np.uint64))))
        for address in addresses
    ]


def test_every_file_by_its_range() -> None:
    assert names(STATIC_AT, STATIC_AT + 0x1234) == ["busybox", "busybox"]
    assert names(PROGRAM_AT, 0x7FFFF7C1C000, 0x7FFFF7EB0FFF) == ["fio", "libc.so.6", "libc.so.6"]
    assert names(0x7FFFF7EB1000, 0x7FFFF7FC8000) == ["libaio.so.1", "vdso"]
    assert names(0x7FFFF7FCA010) == ["ld-linux-x86-64.so.2"]
    # Without a word from the loader programs are known.
    assert names(PROGRAM_AT, 0x7FFFF7C1C000, places=user_map("")) == ["fio", "[unknown]"]
    # Where nothing is mapped.
    assert names(0, STATIC_AT - 1, STATIC_AT + LARGEST) == ["[unknown]"] * 3
    assert names(PROGRAM_AT + LARGEST, (1 << 63) - 1) == ["[unknown]"] * 2


def test_sums_by_file_in_order_of_names() -> None:
    where = np.array([PROGRAM_AT, 1, STATIC_AT, PROGRAM_AT + 4], np.uint64)
    spent = np.array([1, 2, 4, 1 << 60], np.uint64)
    folded = MAP.fold(where, spent)
    assert list(folded.items()) == [("[unknown]", 2), ("busybox", 4), ("fio", (1 << 60) + 1)]


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    places = user_map(text + LOADER)
    assert (np.diff(places.starts.astype(object)) > 0).all()
    where = np.array([0, STATIC_AT, PROGRAM_AT, 1 << 62], np.uint64)
    assert sum(places.fold(where, np.ones(4, np.uint64)).values()) == 4
