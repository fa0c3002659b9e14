"""Boot an exact guest, stop it, keep it, restore it, and hear what it found.

At the agent's stop point a machine is continued (a cold run) or kept: its memory stays in a
nameless file in the host's memory, which a restored guest maps copy-on-write, its devices in a
small stream.  On a disk each page would be a block to find and write: a fifth of a boot's CPU time.

Every ``watch`` is called several times a second with the agent's last word; it may raise to end the
guest.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from errors import InfraError
from experiment.architecture import ARCHITECTURES
from experiment.spec import Guest
from guests import channel
from guests.argv import ExactFiles, environment, memory_files, qemu_argv
from guests.channel import POLL_S, Clock, Follower, Monitor, ending_of, sent_files
from guests.channel import Machine as Machine
from guests.channel import Outcome as Outcome
from guests.probe.plugin import Probe
from host import sandbox
from host.facts import HOST_RESERVE_MIB, memory_available_mib
from host.process import Process, cpu_s, ended, kill_group, spawn, wait_for_end

# A subsection: type byte 5, length of its name, the name, a version of 4 bytes,
# then the fields.  Those of timer/icount are two signed 64-bit big-endian numbers, nanoseconds that
# the clock was moved without executing any instruction, and instructions
# (vmstate_icount in QEMU's softmmu/cpu-timers.c, from 2.4 on the same).
HEADER = b"\x05\x0ctimer/icount"
VERSION_BYTES = 4
MIGRATION_TIMEOUT_S = 120.0
# preload.c makes a disturbed stop rare, not impossible; see _ExactGuest.save.
BOOT_ATTEMPTS = 5
# Signals that end a QEMU and that nothing in a guest can cause.
KILLED_BY = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
IGNORE_SHARED = [{"capability": "x-ignore-shared", "state": True}]
STREAM = "state"
# Of QEMU's box.  Before bwrap: it gives on by which signal QEMU ended, and not a status that a
# guest can end QEMU with as well.
BOX_TOOLS: tuple[sandbox.Tool, ...] = ("unshare", "bwrap")
BY_SIGNAL = 128
# How many times slower a guest is on a host that is as busy as hosts are.
BUSIEST_HOST = 10
MEMORY, COUNTS = "memory", "counts"
# As /proc/PID/maps has it behind "/memfd:".
IN_MEMORY = "twinboot"
# Of guests like one, for whose memory the host's has to have room: this one, those beside it, and
# what restored ones write.
GUESTS_OF_ROOM = 4


@dataclass(frozen=True)
class Snapshot:
    """A machine kept at its stop point: memory, device state, and what it cost.

    ``memory`` is what :func:`guests.argv.memory_files` takes; of ``held`` each is one of these
    in the host's memory, none where they are on the disk.
    """

    machine: Machine
    memory: Path
    state: Path
    cpu_s: float
    held: tuple[IO[bytes], ...] = ()

    def drop(self) -> None:
        """Give back what it takes; no guest can be restored from it any more."""
        for memory in self.held:
            memory.close()
        shutil.rmtree(self.memory.parent, ignore_errors=True)


class BootError(Exception):
    """A machine that did not come to its stop point; ``ending`` says how it ended."""

    def __init__(self, ending: channel.Ending) -> None:
        super().__init__(ending.message)
        self.ending = ending


def take_snapshot(
    machine: Machine, folder: Path, logs: Path, watch: Callable[[str], None]
) -> Snapshot:
    """Boot ``machine`` into a new folder and keep it at its stop point.

    Raises BootError: it did not get there; InfraError: no QEMU, or its clock was always moved.
    """
    used = 0.0
    for attempt in range(1, BOOT_ATTEMPTS + 1):
        place = folder / f"boot-{attempt}"
        with ExitStack() as kept:
            memory = new_memory(place, machine.guest, kept)
            with _booted(machine, place, logs, "", memory) as boot:
                boot.to_stop_point(watch)
                exact = boot.save()
                used += boot.cpu_s()
                if exact:
                    kept.pop_all()
                    return Snapshot(machine, boot.files.memory, boot.state, used, memory)
        shutil.rmtree(place)
    raise _disturbed(folder)


def run(
    booted: Machine | Snapshot,
    job_text: str,
    folder: Path,
    logs: Path,
    watch: Callable[[str], None],
    *,
    probe: Probe | None = None,
    console_bytes: int = channel.LARGEST,
) -> Outcome:
    """Run a job on a machine that is booted first (from cold), or restored at its stop point.

    A machine that ends early is an :class:`Outcome` too, not an exception.  With ``probe`` the run
    is counted, and its result is the same.  A guest whose console has more than ``console_bytes``
    is ended.  Raises InfraError as for :func:`take_snapshot`.
    """
    if isinstance(booted, Snapshot):
        with _booted(
            booted.machine, folder, logs, job_text, booted.held, snapshot=booted, probe=probe
        ) as boot:
            boot.console_bytes = console_bytes
            boot.monitor.command("migrate-set-capabilities", capabilities=IGNORE_SHARED)
            # Announcing itself to a network takes timers of the host's clock, which end turns.
            boot.monitor.command("migrate-set-parameters", **{"announce-rounds": 0})
            boot.load(booted.state)
            return boot.to_end(watch)
    for attempt in range(1, BOOT_ATTEMPTS + 1):
        place = folder / f"boot-{attempt}"
        with ExitStack() as kept:
            memory = new_memory(place, booted.guest, kept)
            with _booted(booted, place, logs, job_text, memory, probe=probe) as boot:
                boot.console_bytes = console_bytes
                try:
                    boot.to_stop_point(watch)
                except BootError as error:
                    return Outcome(None, error.ending, boot.cpu_s(), boot.elapsed_s())
                if boot.save():
                    return boot.to_end(watch)
        shutil.rmtree(place)
    raise _disturbed(folder)


@dataclass
class _ExactGuest:
    """One QEMU process with its clocks; ``counts`` is where its probe writes."""

    machine: Machine
    files: ExactFiles
    process: Process
    monitor: Monitor
    started: float
    counts: Path | None
    follower: Follower
    console_bytes: int = channel.LARGEST

    @property
    def state(self) -> Path:
        """Where the device state is saved."""
        return self.files.memory.with_name("state")

    def save(self) -> bool:
        """Save the device state of the stopped machine; False when its clock was moved.

        At a stop QEMU's main loop may find the vCPU stopped before it knows that
        the machine is, takes it for idle, and moves the clock to the next timer.
        With one vCPU that never halts nothing else moves it, so any warp is that.
        """
        self.monitor.command("migrate-set-capabilities", capabilities=IGNORE_SHARED)
        source, sink = os.pipe()
        with ThreadPoolExecutor(1) as reader, os.fdopen(source, "rb") as pipe:
            # QEMU holds the only writing end, so the stream ends with QEMU at the latest.
            try:
                reading = reader.submit(pipe.read)
                self.monitor.give_file(STREAM, sink)
            finally:
                os.close(sink)
            self.monitor.command("migrate", uri=f"fd:{STREAM}")
            self.monitor.await_migration(MIGRATION_TIMEOUT_S)
            state = reading.result()
        self.state.write_bytes(state)
        _, header, fields = state.partition(HEADER)
        fields = fields[VERSION_BYTES:][:16]
        if not header or len(fields) < 16:
            # QEMU ran without -icount, or its format changed.
            raise InfraError("no icount state in the migration stream")
        warped_ns = int.from_bytes(fields[:8], "big", signed=True)
        return self.machine.guest.vcpus > 1 or warped_ns == 0

    def load(self, state: Path) -> None:
        """Read the device state of a machine that waits for it."""
        # A pipe, as for saving: newer QEMUs want a plain file to be named in another way.
        source, sink = os.pipe()

        def write(data: bytes) -> None:
            # What QEMU does not want to read is said by QEMU.
            with suppress(BrokenPipeError), os.fdopen(sink, "wb") as pipe:
                pipe.write(data)

        with ThreadPoolExecutor(1) as writer:
            with os.fdopen(source, "rb"):
                self.monitor.give_file(STREAM, source)
            written = writer.submit(write, state.read_bytes())
            self.monitor.command("migrate-incoming", uri=f"fd:{STREAM}")
            self.monitor.await_migration(MIGRATION_TIMEOUT_S)
            written.result()

    def elapsed_s(self) -> float:
        return time.monotonic() - self.started

    def cpu_s(self) -> float:
        return cpu_s(self.process)

    def moment(self) -> tuple[float, float]:
        """Now, for :meth:`waited_s`."""
        return time.monotonic(), self.cpu_s()

    def waited_s(self, since: tuple[float, float]) -> float:
        """CPU seconds that QEMU used since; one that gets no CPU is not waited for for ever."""
        monotonic, used = since
        return max(self.cpu_s() - used, (time.monotonic() - monotonic) / BUSIEST_HOST)

    def to_stop_point(self, watch: Callable[[str], None]) -> None:
        limit_s, began = self.machine.guest.boot_timeout_s, self.moment()
        self.monitor.command("cont")

        def give_up() -> bool:
            watch(self.follower.more())
            return ended(self.process) or self.waited_s(began) > limit_s or self._floods()

        if not self.monitor.await_stop(give_up):
            gone = ended(self.process)
            clock: Clock = "" if gone else "flood" if self._floods() else "boot"
            raise BootError(ending_of(self.files.console, agent_done=False, clock=clock))

    def to_end(self, watch: Callable[[str], None]) -> Outcome:
        self.monitor.command("cont")
        clock = self._wait(watch)
        used = self.cpu_s()
        kill_group(self.process)
        files: dict[str, bytes] | None = None
        status, board = self.process.returncode, ARCHITECTURES[self.machine.guest.arch].board
        done = channel.agent_done(status, board.done_status, self.follower.more())
        ending = ending_of(self.files.console, agent_done=done, clock=clock)
        if done:
            files, broken = sent_files(self.files.result)
            if broken:
                ending = channel.Ending("unreadable", broken, ending.evidence)
        elif not clock and status is not None and {-status, status - BY_SIGNAL} & KILLED_BY:
            ending = replace(ending, killed=True)
        counts = self.counts.read_bytes() if done and self.counts else None
        return Outcome(files, ending, used, self.elapsed_s(), counts)

    def _wait(self, watch: Callable[[str], None]) -> Clock:
        guest, began = self.machine.guest, self.moment()
        last_size, grown = -1, began
        while not ended(self.process):
            wait_for_end(self.process, POLL_S)
            watch(self.follower.more())
            size = self.follower.size + self.files.result.stat().st_size
            if size != last_size:
                last_size, grown = size, self.moment()
            if self._floods():
                return "flood"
            if self.waited_s(grown) > guest.silence_timeout_s:
                return "silence"
            if self.waited_s(began) > guest.run_timeout_s:
                return "run"
        return ""

    def _floods(self) -> bool:
        result = self.files.result.stat().st_size
        return self.follower.size > self.console_bytes or result > channel.LARGEST


def _disturbed(folder: Path) -> InfraError:
    what = f"the virtual clock was moved by the host in {BOOT_ATTEMPTS} boots"
    step = "this QEMU stops guests in another way than those known: ./lab.py doctor"
    return InfraError(what, where=str(folder), next_step=step)


def new_memory(folder: Path, guest: Guest, kept: ExitStack) -> tuple[IO[bytes], ...]:
    """Nameless files for a guest's memory, closed with ``kept``; none where there is no room."""
    paths = memory_files(folder / MEMORY, guest)
    for path in paths:
        # QEMU does not clear a memory file that is there already: old bytes would
        # leak into the guest.
        if path.exists():
            raise InfraError("memory file is there already", where=str(path))
    if memory_available_mib() < GUESTS_OF_ROOM * guest.memory_mib + HOST_RESERVE_MIB:
        return ()
    return tuple(kept.enter_context(os.fdopen(os.memfd_create(IN_MEMORY), "rb")) for _ in paths)


