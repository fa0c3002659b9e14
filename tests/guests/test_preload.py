"""vCPUs take turns by the guest's time alone, whatever the host does beside them."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from experiment.architecture import X86_64
from guests import programs
from guests.argv import METRONOME
from host.process import spawn
from tests.guests.probe.test_counting import images

__all__ = ["images"]  # a fixture
TURN_NS = 20_000
BUSY = ["sh", "-c", "while :; do :; done"]


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    return programs.build(programs.PRELOAD, programs.SHARED_LIBRARY, cache)


def printed(image: Path, preload: Path, folder: Path, vcpus: int = 2) -> bytes:
    """What a machine writes to the port 0xe9."""
    folder.mkdir()
    out = folder / "out"
    argv = [
        X86_64.board.qemu, "-accel", "tcg", "-icount", "shift=0,sleep=off", "-smp", str(vcpus),
        "-seed", "1", "-nodefaults", "-display", "none", "-no-reboot",
        "-device", "isa-debug-exit,iobase=0xf4", "-chardev", f"file,id=out,path={out}",
        "-device", "isa-debugcon,iobase=0xe9,chardev=out", "-kernel", str(image),
    ]  # fmt: skip
    env = os.environ | {"LD_PRELOAD": str(preload), METRONOME: str(TURN_NS)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == X86_64.board.done_status, done.stderr
    return out.read_bytes()


@pytest.mark.slow
def test_turns_end_at_the_same_instructions_while_qemu_frees_memory(
    images: Path, preload: Path, tmp_path: Path
) -> None:
    """From QEMU 10.2 on the thread that frees it ended turns, by the host's clock."""
    runs = [printed(images / "turns", preload, tmp_path / f"quiet-{n}") for n in range(2)]
    with ExitStack() as busy:
        for number in range(4):
            log = tmp_path / f"busy-{number}"
            busy.enter_context(spawn(BUSY, log=log, env=dict(os.environ)))
        runs += [printed(images / "turns", preload, tmp_path / f"busy-run-{n}") for n in range(2)]
    assert len(runs[0]) == 4
    assert runs == runs[:1] * 4


def test_a_turn_is_as_long_as_the_metronome_says(
    images: Path, preload: Path, tmp_path: Path
) -> None:
    """From QEMU 8.1 on it was a half or a quarter of that with two vCPUs."""
    longest_ns = int.from_bytes(
        printed(images / "turn_length", preload, tmp_path / "run"), "little"
    )
    assert TURN_NS <= longest_ns <= 1.01 * TURN_NS
