"""Machines whose every instruction is known, in the QEMU that is there with the plugin."""

from functools import cache
from pathlib import Path

from experiment.architecture import X86_64
from guests.probe.counts import Counts
from guests.probe.plugin import Probe
from tests.values import spaced
from tests.waiting import completed


@cache
def symbols(image: Path) -> dict[str, str]:
    """Labels of an image, with their addresses as hexadecimal words."""
    listing = completed(["nm", str(image)]).stdout
    return {line.split()[2]: line.split()[0] for line in listing.splitlines()}


def address(image: Path, name: str) -> int:
    return int(symbols(image)[name], 16)


def run(
    image: Path,
    probe: Probe,
    out: Path,
    *options: str,
    vcpus: int = 1,
    window: int = 0,
    more: str = "",
) -> bytes:
    """What the plugin wrote, given ``more`` words; ``options`` are QEMU's."""
    words = f"file={probe.path},out={out}" + (f",window={window}" if window else "") + more
    argv = [
        *spaced(f"{X86_64.board.qemu} -accel tcg -icount shift=0,sleep=off -smp {vcpus}"),
        *options,
        *spaced("-nodefaults -display none -no-reboot -device isa-debug-exit,iobase=0xf4"),
        *("-kernel", str(image), "-plugin", words),
    ]
    done = completed(argv, check=False)
    assert done.returncode == X86_64.board.done_status, done.stderr
    return out.read_bytes()


def total(counted: Counts, phase: int) -> int:
    rows = counted.rows[counted.rows["phase"] == phase]
    return int((rows["entries"] * rows["instructions"]).sum())
