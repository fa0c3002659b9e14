"""What a console says happened: a pure function over its text, and patterns as data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

# A console, or a result, with more bytes is that of a guest that floods its host.
LARGEST = 64 << 20
# What is cut of a line before patterns see it: some take the square of its length.
LONGEST_LINE = 4096
CHUNK = 1 << 20
Kind = Literal[
    "done", "failed", "panic", "oops", "oom", "hung", "lost", "silent", "boot", "unreadable",
]  # fmt: skip


@dataclass(frozen=True)
class Ending:
    """How a guest ended: its kind, one sentence, and the lines that show it.

    ``by_clock`` says that one of the lab's clocks ended it, and no word of the kernel's;
    ``killed`` that QEMU was ended by a signal that no guest can cause.
    """

    kind: Kind
    message: str
    evidence: tuple[str, ...] = ()
    by_clock: bool = False
    killed: bool = False


# In order: the first pattern that is found names the ending.  An oops is looked
# for before the panic that panic_on_oops makes of it.
PATTERNS: tuple[tuple[Kind, str, re.Pattern[str]], ...] = (
    ("oom", "the kernel killed a process for memory",
     re.compile(r"Out of memory: Killed|Memory cgroup out of memory: Killed|invoked oom-killer")),
    ("oops", "the kernel oopsed",
     # Not "BUG: soft lockup"; and "general protection fault ip:" is a program's.
     re.compile(r"BUG: (?!soft lockup|workqueue lockup)|Oops: |general protection fault(?! ip:)|"
                r"kernel BUG at|Unable to handle kernel|KASAN: |"
                r"possible (?:circular|recursive) locking (?:dependency )?detected")),
    ("hung", "a task or CPU hung",
     re.compile(r"blocked for more than \d+ seconds|soft lockup|workqueue lockup|hard LOCKUP|"
                r"rcu: INFO: rcu_\w+ (?:self-)?detected")),
    ("panic", "the kernel panicked", re.compile(r"Kernel panic - not syncing")),
    ("failed", "the agent stopped", re.compile(r"twinboot: failed: ")),
)  # fmt: skip
EVIDENCE_LINES = 12
# The agent's last word, when all was sent.
DONE = "done"
READY = "ready"
# What QEMU prints where KVM gives a guest back that it cannot run; the guest then stands still.
KVM_ERROR = "KVM internal error"


Clock = Literal["", "boot", "silence", "run", "flood"]


class Follower:
    """A console that grows: read piece by piece, for the agent's ``word`` and its ``size``.

    ``ready`` is true once the agent said so.  ``kvm_error`` is the line, if there is one, in which
    QEMU says that KVM cannot go on; a guest may print the same.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.word = ""
        self.ready = False
        self.kvm_error = ""
        self._rest = b""

    def more(self) -> str:
        """Read what is new, and return the agent's last word."""
        try:
            with self.path.open("rb") as stream:
                stream.seek(self.size)
                while self.size <= LARGEST and (data := stream.read(CHUNK)):
                    self.size += len(data)
                    self._feed(data)
        except FileNotFoundError:
            pass
        return self.word

    def _feed(self, data: bytes) -> None:
        whole, newline, rest = (self._rest + data).rpartition(b"\n")
        for line in (whole + newline + rest).decode(errors="replace").splitlines():
            if word := progress(line[:LONGEST_LINE]):
                self.word = word
                self.ready = self.ready or word == READY
            if line.startswith(KVM_ERROR):
                self.kvm_error = line[:LONGEST_LINE].strip()
        self._rest = rest[:LONGEST_LINE]


def read(path: Path) -> str:
    """A console as patterns may see it: not too much of it, and of none of its lines.

    virtme-ng's terminal ports send carriage returns, which are left out.
    """
    with path.open("rb") as stream:
        text = stream.read(LARGEST).decode(errors="replace").replace("\r", "")
    return "".join(
        line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}\n"
        for line in text.splitlines(keepends=True)
    )


def ending(path: Path, *, agent_done: bool, deadline: Clock = "") -> Ending:
    """As :func:`classify`, of a console's file."""
    return classify(read(path), agent_done=agent_done, deadline=deadline)


def classify(console: str, *, agent_done: bool, deadline: Clock = "") -> Ending:
    """Say how a guest ended.

    ``agent_done`` is true when QEMU ended with the agent's own status;
    ``deadline`` names the clock that ended it, if one did.
    """
    lines = console.splitlines()
    for kind, message, pattern in PATTERNS:
        at = next((n for n, line in enumerate(lines) if pattern.search(line)), None)
        if at is not None and not (agent_done and kind == "failed"):
            return Ending(kind, f"{message}: {lines[at].strip()}", _around(lines, at))
    if agent_done:
        return Ending("done", "the agent finished")
    if deadline == "flood":
        return Ending("hung", "ended when its console or its result was too large")
    last = tuple(lines[-EVIDENCE_LINES:])
    if deadline == "boot" and "twinboot:" not in console:
        # "quiet" keeps "Booting SMP configuration" off the console: no word at all
        # is what a hang there looks like.
        where = "while bringing up vCPUs" if "Booting SMP" in console else "before its first word"
        return Ending(
            "boot",
            f"hung {where} (boot clock); with several vCPUs some kernels do under -icount: "
            "use 1 vCPU",
            last,
            by_clock=True,
        )
    if deadline == "boot":
        return Ending("boot", "timed out: the guest was not ready in time", last, by_clock=True)
    if deadline == "silence":
        return Ending("silent", "timed out: no output for too long", last, by_clock=True)
    if deadline == "run":
        return Ending("hung", "timed out: the run did not finish in time", last, by_clock=True)
    return Ending("lost", "QEMU ended before the agent reported anything", last)


def agent_done(status: int | None, expected: int, word: str) -> bool:
    """Whether QEMU ended with the status that it has when the agent ends the machine.

    A panic, too, ends in a machine that is switched off: where that gives the same
    status, 0, the agent's last word decides.
    """
    return status == expected and (expected != 0 or word == DONE)


def progress(console: str) -> str:
    """The agent's last word, for people who wait: ``phase 4k``; empty before the first."""
    words = [
        line.partition("twinboot: ")[2] for line in console.splitlines() if "twinboot: " in line
    ]
    return words[-1].strip() if words else ""


def _around(lines: list[str], at: int) -> tuple[str, ...]:
    return tuple(lines[max(0, at - 2) : at + EVIDENCE_LINES])
