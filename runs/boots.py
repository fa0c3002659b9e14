"""The seam between what judges a run and where it is booted, and what people are told meanwhile.

A judge knows what a boot is for; an executor only says how each guest ended.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from experiment.spec import Experiment
from guests import kept
from guests.channel import LARGEST
from guests.exact import Machine, Outcome
from guests.probe.plugin import Probe
from host.accelerator import AcceleratorTest
from host.doctor import DoctorCheck
from host.fitness import Placement
from kernels.make import MakeProgress
from text import clean, duration, printed

PLAIN_INTERVAL_S = 20.0
# Columns for what a guest says of itself.
WORD = 14
BAR = 40


class Reporter:
    """Progress of one lab invocation, on standard error; safe in several threads."""

    def __init__(self, stream: Console | None = None) -> None:
        self.console = stream or Console(stderr=True, highlight=False)
        self._lock = threading.RLock()
        self._running: dict[str, tuple[str, float]] = {}
        self._done = self._total = self._failed = self._slots = 0
        self._elapsed: list[float] = []
        self._is_live = False
        self._last_plain = 0.0

    def log(self, text: str) -> None:
        """One line that stays."""
        with self._lock:
            # Not wrapped where there is no terminal: a line that is searched for is one.
            self.console.print(Text(printed(text)), soft_wrap=not self.console.is_terminal)

    def building(self, name: str, so_far: MakeProgress) -> None:
        """A kernel build: commands run, of those of the last build like it, 0 if none is known."""
        done, total, elapsed_s = so_far.done, so_far.total, so_far.seconds
        if not total:
            share = f"{done} objects"
        elif done < total:
            share = f"{done} of about {total} objects"
        else:
            share = f"{done} objects, where the last build had {total}"
        left = f", about {duration(elapsed_s * (total - done) / done)} left" if done else ""
        self._transient(
            f"building {name}: {share}, {duration(elapsed_s)}{left if done < total else ''}"
        )

    @contextmanager
    def runs(self, total: int, done: int, slots: int) -> Iterator[None]:
        """The measuring stage: ``total`` runs of which ``done`` were there already."""
        with self._lock:
            self._total, self._done, self._slots = total, done, max(1, slots)
            # A guest of the checks takes ten times as long as a measured one.
            self._elapsed = []
        view = Live(get_renderable=self._render, console=self.console, refresh_per_second=4)
        with view if self.console.is_terminal else nullcontext():
            self._is_live = self.console.is_terminal
            try:
                yield
            finally:
                self._is_live = False

    def started(self, run_id: str) -> None:
        """A guest was started for ``run_id``."""
        with self._lock:
            self._running[run_id] = ("starting", time.monotonic())
        if not self.console.is_terminal:
            self.log(f"started  {run_id}")

    def reached(self, run_id: str, word: str) -> None:
        """The agent's last word for ``run_id``."""
        with self._lock:
            if word and run_id in self._running:
                self._running[run_id] = (clean(word, WORD), self._running[run_id][1])

    def finished(self, run_id: str, *, problem: str = "", counts: bool = True) -> None:
        """``run_id`` ended; ``problem`` is empty for a valid run."""
        with self._lock:
            # One that was kept was not started, and says nothing of how long the rest takes.
            is_kept = run_id not in self._running
            began = self._running.pop(run_id, ("", time.monotonic()))[1]
            if counts:
                self._done += 1
                self._elapsed += [] if is_kept else [time.monotonic() - began]
            self._failed += bool(problem)
            plain = not self.console.is_terminal
            state = f"{self._done} of {self._total} runs, {self.left()} left"
            if problem:
                self.log(f"failed   {run_id}: {problem}" + (f" ({state})" if plain else ""))
            elif plain and not is_kept:
                self.log(f"finished {run_id} in {duration(time.monotonic() - began)}; {state}")

    def left(self) -> str:
        """How long the rest will take, from the runs so far."""
        with self._lock:
            if not self._elapsed:
                return "unknown time"
            mean = sum(self._elapsed) / len(self._elapsed)
            return f"about {duration(mean * (self._total - self._done) / self._slots)}"

    def _render(self) -> Group:
        with self._lock:
            failed = f", {self._failed} failed" if self._failed else ""
            bar = Table.grid(padding=(0, 1))
            bar.add_row(
                f"{self._done} of {self._total} runs",
                ProgressBar(total=self._total, completed=self._done, width=BAR),
                f"{self.left()} left{failed}",
            )
            rows = [
                Text(f"  {run_id:<34} {word:<{WORD}} {duration(time.monotonic() - began)}")
                for run_id, (word, began) in sorted(self._running.items())
            ]
            return Group(*rows, bar)

    def _transient(self, text: str) -> None:
        text = clean(text)
        with self._lock:
            if self.console.is_terminal:
                sys.stderr.write(f"\r\x1b[2K{text[: self.console.width - 1]}")
                sys.stderr.flush()
            elif time.monotonic() - self._last_plain >= PLAIN_INTERVAL_S:
                self._last_plain = time.monotonic()
                self.console.print(Text(text), soft_wrap=True)

    def clear(self) -> None:
        """End a transient line."""
        if self.console.is_terminal:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


