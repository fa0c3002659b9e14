"""The loop: a kernel tree measured again each time one of its files is saved."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.two_sessions import compare_two
from errors import LabError
from kernels.git_range import HEAD, changes_of, series_of
from kernels.symbols import changed_functions
from reports import forms, sessions
from reports.headline import is_decided
from results.coverage import suggest
from results.profile import stem
from results.session import MeasuredSession, open_session
from runs import session
from runs.boots import Reporter
from runs.building import build_arms
from runs.coverage import answer, workloads_for
from runs.request import Request, arguments
from runs.resolve import resolve_request
from runs.resolved import catalogue
from text import enumerated
from verbs.invocation import write_out
from verbs.options import CHECKOUT, SESSIONS
from verbs.session import make

if TYPE_CHECKING:
    from analysis.many import SessionComparison
    from kernels.cache import Kernel
    from runs.local import Options
    from runs.resolved import Resolved

# A look at a kernel's tree, 90,000 files, takes a fifth of a second of a core.
INTERVAL_S = 0.5
# Of a core's time, while guests want it.
SHARE = 0.1
# Calls of saved functions for an operation, from which on a workload shows a change of them.
OFTEN = 0.01
SAME = "nothing differs from the base"
# Whose kernel has no additions: which functions differ decides what is measured.
PLAIN = "syscalls"


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


def unexecuted(saved: Sequence[str], session: MeasuredSession) -> tuple[str, ...]:
    """The functions, where no phase of the session's guests has executed any; else none."""
    ran = {
        stem(function.name)
        for profile in session.profiles
        for phase in profile.phases
        for function in phase.kernel
        if function.instructions
    }
    return () if not ran or any(stem(name) in ran for name in saved) else tuple(saved)


@dataclass
class Loop:
    """Passes over one tree, each a session.

    ``last`` is that of the last verdict, ``kernel`` the tree's there, and ``workloads`` its.
    """

    tree: Tree
    request: Request
    on: Options
    reporter: Reporter
    last: Path | None = None
    kernel: Kernel | None = None
    workloads: str = ""

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
        request, resolved, kernel, saved = self.resolved()
        target, before = session.new_folder(SESSIONS, resolved.experiment), self.last

        def judged(comparison: SessionComparison, *, last: bool = False) -> None:
            if self.last == target:
                return
            now = open_session(target)
            pair = before and compare_two(open_session(before, counted=False), now)
            text = sessions.line(comparison, pair or None, unexecuted(saved, now))
            if last or is_decided(comparison):
                self.last, self.kernel = target, kernel
                self.workloads = request.workloads
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

    def resolved(self) -> tuple[Request, Resolved, Kernel, tuple[str, ...]]:
        """What is measured, the tree's kernel, and the functions whose code the save changed.

        The workload is the last verdict's where it executes these functions often enough, since its
        base is kept and "since the last save" is known, or else the one that executes most of them.
        Raises LabError: the kernel does not build; NoWorkloadError: nothing executes them.
        """
        tree, cache = self.tree.folder, self.on.cache
        dirty = bool(changes_of(tree, HEAD))
        of_tree = series_of(tree, "", base=self.tree.start, uncommitted=dirty, cache=cache)
        request = replace(self.request, series=of_tree.series, source=of_tree.source)
        resolved = self._resolved_as(replace(request, workloads=request.workloads or PLAIN))
        kernels = build_arms(resolved, self.on, self.reporter.building, resolved.flavours[0])
        base, kernel = (kernels[arm.spec.name] for arm in resolved.built)
        before = self.kernel or base
        changes = changed_functions(before.symbols, kernel.symbols)
        saved = tuple(change.name for change in changes)
        if request.workloads or kernel.identity.code_key == base.identity.code_key:
            return request, resolved, kernel, saved
        advice = answer(resolved, self.on)
        suggestion, chosen = advice.suggestion, advice.chosen
        if saved:
            suggestion = suggest(advice.coverage, saved, advice.files)
            chosen = workloads_for(suggestion, advice.files)
        ranked = [each.case.case for each in suggestion.candidates]
        often = {e.case.case for e in suggestion.candidates if e.calls_per_io >= OFTEN}
        stays = self.workloads in often
        best = self.workloads if stays else next(name for name in ranked if name in chosen)
        self.reporter.log(f"saved: {enumerated(saved)}; measured by {best}")
        request = replace(request, workloads=best)
        return request, self._resolved_as(request), kernel, saved

    def _resolved_as(self, request: Request) -> Resolved:
        return resolve_request(
            request,
            checkout=CHECKOUT,
            cache=self.on.cache,
            here=Path.cwd(),
            catalogue=catalogue(CHECKOUT),
        )
