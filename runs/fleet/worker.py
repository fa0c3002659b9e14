"""What runs in a worker process: say who it is, boot what it is given, build what it is asked.

A worker is dask's own ``dask worker``, started where ``fleet`` can be imported.
"""

from __future__ import annotations

import atexit
import os
import pickle
import platform
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from errors import InfraError, LabError, SeriesError
from experiment.spec import KernelSpec
from guests import exact
from guests.exact import BootError, Machine, Outcome, Snapshot
from host import facts
from kernels import build
from kernels.build import KernelRequest
from kernels.make import MakeProgress
from runs.boots import MIB
from runs.fleet.artefacts import ArtefactStore, KernelFiles
from runs.fleet.identity import CHECKOUT, differences, identity, refusal
from runs.fleet.parcel import HOST_ENDINGS, Answer, Parcel, packed, read_raw, words
from runs.local import InterruptedRunError, boot_guest, require_space, workspace

# A session's arms and their diagnostic runs; each takes its guest's memory of the disk.
MOST_SNAPSHOTS = 6
Watch = Callable[[str], None]


@dataclass(frozen=True)
class BuildParcel:
    """A kernel to build: its key proves that source, configuration and compiler are ours."""

    key: str
    spec: KernelSpec
    patches: tuple[tuple[str, bytes], ...]
    store: ArtefactStore
    topic: str
    checkout: Path | None = None
    boxed: bool = False


@dataclass(frozen=True)
class Built:
    """What came of it: the kernel's files, the series' error in words, or the worker's trouble.

    ``error`` is what, where and the next step of a ``SeriesError``.
    """

    worker: str
    files: KernelFiles | None = None
    error: tuple[str, str, str] | None = None
    trouble: str = ""


