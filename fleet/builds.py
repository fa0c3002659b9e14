"""Kernels built on workers: where the objects are, else anywhere; published, then fetched."""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from errors import InfraError, LabError, SeriesError
from experiment.spec import KernelSpec
from fleet import plain
from fleet.artefacts import ArtefactStore, KernelFiles
from fleet.identity import CHECKOUT, refusal
from fleet.link import SchedulerLink
from fleet.members import Member
from host import facts
from kernels import build
from kernels.cache import Kernel
from kernels.make import MakeProgress

POLL_S = 0.25


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


def build_kernel(identity: Mapping[str, str], payload: bytes) -> bytes:
    """Build the kernel of a pickled ``BuildParcel`` on a worker; return a packed ``Built``."""
    import distributed

    worker = distributed.get_worker()
    refused = refusal(identity)
    if refused:
        return plain.packed(Built(worker.address, trouble=refused))
    parcel: BuildParcel = pickle.loads(payload)  # noqa: S301

    def report(progress: MakeProgress) -> None:
        event = {"key": parcel.key, "done": progress.done, "total": progress.total,
                "seconds": progress.seconds}  # fmt: skip
        worker.log_event(parcel.topic, event)

    try:
        files = build_and_publish(parcel, facts.cache_folder(), report)
        built = Built(worker.address, files)
    except SeriesError as error:
        built = Built(worker.address, error=_in_words(error))
    except (LabError, OSError) as error:
        # A source that is not here is this worker's trouble: the client has it.
        built = Built(worker.address, trouble=plain.words(error))
    return plain.packed(built)


def _in_words(error: SeriesError) -> tuple[str, str, str]:
    what, where, next_step = (
        text.encode(errors="replace").decode()
        for text in (error.what, error.where, error.next_step)
    )
    return what, where, next_step


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
            path = Path(name) / Path(file).name
            path.write_bytes(data)
            patches.append(path)
        key = build.key_of(parcel.spec, patches, checkout=checkout, cache=cache_folder)
        if key != parcel.key:
            raise InfraError(
                f"kernel key mismatch: {key} on the worker, {parcel.key} here; "
                "source, configuration or compiler differ",
                where=parcel.spec.source,
            )
        kernel = build.provide(
            parcel.spec,
            patches,
            checkout=checkout,
            cache=cache_folder,
            progress=report,
            boxed=parcel.boxed,
        )
        return parcel.store.put_files(kernel)


def _builds(member: Member) -> bool:
    return bool(member.resources.get("build"))


@dataclass
class Builder:
    """Kernels of one session, asked for ahead and fetched one by one.

    Of one source and flavour the first is built anywhere, and the others follow where its
    objects are.
    """

    link: SchedulerLink
    store: ArtefactStore
    log: Callable[[str], None]
    topic: str
    queued: dict[str, tuple[BuildParcel, str]] = field(default_factory=dict)
    futures: dict[str, Any] = field(default_factory=dict)
    # When each was sent, and to whom alone.
    sent: dict[str, tuple[float, Sequence[str]]] = field(default_factory=dict)
    built: dict[str, Built] = field(default_factory=dict)
    tried: dict[str, set[str]] = field(default_factory=dict)
    reached: dict[str, MakeProgress] = field(default_factory=dict)

    def expect(
        self,
        key: str,
        spec: KernelSpec,
        patches: Sequence[Path],
        checkout: Path,
        here: Path,
        *,
        boxed: bool = False,
    ) -> None:
        """Have a kernel built that this host has not, unless it is under way or in the store."""
        if key in self.queued or self.store.kernel(key, here):
            return
        texts = tuple((path.name, path.read_bytes()) for path in patches)
        other = None if checkout.resolve() == CHECKOUT else checkout
        parcel = BuildParcel(key, spec, texts, self.store, self.topic, other, boxed)
        tree = build.objects_of(spec, patches, checkout=checkout, cache=here)
        self.queued[key] = (parcel, tree)
        self._advance()

    def provide(
        self, key: str, here: Path, progress: Callable[[MakeProgress], None] | None
    ) -> Kernel | None:
        """The kernel in this host's cache; None where no worker could build it.

        Raises:
            SeriesError: the series does not apply or build.
            InfraError: the scheduler is gone, or the store is damaged.
        """
        files = self.store.kernel(key, here)
        while files is None and key in self.queued:
            self.link.require_scheduler()
            self.link.members.refresh()
            self._advance()
            if progress is not None and key in self.reached:
                progress(self.reached[key])
            built = self.built.get(key)
            if built is not None and built.error is not None:
                what, where, next_step = built.error
                raise SeriesError(what, where=where, next_step=next_step)
            if built is not None and built.files is not None:
                if built.files.key != key:
                    raise InfraError(
                        f"files of kernel {built.files.key} came", where=f"kernel {key}"
                    )
                files = built.files
                self.store.sign(files, here)
            if built is not None:
                break
            time.sleep(POLL_S)
        return self.store.fetch_kernel(files, here) if files is not None else None

    def receive(self, event: tuple[float, Mapping[str, Any]]) -> None:
        """How far a build is, as its worker says."""
        progress = event[1]
        self.reached[progress["key"]] = MakeProgress(
            progress["done"], progress["total"], progress["seconds"]
        )

    def close(self) -> None:
        """Builds that nobody waits for any more are stopped."""
        self.link.cancel(list(self.futures.values()))

    def _advance(self) -> None:
        members = self.link.members
        for key in list(self.futures):
            if self.futures[key].done() or self.futures[key].status == "lost":
                self._landed(key, self.futures.pop(key))
                continue
            sent, among = self.sent[key]
            if not members.served_since(sent, _builds, among):
                self.link.cancel([self.futures.pop(key)])
        if not members.serving:
            return
        busy = {self.queued[key][1] for key in self.futures}
        for key, (parcel, tree) in self.queued.items():
            if key in self.built or key in self.futures:
                continue
            holders = members.with_tree(tree)
            if holders or tree not in busy:
                busy.add(tree)
                self._submit(key, parcel, holders)

    def _submit(self, key: str, parcel: BuildParcel, holders: Sequence[str]) -> None:
        tried = self.tried.setdefault(key, set())
        members = self.link.members
        left = members.others(tried)
        if tried and not left:
            self.built[key] = Built("", trouble="no worker is left")
            return
        workers = [holder for holder in holders if holder not in tried] or (left if tried else [])
        self.sent[key] = (time.monotonic(), workers if tried else ())
        self.futures[key] = self.link.submit(
            build_kernel, parcel, key=f"{self.topic}-{key}-{len(tried)}-{time.monotonic_ns()}",
            workers=workers, loosely=not tried, resources={"build": 1},
        )  # fmt: skip

    def _landed(self, key: str, future: Any) -> None:
        data = self.link.result(future)
        if not isinstance(data, bytes):
            return  # Its worker, or the scheduler, is gone: it is submitted again.
        try:
            built = plain.unpacked(Built, data)
        except InfraError as error:
            built = Built("", trouble=error.what)
        if built.trouble:
            self.log(f"worker {built.worker} cannot build kernel {key}: {built.trouble}")
            self.tried.setdefault(key, set()).add(built.worker)
            return
        self.link.members.built(built.worker, self.queued[key][1])
        self.built[key] = built
