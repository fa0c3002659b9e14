"""What exact and wall guests share: what is booted, how it ended, and how both are read.

``guests.exact`` and ``guests.virtme`` each have a function that takes a machine, the job's text,
two folders and a watcher, and returns an :class:`Outcome`; whoever plans, judges and records runs
knows no more of a guest than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiment.plan import Size
from experiment.spec import Guest
from guests import channel, console
from host import limited

POLL_S = 0.1
# Beside the guest's memory: translated code, the plugin's tables, stacks.
OWN_MEMORY_BYTES = 8 << 30


@dataclass(frozen=True)
class Machine:
    """What is booted: kernel, initramfs, shape, the preparation's text, and the kernel's words."""

    kernel: Path
    initramfs: Path
    guest: Guest
    size: Size
    prepare_text: str
    preload: Path
    cmdline: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a run ended: files sent (None if none came), ending, and its cost.

    ``counts`` is what the probe wrote (``guests.probe.counts`` reads it), None for a
    run without one and for one that did not end by itself.
    """

    files: dict[str, bytes] | None
    ending: console.Ending
    cpu_s: float
    elapsed_s: float
    counts: bytes | None = None


def sent_files(result: Path) -> tuple[dict[str, bytes] | None, str]:
    """The files that a guest sent; None, and why, where its result is not whole."""
    try:
        return limited.call(channel.read, result), ""
    except (channel.ChannelError, limited.LimitError) as error:
        return None, str(error)


def ending_of(path: Path, *, agent_done: bool, clock: console.Clock) -> console.Ending:
    """How a guest ended, by its console; see :func:`guests.console.classify`."""
    try:
        return limited.call(console.ending, path, agent_done=agent_done, deadline=clock)
    except limited.LimitError as error:
        return console.Ending("hung", f"its console cannot be read: {error.what}")
