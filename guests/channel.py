"""A guest that runs and how it ended: its results, its console, and QEMU's monitor."""

from __future__ import annotations

import gzip
import hashlib
import io
import logging
import re
import socket
import tarfile
import time
import tomllib
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from qemu.qmp import QMPError
from qemu.qmp.legacy import QEMUMonitorProtocol

from errors import InfraError
from experiment.plan import Size
from experiment.spec import Guest
from host import limited
from host.sandbox import Limits
from results import door

MAGIC = b"TWINBOOT1"
MAX_BYTES = 64 << 20
MAX_DIGITS = 12
HEADER_BYTES = 256


class ChannelError(InfraError):
    """Nothing, not all, or something else came through."""


def read_result(path: Path) -> dict[str, bytes]:
    """As :func:`decode`, of a file, which is no link and no larger than a result may be."""
    try:
        return decode(door.read(path.parent, path.name, MAX_BYTES + HEADER_BYTES))
    except door.StoreError as error:
        raise ChannelError(error.what) from None


def decode(data: bytes) -> dict[str, bytes]:
    """Path → content of every file sent; ChannelError: no header, not whole, or no archive."""
    header, newline, payload = data.partition(b"\n")
    fields = header.split()
    well_formed = newline and len(fields) >= 3 and fields[0] == MAGIC and fields[1].isdigit()
    if not well_formed or len(fields[1]) > MAX_DIGITS:
        raise ChannelError(f"no result header in {len(data)} bytes")
    length, digest = int(fields[1]), fields[2].decode(errors="replace")
    if len(payload) != length:
        raise ChannelError(f"{len(payload)} of {length} bytes arrived")
    if hashlib.sha256(payload).hexdigest() != digest:
        raise ChannelError("checksum of the result does not match")
    try:
        with gzip.open(io.BytesIO(payload)) as stream:
            plain = stream.read(MAX_BYTES + 1)
        if len(plain) > MAX_BYTES:
            raise ChannelError(f"result larger than {MAX_BYTES} bytes")
        files, room = {}, MAX_BYTES
        # Read member by member and never extracted: a guest names no path of the host.
        # "r:" looks for no second compression within.
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
            for member in archive:
                # A sparse member may say any size.
                if not 0 <= member.size <= room:
                    raise ChannelError(f"result larger than {MAX_BYTES} bytes")
                room -= member.size
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None:
                    files[member.name.removeprefix("./")] = content.read()
        return files
    except ChannelError:
        raise
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise ChannelError(f"not a gzip'ed tar: {error}") from None
    except (ArithmeticError, LookupError, ValueError) as error:
        # tarfile lets through what int() and the like say to a damaged header.
        raise ChannelError(f"not a gzip'ed tar: {error!r}") from None


def fingerprint(files: dict[str, bytes]) -> str:
    """SHA-256 over names and contents of all files, in order of name."""
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(f"{name}\0{len(files[name])}\0".encode())
        total.update(files[name])
    return total.hexdigest()


# A console, or a result, with more bytes is that of a guest that floods its host.
LARGEST = 64 << 20
# What is cut of a line before patterns see it: some take the square of its length.
LONGEST_LINE = 4096
# Of a console with more lines these are left out in the middle; an honest one has some thousands.
MOST_LINES = 100_000
CHUNK = 1 << 20
Kind = Literal[
    "done",
    "failed",
    "panic",
    "oops",
    "oom",
    "hung",
    "lost",
    "silent",
    "boot",
    "unreadable",
    "inexact",  # of another worker's run
]


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


ENDINGS = tomllib.loads(Path(__file__).with_name("endings.toml").read_text(encoding="utf-8"))
# In order: the first pattern that is found names the ending.
PATTERNS: tuple[tuple[Kind, str, re.Pattern[str]], ...] = tuple(
    (each["kind"], each["message"], re.compile("|".join(each["patterns"])))
    for each in ENDINGS["endings"]
)
# How a guest ended that one of the lab's clocks ended.
TIMED_OUT: dict[str, tuple[Kind, str]] = {
    "boot": ("boot", "the guest was not ready in time"),
    "silence": ("silent", "no output for too long"),
    "run": ("hung", "the run did not finish in time"),
}
EVIDENCE_LINES = 12
# The agent's last word, when all was sent.
DONE = "done"
READY = "ready"
# What QEMU prints where KVM gives a guest back that it cannot run; the guest then stands still.
KVM_ERROR = "KVM internal error"
# Both, found in a console without a string for each of its lines.
WORDS = re.compile(
    rf"twinboot: (?P<agent>[^\r\n]{{0,{LONGEST_LINE}}}).*"
    rf"|^(?P<kvm>{KVM_ERROR}[^\r\n]{{0,{LONGEST_LINE}}})",
    re.MULTILINE,
)


Clock = Literal["", "boot", "silence", "run", "flood"]


class Follower:
    """A console that grows: read_console piece by piece, for the agent's ``word`` and its ``size``.

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
        for match in WORDS.finditer((whole + newline + rest).decode(errors="replace")):
            self.kvm_error = match["kvm"] or self.kvm_error
            if word := (match["agent"] or "").strip():
                self.word = word
                self.ready = self.ready or word == READY
        self._rest = rest[:LONGEST_LINE]


def read_console(path: Path) -> str:
    """A console as patterns may see it: with bounds, and no line breaks but that of a kernel."""
    with path.open("rb") as stream:
        text = stream.read(LARGEST).translate(None, b"\r\v\f\x1c\x1d\x1e").decode(errors="replace")
    for other in "\x85\u2028\u2029":
        text = text.replace(other, "")
    lines = text.split("\n", MOST_LINES // 2)
    rest = lines.pop().rsplit("\n", MOST_LINES // 2)
    if between := rest[0].count("\n"):
        rest[0] = f"({between + 1} lines left out)"
    return "\n".join(line[:LONGEST_LINE] for line in lines + rest)


def ending(path: Path, *, agent_done: bool, deadline: Clock = "") -> Ending:
    """As :func:`classify`, of a console's file."""
    return classify(read_console(path), agent_done=agent_done, deadline=deadline)


