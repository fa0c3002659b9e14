"""Waiting for what another process does: for an event, however busy the machine is."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# A test that hangs ends; none fails because a host is slow.
PATIENCE_S = 600.0


def wait_until(true: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Poll until ``true()``; fail the test when it never comes."""
    limit = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < limit, f"no {what} within {timeout_s:.0f} s"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def completed(
    argv: Sequence[object], *, check: bool = True, **more: Any
) -> subprocess.CompletedProcess[str]:
    """A program that was run to its end, well unless not to ``check``, and what it printed."""
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 300, **more}
    done = subprocess.run([*map(str, argv)], check=False, **options)
    assert not check or done.returncode == 0, f"{done.stdout[-5000:]}{done.stderr[-5000:]}"
    return done
