"""The plugin in the QEMU that is there, on a machine whose every instruction is known."""

from pathlib import Path

import numpy as np
import pytest

from guests.probe import counts
from guests.probe.counts import Counts
from guests.probe.plugin import Probe
from results.profile import KINDS
from tests.guests.probe.machines import address, run, total
from tests.values import spaced

# movl; decl, jnz: what follows a mark up to the loop's first jump back is one block.
FIRST, SECOND, THIRD = 1000, 300, 200
PHASE_1 = 1 + 2 * FIRST + 1
PHASE_2 = 2 + 3 * SECOND + 1
PHASE_3 = 2 + 4 * THIRD + 1


@pytest.fixture(scope="module")
def image(images: Path) -> Path:
    return images / "machine"


# Two vCPUs take the form with callbacks on a QEMU without counters for each.
@pytest.mark.parametrize("vcpus", [1, 2])
def test_every_instruction_of_a_phase_is_counted_and_no_other(
    image: Path, probe: Probe, tmp_path: Path, vcpus: int
) -> None:
    counted = counts.parse(run(image, probe, tmp_path / "counts", vcpus=vcpus))
    assert counted.vcpus == vcpus
    assert set(counted.rows["phase"]) == {1, 2, 3}
    assert set(counted.rows["vcpu"]) == {0}
    # The block of a mark counts for the phase that it began in: the first mark's
    # block is left out whole, and the last one's is in.
    for phase, loop, entries, length in ((1, "first", FIRST, 2), (2, "second", SECOND, 3)):
        rows = counted.rows[counted.rows["phase"] == phase]
        body = rows[rows["address"] == address(image, loop)]
        assert int(body["entries"].sum()) == entries - 1
        assert set(body["instructions"]) == {length}
    assert abs(total(counted, 1) - PHASE_1) <= 8
    assert abs(total(counted, 2) - PHASE_2) <= 8


@pytest.mark.parametrize("vcpus", [1, 2])
def test_an_instruction_in_two_pages_is_counted_once(
    image: Path, probe: Probe, tmp_path: Path, vcpus: int
) -> None:
    """QEMU 7.2 lists it twice: in the block that it does not fit into, and in its own."""
    assert address(image, "third") % 4096 == 4094
    counted = counts.parse(run(image, probe, tmp_path / "counts", vcpus=vcpus))
    assert abs(total(counted, 3) - PHASE_3) <= 8


def test_same_bytes_each_time(image: Path, probe: Probe, tmp_path: Path) -> None:
    first, second = (run(image, probe, tmp_path / name) for name in ("a", "b"))
    assert first == second


def test_inline_counters_and_callbacks_agree(image: Path, probe: Probe, tmp_path: Path) -> None:
    inline = counts.parse(run(image, probe, tmp_path / "a"))
    called = counts.parse(run(image, probe, tmp_path / "b", vcpus=2))
    assert np.array_equal(inline.rows, called.rows)