def classify(console: str, *, agent_done: bool, deadline: Clock = "") -> Ending:
    """How a guest ended: by its status (``agent_done``), a clock (``deadline``) or its words."""
    lines = console.splitlines()
    for kind, message, pattern in PATTERNS:
        at = next((n for n, line in enumerate(lines) if pattern.search(line)), None)
        if at is not None and not (agent_done and kind == "failed"):
            around = tuple(lines[max(0, at - 2) : at + EVIDENCE_LINES])
            return Ending(kind, f"{message}: {lines[at].strip()}", around)
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
    if deadline:
        kind, what = TIMED_OUT[deadline]
        return Ending(kind, f"timed out: {what}", last, by_clock=True)
    return Ending("lost", "QEMU ended before the agent reported anything", last)


def agent_done(status: int | None, expected: int, word: str) -> bool:
    """Whether QEMU ended as the agent ends it; where any end is 0 its last word decides."""
    return status == expected and (expected != 0 or word == DONE)


logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)
EVENT_WAIT_S = 0.5
MIGRATION_POLL_S = 0.02


class Monitor:
    """One QMP connection, used by one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._qmp = QEMUMonitorProtocol(sock)

    def connect(self) -> None:
        """Negotiate capabilities.  Raises InfraError: QEMU ended before it answered."""
        try:
            self._qmp.connect()
        except (TimeoutError, QMPError, OSError, EOFError) as error:
            raise InfraError(f"QEMU did not start: {error}", where="QMP") from None

    def command(self, name: str, **arguments: object) -> Any:
        """Send one command to a stopped guest; InfraError: refused, or QEMU is gone."""
        try:
            return self._qmp.cmd(name, **arguments)
        except (TimeoutError, QMPError, OSError, EOFError) as error:
            raise InfraError(f"{name}: {error}", where="QMP") from None

    def give_file(self, name: str, fd: int) -> None:
        """Let QEMU have a copy of an open file, by name; InfraError as of :meth:`command`."""
        try:
            self._qmp.send_fd_scm(fd)
        except (QMPError, OSError, EOFError) as error:
            raise InfraError(f"getfd: {error}", where="QMP") from None
        self.command("getfd", fdname=name)

    def await_stop(self, give_up: Callable[[], bool]) -> bool:
        """Wait for the guest's own stop; False when ``give_up`` says so or QEMU is gone."""
        while not give_up():
            try:
                event = self._qmp.pull_event(wait=EVENT_WAIT_S)
            except TimeoutError:
                continue
            except (QMPError, OSError, EOFError):
                return False
            if event is not None and event["event"] == "STOP":
                return True
        return False

    def await_migration(self, timeout_s: float) -> None:
        """Wait for a migration in either direction; InfraError: it failed or is late."""
        deadline = time.monotonic() + timeout_s
        status = ""
        while time.monotonic() < deadline:
            status = self.command("query-migrate").get("status", "")
            if status == "completed":
                return
            if status in ("failed", "cancelled"):
                break
            time.sleep(MIGRATION_POLL_S)
        raise InfraError(f"migration {status or 'did not start'}", where="QMP")

    def close(self) -> None:
        """Let go of the connection; QEMU may be gone already."""
        with suppress(Exception):
            self._qmp.close()


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


def limits(guest: Guest, cpu_s: int) -> Limits:
    """What QEMU may take for a guest: its size is known, and what others leave is no measure."""
    memory_bytes = guest.memory_mib << 20
    whole = memory_bytes + OWN_MEMORY_BYTES
    most = max(memory_bytes, 2 * LARGEST)
    return Limits(cpu_s=cpu_s, memory_bytes=whole, file_bytes=most, all_memory_bytes=whole)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: files sent (None if none came), ending, and its cost.

    ``counts`` is what the probe wrote (``guests.probe.counts`` reads it), None for a
    run without one and for one that did not end by itself.  ``inputs`` is the digest of all that
    an exact run is a function of, ``host`` the one that made it where it was not this one, and
    ``kept_at`` the date (UTC) it was made where that was for another session.
    """

    files: dict[str, bytes] | None
    ending: Ending
    cpu_s: float
    elapsed_s: float
    counts: bytes | None = None
    inputs: str = ""
    host: str = ""
    kept_at: str = ""


def sent_files(result: Path) -> tuple[dict[str, bytes] | None, str]:
    """The files that a guest sent; None, and why, where its result is not whole."""
    try:
        return limited.call(read_result, result), ""
    except (ChannelError, limited.LimitError) as error:
        return None, str(error)


def ending_of(path: Path, *, agent_done: bool, clock: Clock) -> Ending:
    """How a guest ended, by its console; see :func:`classify`."""
    try:
        return limited.call(ending, path, agent_done=agent_done, deadline=clock)
    except limited.LimitError as error:
        return Ending("hung", f"its console cannot be read: {error.what}")
