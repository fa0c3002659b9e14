"""Run make with its progress told, and leave nothing of it behind, however the lab ends."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from errors import InfraError
from host.process import TimedOutError, paste, run, spawn, wait_for_end

POLL_S = 0.2
DYING_TIMEOUT_S = 600.0
# One line for each command kbuild runs: "  CC      mm/filemap.o".
STEP = re.compile(rb"^  [A-Z][A-Z0-9_]* +\S", re.M)

# When the lab is killed, the kernel kills the one process that the lab started.
# That must not be make: its sub-makes would go on and write objects of this arm
# while the next lab process builds another.  So it is a shell whose child, told
# of its death, kills the whole group.
OUTER = 'inner=$1; shift; setpriv --pdeathsig TERM -- sh -c "$inner" sh "$$" "$@"; exit $?'
INNER = 'trap "kill -KILL 0" TERM; test "$PPID" = "$1" || exit 1; shift; "$@" & wait $!'


class LogError(InfraError):
    """A make that prints more than any build of a kernel."""


@dataclass(frozen=True)
class MakeProgress:
    """How far a build is: commands run, those of the last one like it, seconds so far.

    ``total`` is 0 where no such build is known, and may be less than ``done``.
    """

    done: int
    total: int
    seconds: float


def wait_until_idle(busy: Path) -> None:
    """Wait until no process of an earlier ``run_make`` lives.

    Raises:
        InfraError: one is still there after ten minutes.
    """
    run(["flock", str(busy), "true"], timeout_s=DYING_TIMEOUT_S)


def run_make(
    argv: Sequence[str],
    *,
    cwd: Path,
    log: Path,
    most_log_bytes: int,
    busy: Path,
    timeout_s: float,
    expected: int = 0,
    progress: Callable[[MakeProgress], None] | None = None,
) -> tuple[int, int]:
    """Run one make, its output appended to ``log``; return its status and number of steps.

    ``busy`` is locked while any process of it lives, so that a make waits for
    the last ones of a predecessor that is being killed.

    Raises:
        TimedOutError: the deadline passed.
        LogError: it prints more than ``most_log_bytes``, to which the log is cut.
    """
    with log.open("ab") as sink:
        sink.write(f"$ cd {cwd} && {paste(argv)}\n".encode())
    started = time.monotonic()
    steps = 0
    guarded = ["sh", "-c", OUTER, "sh", INNER, "flock", "-F", str(busy), *argv]
    try:
        with log.open("rb") as output, spawn(guarded, log=log, cwd=cwd) as process:
            output.seek(0, 2)
            rest = b""
            ended = False
            while not ended:
                ended = process.poll() is not None
                if log.stat().st_size > most_log_bytes:
                    raise LogError(f"prints more than {most_log_bytes >> 20} MiB", where=log.name)
                lines, newline, rest = (rest + output.read(most_log_bytes)).rpartition(b"\n")
                steps += len(STEP.findall(lines + newline))
                seconds = time.monotonic() - started
                if progress is not None:
                    progress(MakeProgress(steps, expected, seconds))
                if seconds > timeout_s:
                    raise TimedOutError(
                        f"timed out after {timeout_s:.0f} s",
                        where=paste(argv),
                        next_step=f"see {log}",
                    )
                if not ended:
                    wait_for_end(process, POLL_S)
            return process.wait(), steps
    except LogError:
        os.truncate(log, most_log_bytes)
        raise
