"""Other programs: the only door to them.  Nothing that the lab starts outlives it."""

from __future__ import annotations

import errno
import gc
import math
import os
import select
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

from errors import InfraError

# What the lab reads of a session lives until its report is written.  Looking for garbage among it
# as often as Python does by itself was a third of a report's CPU time.
THRESHOLDS = (50_000, 50, 100)


def collect_seldom() -> None:
    """Let this process look for garbage seldom, from here to its end."""
    gc.set_threshold(*THRESHOLDS)


Process: TypeAlias = subprocess.Popen[bytes]
# setpriv (util-linux) arms PR_SET_PDEATHSIG between fork and exec; a Python
# preexec_fn could do the same, but is not safe in a program with threads.
DEATH_SIGNAL_ARGV = ("setpriv", "--pdeathsig", "KILL", "--")
TAIL_LINES = 15


class TimedOutError(InfraError):
    """A child that did not end in time."""


@dataclass(frozen=True)
class Finished:
    """A child that has ended: its argv, status, output and cost."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    elapsed_s: float

    def tail(self) -> str:
        """The last lines of what it said, standard error first."""
        text = self.stderr.strip() or self.stdout.strip()
        return "\n".join(text.splitlines()[-TAIL_LINES:])


def paste(argv: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """Return ``argv`` as a line that can be pasted into a shell."""
    assignments = [f"{key}={shlex.quote(value)}" for key, value in sorted((env or {}).items())]
    return " ".join([*assignments, shlex.join(argv)])


def kill_group(process: Process) -> None:
    """Kill a child and everything it started, and reap it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def cpu_s(process: Process) -> float:
    """CPU seconds (user + system) a child has used so far; 0 when it is gone."""
    return cpu_s_of(process.pid)


def cpu_s_of(pid: int) -> float:
    """CPU seconds (user + system) of a process and all that it started; 0 when it is gone."""
    try:
        # The command's name may hold spaces: count fields behind its bracket.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    children: list[str] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # not every kernel lists them
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_s_of(int(child)) for child in children)


def ended(process: Process) -> bool:
    """Whether a child has ended; it is not reaped, so that its cost can still be read."""
    with suppress(ChildProcessError):
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return True


def wait_for_end(process: Process, timeout_s: float) -> None:
    """Return once a child has ended, or after so many seconds; it is not reaped."""
    try:
        end = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        select.select([end], [], [], timeout_s)
    finally:
        os.close(end)


@contextmanager
def spawn(
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> Iterator[Process]:
    """Start a child for one ``with``, whose group is gone then; InfraError: it is not installed."""
    with log.open("ab") as sink:
        process = _start(argv, stdout=sink, stderr=sink, env=env, cwd=cwd, pass_fds=pass_fds)
    try:
        yield process
    finally:
        kill_group(process)


def helper(argv: Sequence[str]) -> Process:
    """Start a child that is talked to by its standard input and output, and ends with the first.

    It gets no death signal: that is sent when the thread ends that started it, and others may
    be using it.
    Raises InfraError: it cannot be started.
    """
    try:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise InfraError(f"cannot be started: {error.strerror}", where=paste(argv)) from None


def run(
    argv: Sequence[str],
    *,
    timeout_s: float | tuple[float, float],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    stdin_text: str | None = None,
    check: bool = True,
    output: IO[bytes] | None = None,
) -> Finished:
    """Run a child to its end.

    With ``log`` its output is appended there and not returned, with ``output`` standard output is
    written there; ``env`` is added to the lab's own environment without git's variables.  A second
    number of ``timeout_s`` is for how long it may use no CPU time.
    Raises InfraError: not installed, deadline passed, or (with ``check``) a status other than 0;
    the message holds the command and the last lines.
    """
    started = time.monotonic()
    timeout_s, idle_s = timeout_s if isinstance(timeout_s, tuple) else (timeout_s, math.inf)
    stdout_text = stderr_text = ""
    if log is not None:
        with log.open("ab") as sink:
            sink.write(f"$ {paste(argv, env)}\n".encode())
            sink.flush()
            process = _start(argv, stdout=sink, stderr=sink, env=env, cwd=cwd)
    else:
        process = _start(
            argv,
            stdout=output or subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE if stdin_text is not None else subprocess.DEVNULL,
        )
    try:
        payload = stdin_text.encode() if stdin_text is not None else None
        out, err = _communicate(process, payload, timeout_s, idle_s)
        stdout_text = (out or b"").decode(errors="replace")
        stderr_text = (err or b"").decode(errors="replace")
    except subprocess.TimeoutExpired as late:
        what = f"timed out after {timeout_s:.0f} s"
        what = what if late.timeout >= timeout_s else f"did nothing for {idle_s:.0f} s"
        step = f"see {log}" if log else "run it by hand to see where it hangs"
        raise TimedOutError(what, where=paste(argv), next_step=step) from None
    finally:
        kill_group(process)
    if log is not None and process.returncode != 0:
        stderr_text = log.read_text(errors="replace")
    done = Finished(
        tuple(argv), process.returncode, stdout_text, stderr_text, time.monotonic() - started
    )
    if check and done.returncode != 0:
        next_step = f"see {log}" if log else "run it by hand"
        if os.strerror(errno.ENOSPC) in done.stderr:
            next_step = "./lab.py clean, or set TWINBOOT_CACHE to a larger disk"
        what = f"exit status {done.returncode}\n{done.tail()}"
        raise InfraError(what, where=paste(argv), next_step=next_step)
    return done


def _communicate(
    process: Process, payload: bytes | None, timeout_s: float, idle_s: float
) -> tuple[bytes | None, bytes | None]:
    """What a child writes; TimeoutExpired: of the deadline, or of ``idle_s``."""
    used, began = -1.0, time.monotonic()
    while True:
        left = max(0.0, began + timeout_s - time.monotonic())
        try:
            return process.communicate(payload, timeout=min(left, idle_s))
        except subprocess.TimeoutExpired:
            if left <= idle_s:
                raise subprocess.TimeoutExpired(process.args, timeout_s) from None
            before, used, payload = used, cpu_s(process), None
            if used == before:
                raise


def _start(
    argv: Sequence[str],
    *,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    env: Mapping[str, str] | None,
    cwd: Path | None,
    stdin: int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> Process:
    # What a hook of git's was started with names a repository, and hides every other.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    full_env = {**inherited, **(env or {})}
    for program in (DEATH_SIGNAL_ARGV[0], argv[0]):
        if shutil.which(program, path=full_env.get("PATH")) is None:
            raise InfraError(
                "program not found", where=program, next_step="./lab.py doctor names its package"
            )
    return subprocess.Popen(
        [*DEATH_SIGNAL_ARGV, *argv],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=full_env,
        cwd=cwd,
        start_new_session=True,
        pass_fds=pass_fds,
    )