@dataclass
class _Kept:
    """A machine's snapshot once somebody made it, or how its boot ended; ``users`` need it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    snapshot: Snapshot | None = None
    error: BootError | None = None
    users: int = 0


class Site:
    """Scratch folder and snapshots of one process; safe from several threads."""

    def __init__(self, cache: Path, *, most: int = MOST_SNAPSHOTS) -> None:
        self.cache = cache
        self._most = most
        self._open = ExitStack()
        self._scratch: Path | None = None
        self._kept: OrderedDict[Machine, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._number = 0

    def folder(self, memory_mib: int) -> Path:
        """A new folder for one guest of this memory; the caller removes it.

        Raises:
            InfraError: the disk is too full.
        """
        with self._lock:
            if self._scratch is None:
                place = workspace(self.cache, memory_mib * MIB)
                self._scratch = self._open.enter_context(place)
            self._number += 1
            folder = self._scratch / f"guest-{self._number}"
        require_space(folder.parent, memory_mib * MIB)
        return folder

    @contextmanager
    def snapshot(self, machine: Machine, watch: Watch) -> Iterator[tuple[Snapshot, Path | None]]:
        """A machine's snapshot, booted by whoever needs it first; logs where that is the caller.

        Raises:
            BootError: the machine did not come to its stop point, now or before.
            InfraError, OSError: this host could not boot it; the next one tries again.
        """
        with self._lock:
            kept = self._kept.setdefault(machine, _Kept())
            self._kept.move_to_end(machine)
            kept.users += 1
        logs = None
        try:
            with kept.lock:
                if kept.error is not None:
                    raise kept.error
                if kept.snapshot is None:
                    place = self.folder(machine.guest.memory_mib)
                    logs = place.with_name(f"{place.name}-logs")
                    try:
                        kept.snapshot = exact.take_snapshot(machine, place, logs, watch)
                    except BaseException as error:
                        shutil.rmtree(place, ignore_errors=True)
                        if isinstance(error, BootError) and error.ending.kind not in HOST_ENDINGS:
                            kept.error = error
                        raise
            yield kept.snapshot, logs
        finally:
            with self._lock:
                kept.users -= 1
                idle = [each for each, its in self._kept.items() if not its.users]
                doomed = idle[: max(0, len(self._kept) - self._most)]
                gone = [self._kept.pop(each) for each in doomed]
            _drop(gone)

    def close(self) -> None:
        """Remove everything."""
        with self._lock:
            gone = list(self._kept.values())
            self._kept.clear()
            self._scratch = None
        _drop(gone)
        self._open.close()


def _drop(gone: list[_Kept]) -> None:
    for kept in gone:
        if kept.snapshot is not None:
            kept.snapshot.drop()
            shutil.rmtree(kept.snapshot.memory.parent.parent, ignore_errors=True)


_sites: list[Site] = []


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
        "build": 1,
    } | declared
    if offered != declared:
        await dask_worker.set_resources(**offered)
    cache = facts.cache_folder()
    trees = sorted(path.relative_to(cache).as_posix() for path in cache.glob("trees/*/src/obj-*"))
    return {**answer, "trees": trees, "resources": offered}


def perform(expected: Mapping[str, str], payload: bytes) -> bytes:
    """Boot the guest of a pickled ``Parcel``; return a packed ``Answer``.

    A host's trouble is an answer too: another worker may do better.
    """
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
        answer = replace(answer, trouble=f"{type(error).__name__}: {words(error)}")
    return answer.packed()


def _boot(parcel: Parcel, answer: Answer, watch: Watch) -> Answer:
    here = site()
    boot = parcel.boot_here(here.cache)
    if boot.inputs != parcel.inputs:
        trouble = f"another run: inputs {boot.inputs} on the worker, {parcel.inputs} here"
        return replace(answer, trouble=trouble)
    folder = here.folder(boot.machine.guest.memory_mib)
    logs = folder.with_name(f"{folder.name}-logs")
    try:
        if boot.cold:
            outcome = boot_guest(boot, None, folder, logs, watch)
            return replace(answer, outcome=outcome, raw=read_raw(logs))
        with here.snapshot(boot.machine, watch) as (snapshot, made):
            outcome = boot_guest(boot, snapshot, folder, logs, watch)
            answer = replace(answer, outcome=outcome, raw=read_raw(logs))
            if made is not None:
                answer = replace(answer, snapshot_raw=read_raw(made), snapshot_cpu_s=snapshot.cpu_s)
                shutil.rmtree(made, ignore_errors=True)
            return answer
    except BootError as error:
        return replace(answer, outcome=Outcome(None, error.ending, 0.0, 0.0))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(logs, ignore_errors=True)


def build_kernel(expected: Mapping[str, str], payload: bytes) -> bytes:
    """Build the kernel of a pickled ``BuildParcel``; return a packed ``Built``."""
    import distributed

    worker = distributed.get_worker()
    refused = refusal(expected)
    if refused:
        return packed(Built(worker.address, trouble=refused))
    parcel: BuildParcel = pickle.loads(payload)  # noqa: S301

    def report(progress: MakeProgress) -> None:
        event = {"key": parcel.key, "done": progress.done, "total": progress.total}
        worker.log_event(parcel.topic, {**event, "seconds": progress.seconds})

    try:
        files = build_and_publish(parcel, facts.cache_folder(), report)
        built = Built(worker.address, files)
    except SeriesError as error:
        what, where, next_step = (
            text.encode(errors="replace").decode()
            for text in (error.what, error.where, error.next_step)
        )
        built = Built(worker.address, error=(what, where, next_step))
    except (LabError, OSError) as error:
        # A source that is not here is this worker's trouble: the client has it.
        built = Built(worker.address, trouble=words(error))
    return packed(built)


def build_and_publish(
    parcel: BuildParcel, cache_folder: Path, report: Callable[[MakeProgress], None]
) -> KernelFiles:
    """Build a kernel here and put it into the store.

    Raises:
        SeriesError: the series does not apply or build.
        LabError: the source is not here, or is another one.
    """
    checkout = parcel.checkout or CHECKOUT
    with tempfile.TemporaryDirectory(prefix="twinboot-series-") as name:
        patches = []
        for file, data in parcel.patches:
            patches.append(Path(name) / Path(file).name)
            patches[-1].write_bytes(data)
        request = KernelRequest(parcel.spec, patches, checkout, cache_folder, parcel.boxed)
        key = build.key_of(request)
        if key != parcel.key:
            raise InfraError(
                f"kernel key mismatch: {key} on the worker, {parcel.key} here; "
                "source, configuration or compiler differ",
                where=parcel.spec.source,
            )
        return parcel.store.put_files(build.provide(request, report))
