"""The executor of a fleet: guests and kernels over the workers of a dask scheduler."""

from __future__ import annotations

import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from errors import InfraError, SeriesError, UsageError
from experiment.architecture import X86_64
from guests import channel
from guests.channel import Ending
from guests.exact import Machine, Outcome
from host import limited
from host.accelerator import AcceleratorTest
from host.facts import QEMU_OVERHEAD_MIB
from kernels import build, cache
from kernels.build import KernelRequest
from kernels.cache import Kernel
from kernels.make import MakeProgress
from runs.boots import ATTEMPTS, Boot, Judge, Place
from runs.exactness import diverging
from runs.fleet import worker
from runs.fleet.artefacts import ArtefactStore
from runs.fleet.identity import CHECKOUT, identity
from runs.fleet.members import Flight, Member, Members, Settings
from runs.fleet.parcel import RESULT, Answer, Parcel, answer_of, files_of, unpacked, write_raw
from runs.fleet.worker import BuildParcel, Built

CONNECT_S = 15.0
POLL_S = 0.1
BUILD: Mapping[str, float] = {"build": 1}


@dataclass
class Case:
    """One boot on its way: its attempt, workers to avoid and lost, and who answered."""

    parcel: Parcel
    attempt: int = 1
    lost: int = 0
    avoid: set[str] = field(default_factory=set)
    member: Member | None = None
    answer: Answer | None = None
    fingerprint: str = ""
    is_recorded: bool = False

    @property
    def boot(self) -> Boot:
        """What is booted."""
        return self.parcel.boot

    @property
    def resources(self) -> Mapping[str, float]:
        """What it takes of a worker."""
        return {"cores": 1, "memory": self.parcel.memory_mib}


