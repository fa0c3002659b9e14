"""Blocks that are left in their middle, on a machine whose every instruction is known."""

from pathlib import Path

import pytest

from guests.probe import counts
from guests.probe.counts import Counts
from guests.probe.plugin import Probe
from results.profile import INTERRUPTIONS
from tests.guests.probe.machines import address, run, total
from tests.guests.probe.test_counting import functions, kinds_of

# The first QEMU that tells of interrupts is asked for the form of its interface.
TELLS = 7
TIMES, FAULT, INTERRUPT = 10, 10, 3
# Each phase ends with the jumps around the next mark, and that; a REP instruction looks once more
# whether it has to go on.
MARK = 3
EXECUTED = {
    1: 2 + TIMES * (6 + FAULT) + MARK,
    2: 2 + TIMES * (6 + FAULT) + MARK,
    3: 2 + TIMES * (4 + FAULT) + MARK,
    4: 4 + (1 + 1) + 1 + (1 + 2) + 1 + (1 + 2) + 1 + MARK,
    5: 3 + TIMES * 5 + MARK,
    6: 4 + TIMES * (5 + INTERRUPT) + 1 + MARK,
    7: 6 + 20 + 1 + FAULT + 1 + MARK,
    8: 2 + 4 + 4 + FAULT + MARK,
}


@pytest.fixture(scope="module")
def image(images: Path) -> Path:
    return images / "faults"


@pytest.fixture(scope="module", params=[1, 2], ids=["inline", "called"])
def counted(
    request: pytest.FixtureRequest,
    image: Path,
    probe: Probe,
    tmp_path_factory: pytest.TempPathFactory,
) -> Counts:
    if probe.api < TELLS:
        pytest.skip(f"QEMU {probe.qemu} tells of no interrupts")
    folder = tmp_path_factory.mktemp("counts")
    return counts.parse(run(image, probe, folder / "counts", vcpus=request.param))


@pytest.mark.parametrize("phase", EXECUTED)
def test_what_was_executed_is_counted_and_no_more(counted: Counts, phase: int) -> None:
    assert counted.interrupted
    assert total(counted, phase) == EXECUTED[phase]


def test_kinds_are_those_of_what_was_executed(counted: Counts) -> None:
    # A load of the word, then those of the handler: its word, POP and five of IRET are one each.
    here = kinds_of(counted, 1)
    assert here["loads"] == TIMES * (1 + 3)
    assert here["stores"] == TIMES * 2
    # The division is made once, though it was begun twice.
    assert kinds_of(counted, 4)["divisions"] == 1


def test_each_is_counted_where_it_came_and_by_what_handles_it(counted: Counts, image: Path) -> None:
    counts_by_place = {
        (int(row["phase"]), INTERRUPTIONS[row["kind"]], int(row["from"]), int(row["handler"])): int(
            row["count"]
        )
        for row in counted.interruptions
    }
    expected = {
        (1, "exception", "middle_load", "on_fault"): TIMES,
        (2, "exception", "last_jump", "on_fault"): TIMES,
        (3, "exception", "firsts", "on_fault"): TIMES,
        (4, "exception", "trap", "on_trap"): 1,
        (4, "exception", "illegal", "on_illegal"): 1,
        (4, "exception", "division", "on_division"): 1,
        (6, "interrupt", "sent", "on_interrupt"): TIMES,
        (7, "exception", "strings", "on_fault"): 1,
        (8, "exception", "held_load", "on_fault"): 1,
    }
    assert counts_by_place == {
        (phase, kind, address(image, function), address(image, handler)): count
        for (phase, kind, function, handler), count in expected.items()
    }


def test_an_older_qemu_counts_blocks_whole(image: Path, probe: Probe, tmp_path: Path) -> None:
    if probe.api >= TELLS:
        pytest.skip(f"QEMU {probe.qemu} tells of interrupts")
    counted = counts.parse(run(image, probe, tmp_path / "counts"))
    assert not counted.interrupted
    assert not len(counted.interruptions)
    # What was behind the load is in the block, and a block of its own.
    assert total(counted, 1) == EXECUTED[1] + TIMES * 4


@pytest.mark.parametrize("vcpus", [1, 2])
def test_a_lock_is_held_for_what_was_executed(
    image: Path, probe: Probe, tmp_path: Path, vcpus: int
) -> None:
    """With one vCPU its clock is an addition in the translated code, which is taken back, too."""
    watched = functions(image, spin=("take", "ends"))
    locked = counts.parse(run(image, probe, tmp_path / "counts", vcpus=vcpus, more=watched))
    (row,) = locked.locks
    assert (int(row["phase"]), int(row["site"])) == (8, address(image, "holder"))
    # RET, then what is up to the store; a block that is left counts whole with an older QEMU.
    assert int(row["held"]) == 1 + 4 + FAULT + (4 if probe.api < TELLS else 0)