# Host trouble may pass; anything else is a function of the inputs and would only
# be the same again.
ATTEMPTS = 2
MIB = 1 << 20


@dataclass(frozen=True)
class Boot:
    """One guest to boot once.

    ``name`` is that of its folder of raw logs, ``group`` names what boots alike for people.
    A ``cold`` one is booted on its own; others may be restored from a snapshot of their
    machine.  A guest whose console grows beyond ``console_bytes`` is ended.  ``original`` is the
    boot whose bytes this one must have, None for none.
    """

    name: str
    group: str
    machine: Machine
    job_text: str
    cold: bool
    probe: Probe | None = None
    console_bytes: int = LARGEST
    original: Boot | None = None

    @property
    def repeats(self) -> str:
        """The name of the boot whose bytes this one must have; empty for none."""
        return self.original.name if self.original else ""

    @property
    def inputs(self) -> str:
        """Digest of all that what comes out of it is a function of.  Raises InfraError: no QEMU."""
        return kept.run_key(
            self.machine,
            self.job_text,
            self.probe,
            cold=self.cold,
            console_bytes=self.console_bytes,
        )


@dataclass(frozen=True)
class KeptRuns:
    """The kept runs of this host's cache and, read after those, of a shared folder or fsspec URL.

    With ``again`` every run is booted, and has to have the bytes of the kept one.  ``drawn`` are
    the kinds of which a kept run was booted anew by this call of the lab.
    """

    folder: Path
    shared: str = ""
    again: bool = False
    drawn: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Place:
    """Where boots leave what they say: the session's ``raw`` folder, and who is told.

    ``slots`` are guests at once, as :meth:`Executor.slots` said.
    """

    cache: Path
    raw: Path
    reporter: Reporter
    slots: int


class Judge(Protocol):
    """Who is told how each boot ended.  Both may be called from several threads."""

    def before(self, boot: Boot, outcome: Outcome) -> Collection[str]:
        """Names of the boots that must have been told before this one."""

    def receive(self, boot: Boot, outcome: Outcome, *, last: bool) -> bool:
        """How a boot ended, raw files in place; True (not of the ``last``) asks for another."""


class KeepingJudge(Judge, Protocol):
    """One whose runs may be kept for other sessions."""

    @property
    def good(self) -> Collection[str]:
        """Names of the runs that may be kept."""

    def drawn_with(self, boot: Boot) -> str:
        """Of kept runs with the same answer one is booted anew; empty for what is never kept."""


@dataclass(frozen=True)
class WallHost:
    """What runs wall guests here, where each shape (bench and arm) goes, and the host's checks."""

    accelerator: AcceleratorTest
    placements: Mapping[tuple[str, str], Placement | None]
    checks: tuple[DoctorCheck, ...]


class Executor(Protocol):
    """Where guests run."""

    @property
    def name(self) -> str:
        """As the command line has it, for people."""

    def slots(self, memory_mib: int, limit: int | None) -> int:
        """Guests of this memory (MiB) that run at once."""

    def boot(self, batches: Sequence[Sequence[Boot]], judge: Judge, place: Place) -> float:
        """Boot everything, tell the judge; return CPU seconds.  InfraError: it cannot boot."""

    def keeping(self) -> AbstractContextManager[Executor]:
        """The executor, with machines kept from call to call, for the looks of one session."""

    def require(self, experiment: Experiment) -> None:
        """Refuse a session that cannot be measured here.  Raises UsageError: says which can."""


MAX_FIELDS = 12
SHOWN = 80


def diverging(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> tuple[str, ...]:
    """What differs between two results: file, line, values; at most :data:`MAX_FIELDS`."""
    differences: list[str] = []
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second:
            differences.append(f"{name}: only in the {'first' if name in first else 'second'} run")
        elif first[name] != second[name]:
            sides = (first[name].splitlines(keepends=True), second[name].splitlines(keepends=True))
            pairs = enumerate(zip(*sides, strict=False), start=1)
            where = f"{len(sides[0])} against {len(sides[1])} lines"
            for number, (left, right) in pairs:
                if left != right:
                    where = f"line {number}{_values(left, right)}"
                    break
            differences.append(f"{name}: {where}")
    if len(differences) > MAX_FIELDS:
        return (*differences[:MAX_FIELDS], f"and {len(differences) - MAX_FIELDS} more files")
    return tuple(differences)


def _values(left: bytes, right: bytes) -> str:
    """Both values, cut to where they differ: lines of /proc/stat are long."""
    bare = left.rstrip(b"\r\n"), right.rstrip(b"\r\n")
    if bare[0] != bare[1]:
        left, right = bare
    shorter = min(len(left), len(right))
    at = next((n for n in range(shorter) if left[n] != right[n]), shorter)
    start, column = (0, "") if at < SHOWN else (at - SHOWN // 2, f", column {at + 1}")
    # Bytes, not text: replacement characters would look the same.
    first, other = (repr(line[start : start + SHOWN])[1:] for line in (left, right))
    return f"{column}: {first} against {other}"