@dataclass
class BootBatch:
    """One call of ``Executor.boot``: each boot is made once, repeats on another worker.

    A lost worker's parcels are requeued; ``most`` guests run at once where the user says so.
    """

    members: Members
    judge: Judge
    place: Place
    losses: int
    most: int | None
    cases: Mapping[str, Case]
    queued: deque[Case] = field(default_factory=deque)
    flights: dict[str, Flight] = field(default_factory=dict)
    cpu_s: float = 0.0
    # Of each machine, in the order of the plan, as a local session numbers its snapshots.
    _numbers: dict[Machine, int] = field(default_factory=dict)
    _alone: int = 0

    def run(self) -> float:
        """Boot everything; return the CPU seconds of all guests.

        Raises:
            InfraError: nobody can serve, or a run has other bytes on another worker.
        """
        for case in self.cases.values():
            self.queued.append(case)
            if not case.boot.cold:
                self._numbers.setdefault(case.boot.machine, len(self._numbers) + 1)
        kept_snapshots: set[Machine] = set()
        try:
            self.members.refresh(at_once=True)
            while not all(case.is_recorded for case in self.cases.values()):
                self.members.refresh()
                self._send()
                time.sleep(POLL_S)
                for name, flight in list(self.flights.items()):
                    if self.members.landed(flight):
                        self._receive(self.cases[name], flight, kept_snapshots)
                self._deliver()
        finally:
            self.members.cancel(list(self.flights.values()))
        if self._alone:
            self.place.reporter.log(
                f"{self._alone} repeats were made by the worker of the run: no other served"
            )
        return self.cpu_s

    def _send(self) -> None:
        if self.members.client.status != "running":
            return
        waiting: deque[Case] = deque()
        while self.queued and (not self.most or len(self.flights) < self.most):
            case = self.queued.popleft()
            self.members.require_memory(case.parcel.memory_mib)
            member = self._member_for(case)
            if member is None:
                waiting.append(case)
                continue
            case.member = member
            flight = self.members.submit(worker.perform, case.parcel, member, case.resources)
            self.flights[case.boot.name] = flight
            self.place.reporter.started(case.boot.name)
        self.queued.extendleft(reversed(waiting))

    def _member_for(self, case: Case) -> Member | None:
        """The least busy worker; of a repeat one that did not make the run, if any serves."""
        memory_mib = case.parcel.memory_mib
        able = [m for m in self.members.serving.values() if m.capacity(memory_mib)]
        original = self.cases.get(case.boot.repeats)
        if original is not None:
            if original.member is None:
                return None
            others = [m for m in able if m.address != original.member.address]
            able = [m for m in others if m.host != original.member.host] or others or able
        able = [m for m in able if m.address not in case.avoid] or able
        free = [member for member in able if member.is_free(memory_mib)]
        return min(free, key=lambda member: (member.guests, member.address), default=None)

    def _receive(self, case: Case, flight: Flight, kept_snapshots: set[Machine]) -> None:
        del self.flights[case.boot.name]
        lost = flight.future.status in ("pending", "error")
        data = self.members.result(flight, case.resources)
        if data is None:
            # A future that is cancelled was forgotten by a scheduler that was away.
            case.lost += lost
            if case.lost > self.losses:
                # A guest cannot kill a worker, so this is never a series' doing.
                message = (
                    f"{case.lost} workers died while they made it; last {flight.member.address}"
                )
                ending = Ending("lost", message, killed=True)
                case.attempt = ATTEMPTS
                case.answer = Answer(
                    flight.member.address, flight.member.host, Outcome(None, ending, 0.0, 0.0)
                )
            else:
                self.queued.appendleft(case)
            return
        try:
            answer = answer_of(data)
        except InfraError as error:
            answer = Answer(flight.member.address, flight.member.host, None, trouble=error.what)
        if answer.outcome is None:
            self.members.set_aside(flight.member, answer.trouble)
            self.queued.appendleft(case)
            return
        self.cpu_s += answer.outcome.cpu_s + answer.snapshot_cpu_s
        machine = case.boot.machine
        if answer.snapshot_raw and machine not in kept_snapshots:
            kept_snapshots.add(machine)
            name = f"snapshot-{self._numbers[machine]}-{case.boot.group}"
            write_raw(self.place.raw / name, answer.snapshot_raw)
        case.answer = answer

    def _deliver(self) -> None:
        """Give the judge every answer that it may have: some wait for that of another run."""
        waiting = [case for case in self.cases.values() if case.answer and not case.is_recorded]
        for case in waiting:
            answer = case.answer
            assert answer is not None
            assert answer.outcome is not None
            first = self.cases.get(self.judge.first(case.boot, answer.outcome))
            if first is not None and not first.is_recorded:
                continue
            write_raw(self.place.raw / case.boot.name, answer.raw)
            files = answer.outcome.files
            case.fingerprint = channel.fingerprint(files) if files is not None else ""
            outcome = replace(answer.outcome, host=answer.host)
            if self.judge.receive(case.boot, outcome, last=case.attempt == ATTEMPTS):
                case.attempt += 1
                case.avoid.add(answer.worker)
                case.answer = None
                self.queued.appendleft(case)
                continue
            case.is_recorded = True
            self._compare(case, answer)
            # Of a run that others may be compared with its name stays, and its bytes are on disk.
            case.answer = Answer(answer.worker, answer.host, None)

    def _compare(self, case: Case, answer: Answer) -> None:
        """See that a repeat on another worker has the bytes of the run.

        Raises:
            InfraError: it has not; both workers and hosts are named.
        """
        original = self.cases.get(case.boot.repeats)
        if original is None or original.answer is None or answer.outcome is None:
            return
        if original.answer.worker == answer.worker:
            self._alone += 1
            return
        files = answer.outcome.files
        if files is None or not original.fingerprint or case.fingerprint == original.fingerprint:
            return
        before = limited.call(channel.read_result, self.place.raw / original.boot.name / RESULT)
        raise InfraError(
            f"{case.boot.name} has other bytes on {answer.host} ({answer.worker}) than "
            f"{original.boot.name} on {original.answer.host} ({original.answer.worker}): "
            f"{'; '.join(diverging(before, files)[:1])}",
            where="fleet",
            next_step="one of these hosts is broken: measure on each of them alone to see which "
            "repeats itself, then in a new session without the other",
        )


