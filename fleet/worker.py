"""What runs in a worker process: say who it is, boot what it is given, build what it is asked.

A worker is dask's own ``dask worker``, started where ``fleet`` can be imported.
"""

from __future__ import annotations

import atexit
import os
import pickle
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from errors import LabError
from fleet import plain
from fleet.cases import read_raw
from fleet.identity import differences, identity, refusal, token
from fleet.parcel import Answer, Parcel, boot_of, missing_bytes
from fleet.site import Site
from guests.exact import BootError, Outcome
from host import facts
from runs.boots import Boot
from runs.local import InterruptedRunError, boot_guest

# So much of a resource that it never runs out: what is asked of it is one.
PLENTY = 1e9
SendEvent = Callable[[str, Mapping[str, str]], None]
_sites: list[Site] = []
_dismissed: list[str] = []


def site() -> Site:
    """What this process keeps; made by the first parcel."""
    if not _sites:
        _sites.append(Site(facts.cache_folder()))
        atexit.register(close)
    return _sites[0]


def close() -> None:
    """Remove what this process kept."""
    while _sites:
        _sites.pop().close()


async def enlist(expected: Mapping[str, str], dask_worker: Any = None) -> dict[str, Any]:
    """Compare this worker's identity with the session's, and offer what it has if equal.

    Resources that ``dask worker --resources`` declared stay as they are.  Returns the host's
    name, what differs, the trees with objects that are here, and the resources.
    """
    answer: dict[str, Any] = {"host": platform.node(), "differs": (), "trees": [], "resources": {}}
    try:
        answer["differs"] = differences(expected, identity())
    except LabError as error:
        answer["differs"] = (str(error),)
    # Another session knows something; a new process has a new chance.
    answer["differs"] = (*_dismissed[:1], *answer["differs"])
    if answer["differs"]:
        return answer
    threads = dask_worker.state.nthreads
    cores = os.cpu_count() or 1
    memory_mib = facts.meminfo_mib(facts.text_of(Path("/proc/meminfo")), "MemAvailable")
    declared = dict(dask_worker.state.total_resources)
    offered = {
        "cores": min(threads, facts.cores_available()),
        # The share of this process, if every core of the host has one.
        "memory": max(0, memory_mib - facts.HOST_RESERVE_MIB) * min(1.0, threads / cores),
        "build": 1,
    } | declared | {token(expected): PLENTY}  # fmt: skip
    if offered != declared:
        await dask_worker.set_resources(**offered)
    answer["trees"] = sorted(
        path.relative_to(facts.cache_folder()).as_posix()
        for path in facts.cache_folder().glob("trees/*/src/obj-*")
    )
    answer["resources"] = offered
    return answer


async def dismiss(name: str, reason: str, dask_worker: Any = None) -> None:
    """Take the resource ``name`` from this worker: no parcel goes here until it is restarted."""
    _dismissed.append(reason)
    await dask_worker.set_resources(**{name: 0})


def perform(identity: Mapping[str, str], payload: bytes) -> bytes:
    """Boot the guest of a pickled ``Parcel``; return a packed ``Answer``.

    A host's trouble is an answer too: another worker may do better.
    """
    refused = refusal(identity)
    began = time.monotonic()
    worker, key, send = _around()
    answer = Answer(worker, platform.node(), None)
    if refused:
        return pack(replace(answer, trouble=refused))
    parcel: Parcel = pickle.loads(payload)  # noqa: S301
    try:
        answer = _boot(parcel, answer, _watch(parcel, key, send))
    except (LabError, OSError, MemoryError) as error:
        answer = replace(answer, trouble=f"{type(error).__name__}: {plain.words(error)}")
    return pack(replace(answer, elapsed_s=time.monotonic() - began))


def pack(answer: Answer) -> bytes:
    """An answer as it travels: the files a guest sent are in its raw result already."""
    outcome = answer.outcome
    if outcome is not None and outcome.files is not None:
        answer = replace(answer, outcome=replace(outcome, files={}))
    return plain.packed(answer)


def _boot(parcel: Parcel, answer: Answer, watch: Callable[[str], None]) -> Answer:
    here = site()
    folder = here.folder(parcel.machine.guest.memory_mib)
    logs = folder.with_name(f"{folder.name}-logs")
    try:
        answer = replace(answer, received=missing_bytes(parcel, here.cache))
        boot = boot_of(parcel, here.cache)
        if parcel.cold:
            outcome = boot_guest(boot, None, folder, logs, watch)
            return replace(answer, outcome=outcome, raw=read_raw(logs))
        return _restored(parcel, boot, folder, logs, answer, watch)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(logs, ignore_errors=True)


def _restored(
    parcel: Parcel,
    boot: Boot,
    folder: Path,
    logs: Path,
    answer: Answer,
    watch: Callable[[str], None],
) -> Answer:
    try:
        with site().snapshot(parcel.machine.key, boot.machine, watch) as lent:
            outcome = boot_guest(boot, lent.snapshot, folder, logs, watch)
            answer = replace(answer, outcome=outcome, raw=read_raw(logs))
            if lent.logs is not None:
                answer = replace(answer, snapshot_raw=read_raw(lent.logs),
                                 snapshot_cpu_s=lent.snapshot.cpu_s)  # fmt: skip
                shutil.rmtree(lent.logs, ignore_errors=True)
            return answer
    except BootError as error:
        return replace(answer, outcome=Outcome(None, error.ending, 0.0, 0.0))


def _watch(parcel: Parcel, key: str, send: SendEvent) -> Callable[[str], None]:
    """Tells the client how far the guest is, and ends one that nobody waits for any more."""
    import distributed

    worker = distributed.get_worker()
    last: list[str] = []
    send(parcel.topic, {"name": parcel.name, "key": key, "word": ""})

    def watch(word: str) -> None:
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise InterruptedRunError
        if word and last != [word]:
            last[:] = [word]
            send(parcel.topic, {"name": parcel.name, "key": key, "word": word})

    return watch


def _around() -> tuple[str, str, SendEvent]:
    """Address of this worker, the key of the task under way, and how to tell of an event."""
    import distributed
    from distributed.worker import thread_state

    worker = distributed.get_worker()

    def send(topic: str, event: Mapping[str, str]) -> None:
        worker.log_event(topic, {"worker": worker.address, **event})

    return worker.address, str(thread_state.key), send
