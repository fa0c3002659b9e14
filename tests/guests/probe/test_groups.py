"""Groups of accesses: which belong together, and that models count the same without them."""

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

from guests.probe import plugin
from guests.probe.counts import Counts
from guests.probe.plugin import Probe
from tests.guests.probe.machines import symbols
from tests.guests.probe.test_lines import ProbedImage, Transfers, labelled, of_the_work
from tests.guests.probe.test_lines import run as lines_run
from tests.guests.probe.test_memory import CACHES, TLBS, data, run, tlb
from tests.waiting import completed

HERE = Path(__file__).parent
GROUPED = "bits=64"
# As in groups.S.
ROUNDS, FAULTS = 100, 10
# Above 4 GiB, as the kernel's; a user's code, and code that may be of 32 bits.
KERNEL, USER, LOW = 0xFFFFFFFF81000000, 0x7FFFF7000000, 0x400000

MOST = 24


class AccessStruct(ctypes.Structure):
    _fields_ = (("distance", ctypes.c_int8), ("bytes", ctypes.c_uint8), ("stores", ctypes.c_bool))


class GroupStruct(ctypes.Structure):
    _fields_ = (
        ("first", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("low", ctypes.c_int8),
        ("high", ctypes.c_int8),
        ("user_loads", ctypes.c_bool),
        ("again", ctypes.c_uint32),
        ("accesses", AccessStruct * MOST),
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The plugin's groups, of blocks that block.c makes of bytes."""
    out = tmp_path_factory.mktemp("library") / "groups.so"
    sources = [str(plugin.HERE / name) for name in ("groups.c", "kinds.c")]
    flags = ["-O2", "-shared", "-fPIC", "-DPROBE_API=3", f"-I{plugin.HERE}", "-o", str(out)]
    argv = ["gcc", *flags, *sources, str(HERE / "block.c")]
    subprocess.run(argv, check=True, timeout=300)
    built = ctypes.CDLL(str(out))
    built.groups_in.restype = ctypes.c_size_t
    return built


def groups(library: ctypes.CDLL, folder: Path, text: str, at: int = KERNEL) -> list[str]:
    """Groups of a block: the number of the first instruction, then each access.

    ``s`` is a store, ``l`` a load, ``?`` an instruction of which nothing is known.
    """
    source, built = folder / "block.s", folder / "block.o"
    source.write_text(text.replace(";", "\n") + "\n")
    subprocess.run(["as", "-o", str(built), str(source)], check=True, timeout=300)
    listing = completed(["objdump", "-d", "-w", "--insn-width=16", str(built)]).stdout
    instructions = [bytes.fromhex(line) for line in re.findall(r":\t((?:[0-9a-f]{2} )+)", listing)]
    sizes = (ctypes.c_size_t * len(instructions))(*map(len, instructions))
    built_groups = ctypes.POINTER(GroupStruct)()
    used = library.groups_in(
        ctypes.c_uint64(at),
        b"".join(instructions),
        sizes,
        ctypes.c_size_t(len(instructions)),
        ctypes.byref(built_groups),
    )
    return [
        f"{group.first}:"
        + (
            " ".join(
                f"{'s' if access.stores else 'l'}{access.bytes}{access.distance:+d}"
                for access in group.accesses[: group.count]
            )
            or "?"
        )
        for group in built_groups[:used]
    ]


LINES = (HERE / "groups.txt").read_text().splitlines()[1:]
BLOCKS = dict(zip(LINES[::2], (line.strip().split(" | ") for line in LINES[1::2]), strict=True))


@pytest.mark.parametrize("text", BLOCKS)
def test_accesses_whose_addresses_differ_by_known_numbers_are_a_group(
    library: ctypes.CDLL, tmp_path: Path, text: str
) -> None:
    assert groups(library, tmp_path, text) == BLOCKS[text]


def test_a_users_page_that_is_read_may_not_be_written_yet(
    library: ctypes.CDLL, tmp_path: Path
) -> None:
    text = "mov (%rdi), %eax; mov 8(%rdi), %eax; mov %eax, 4(%rdi); mov 8(%rdi), %ebx"
    assert groups(library, tmp_path, text, USER) == ["0:l4+0 l4+8", "2:s4+0 l4+4"]
    assert groups(library, tmp_path, "addl $1, (%rdi); mov 4(%rdi), %eax", USER) == [
        "0:?",
        "1:l4+0",
    ]


def test_code_that_may_be_of_32_bits_is_left_as_it_is(library: ctypes.CDLL, tmp_path: Path) -> None:
    text = "push %rbx; push %rbp"
    assert groups(library, tmp_path, text, LOW) == ["0:?", "1:?"]


def test_another_number_of_bits_is_refused(library: ctypes.CDLL) -> None:
    assert [library.groups_argument(word) for word in (b"bits=32", b"bits=", b"bit=64")] == [
        -1,
        -1,
        0,
    ]


@pytest.fixture(scope="module")
def image(images: Path) -> Path:
    return images / "groups"


def counted(image: Path, probe: Probe, folder: Path, more: str) -> Counts:
    at = symbols(image)
    model = f"{CACHES},{TLBS},prefetch=4,root={at['top']},ram={folder / 'ram'}"
    return run(image, probe, folder, f"{model},spin={at['take']}-{at['ends']}{more}")


@pytest.fixture(scope="module")
def grouped(image: Path, probe: Probe, tmp_path_factory: pytest.TempPathFactory) -> Counts:
    return counted(image, probe, tmp_path_factory.mktemp("grouped"), f",{GROUPED}")


@pytest.fixture(scope="module")
def alone(image: Path, probe: Probe, tmp_path_factory: pytest.TempPathFactory) -> Counts:
    return counted(image, probe, tmp_path_factory.mktemp("alone"), "")


def test_a_model_counts_the_same_with_groups_and_without(grouped: Counts, alone: Counts) -> None:
    assert (grouped.rows == alone.rows).all()
    assert (grouped.locks == alone.locks).all()
    assert grouped.unmapped == alone.unmapped == 0
    assert (grouped.misses == alone.misses).all()


def test_lines_of_groups_are_missed_once_each(grouped: Counts) -> None:
    assert data(grouped, 1)[0] == ROUNDS
    assert data(grouped, 2)[0] == 2 * ROUNDS
    assert tlb(grouped, 8) == (2 * FAULTS, 2 * FAULTS)


def test_what_is_missed_behind_a_release_is_not_of_the_lock(grouped: Counts) -> None:
    (row,) = grouped.locks[grouped.locks["phase"] == 10]
    assert int(row["taken"]) == ROUNDS
    # And, the first time, lines of code.
    assert ROUNDS <= int(row["llc"]) <= ROUNDS + 3


# As in moves.S.
TURNS = 50
READ_AND_WRITE, WRITE_AND_READ, TWO_LINES, TWO_PAGES, ON_THE_STACK, LOCKED = range(1, 7)


@pytest.fixture(scope="module")
def shared(
    images: Path, probe: Probe, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ProbedImage, Counts]:
    """The machine of two vCPUs, and what moves with each access for itself."""
    moves = labelled(images / "moves")
    return moves, lines_run(moves, probe, tmp_path_factory.mktemp("a") / "counts", "private=64:8")


def test_lines_move_the_same_with_groups_and_without(
    shared: tuple[ProbedImage, Counts], probe: Probe, tmp_path: Path
) -> None:
    shared_image, each = shared
    grouped = lines_run(shared_image, probe, tmp_path / "counts", f"private=64:8,{GROUPED}")
    assert set(grouped.moves["phase"]) == set(range(1, 7))
    assert (grouped.rows == each.rows).all()
    assert (grouped.moves == each.moves).all()


def test_a_group_reads_before_it_writes(
    shared: tuple[ProbedImage, Counts], probe: Probe, tmp_path: Path
) -> None:
    shared_image, _ = shared
    grouped = lines_run(shared_image, probe, tmp_path / "counts", f"private=64:8,{GROUPED}")
    of = {phase: of_the_work(shared_image, grouped, phase) for phase in range(1, 7)}
    # What the other wrote is not what this one reads, and is written again.
    assert of[READ_AND_WRITE] == {
        "read_and_write": Transfers(2 * TURNS - 1, 2 * TURNS - 1, 2 * TURNS - 1)
    }
    assert of[WRITE_AND_READ]["write_and_read"].reads == 0
    assert of[WRITE_AND_READ]["read_twice"] == Transfers(TURNS, 0, 0)
    assert of[LOCKED]["locked"].writes == TURNS