@dataclass
class DaskExecutor:
    """Guests and kernels as dask futures on the workers of a scheduler.

    ``connect`` gives a dask client; what it opens is closed with the executor.
    """

    name: str
    connect: Callable[[ExitStack], Any]
    store: ArtefactStore
    settings: Settings
    log: Callable[[str], None]
    _stack: ExitStack = field(default_factory=ExitStack)
    _members: Members | None = None
    _builder: Builder | None = None
    _most: int | None = None

    def __enter__(self) -> DaskExecutor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._members is not None:
            if self._builder is not None:
                self._members.cancel(list(self._builder.flights.values()))
            self._members.close()
        self._stack.close()

    @property
    def members(self) -> Members:
        """The connection, made when it is first needed.

        Raises:
            InfraError: no scheduler answers.
        """
        if self._members is None:
            client = self.connect(self._stack)
            if client.dashboard_link:
                self.log(f"dashboard {client.dashboard_link}")
            self._members = Members(client, identity(), self.log, self.settings.patience_s)
        return self._members

    def slots(self, memory_mib: int, limit: int | None) -> int:
        """What all workers that are there run at once, or less if the user says so."""
        self.members.refresh(at_once=True)
        self._most = limit
        needed = memory_mib + QEMU_OVERHEAD_MIB
        most = sum(member.capacity(needed) for member in self.members.serving.values())
        return min(limit, most) if limit and most else max(1, limit or most)

    def boot(self, batches: Sequence[Sequence[Boot]], judge: Judge, place: Place) -> float:
        """As ``runs.boots.Executor.boot``; batches are one, since each worker keeps its own."""
        from distributed.comm import CommClosedError

        members = self.members
        members.resume = f"./lab.py run --resume {place.raw.parent}"
        topic = f"twinboot-{uuid.uuid4().hex}"
        boots = [boot for batch in batches for boot in batch]
        kept = {path: self.store.put(path) for boot in boots for path in files_of(boot)}
        cases = {
            boot.name: Case(
                Parcel(
                    boot,
                    {path: kept[path] for path in files_of(boot)},
                    self.store,
                    topic,
                    boot.inputs,
                )
            )
            for boot in boots
        }
        try:
            members.client.subscribe_topic(
                topic, lambda event: place.reporter.reached(event[1]["name"], event[1]["word"])
            )
            batch = BootBatch(members, judge, place, self.settings.losses, self._most, cases)
            return batch.run()
        except CommClosedError as error:
            raise InfraError(
                f"the connection to the scheduler broke: {error}",
                where=self.name,
                next_step=members.resume,
            ) from error

    def keeping(self) -> AbstractContextManager[DaskExecutor]:
        """As ``runs.boots.Executor.keeping``: workers keep snapshots of their own anyway."""
        return nullcontext(self)

    def accelerator(self, cache: Path, image: Path) -> AcceleratorTest:
        """Never asked: no session of wall mode comes so far."""
        raise NotImplementedError(self.name)

    def require_wall(self) -> None:
        """Wall guests need a host to themselves.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "a session of wall mode is measured on one host, which it is started on",
            where=self.name,
            next_step='--executor local there, or an experiment with mode = "exact"',
        )

    def expect_kernels(self, kernels: Sequence[KernelRequest]) -> None:
        """As ``runs.boots.Executor.expect_kernels``: builds of several flavours go on at once."""
        for kernel in kernels:
            self._expect(kernel)

    def provide_kernel(
        self, kernel: KernelRequest, progress: Callable[[MakeProgress], None] | None = None
    ) -> Kernel:
        """As ``kernels.build.provide``; built here only where no worker can."""
        if key := self._expect(kernel):
            assert self._builder is not None
            built = self._builder.provide(key, kernel.cache, progress)
            if built is not None:
                return built
            self.log(f"no worker can build kernel {key}: it is built here")
        return build.provide(kernel, progress)

    def _expect(self, kernel: KernelRequest) -> str:
        """Have a kernel built that is not in this host's cache; its key, empty where it is."""
        spec, here, checkout = kernel.spec, kernel.cache, kernel.checkout
        if spec.arch != X86_64.name:
            raise UsageError(
                f"workers boot guests of {X86_64.name} only, and this kernel is for {spec.arch}",
                where=self.name,
                next_step="--executor local",
            )
        if spec.is_prebuilt:
            return ""
        key = build.key_of(kernel)
        if cache.load(here, key):
            return ""
        if self._builder is None:
            self._builder = Builder(self.members, self.store, self.log)
            self.members.client.subscribe_topic(self._builder.topic, self._builder.reached)
        if key not in self._builder.queued and not self.store.kernel(key, here):
            texts = tuple((path.name, path.read_bytes()) for path in kernel.patches)
            other = None if checkout.resolve() == CHECKOUT else checkout
            topic = self._builder.topic
            parcel = BuildParcel(key, spec, texts, self.store, topic, other, kernel.boxed)
            self._builder.queued[key] = (parcel, build.objects_of(kernel))
        self._builder.advance()
        return key


