"""Wall blocks on hosts of the fleet: one block at a time a host, its guests back to back."""

from __future__ import annotations

import pickle
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from errors import InfraError, LabError
from experiment.spec import Guest
from fleet import plain
from fleet.artefacts import Artefact, ArtefactStore
from fleet.cases import read_raw, write_raw
from fleet.identity import CHECKOUT, refusal
from fleet.link import SchedulerLink
from fleet.members import Member
from fleet.parcel import HOST_ENDINGS, MachineParcel, files_of, machine_of, machine_parcel
from fleet.site import Site
from guests import virtme
from guests.console import Ending
from guests.exact import Outcome
from guests.virtme import WallMachine
from host import accelerator, facts
from host.accelerator import Accelerator, AcceleratorTest
from host.doctor import DoctorCheck
from host.topology import Placement
from runs.boots import Boot, Place, WallBoot, WallHost, WallRun
from runs.options import Options
from runs.prepare import wall_host
from runs.wall import lab_kept_off, watched

RESOURCES = {"wall": 1}
POLL_S = 0.5


@dataclass(frozen=True)
class HostParcel:
    """Asks a wall host what runs guests there; see ``runs.prepare.wall_host``."""

    store: ArtefactStore
    guests: Mapping[str, Mapping[str, Guest]]
    image: Artefact
    fit_only: bool


@dataclass(frozen=True)
class BlockParcel:
    """A block: its guests by name, in the order they are made."""

    store: ArtefactStore
    guests: tuple[tuple[str, MachineParcel, str], ...]
    attempts: int
    accelerator: Accelerator


@dataclass(frozen=True)
class WallAnswer:
    """What a wall host said: of itself, of a block, or why it could not."""

    worker: str
    accelerator: AcceleratorTest | None = None
    placements: tuple[tuple[str, str, Placement | None], ...] = ()
    checks: tuple[DoctorCheck, ...] = ()
    runs: tuple[WallRun, ...] = ()
    raw: tuple[dict[str, bytes], ...] = ()
    trouble: str = ""

    @property
    def host(self) -> WallHost:
        """What it said of itself.

        Raises:
            InfraError: it said nothing of that.
        """
        if self.accelerator is None:
            raise InfraError("does not say what it runs guests by", where=f"worker {self.worker}")
        placed = {(arm, name): placement for arm, name, placement in self.placements}
        return WallHost(self.accelerator, placed, self.checks)


def inspect(identity: Mapping[str, str], payload: bytes) -> bytes:
    """Find out, on a worker, what runs wall guests there."""
    return _answered(identity, payload, _inspect)


def make(identity: Mapping[str, str], payload: bytes) -> bytes:
    """Make a block on a worker."""
    return _answered(identity, payload, _make)


def _answered(
    identity: Mapping[str, str], payload: bytes, act: Callable[[Any, str], WallAnswer]
) -> bytes:
    import distributed

    address = distributed.get_worker().address
    refused = refusal(identity)
    if refused:
        return plain.packed(WallAnswer(address, trouble=refused))
    try:
        answer = act(pickle.loads(payload), address)  # noqa: S301
    except (LabError, OSError) as error:
        answer = WallAnswer(address, trouble=plain.words(error))
    return plain.packed(answer)


def _inspect(parcel: HostParcel, address: str) -> WallAnswer:
    cache = facts.cache_folder()
    image = parcel.store.fetch(parcel.image, cache)
    options = Options(CHECKOUT, cache, fit_only=parcel.fit_only)
    host = wall_host(parcel.guests, image, options)
    placements = tuple((*where, placement) for where, placement in host.placements.items())
    return WallAnswer(address, host.accelerator, placements, host.checks)


def _make(parcel: BlockParcel, address: str) -> WallAnswer:
    cache = facts.cache_folder()
    machines = {name: machine_of(sent, parcel.store, cache) for name, sent, _ in parcel.guests}
    first = next(iter(machines.values()))
    host = wall_host(
        {"": {name: machine.guest for name, machine in machines.items()}},
        first.kernel,
        Options(CHECKOUT, cache),
    )
    if host.accelerator.accelerator != parcel.accelerator:
        raise InfraError(
            f"guests run by {host.accelerator.accelerator} there, by {parcel.accelerator} in this "
            "session"
        )
    runs, raw = [], []
    site = Site(cache)
    try:
        with lab_kept_off(next(iter(host.placements.values()))):
            for name, _, text in parcel.guests:
                machine = machines[name]
                wall = virtme.on_host(machine, host.accelerator, host.placements["", name])
                run, files = _tried(wall, text, site, parcel.attempts)
                runs.append(run)
                raw.append(files)
    finally:
        site.close()
    # By the client's clock it ends when it arrives; here only the distances are known.
    end = time.monotonic()
    late = tuple(WallRun(run.outcome, run.conditions, run.at_s - end) for run in runs)
    return WallAnswer(address, runs=late, raw=tuple(raw))


