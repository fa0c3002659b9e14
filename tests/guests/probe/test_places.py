"""test places"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from guests.probe.places import LARGEST, PROGRAM_AT, STATIC_AT, UserMap, user_map

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


def test_where_nothing_is_mapped() -> None:
    assert names(0, STATIC_AT - 1, STATIC_AT + LARGEST) == ["[unknown]"] * 3
    assert names(PROGRAM_AT + LARGEST, (1 << 63) - 1) == ["[unknown]"] * 2


def test_sums_by_file_in_order_of_names() -> None:
    where = np.array([PROGRAM_AT, 1, STATIC_AT, PROGRAM_AT + 4], np.uint64)
    spent = np.array([1, 2, 4, 1 << 60], np.uint64)
    folded = MAP.fold(where, spent)
    assert list(folded.items()) == [("[unknown]", 2), ("busybox", 4), ("fio", (1 << 60) + 1)]


def test_without_a_word_from_the_loader_programs_are_known() -> None:
    bare = user_map("")
    assert names(PROGRAM_AT, 0x7FFFF7C1C000, places=bare) == ["fio", "[unknown]"]


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    places = user_map(text + LOADER)
    assert (np.diff(places.starts.astype(object)) > 0).all()
    where = np.array([0, STATIC_AT, PROGRAM_AT, 1 << 62], np.uint64)
    assert sum(places.fold(where, np.ones(4, np.uint64)).values()) == 4
