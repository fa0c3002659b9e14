"""What runs in a worker process: say who it is, and boot what it is given.

Who it is says what must be equal on every host, since a guest's bits depend on it.
A worker is dask's own ``dask worker``, started where ``fleet`` can be imported.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from errors import LabError
from experiment.architecture import X86_64
from guests import kept
from guests.exact import BootError, Outcome
from host import facts
from host.packages import require
from host.process import run
from runs.boots import MIB
from runs.fleet.parcel import Answer, Parcel, in_words, read_raw
from runs.local import InterruptedRunError, boot_guest, workspace
from text import words

CHECKOUT = Path(__file__).resolve().parents[2]
CODE = words("errors files text experiment host results kernels workloads guests runs")
SUFFIXES = (".py", ".sh", ".c", ".toml", ".fio")
TIMEOUT_S = 30.0
SHOWN = 16


async def enlist(expected: Mapping[str, str], dask_worker: Any = None) -> dict[str, Any]:
    """Compare this worker's identity with the session's, and offer what it has if equal.

    Resources that ``dask worker --resources`` declared stay as they are.  Returns the host's
    name, what differs, and the resources.
    """
    answer: dict[str, Any] = {"host": platform.node(), "differs": (), "resources": {}}
    try:
        answer["differs"] = differences(expected, identity())
    except LabError as error:
        answer["differs"] = (str(error),)
    if answer["differs"]:
        return answer
    threads = dask_worker.state.nthreads
    memory_mib = facts.meminfo_mib(facts.text_of(Path("/proc/meminfo")), "MemAvailable")
    declared = dict(dask_worker.state.total_resources)
    offered = {
        "cores": min(threads, facts.cores_available()),
        # The share of this process, if every core of the host has one.
        "memory": max(0, memory_mib - facts.HOST_RESERVE_MIB)
        * min(1.0, threads / (os.cpu_count() or 1)),
    } | declared
    if offered != declared:
        await dask_worker.set_resources(**offered)
    return {**answer, "resources": offered}


def perform(expected: Mapping[str, str], payload: bytes) -> bytes:
    """Boot the guest of a pickled ``Parcel``; a host's trouble is an answer (packed), too."""
    import distributed
    from distributed.worker import thread_state

    worker, key = distributed.get_worker(), str(thread_state.key)
    answer = Answer(worker.address, platform.node(), None, trouble=refusal(expected))
    if answer.trouble:
        return answer.packed()
    parcel: Parcel = pickle.loads(payload)  # noqa: S301
    last = ""

    def watch(word: str) -> None:
        """Tell the client how far the guest is, and end one that nobody waits for any more."""
        nonlocal last
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise InterruptedRunError
        if word and word != last:
            last = word
            worker.log_event(parcel.topic, {"name": parcel.boot.name, "word": word})

    try:
        answer = _boot(parcel, answer, watch)
    except (LabError, OSError, MemoryError) as error:
        answer = replace(answer, trouble=f"{type(error).__name__}: {in_words(error)}")
    return answer.packed()


def _boot(parcel: Parcel, answer: Answer, watch: Callable[[str], None]) -> Answer:
    cache = facts.cache_folder()
    boot = parcel.boot_here(cache)
    if boot.inputs != parcel.inputs:
        trouble = f"another run: inputs {boot.inputs} on the worker, {parcel.inputs} here"
        return replace(answer, trouble=trouble)
    memory_mib = boot.machine.guest.memory_mib
    # A machine that is too large to be kept is as fast to boot as to restore.
    cold = boot.cold or memory_mib > kept.MOST_MEMORY_MIB
    with workspace(cache, (1 if cold else 2) * memory_mib * MIB) as scratch, ExitStack() as held:
        logs, of_snapshot, used_s = scratch / "logs", scratch / "snapshot-logs", 0.0
        try:
            snapshot = None
            if not cold:
                place = scratch / "snapshot"
                snapshot = kept.provide(boot.machine, cache, place, of_snapshot, watch)
                held.callback(snapshot.drop)
                used_s = snapshot.cpu_s
            outcome = boot_guest(boot, snapshot, scratch / "guest", logs, watch)
        except BootError as error:
            outcome = Outcome(None, error.ending, 0.0, 0.0)
        return replace(
            answer,
            outcome=outcome,
            raw=read_raw(logs),
            snapshot_raw=read_raw(of_snapshot),
            snapshot_cpu_s=used_s,
        )


@lru_cache(maxsize=1)
def identity() -> dict[str, str]:
    """Lab, QEMU, firmware and Python of this process, as texts; InfraError: there is no QEMU."""
    qemu = X86_64.board.qemu
    path = require(qemu)
    version = run([qemu, "--version"], timeout_s=TIMEOUT_S).stdout
    match = re.search(r"version (.+)", version)
    return {
        "lab code": lab_code(CHECKOUT),
        "QEMU version": match[1].strip() if match else "not found",
        **kept.emulator(path),
        # What is sent is pickled.
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "machine": platform.machine(),
    }


def lab_code(checkout: Path) -> str:
    """Digest of everything in a checkout that says what is booted and how it is read."""
    files = sorted(
        path.relative_to(checkout)
        for folder in CODE
        for path in [checkout / f"{folder}.py", *(checkout / folder).rglob("*")]
        if path.suffix in SUFFIXES and path.is_file()
    )
    total = hashlib.sha256()
    for path in files:
        total.update(f"{path.as_posix()}\0".encode())
        total.update(hashlib.sha256((checkout / path).read_bytes()).digest())
    return total.hexdigest()[:SHOWN]


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> tuple[str, ...]:
    """What differs, each with both values; empty when all is equal."""
    return tuple(
        f"{key}: {there.get(key, 'unknown')} there, {here.get(key, 'unknown')} here"
        for key in dict.fromkeys([*here, *there])
        if there.get(key) != here.get(key)
    )


def refusal(client: Mapping[str, str]) -> str:
    """Why this process may not serve a session of that identity; empty where it may."""
    differing = differences(client, identity())
    return f"another identity: {'; '.join(differing)}" if differing else ""
