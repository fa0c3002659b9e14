"""What the init of a native guest says, and what is made of it."""

from pathlib import Path

import pytest

from guests import uml
from guests.uml import parse, root
from host.sandbox import PYTHON

WHOLE = (
    "<5>Linux version 6.12.117\r\n"
    "phase crossing 1 1 15000 15100 15200\r\n"
    "phase readahead 64 2 78000 78100 78200\r\n"
    "tsc_hz 2299995092\r\ndone\r\nreboot: Power down\r\n"
)


def test_phases_have_their_places_in_ticks() -> None:
    result = parse(WHOLE)
    assert result.hertz == 2299995092
    assert list(result.phases) == ["crossing", "readahead"]
    phase = result.phases["readahead"]
    assert (phase.folios, phase.calls, phase.ticks) == (64, 2, (78000, 78100, 78200))


@pytest.mark.parametrize(
    ("console", "what"),
    [
        ("", "did not get to its end"),
        (WHOLE.replace("done\r\n", ""), "did not get to its end"),
        (WHOLE.replace("tsc_hz 2299995092", "tsc_hz inf"), "did not get to its end"),
        (WHOLE.replace("readahead 64", "readahead x"), "phases found: crossing"),
        (WHOLE.replace("phase crossing 1 1", "phase cross 1 1"), "phases found: cross, readahead"),
        (WHOLE.replace(" 78100", " 0"), "no time passed in readahead"),
        (
            "ptrace: Operation not permitted\r\ncheck_ptrace : expected SIGSTOP, got status = 9",
            "this host refuses ptrace, .* or measure on 7.x .ptrace: Operation not permitted",
        ),
        ("ptrace set fp regs failed, errno = 14\r\n", "CPU with AMX: .*errno = 14"),
        ("failed pread: 9 KiB were not cached\r\n" + WHOLE, "pread: 9 KiB were not cached"),
    ],
)
def test_what_is_not_whole_is_no_result(console: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        parse(console)


def test_every_phase_of_a_workload_is_one_that_the_init_times() -> None:
    text = uml.PHASES.read_text()
    named = {phase for phases in uml.PHASES_OF.values() for phase in phases}
    assert all(f'"{phase}"' in text for phase in named)
    catalogue = {file.stem for file in Path("workloads/catalogue").glob("*.toml")}
    assert set(uml.PHASES_OF) | set(uml.LACKS) <= catalogue


# Another program in the place of a kernel: what its box lets it do.
TRIES = f"""#!{PYTHON} -IS
import socket
socket.socketpair()
try:
    socket.socket()
except PermissionError:
    print({WHOLE!r}, end="")
"""


def test_a_guest_talks_to_its_own_processes_and_to_nobody_else(tmp_path: Path) -> None:
    """A kernel of 7.x has a pair of sockets for each process of the guest."""
    program, archive = tmp_path / "linux", tmp_path / "root.cpio"
    program.write_text(TRIES)
    archive.write_bytes(b"")
    result, ending, console = uml.boot(program, archive, tmp_path / "boot", ["readahead"], None)
    assert result == parse(WHOLE), (ending, console)


def test_the_root_has_an_init_and_empty_file_systems(tmp_path: Path) -> None:
    (tmp_path / "a.ko").write_bytes(b"a module")
    archive = root(tmp_path, tmp_path / "cache", [tmp_path / "a.ko"]).read_bytes()
    assert b"a module" in archive
    # Each superblock's magic number, and how far it is behind the start.
    for kind, at, magic in (("ext4", 1080, b"\x53\xef"), ("xfs", 0, b"XFSB")):
        blocks = (tmp_path / "root" / f"{kind}.blocks").read_bytes()
        assert f"{kind}.blocks".encode() in archive
        assert len(blocks) % (4 + uml.BLOCK) == 0
        assert blocks[:4] == bytes(4)
        assert blocks[4 + at :].startswith(magic)