def files_of(
    machine: Machine, folder: Path, logs: Path, snapshot: Snapshot | None = None
) -> ExactFiles:
    """Where the files of one boot are: what only it needs in ``folder``, the rest in ``logs``."""
    folder, logs = folder.absolute(), logs.absolute()
    return ExactFiles(
        kernel=machine.kernel.absolute(),
        initramfs=machine.initramfs.absolute(),
        memory=snapshot.memory if snapshot and not snapshot.held else folder / MEMORY,
        memory_shared=snapshot is None,
        console=logs / "console.log",
        result=logs / "result",
        prepare=folder / "prepare",
        job=folder / "job",
    )


def _box(
    machine: Machine, files: ExactFiles, folder: Path, probe: Probe | None, shared: tuple[Path, ...]
) -> sandbox.Box | None:
    """Where QEMU sees the files of its boot (and ``shared`` memory) alone; None without boxes."""
    qemu = ARCHITECTURES[machine.guest.arch].board.qemu
    tool = sandbox.available(BOX_TOOLS)
    if tool is None or shutil.which(qemu) is None:
        return None
    cpu_s = int(2 * (machine.guest.boot_timeout_s + machine.guest.run_timeout_s))
    readable = [files.kernel, files.initramfs, machine.preload.absolute()]
    readable += [path.absolute() for path in (probe.path, probe.functions) if path] if probe else []
    # Of a QEMU that is not the system's: its program, libraries and firmware.
    places, beside = sandbox.programs(qemu), ("lib", "lib64", "share/qemu")
    installed = [*places, *(place.parent / name for place in places for name in beside)]
    return sandbox.Box(
        tool,
        writable=tuple((place, place) for place in (folder, files.console, files.result)),
        readable=(*readable, *installed),
        limits=channel.limits(machine.guest, cpu_s),
        # QEMU maps it copy-on-write, but opens it for writing.
        shared=shared,
        allowed=("socket", "socketpair"),
    )


