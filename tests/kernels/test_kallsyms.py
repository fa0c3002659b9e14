"""Names and addresses out of a stripped kernel's own tables."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import addresses
from kernels.vmlinux import KallsymsError, symbols, system_map
from tests.kernels.shipped import SYMBOLS, TEXT, tables

NAMES = st.text("abcdefghlp_0123456789.$", min_size=1, max_size=140)
SYMBOL = st.tuples(st.sampled_from("tTdDbr"), NAMES, st.integers(0, 2**24))
MANY = st.integers(257, 800).flatmap(lambda n: st.lists(SYMBOL, min_size=n, max_size=n))


@settings(max_examples=25)
@given(made=MANY, old=st.booleans(), percpu=st.booleans())
def test_what_was_packed_comes_out(
    made: list[tuple[str, str, int]], old: bool, percpu: bool
) -> None:
    unpacked = symbols(tables(made, old=old, percpu=percpu))
    assert [(s.kind, s.name, s.address - TEXT) for s in unpacked] == made


@settings(max_examples=25)
@given(made=MANY)
def test_addresses_that_are_counted_from_their_own_places(made: list[tuple[str, str, int]]) -> None:
    """As since 7.1: the place of the table follows from the first byte of the image."""
    named = [("T", "_text", 0), *made]
    unpacked = symbols(tables(named, own_places=True))
    assert [(s.kind, s.name, s.address - TEXT) for s in unpacked] == named


def test_absolute_addresses_stay_what_they_are() -> None:
    made = [("A", "fixed_percpu_data", -4096), *SYMBOLS]
    unpacked = symbols(tables(made, percpu=True))
    assert unpacked[0].address == 4096
    assert unpacked[1].address == TEXT


def test_written_as_a_system_map_that_the_probe_reads() -> None:
    table = addresses.parse(system_map(symbols(tables(SYMBOLS))))
    assert table.at["schedule"] == (TEXT + 0x100,)
    assert table.at["helper_1234567890"] == (TEXT + 0x180, TEXT + 0x200)
    assert table.ranges == ((TEXT, TEXT + 0x1000),)


@pytest.mark.parametrize("data", [b"", b"0\x001\x002\x00" * 9, bytes(5000), bytes(range(256)) * 9])
def test_no_tables(data: bytes) -> None:
    with pytest.raises(KallsymsError, match="no table of tokens"):
        symbols(data)


@settings(max_examples=80)
@given(at=st.integers(0, 2**12), byte=st.integers(0, 255), cut=st.integers(0, 2**12))
def test_damage_is_noticed_or_harms_no_more_than_a_name(at: int, byte: int, cut: int) -> None:
    whole = tables(SYMBOLS)
    data = bytearray(whole[: len(whole) - cut % len(whole)])
    if data:
        data[at % len(data)] = byte
    try:
        unpacked = symbols(bytes(data))
    except KallsymsError:
        return
    assert len(unpacked) == len(SYMBOLS)
