"""The loop: a kernel tree measured again each time one of its files is saved."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.two_sessions import compare_two
from errors import LabError
from kernels.git_range import HEAD, changes_of, series_of
from reports import forms, sessions
from reports.headline import is_decided
from results.session import open_session
from runs import session
from runs.boots import Reporter
from runs.coverage import answer
from runs.request import Request, arguments
from runs.resolve import resolve_request
from runs.resolved import catalogue
from verbs.invocation import write_out
from verbs.options import CHECKOUT, SESSIONS
from verbs.session import make

if TYPE_CHECKING:
    from analysis.many import SessionComparison
    from runs.local import Options
    from runs.resolved import Resolved

# A look at a kernel's tree, 90,000 files, takes a fifth of a second of a core.
INTERVAL_S = 0.5
# Of a core's time, while guests want it.
SHARE = 0.1
SAME = "nothing differs from the base"


class LoopReporter(Reporter):
    """On a terminal what it says is gone with the next word: what stays is one line a verdict."""

    def log(self, text: str) -> None:
        """As ``runs.boots.Reporter.log``, of a terminal in its last line."""
        if not self.console.is_terminal:
            super().log(text)
        elif not self._is_live:
            self._transient(text.partition("\n")[0])


@dataclass
class Tree:
    """A kernel tree, the commit that its files are compared with, and when a save was seen."""

    folder: Path
    start: str
    saved_s: float = 0.0

    def changes(self) -> bytes:
        """What its files change of the commit."""
        return changes_of(self.folder, self.start)

    def saved(self, known: bytes) -> bytes:
        """Wait until the files are others than ``known``, and the same twice: how they are."""
        before = known
        while True:
            now = self.changes()
            if now == before != known:
                return now
            if before == known != now:
                self.saved_s = time.monotonic()
            before = now
            time.sleep(INTERVAL_S)

    @contextmanager
    def interrupting(self, known: bytes) -> Iterator[None]:
        """End the block, as an interrupt of the user's does, once the files are others."""
        left, saved = threading.Event(), threading.Event()
        waiting = threading.get_ident()
        # Not the user's own signal, which is ignored where the loop is begun in the background.
        signal.signal(signal.SIGUSR1, signal.default_int_handler)

        def watch() -> None:
            wait_s = INTERVAL_S
            while not left.wait(wait_s):
                began = time.monotonic()
                with suppress(LabError):  # git's, while files are written
                    if self.changes() != known:
                        saved.set()
                        signal.pthread_kill(waiting, signal.SIGUSR1)
                        return
                wait_s = max(INTERVAL_S, (time.monotonic() - began) / SHARE)

        thread = threading.Thread(target=watch, name="saves", daemon=True)
        thread.start()
        try:
            try:
                yield
            finally:
                left.set()
                thread.join()
        except KeyboardInterrupt:
            if not saved.is_set():
                raise
            thread.join()


@dataclass
class Loop:
    """Passes over one tree, each a session; ``last`` is that of the last verdict."""

    tree: Tree
    request: Request
    on: Options
    reporter: Reporter
    last: Path | None = None

    def run(self) -> None:
        """Measure the tree each time it is saved, until the user ends it."""
        known = b""
        while True:
            known = self.tree.saved(known)
            with self.tree.interrupting(known):
                try:
                    self.measure() if known else self.write_line(SAME)
                except LabError as error:
                    self.write_line(error.in_one_line)

    def write_line(self, text: str) -> None:
        """One line, with the time of day and how long ago the files were saved."""
        self.reporter.clear()
        took_s = time.monotonic() - self.tree.saved_s
        write_out(f"{time.strftime('%H:%M:%S')} {text}; {took_s:.0f} s", flush=True)

    def measure(self) -> None:
        """Measure the tree as it is, and say one line as soon as all is decided.

        Raises LabError: whatever planning, building and booting say; KeyboardInterrupt: passed on;
        the runs that were made are kept.
        """
        request, resolved = self.resolved()
        target, before = session.new_folder(SESSIONS, resolved.experiment), self.last

        def judged(comparison: SessionComparison, *, last: bool = False) -> None:
            if self.last == target:
                return
            pair = before and compare_two(open_session(before), open_session(target))
            text = sessions.line(comparison, pair or None)
            if last or is_decided(comparison):
                self.last = target
                self.write_line(text)
            else:
                self.reporter.log(f"so far {text}")

        words = arguments(request, here=Path.cwd(), checkout=CHECKOUT)
        building = self.reporter.building
        try:
            with session.locked(target):
                opened, store = session.start(
                    resolved, self.on, target, request.recorded, building, words
                )
                make(opened, self.on, store, self.reporter, judged)
                judged(forms.write_all(target), last=True)
        finally:
            # Of what was measured all is kept; of sessions only the last one with a verdict.
            if over := before if self.last == target else target:
                shutil.rmtree(over, ignore_errors=True)

    def resolved(self) -> tuple[Request, Resolved]:
        """What is measured: by the workload that executes most of what is changed."""
        tree, cache = self.tree.folder, self.on.cache
        dirty = bool(changes_of(tree, HEAD))
        of_tree = series_of(tree, "", base=self.tree.start, uncommitted=dirty, cache=cache)
        request = replace(self.request, series=of_tree.series, source=of_tree.source)
        resolved = self._resolved_as(request)
        if request.workloads or len(resolved.experiment.cases) == 1:
            return request, resolved
        advice = answer(resolved, self.on)
        ranked = [each.case.case for each in advice.suggestion.candidates]
        best = next(name for name in ranked if name in advice.chosen)
        request = replace(request, workloads=best)
        return request, self._resolved_as(request)

    def _resolved_as(self, request: Request) -> Resolved:
        return resolve_request(
            request,
            checkout=CHECKOUT,
            cache=self.on.cache,
            here=Path.cwd(),
            catalogue=catalogue(CHECKOUT),
        )