@contextmanager
def _booted(
    machine: Machine,
    folder: Path,
    logs: Path,
    job_text: str,
    memory: tuple[IO[bytes], ...],
    *,
    snapshot: Snapshot | None = None,
    probe: Probe | None = None,
) -> Iterator[_ExactGuest]:
    folder.mkdir(parents=True, exist_ok=True)
    logs.mkdir(parents=True, exist_ok=True)
    files = files_of(machine, folder, logs, snapshot)
    for path, held in zip(memory_files(files.memory, machine.guest), memory, strict=False):
        # QEMU gets the file under the same number.
        path.symlink_to(f"/proc/self/fd/{held.fileno()}")
    files.prepare.write_text(machine.prepare_text)
    files.job.write_text(job_text or "\n" * len(machine.prepare_text))
    for path in (files.console, files.result):
        path.write_bytes(b"")
    ram = f"/memfd:{IN_MEMORY}" if files.memory.is_symlink() else str(files.memory)
    counts = folder.absolute() / COUNTS if probe else None
    ours, theirs = socket.socketpair()
    argv = qemu_argv(
        machine.guest,
        machine.size,
        files,
        monitor_fd=theirs.fileno(),
        incoming=snapshot is not None,
        plugin=probe.argument(counts, ram) if probe and counts else "",
        cmdline=machine.cmdline,
    )
    variables = environment(machine.preload.absolute(), machine.guest)
    on_disk = memory_files(files.memory, machine.guest) if snapshot and not memory else ()
    box = _box(machine, files, folder.absolute(), probe, on_disk)
    if box is not None:
        # Of QEMU alone, and of nothing that makes its box.
        inside = ["env", *(f"{name}={value}" for name, value in variables.items()), *argv]
        argv, variables = box.argv(inside, folder.absolute()), {}
    started, qemu_log = time.monotonic(), logs / "qemu.log"
    passed = [theirs.fileno(), *(each.fileno() for each in memory)]
    with (
        ours,
        box.owned() if box else nullcontext(),
        spawn(argv, log=qemu_log, env=variables, pass_fds=passed) as process,
    ):
        theirs.close()
        monitor = Monitor(ours)
        try:
            try:
                monitor.connect()
            except InfraError:
                what = f"QEMU did not start: {qemu_log.read_text(errors='replace').strip()[-500:]}"
                raise InfraError(what, where=str(qemu_log), next_step="./lab.py doctor") from None
            follower = Follower(files.console)
            yield _ExactGuest(machine, files, process, monitor, started, counts, follower)
        finally:
            kill_group(process)
            monitor.close()
