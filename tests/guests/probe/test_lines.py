"""Lines that move between vCPUs, on a machine whose transfers follow from arithmetic."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from guests.probe import counts
from guests.probe.counts import Counts
from guests.probe.plugin import Probe
from tests.guests.probe import machines

# As in lines.S.
ROUNDS = 50
HANDSHAKE, NEIGHBOURS, READ_MOSTLY, LINES_OF_THEIR_OWN, ATOMIC = range(1, 6)


class ProbedImage(NamedTuple):
    path: Path
    names: dict[int, str]

    def name_of(self, address: int) -> str:
        """The label at an address or before it."""
        return self.names[max(at for at in self.names if at <= address)]


class Transfers(NamedTuple):
    reads: int
    writes: int
    apart: int


@pytest.fixture(scope="module")
def image(images: Path) -> ProbedImage:
    return labelled(images / "lines")


def labelled(path: Path) -> ProbedImage:
    names = {int(address, 16): name for name, address in machines.symbols(path).items()}
    return ProbedImage(path, names)


def run(image: ProbedImage, probe: Probe, out: Path, model: str) -> Counts:
    more = f",{model}" if model else ""
    return counts.parse(machines.run(image.path, probe, out, vcpus=2, more=more))


@pytest.fixture(scope="module")
def large(image: ProbedImage, probe: Probe, tmp_path_factory: pytest.TempPathFactory) -> Counts:
    return run(image, probe, tmp_path_factory.mktemp("large") / "counts", "private=64:8")


def transfers(image: ProbedImage, counted: Counts, phase: int) -> dict[str, Transfers]:
    """By the label of the code that took the lines."""
    sums: dict[str, Transfers] = {}
    for row in counted.moves[counted.moves["phase"] == phase]:
        name = image.name_of(int(row["to"]))
        before = sums.get(name, Transfers(0, 0, 0))
        added = (int(row[field]) for field in counts.MOVED)
        sums[name] = Transfers(*(a + b for a, b in zip(before, added, strict=True)))
    return sums


# The word that passes the turn on, in each phase: it is read where it was written, and written
# while the other one has it to be read.
TURN = {
    "waits": Transfers(ROUNDS, 0, 0),
    "pass": Transfers(0, ROUNDS, 0),
    "other_waits": Transfers(ROUNDS, 0, 0),
    "other_passes": Transfers(0, ROUNDS, 0),
}


def of_the_work(image: ProbedImage, counted: Counts, phase: int) -> dict[str, Transfers]:
    """Without the turn's, and what _start tells the other one to do."""
    others = {*TURN, "_start"}
    return {n: t for n, t in transfers(image, counted, phase).items() if n not in others}


def test_a_word_that_is_passed_on_moves_twice_each_way(image: ProbedImage, large: Counts) -> None:
    assert large.shared
    here = transfers(image, large, HANDSHAKE)
    # The other one reads once what is to be done, and nobody had the first turn before.
    assert here == TURN | {
        "pass": Transfers(0, ROUNDS - 1, 0),
        "other_waits": Transfers(ROUNDS + 1, 0, 0),
    }


def test_two_that_write_neighbouring_words_share_nothing_but_the_line(
    image: ProbedImage, large: Counts
) -> None:
    """Each adds by reading what the other had to itself, and then writes: all of it is false."""
    assert of_the_work(image, large, NEIGHBOURS) == {
        "add_first": Transfers(ROUNDS - 1, ROUNDS - 1, 2 * (ROUNDS - 1)),
        "add_second": Transfers(ROUNDS, ROUNDS, 2 * ROUNDS),
    }
    rows = large.moves[large.moves["phase"] == NEIGHBOURS]
    (row,) = (row for row in rows if image.name_of(int(row["to"])) == "add_second")
    assert image.name_of(int(row["from"])) == "add_first"
    assert (int(row["mine"]), int(row["theirs"])) == (0xF0, 0x0F)


def test_what_is_only_read_beside_a_counter_moves_with_each_count(
    image: ProbedImage, large: Counts
) -> None:
    assert of_the_work(image, large, READ_MOSTLY) == {
        "write_first": Transfers(0, ROUNDS, ROUNDS),
        "read_far": Transfers(ROUNDS, 0, ROUNDS),
    }


def test_words_in_lines_of_their_own_do_not_move(image: ProbedImage, large: Counts) -> None:
    # The one time is the line that the phase before had left with its reader.
    assert of_the_work(image, large, LINES_OF_THEIR_OWN) == {"add_first": Transfers(0, 1, 1)}


def test_an_atomic_instruction_takes_its_line_once_to_write(
    image: ProbedImage, large: Counts
) -> None:
    assert of_the_work(image, large, ATOMIC) == {
        "lock_first": Transfers(0, ROUNDS - 1, 0),
        "lock_again": Transfers(0, ROUNDS, 0),
    }


def test_a_line_that_its_cache_has_lost_comes_from_none(
    image: ProbedImage, probe: Probe, tmp_path: Path
) -> None:
    """With room for one line each, the turn's throws out what the work used."""
    small = run(image, probe, tmp_path / "counts", "private=1:1")
    assert of_the_work(image, small, NEIGHBOURS) == {}
    assert transfers(image, small, ATOMIC) == TURN


def test_the_counts_are_the_same_again_and_leave_the_probe_as_it_is(
    image: ProbedImage, probe: Probe, large: Counts, tmp_path: Path
) -> None:
    plain = run(image, probe, tmp_path / "plain", "")
    assert not plain.shared
    assert not len(plain.moves)
    assert np.array_equal(plain.rows, large.rows)
    again = run(image, probe, tmp_path / "again", "private=64:8")
    assert np.array_equal(again.moves, large.moves)
