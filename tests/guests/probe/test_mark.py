"""guests/mark.c, on the host: a NOP is a NOP here too."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from experiment.architecture import ARM64
from guests import programs
from guests.probe import plugin

MARKS = 16


@pytest.fixture(scope="module")
def mark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = (*programs.STATIC_PROGRAM, "-Wall", "-Wextra", "-Werror")
    return programs.build(programs.MARK, flags, tmp_path_factory.mktemp("cache"))


def run(*argv: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, argv)], capture_output=True, text=True, timeout=300)


def bytes_of(name: str) -> bytes:
    match = re.search(rf"{name}\[\] = {{ (.*) }};", plugin.SOURCE.read_text())
    assert match
    return bytes(int(word, 16) for word in match[1].split(","))


def test_each_phase_has_the_one_nop_that_the_plugin_looks_for(mark: Path) -> None:
    program = mark.read_bytes()
    head, tail = bytes_of("MARK_HEAD"), bytes_of("MARK_TAIL")
    for phase in range(MARKS):
        assert program.count(head + phase.to_bytes(2, "little") + tail) == 1, phase
    assert program.count(head + MARKS.to_bytes(2, "little") + tail) == 0


def test_marks_of_arm64_are_what_the_plugin_is_built_to_look_for() -> None:
    """Without its compiler: the constants of both sources, put together as the manual has it."""
    executed = re.search(r"movz xzr, %0, lsl #32.*?(0x[0-9a-f]+) \| n", programs.MARK.read_text())
    expected = re.search(r"define MARK (0x[0-9a-f]+)u", plugin.SOURCE.read_text())
    number = re.search(r"define MARK_NUMBER (0x[0-9a-f]+)u", plugin.SOURCE.read_text())
    assert executed is not None
    assert expected is not None
    assert number is not None
    # movz of 64 bits: its shift by 32 from bit 21 on, the constant from bit 5, register 31.
    words = [0xD2800000 | 2 << 21 | (int(executed[1], 16) | n) << 5 | 31 for n in range(MARKS)]
    mask = int(number[1], 16)
    assert {word & ~mask for word in words} == {int(expected[1], 16)}
    assert [(word & mask) >> 5 for word in words] == list(range(MARKS))
    assert "-DPROBE_ARM64" in ARM64.board.probe


def test_becomes_the_program_and_notes_the_clock(mark: Path, tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    done = run(mark, 3, clock, "sh", "-c", 'echo "$1"; exit 7', "sh", "two words")
    assert (done.stdout, done.returncode) == ("two words\n", 7)
    assert run(mark, 0, clock).returncode == 0
    before, after = (line.split() for line in clock.read_text().splitlines())
    assert (before[0], after[0]) == ("3", "0")
    assert int(before[1]) < int(after[1])


@pytest.mark.parametrize("phase", ["16", "-1"])
def test_phase_without_a_nop_runs_nothing(mark: Path, tmp_path: Path, phase: str) -> None:
    done = run(mark, phase, tmp_path / "clock", "echo", "ran")
    assert (done.stdout, done.returncode) == ("", 99)


def test_clock_that_cannot_be_written_and_program_that_is_not_there(
    mark: Path, tmp_path: Path
) -> None:
    assert run(mark, 1, tmp_path / "no/clock", "echo", "ran").returncode == 99
    assert run(mark, 1, tmp_path / "clock", tmp_path / "nonesuch").returncode == 99
    assert run(mark).returncode == 99
