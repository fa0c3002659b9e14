"""Settings of this host that wall mode wants otherwise: what they are, and what they should be.

Nothing is changed here.  A person runs the commands as root before measuring, and those that
undo them afterwards; a reboot undoes them, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from host.facts import text_of

HEAD = "# As root, before measuring; until the next boot:"
UNDO = "# As root, to undo it:"
NOTHING = "# Every setting that a command can change is as wall mode wants it."


@dataclass(frozen=True)
class Setting:
    """A file of the kernel's with what is in it now, and what wall mode wants in it."""

    path: Path
    now: str
    target: str


def to_change(*, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> tuple[Setting, ...]:
    """The settings that are not as wanted, in the order to change them.

    Threads that share a core go off first: that takes their CPUs' own files away, and with
    them the need to set those.
    """
    return tuple(_unfit(proc, sys))


def _unfit(proc: Path, sys: Path) -> Iterator[Setting]:
    cpu, memory = sys / "devices/system/cpu", sys / "kernel/mm"
    switches = {
        cpu / "smt/control": ("on", "off"),
        cpu / "intel_pstate/no_turbo": ("0", "1"),
        cpu / "cpufreq/boost": ("1", "0"),
        memory / "ksm/run": ("1", "2"),
    }
    if len(list((sys / "devices/system/node").glob("node[0-9]*"))) > 1:
        switches[proc / "sys/kernel/numa_balancing"] = ("1", "0")
    if "[never]" not in text_of(memory / "transparent_hugepage/enabled"):
        switches[memory / "transparent_hugepage/khugepaged/defrag"] = ("1", "0")
    for path, (unfit, target) in switches.items():
        if text_of(path).strip() == unfit:
            yield Setting(path, unfit, target)
    for path in sorted(cpu.glob("cpu[0-9]*/cpufreq/scaling_governor")):
        now = text_of(path).strip()
        if now and now != "performance":
            yield Setting(path, now, "performance")


def as_shell(settings: Sequence[Setting]) -> str:
    """Lines for a root's shell that change them, and in a second part those that undo it."""
    if not settings:
        return NOTHING
    there = [_line(setting.target, setting.path) for setting in settings]
    # In the same order: the files of a CPU that was off come back with it.
    back = [_line(setting.now, setting.path) for setting in settings]
    return "\n".join([HEAD, *there, "", UNDO, *back])


def _line(value: str, path: Path) -> str:
    return f"echo {shlex.quote(value)} > {shlex.quote(str(path))}"