@dataclass
class Builder:
    """Kernels of one session, submitted ahead and fetched one by one.

    Of one source and flavour the first is built anywhere, and the others follow where its
    objects are.
    """

    members: Members
    store: ArtefactStore
    log: Callable[[str], None]
    topic: str = field(default_factory=lambda: f"twinboot-build-{uuid.uuid4().hex}")
    queued: dict[str, tuple[BuildParcel, str]] = field(default_factory=dict)
    flights: dict[str, Flight] = field(default_factory=dict)
    built: dict[str, Built] = field(default_factory=dict)
    tried: dict[str, set[str]] = field(default_factory=dict)
    done: dict[str, MakeProgress] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)

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
            self.members.refresh()
            self.advance()
            if progress is not None and key in self.done:
                progress(self.done[key])
            if (built := self.built.get(key)) is None:
                time.sleep(POLL_S)
                continue
            if built.error is not None:
                what, where, next_step = built.error
                raise SeriesError(what, where=where, next_step=next_step)
            if built.files is None:
                break
            if built.files.key != key:
                raise InfraError(f"files of kernel {built.files.key} came", where=f"kernel {key}")
            files = built.files
            self.store.sign(files, here)
        return self.store.fetch_kernel(files, here) if files is not None else None

    def reached(self, event: tuple[float, Mapping[str, Any]]) -> None:
        """How far a build is, as its worker says."""
        build = event[1]
        self.done[build["key"]] = MakeProgress(build["done"], build["total"], build["seconds"])

    def advance(self) -> None:
        """Take in what was built, and submit what has a worker."""
        for key, flight in list(self.flights.items()):
            if self.members.landed(flight):
                self._receive(key, self.flights.pop(key))
        if self.members.client.status != "running":
            return
        busy = {self.queued[key][1] for key in self.flights}
        for key, (parcel, tree) in self.queued.items():
            if key in self.built or key in self.flights:
                continue
            tried = self.tried.setdefault(key, set())
            left = [
                member
                for member in self.members.serving.values()
                if member.resources.get("build") and member.address not in tried
            ]
            if not left:
                if tried:
                    self.built[key] = Built("", trouble="no worker is left")
                continue
            holders = [member for member in left if tree in member.trees]
            if holders or tree not in busy:
                busy.add(tree)
                member = min(holders or left, key=lambda each: (each.builds, each.address))
                self.flights[key] = self.members.submit(worker.build_kernel, parcel, member, BUILD)

    def _receive(self, key: str, flight: Flight) -> None:
        data = self.members.result(flight, BUILD)
        if data is None:
            # A build that takes its workers' memory would go from one to the next.
            self.lost[key] += 1
            if self.lost[key] > ATTEMPTS:
                self.built[key] = Built("", trouble="workers died while they built it")
            return
        try:
            built = unpacked(Built, data)
        except InfraError as error:
            built = Built("", trouble=error.what)
        if built.trouble:
            self.log(f"worker {built.worker} cannot build kernel {key}: {built.trouble}")
            self.tried.setdefault(key, set()).add(flight.member.address)
            return
        flight.member.trees.add(self.queued[key][1])
        self.built[key] = built
