"""What is running, how far, how long yet: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from kernels.make import MakeProgress
from text import clean, clean_lines

PLAIN_INTERVAL_S = 20.0
# Columns for what a guest says of itself.
WORD = 14


def duration(seconds: float) -> str:
    """``75`` → ``1m15s``."""
    whole = max(0, round(seconds))
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"


class Reporter:
    """Progress of one lab invocation, on standard error.

    The lab's stages call it from several threads; every method is safe there.
    """

    def __init__(self, stream: Console | None = None) -> None:
        self.console = stream or Console(stderr=True, highlight=False)
        self._lock = threading.RLock()
        self._running: dict[str, tuple[str, float]] = {}
        self._done = self._total = self._failed = self._slots = 0
        self._elapsed: list[float] = []
        self._live: Live | None = None
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._last_plain = 0.0

    def log(self, text: str) -> None:
        """One line that stays."""
        with self._lock:
            # Not wrapped where there is no terminal: a line that is searched for is one.
            self.console.print(Text(clean_lines(text)), soft_wrap=not self.console.is_terminal)

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
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.completed:.0f} of {task.total:.0f} runs"),
                BarColumn(),
                TextColumn("{task.description}"),
                console=self.console,
            )
            self._task = self._bar.add_task("", total=total, completed=done)
            with Live(
                get_renderable=self._render, console=self.console, refresh_per_second=4
            ) as live:
                self._live = live
                try:
                    yield
                finally:
                    self._live = None
        else:
            yield

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
            began = self._running.pop(run_id, ("", time.monotonic()))[1]
            if counts:
                self._done += 1
                self._elapsed.append(time.monotonic() - began)
            self._failed += bool(problem)
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=self._done)
            plain = not self.console.is_terminal
            state = f"{self._done} of {self._total} runs, {self.left()} left"
            if problem:
                self.log(f"failed   {run_id}: {problem}" + (f" ({state})" if plain else ""))
            elif plain:
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
            assert self._bar is not None
            if self._task is not None:
                failed = f", {self._failed} failed" if self._failed else ""
                self._bar.update(self._task, description=f"{self.left()} left{failed}")
            rows = [
                Text(f"  {run_id:<34} {word:<{WORD}} {duration(time.monotonic() - began)}")
                for run_id, (word, began) in sorted(self._running.items())
            ]
            return Group(*rows, self._bar)

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