def _unpacked(data: bytes) -> WallAnswer:
    try:
        return plain.unpacked(WallAnswer, data)
    except InfraError as error:
        return WallAnswer("", trouble=error.what)


def _is_wall_host(member: Member) -> bool:
    return bool(member.resources.get("wall"))


def _tried(
    machine: WallMachine, text: str, site: Site, attempts: int
) -> tuple[WallRun, dict[str, bytes]]:
    for attempt in range(1, attempts + 1):
        folder = site.folder(machine.guest.memory_mib)
        logs = folder.with_name(f"{folder.name}-logs")

        def boot(folder: Path = folder, logs: Path = logs) -> Outcome:
            try:
                return virtme.run(machine, text, folder, logs, lambda word: None)
            except InfraError as error:
                # Another host makes the block where this one has lost its KVM.
                accelerator.require_device(machine.accelerator)
                return Outcome(None, Ending("lost", str(error)), 0.0, 0.0)

        began = time.monotonic()
        outcome, conditions = watched(boot)
        shutil.rmtree(folder, ignore_errors=True)
        lost = outcome.files is None and outcome.ending.kind in HOST_ENDINGS
        if not lost or attempt == attempts:
            break
    return WallRun(outcome, conditions, began), read_raw(logs)


@dataclass
class WallFleet:
    """Wall hosts of a fleet: workers started with ``--resources wall=1``."""

    link: SchedulerLink
    store: ArtefactStore
    losses: int
    accelerator: Accelerator = "tcg"

    def host(
        self, guests: Mapping[str, Mapping[str, Guest]], image: Path, *, fit_only: bool
    ) -> WallHost:
        """As ``runs.boots.WallElsewhere.host``: of whichever wall host answers."""
        parcel = HostParcel(self.store, guests, self.store.put(image), fit_only)
        answer = self._submitted(inspect, parcel)().host
        self.accelerator = answer.accelerator.accelerator
        return answer

    def hosts(self) -> int:
        """Blocks under way at once: one a member with the resource, and at least one."""
        self.link.members.refresh(at_once=True)
        return max(1, sum(map(_is_wall_host, self.link.members.serving.values())))

    def begin(
        self, block: Sequence[WallBoot], attempts: int, place: Place
    ) -> Callable[[], Sequence[WallRun]]:
        """As ``runs.boots.WallElsewhere.begin``."""
        boots = [
            Boot(wall_boot.name, "", wall_boot.machine, wall_boot.job_text, cold=True)
            for wall_boot in block
        ]
        kept = {path: self.store.put(path) for boot in boots for path in files_of(boot)}
        parcel = BlockParcel(
            self.store,
            tuple((b.name, machine_parcel(b.machine, kept), b.job_text) for b in boots),
            attempts,
            self.accelerator,
        )
        wait = self._submitted(make, parcel)
        for wall_boot in block:
            place.reporter.started(wall_boot.name)

        def runs() -> Iterator[WallRun]:
            answer = wait()
            now = time.monotonic()
            for wall_boot, run, files in zip(block, answer.runs, answer.raw, strict=True):
                write_raw(place.raw / wall_boot.name, files)
                yield WallRun(run.outcome, run.conditions, now + run.at_s)

        return lambda: tuple(runs())

    def _submitted(self, function: Any, parcel: object) -> Callable[[], WallAnswer]:
        """Send a parcel to a wall host; what is returned waits for it, and sends it again.

        Raises:
            InfraError: no wall host is there, or none can do it.
        """
        members = self.link.members

        def send() -> tuple[Any, float]:
            if not members.await_member(_is_wall_host):
                raise InfraError(
                    "no worker is a wall host", where="fleet",
                    next_step="dask worker --resources 'wall=1 cores=0'; see docs/fleet.md",
                )  # fmt: skip
            key = f"twinboot-wall-{uuid.uuid4().hex}"
            future = self.link.submit(function, parcel, key=key, resources=RESOURCES)
            return future, time.monotonic()

        sending = send()

        def wait() -> WallAnswer:
            future, sent = sending
            for _ in range(self.losses):
                while not future.done() and members.served_since(sent, _is_wall_host):
                    self.link.require_scheduler()
                    members.refresh()
                    time.sleep(POLL_S)
                if not future.done():
                    self.link.cancel([future])
                data = self.link.result(future)
                if isinstance(data, bytes):
                    answer = _unpacked(data)
                    if not answer.trouble:
                        return answer
                    if answer.worker:
                        members.set_aside(answer.worker, answer.trouble)
                future, sent = send()
            raise InfraError("no wall host could make it", where="fleet")

        return wait
