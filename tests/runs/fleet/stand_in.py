"""A dask preload: guests of this worker are small programs with the same bytes every time.

A real program runs for a while, in a process of its own, and what it writes is a function
of the machine and the job.  The environment of a worker says how it misbehaves.
"""

import hashlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guests import exact
from guests.channel import Ending
from guests.exact import Machine, Outcome, Snapshot
from host.process import run
from runs import local
from tests.guests.framing import sent
from tests.values import spaced

SECONDS, LIES, MISCOUNTS, FILLS_MIB, DIES = spaced(
    "STAND_IN_SECONDS STAND_IN_LIES STAND_IN_MISCOUNTS STAND_IN_FILLS_MIB STAND_IN_DIES_OF"
)


def files_of(machine: Machine, job_text: str) -> dict[str, bytes]:
    """What a sound stand-in sends."""
    content = f"{machine.kernel.read_bytes()!r}{machine.prepare_text}{job_text}".encode()
    return {"out": f"{hashlib.sha256(content).hexdigest()}\n".encode() * 40}


def take_snapshot(
    machine: Machine, folder: Path, logs: Path, watch: Callable[[str], None]
) -> Snapshot:
    boot = folder / "boot-1"
    boot.mkdir(parents=True)
    logs.mkdir(parents=True)
    (logs / "console.log").write_text("ready\n")
    fill = int(os.environ.get(FILLS_MIB, "0"))
    (boot / "memory").write_bytes(b"\1" * (fill << 20))
    (boot / "state").write_bytes(b"")
    return Snapshot(machine, boot / "memory", boot / "state", 0.1)


def run_guest(
    booted: Machine | Snapshot,
    job_text: str,
    folder: Path,
    logs: Path,
    watch: Callable[[str], None],
    *,
    probe: object = None,
    console_bytes: int = 0,
) -> Outcome:
    if isinstance(booted, Snapshot):
        assert booted.memory.exists()
    machine = booted.machine if isinstance(booted, Snapshot) else booted
    folder.mkdir(parents=True)
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "console.log").write_text("twinboot: told\n")
    deadly, inputs = os.environ.get(DIES, ""), f"{job_text}{machine.kernel.read_bytes()!r}"
    if deadly and all(word in inputs for word in deadly.split(",")):
        os.kill(os.getpid(), signal.SIGKILL)
    watch("phase 4k")
    left = float(os.environ.get(SECONDS, "0.2"))
    while left > 0:
        run(["sleep", f"{min(0.2, left)}"], timeout_s=60)
        watch("phase 4k")
        left -= 0.2
    files = files_of(machine, job_text)
    if os.environ.get(LIES):
        files["out"] = bytes([files["out"][0] ^ 1]) + files["out"][1:]
    (logs / "result").write_bytes(sent(files))
    counts = f"instructions {len(inputs)}\n".encode() if probe else None
    if counts and os.environ.get(MISCOUNTS):
        counts = counts.replace(b"s ", b"s 1")
    return Outcome(files, Ending("done", "the agent finished"), 0.1, 0.2, counts)


def dask_setup(worker: Any) -> None:
    """Called by dask before the worker serves."""
    exact.take_snapshot = take_snapshot
    exact.run = run_guest
    local.RESERVE_BYTES = 0
