"""The host we stand on: what this call of the lab works with, its scratch folders, and its guests.

As many guests at once as fit are booted, restored from snapshots taken first.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from filelock import FileLock, Timeout

from errors import InfraError
from experiment.spec import Experiment, KernelSpec
from guests import exact, kept
from guests.exact import BootError, Machine, Outcome, Snapshot
from host import facts
from kernels.build import KernelRequest
from runs.boots import ATTEMPTS, MIB, Boot, Executor, Judge, KeptRuns, Place

OWNER = "owner.lock"
RESERVE_BYTES = 1 << 30


@contextmanager
def workspace(cache: Path, needed_bytes: int) -> Iterator[Path]:
    """A new scratch folder, gone with the block; those of killed labs are removed first.

    Raises InfraError: less than ``needed_bytes`` and a reserve are free.
    """
    top = cache / "scratch"
    top.mkdir(parents=True, exist_ok=True)
    # One at a time: a folder just made is not yet its owner's to a sweep elsewhere.
    with FileLock(top.with_suffix(".lock")):
        for folder in top.glob("session-*"):
            # Not found: its owner has just left it.
            with suppress(Timeout, FileNotFoundError), FileLock(folder / OWNER, timeout=0):
                shutil.rmtree(folder, ignore_errors=True)
        require_space(top, needed_bytes)
        folder = Path(tempfile.mkdtemp(prefix="session-", dir=top))
        owner = FileLock(folder / OWNER)
        owner.acquire()
    try:
        yield folder
    finally:
        owner.release()
        shutil.rmtree(folder, ignore_errors=True)


def require_space(top: Path, needed_bytes: int) -> None:
    """Raise InfraError where less than ``needed_bytes`` and a reserve are free."""
    free = shutil.disk_usage(top).free
    if free < needed_bytes + RESERVE_BYTES:
        what = f"{free >> 20} MiB free, {(needed_bytes + RESERVE_BYTES) >> 20} MiB needed"
        step = "./lab.py clean, or set TWINBOOT_CACHE to a larger disk"
        raise InfraError(what, where=str(top), next_step=step)


CONSOLE = "console.log"


class InterruptedRunError(Exception):
    """The lab was asked to stop; runs under way are dropped, records are kept."""


@dataclass
class _Snapshots:
    """Snapshots by machine in a scratch folder that goes with ``held``; for many runs."""

    held: ExitStack
    scratch: Path | None = None
    by_machine: dict[Machine, Future[Snapshot]] = field(default_factory=dict)
    count: int = 0

    def folder(self, cache: Path, needed_bytes: int) -> Path:
        """The scratch folder, with room for so many bytes more; InfraError: there is none."""
        if self.scratch is None:
            self.scratch = self.held.enter_context(workspace(cache, needed_bytes))
        else:
            require_space(self.scratch, needed_bytes)
        return self.scratch

    def keep(self, machines: Collection[Machine]) -> None:
        """Drop the snapshots of all other machines, and those that could not be taken."""
        for machine, snapshot in list(self.by_machine.items()):
            failed = snapshot.cancelled() or snapshot.exception() is not None
            if failed or machine not in machines:
                del self.by_machine[machine]
                if not failed:
                    snapshot.result().drop()


@dataclass
class _Stage:
    """One call of ``boot``: the futures of its runs by name, and CPU seconds of its guests."""

    judge: Judge
    place: Place
    scratch: Path
    snapshots: _Snapshots
    stop: threading.Event = field(default_factory=threading.Event)
    runs: dict[str, Future[None]] = field(default_factory=dict)
    cpu_s: list[float] = field(default_factory=list)

    def make(self, batches: Sequence[Sequence[Boot]]) -> None:
        """Boot every batch and wait for it; what one raises stops the others, too."""
        slots = self.place.slots
        pool = ThreadPoolExecutor(max_workers=slots, thread_name_prefix="guest")
        # While what one sent is read, the next is booted; one more, as a repeat waits for its
        # original.
        readers = ThreadPoolExecutor(max_workers=slots + 1, thread_name_prefix="reader")
        try:
            running: Sequence[Future[None]] = ()
            earlier: Sequence[Boot] = ()
            for batch in batches:
                # A batch begins when a slot is free for it: snapshots of two are on disk.
                self.snapshots.keep({boot.machine for boot in (*earlier, *batch)})
                for boot in batch:
                    if boot.machine not in self.snapshots.by_machine and not boot.cold:
                        self.snapshots.count += 1
                        self.snapshots.by_machine[boot.machine] = pool.submit(
                            self._snapshot, boot, self.snapshots.count
                        )
                for boot in batch:
                    guest = pool.submit(self._run, boot)
                    self.runs[boot.name] = readers.submit(self._read, boot, guest, pool)
                _wait(running)
                running, earlier = [self.runs[boot.name] for boot in batch], batch
                _wait(running, but=slots - 1)
            _wait(running)
            self.snapshots.keep({boot.machine for boot in earlier})
        except BaseException:
            self.stop.set()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            readers.shutdown(wait=True, cancel_futures=True)

    def _snapshot(self, boot: Boot, number: int) -> Snapshot:
        name = f"snapshot {number} ({boot.group})"
        self.place.reporter.started(name)
        problem = "stopped"
        try:
            snapshot = kept.provide(
                boot.machine,
                self.place.cache,
                self.scratch / f"snapshot-{number}",
                self.place.raw / f"snapshot-{number}-{boot.group}",
                self._watch(name),
            )
            problem = ""
            self.cpu_s.append(snapshot.cpu_s)
            return snapshot
        except BootError as error:
            problem = error.ending.message
            raise
        finally:
            self.place.reporter.finished(name, problem=problem, counts=False)

    def _watch(self, name: str) -> Callable[[str], None]:
        def watch(word: str) -> None:
            if self.stop.is_set():
                raise InterruptedRunError
            self.place.reporter.reached(name, word)

        return watch

    def _run(self, boot: Boot) -> Outcome:
        if self.stop.is_set():
            raise InterruptedRunError
        self.place.reporter.started(boot.name)
        folder, logs = self.scratch / boot.name, self.place.raw / boot.name
        shutil.rmtree(folder, ignore_errors=True)
        try:
            snapshot = None if boot.cold else self.snapshots.by_machine[boot.machine].result()
            outcome = boot_guest(boot, snapshot, folder, logs, self._watch(boot.name))
        except BootError as error:
            outcome = Outcome(None, error.ending, 0.0, 0.0)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self.cpu_s.append(outcome.cpu_s)
        return outcome

    def _read(self, boot: Boot, guest: Future[Outcome], pool: ThreadPoolExecutor) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            outcome = guest.result()
            for name in self.judge.before(boot, outcome):
                if name in self.runs:
                    # Queued before this one, so it ends without it.
                    self.runs[name].result()
            if not self.judge.receive(boot, outcome, last=attempt == ATTEMPTS):
                return
            guest = pool.submit(self._run, boot)


def _wait(runs: Sequence[Future[None]], *, but: int = 0) -> None:
    """Wait for all runs but so many, and raise what one of those that ended raised."""
    for ended in islice(as_completed(runs), max(0, len(runs) - but)):
        ended.result()


@dataclass(frozen=True)
class LocalExecutor:
    """The host we stand on: threads, one a guest; ``snapshots`` outlive a call of ``boot``."""

    name: str = "local"
    snapshots: _Snapshots | None = field(default=None, compare=False, repr=False)

    @contextmanager
    def keeping(self) -> Iterator[LocalExecutor]:
        """As ``runs.boots.Executor.keeping``."""
        with ExitStack() as held:
            snapshots = _Snapshots(held)
            held.callback(snapshots.keep, ())
            yield replace(self, snapshots=snapshots)

    def slots(self, memory_mib: int, limit: int | None) -> int:
        """What the user said, or cores and memory allow; InfraError: none fits this host."""
        if memory_mib > (total := facts.memory_total_mib()):
            what = f"a guest has {memory_mib} MiB, and this host {total} with its swap"
            raise InfraError(what, where="memory", next_step="name a smaller guest: --guest NAME")
        return limit or facts.guests_at_once(memory_mib)

    def boot(self, batches: Sequence[Sequence[Boot]], judge: Judge, place: Place) -> float:
        """As ``runs.boots.Executor.boot``."""
        if self.snapshots is None:
            with self.keeping() as this_call:
                return this_call.boot(batches, judge, place)
        snapshots = self.snapshots
        booted = snapshots.by_machine
        batches = [batch for batch in batches if batch]
        # What the guests of two batches take: a snapshot of each machine without one, and those
        # that run.
        needed = 0
        for both in zip(batches, [*batches[1:], []], strict=True):
            boots = [boot for batch in both for boot in batch]
            machines = {boot.machine for boot in boots if not boot.cold}.difference(booted)
            snapshots_mib = sum(machine.guest.memory_mib for machine in machines)
            largest = max(boot.machine.guest.memory_mib for boot in boots)
            needed = max(needed, snapshots_mib + place.slots * largest)
        stage = _Stage(judge, place, snapshots.folder(place.cache, needed * MIB), snapshots)
        stage.make(batches)
        return sum(stage.cpu_s)

    def require(self, experiment: Experiment) -> None:
        """The host we stand on measures all."""


def boot_guest(
    boot: Boot, snapshot: Snapshot | None, folder: Path, logs: Path, watch: Callable[[str], None]
) -> Outcome:
    """Boot one guest in ``folder``, restored or cold; InfraError: QEMU does not start."""
    more = {"probe": boot.probe} if boot.probe else {}
    booted = boot.machine if snapshot is None else snapshot
    return exact.run(
        booted, boot.job_text, folder, logs, watch, console_bytes=boot.console_bytes, **more
    )


@dataclass(frozen=True)
class Options:
    """``checkout`` holds ``configs/``; ``guests_at_once`` None lets the lab choose.

    ``probe`` loads the plugin that counts into every run but those that check that
    it is not felt.  ``fit_only`` refuses to measure real time on a host with anything
    to mend.  ``executor`` is where guests run.  ``sandbox`` says whether
    patches are built in a box; None has those that came by mail built so, and those that change
    what a build executes.  ``trusted`` names series that may do that without one.  ``root`` is
    the initramfs that guests get in place of one of this host's programs.  ``kept`` are runs of
    other sessions that need not be made again, None where all are made.
    """

    checkout: Path
    cache: Path
    snapshot: bool = True
    measure_anyway: bool = False
    probe: bool = True
    fit_only: bool = False
    guests_at_once: int | None = None
    sandbox: bool | None = None
    trusted: tuple[str, ...] = ()
    root: Path | None = None
    kept: KeptRuns | None = None
    executor: Executor = field(default_factory=LocalExecutor)

    def kernel(
        self, spec: KernelSpec, patches: Sequence[Path], *, boxed: bool = False
    ) -> KernelRequest:
        """What to ask of ``kernels.build`` for a kernel of this call."""
        return KernelRequest(spec, patches, self.checkout, self.cache, boxed)