def test_windows_cut_a_phase_and_lose_nothing(image: Path, probe: Probe, tmp_path: Path) -> None:
    whole = counts.parse(run(image, probe, tmp_path / "a"))
    cut = counts.parse(run(image, probe, tmp_path / "b", window=100))
    assert cut.window == 100
    assert [total(cut, phase) for phase in (1, 2)] == [total(whole, phase) for phase in (1, 2)]
    rows = cut.rows[cut.rows["phase"] == 1]
    spent = np.bincount(rows["window"], weights=rows["entries"] * rows["instructions"])
    assert len(spent) == -(-total(whole, 1) // 100)
    assert all(abs(value - 100) <= 4 for value in spent[:-1])


def test_time_in_a_span_is_from_entering_it_to_leaving_it(
    image: Path, probe: Probe, tmp_path: Path
) -> None:
    """Each loop is a span of its own: its blocks, but for the one that falls into it."""
    first, second = address(image, "first"), address(image, "second")
    options = f",span={first:x}-{first + 1:x},span={second:x}-{second + 1:x},span=1-2"
    plain = counts.parse(run(image, probe, tmp_path / "a"))
    counted = counts.parse(run(image, probe, tmp_path / "b", vcpus=2, more=options))
    assert counted.span_count == 3
    assert np.array_equal(plain.rows, counted.rows)
    assert not len(plain.spans)
    rows = {(row["phase"], row["address"] - counts.SPAN): row for row in counted.spans}
    assert set(rows) == {(1, 0), (2, 1)}
    assert {int(row["vcpu"]) for row in counted.spans} == {0}
    assert int(rows[1, 0]["entries"]) == 2 * (FIRST - 1)
    assert int(rows[2, 1]["entries"]) == 3 * (SECOND - 1)


def kinds_of(counted: Counts, phase: int) -> dict[str, int]:
    rows = counted.rows[counted.rows["phase"] == phase]
    sums = (counted.kinds[rows["kinds"]] * rows["entries"][:, np.newaxis]).sum(axis=0)
    return dict(zip(KINDS, sums.tolist(), strict=True))


@pytest.mark.parametrize("vcpus", [1, 2])
def test_instructions_are_counted_by_kind(
    images: Path, probe: Probe, tmp_path: Path, vcpus: int
) -> None:
    counted = counts.parse(run(images / "kinds", probe, tmp_path / "counts", vcpus=vcpus))
    # A load alone, a comparison, and five that change memory.
    names = spaced("loads stores atomics barriers divisions system")
    for phase, times, each in ((1, 100, (7, 6, 3, 1, 0, 0)), (2, 50, (2, 2, 0, 2, 1, 2))):
        expected = {name: times * n for name, n in zip(names, each, strict=True)}
        assert kinds_of(counted, phase) == expected


def numbers(row: np.void, fields: str) -> list[int]:
    return [int(row[field]) for field in spaced(fields)]


def functions(image: Path, **kinds: tuple[str, str]) -> str:
    """The probe's words for functions of each kind, from one symbol to another."""
    return "".join(
        f",{kind}={address(image, start):x}-{address(image, end):x}"
        for kind, (start, end) in kinds.items()
    )


@pytest.mark.parametrize("vcpus", [1, 2])
def test_locks_are_held_from_taking_them_to_letting_go(
    images: Path, probe: Probe, tmp_path: Path, vcpus: int
) -> None:
    image = images / "locks"
    options = functions(
        image,
        spin=("take", "try"),
        sleep=("sleep", "unlock"),
        free=("unlock", "nap"),
        spin_shared=("share", "sleep"),
        switch=("switch", "ends"),
    ) + functions(image, sleep=("nap", "switch"))
    plain = counts.parse(run(image, probe, tmp_path / "a"))
    counted = counts.parse(run(image, probe, tmp_path / "b", vcpus=vcpus, more=options))
    assert np.array_equal(plain.rows, counted.rows)
    assert not len(plain.locks)
    assert counted.lost_locks == 0
    at = {
        address(image, name): name
        for name in spaced(
            "first second shared mutex loop outer inner tried one two slept woken across earlier"
        )
    }
    rows = {
        (int(row["phase"]), at[int(row["lock"])], at[int(row["site"])]): numbers(
            row, "kind taken held waits"
        )
        for row in counted.locks
    }
    held = rows.pop((1, "second", "across")), rows.pop((2, "second", "across"))
    assert rows == {
        (1, "first", "loop"): [0, 50, 50 * 7, 0],
        (1, "first", "outer"): [0, 1, 8, 0],
        (1, "second", "inner"): [0, 1, 4, 0],
        (1, "first", "tried"): [0, 1, 6, 0],
        (1, "shared", "one"): [1, 1, 9, 0],
        (1, "shared", "two"): [1, 1, 3, 0],
        (1, "first", "earlier"): [2, 1, 2, 0],
        (1, "mutex", "slept"): [2, 1, 9, 0],
        (1, "mutex", "woken"): [2, 0, 0, 1],
    }
    # The block of a mark is part of the phase before.
    assert [taken for _, taken, _, _ in held] == [1, 0]
    assert held[0][2] + held[1][2] == 2 + 1 + 1 + 2 * 300
    assert held[1][2] == 2 * 299


def test_who_waited_for_whom_and_to_whom_the_lock_went(
    images: Path, probe: Probe, tmp_path: Path
) -> None:
    """Two vCPUs: one takes the lock by two calls in turn, the other finds it held each time."""
    image = images / "handover"
    watched = functions(image, spin=("take", "slow"), slow=("slow", "ends"))
    counted = counts.parse(run(image, probe, tmp_path / "a", vcpus=2, more=watched))
    at = {address(image, name): name for name in ("owner", "second", "waiter")}
    alone = {at[int(row["site"])]: row for row in counted.locks}
    pairs = {(at[int(row["site"])], at[int(row["holder"])]): row for row in counted.pairs}
    assert {int(row["lock"]) for row in counted.pairs} == {address(image, "lock")}
    taken_and_waits = {name: numbers(row, "taken waits") for name, row in alone.items()}
    assert taken_and_waits == {"owner": [10, 0], "second": [10, 0], "waiter": [20, 20]}
    assert {names: numbers(row, "waits taken") for names, row in pairs.items()} == {
        ("waiter", "owner"): [10, 10],
        ("waiter", "second"): [10, 10],
    }
    # Each wait is a part of the whole, and the two calls hold it for the same code.
    parts = [int(row["waited"]) for row in pairs.values()]
    assert sum(parts) == int(alone["waiter"]["waited"])
    assert min(parts) > 0
    plain = counts.parse(run(image, probe, tmp_path / "b", vcpus=2))
    assert not len(plain.pairs)
    # Which vCPU comes to a block first is the host's affair here.
    assert np.array_equal(np.sort(plain.rows), np.sort(counted.rows))


@pytest.mark.parametrize("vcpus", [1, 2])
def test_a_lock_that_is_let_go_of_unseen_is_lost_once_it_is_taken_again(
    images: Path, probe: Probe, tmp_path: Path, vcpus: int
) -> None:
    """No vCPU waits for itself."""
    image = images / "unseen"
    watched = functions(image, spin=("take", "slow"), slow=("slow", "ends"))
    counted = counts.parse(run(image, probe, tmp_path / "counts", vcpus=vcpus, more=watched))
    assert counted.lost_locks == 1
    rows = {int(row["site"]): row for row in counted.locks}
    lost, second = (rows[address(image, name)] for name in ("owner", "waiter"))
    assert [numbers(row, "taken held") for row in (lost, second)] == [[1, 0], [1, 2]]


def test_an_exchange_in_vain_is_a_wait_for_whoever_has_the_lock_next(
    images: Path, probe: Probe, tmp_path: Path
) -> None:
    image = images / "unseen"
    watched = functions(image, spin=("take", "slow"), slow=("slow", "ends"))
    counted = counts.parse(run(image, probe, tmp_path / "counts", vcpus=2, more=watched))
    (row,) = (row for row in counted.locks if row["site"] == address(image, "queued"))
    # From the instruction of the slow path that writes it.
    assert numbers(row, "taken held waits") == [1, 3, 1]
    (pair,) = counted.pairs
    assert numbers(pair, "site holder waits taken") == [address(image, "queued"), 0, 1, 1]
    assert int(pair["waited"]) == int(row["waited"])
