"""The executor of a fleet: connects when it is first needed, and leaves nothing under way."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from errors import InfraError, UsageError
from experiment.architecture import X86_64
from experiment.spec import KernelSpec
from fleet.artefacts import ArtefactStore
from fleet.batch import BootBatch
from fleet.builds import Builder
from fleet.identity import identity
from fleet.ledger import Ledger
from fleet.link import SchedulerLink
from fleet.members import Members
from fleet.settings import Settings
from fleet.trust import Trust
from fleet.wall import WallFleet
from host.facts import QEMU_OVERHEAD_MIB
from kernels import build, cache
from kernels.cache import Kernel
from kernels.make import MakeProgress
from runs.boots import Boot, Judge, Place

CONNECT_S = 15.0


@dataclass
class DaskExecutor:
    """Units as dask futures on the workers of a scheduler.

    ``connect`` gives a dask client; what it opens is closed with ``stack``.  ``say`` is told
    of workers, one line each.
    """

    name: str
    connect: Callable[[ExitStack], Any]
    store: ArtefactStore
    settings: Settings
    log: Callable[[str], None]
    _stack: ExitStack = field(default_factory=ExitStack)
    _link: SchedulerLink | None = None
    _builder: Builder | None = None
    _trust: Trust | None = None
    _wall: WallFleet | None = None
    _most: int | None = None

    def __enter__(self) -> DaskExecutor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._builder is not None:
            self._builder.close()
        if self._link is not None:
            self._link.members.close()
        self._stack.close()

    @property
    def link(self) -> SchedulerLink:
        """The connection, made when it is first asked for.

        Raises:
            InfraError: no scheduler answers.
        """
        if self._link is None:
            client = self.connect(self._stack)
            if client.dashboard_link:
                self.log(f"dashboard {client.dashboard_link}")
            members = Members(client, identity(), self.log, self.settings.patience_s)
            self._link = SchedulerLink(client, members, self.settings.grace_s)
        return self._link

    @property
    def builder(self) -> Builder:
        """What has kernels built, made when it is first asked for."""
        if self._builder is None:
            topic = f"twinboot-build-{uuid.uuid4().hex}"
            self._builder = Builder(self.link, self.store, self.log, topic)
            self.link.client.subscribe_topic(topic, self._builder.receive)
        return self._builder

    def slots(self, memory_mib: int, limit: int | None) -> int:
        """What all workers that are there run at once, or less if the user says so."""
        members = self.link.members
        members.refresh(at_once=True)
        self._most = limit
        most = max(1, members.capacity(memory_mib + QEMU_OVERHEAD_MIB))
        return min(limit, most) if limit else most

    def boot(self, batches: Sequence[Sequence[Boot]], judge: Judge, place: Place) -> float:
        """As ``runs.boots.Executor.boot``; batches are one, since each worker keeps its own."""
        link = self.link
        link.resume = f"./lab.py run --resume {place.raw.parent}"
        trust = self._trust = self._trust or Trust(self.settings.check_one_in)
        batch = BootBatch(
            link, self.store, self.settings, judge, place, trust, Ledger(place.raw), self._most
        )
        from distributed.comm import CommClosedError

        try:
            return batch.run([boot for each in batches for boot in each])
        except CommClosedError as error:
            raise InfraError(
                f"the connection to the scheduler broke: {error}",
                where=self.name,
                next_step=link.resume,
            ) from error

    def keeping(self) -> AbstractContextManager[DaskExecutor]:
        """As ``runs.boots.Executor.keeping``: workers keep snapshots of their own anyway."""
        return nullcontext(self)

    def wall(self) -> WallFleet:
        """Wall blocks are made on workers that say they are wall hosts."""
        if self._wall is None:
            self._wall = WallFleet(self.link, self.store, self.settings.losses)
        return self._wall

    def expect_kernels(
        self,
        kernels: Sequence[tuple[KernelSpec, Sequence[Path]]],
        *,
        checkout: Path,
        cache: Path,
        boxed: bool = False,
    ) -> None:
        """As ``runs.boots.Executor.expect_kernels``: builds of several flavours go on at once."""
        for spec, patches in kernels:
            self._require_bootable(spec)
            if key := self._missing(spec, patches, checkout, cache):
                self.builder.expect(key, spec, patches, checkout, cache, boxed=boxed)

    def provide_kernel(
        self,
        spec: KernelSpec,
        patches: Sequence[Path],
        *,
        checkout: Path,
        cache: Path,
        progress: Callable[[MakeProgress], None] | None = None,
        boxed: bool = False,
    ) -> Kernel:
        """As ``kernels.build.provide``; built here only where no worker can."""
        self._require_bootable(spec)
        if key := self._missing(spec, patches, checkout, cache):
            self.link.members.refresh(at_once=True)
            self.builder.expect(key, spec, patches, checkout, cache, boxed=boxed)
            kernel = self.builder.provide(key, cache, progress)
            if kernel is not None:
                return kernel
            self.log(f"no worker can build kernel {key}: it is built here")
        return build.provide(
            spec, patches, checkout=checkout, cache=cache, progress=progress, boxed=boxed
        )

    def _require_bootable(self, spec: KernelSpec) -> None:
        """Refuse a kernel that no worker boots before anybody builds it."""
        if spec.arch != X86_64.name:
            raise UsageError(
                f"workers boot guests of {X86_64.name} only, and this kernel is for {spec.arch}",
                where=self.name,
                next_step="--executor local",
            )

    @staticmethod
    def _missing(spec: KernelSpec, patches: Sequence[Path], checkout: Path, here: Path) -> str:
        """The key of a kernel that has to be built and is not in this host's cache."""
        if spec.is_prebuilt:
            return ""
        key = build.key_of(spec, patches, checkout=checkout, cache=here)
        return "" if cache.load(here, key) else key
