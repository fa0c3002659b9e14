"""The parcel of work that travels: one guest to boot, and what comes back of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from experiment.plan import Size
from experiment.spec import Guest
from files import digest
from fleet.artefacts import Artefact, ArtefactStore, held_in
from guests import channel
from guests.exact import Machine, Outcome
from guests.probe.plugin import Probe
from host.facts import QEMU_OVERHEAD_MIB
from runs.boots import Boot

# Endings that are a host's trouble and say nothing of the guest.
HOST_ENDINGS = ("lost", "silent", "unreadable")


@dataclass(frozen=True)
class MachineParcel:
    """A machine by content; see ``guests.exact.Machine``."""

    kernel: Artefact
    initramfs: Artefact
    preload: Artefact
    guest: Guest
    size: Size
    prepare_text: str
    cmdline: tuple[str, ...]

    @property
    def key(self) -> str:
        """Names what a snapshot of it holds."""
        parts = [
            self.kernel.sha256, self.initramfs.sha256, self.preload.sha256,
            self.guest.model_dump_json(), json.dumps(asdict(self.size)), self.prepare_text,
            *self.cmdline,
        ]  # fmt: skip
        return digest(*parts)


@dataclass(frozen=True)
class ProbeParcel:
    """The probe by content; see ``guests.probe.plugin.Probe``."""

    plugin: Artefact
    api: int
    qemu: str
    window: int
    spans: tuple[tuple[int, int], ...]
    locks: tuple[tuple[str, int, int], ...]
    model: tuple[str, ...]
    functions: Artefact | None
    stacks: tuple[str, ...]

    @property
    def files(self) -> tuple[Artefact, ...]:
        """What QEMU reads for it."""
        return (self.plugin, self.functions) if self.functions else (self.plugin,)


@dataclass(frozen=True)
class Parcel:
    """One guest to boot.  ``topic`` is where the worker says how far it is."""

    name: str
    store: ArtefactStore
    machine: MachineParcel
    job_text: str
    cold: bool
    probe: ProbeParcel | None
    console_bytes: int
    topic: str

    @property
    def question(self) -> str:
        """The same for parcels that every sound worker answers with the same bytes."""
        probe = (
            [*(file.sha256 for file in self.probe.files), repr(self.probe)] if self.probe else []
        )
        return digest(self.machine.key, self.job_text, "cold" if self.cold else "", *probe)

    @property
    def memory_mib(self) -> int:
        """Host memory that the guest takes."""
        return self.machine.guest.memory_mib + QEMU_OVERHEAD_MIB


@dataclass(frozen=True)
class Answer:
    """What a worker says of one parcel: how the guest ended, or why it booted none.

    ``raw`` are the files of the run's raw folder, ``snapshot_raw`` those of the snapshot
    when this parcel took it.  ``received`` counts the bytes that were fetched for it from the
    store, ``moved`` those of parcel and answer.
    """

    worker: str
    host: str
    outcome: Outcome | None
    trouble: str = ""
    raw: dict[str, bytes] = field(default_factory=dict)
    snapshot_raw: dict[str, bytes] = field(default_factory=dict)
    snapshot_cpu_s: float = 0.0
    received: int = 0
    moved: int = 0
    elapsed_s: float = 0.0

    @property
    def digest(self) -> str:
        """What another worker's answer must be equal to; empty where it need not be."""
        outcome = self.outcome
        if outcome is None or (outcome.files is None and outcome.ending.kind in HOST_ENDINGS):
            return ""
        if outcome.files is None:
            return f"ended: {outcome.ending.kind}"
        counts = hashlib.sha256(outcome.counts or b"").hexdigest()
        return digest(outcome.ending.kind, channel.fingerprint(outcome.files), counts)


def parcel_of(boot: Boot, store: ArtefactStore, kept: dict[Path, Artefact], topic: str) -> Parcel:
    """A boot as it travels; ``kept`` are its files in the store."""
    probe = boot.probe
    return Parcel(
        boot.name,
        store,
        machine_parcel(boot.machine, kept),
        boot.job_text,
        boot.cold,
        ProbeParcel(
            kept[probe.path], probe.api, probe.qemu, probe.window, probe.spans, probe.locks,
            probe.model, kept[probe.functions] if probe.functions else None, probe.stacks,
        )
        if probe
        else None,
        boot.console_bytes,
        topic,
    )  # fmt: skip


def machine_parcel(machine: Machine, kept: dict[Path, Artefact]) -> MachineParcel:
    """A machine as it travels; ``kept`` are its files in the store."""
    return MachineParcel(
        kept[machine.kernel], kept[machine.initramfs], kept[machine.preload],
        machine.guest, machine.size, machine.prepare_text, machine.cmdline,
    )  # fmt: skip


def machine_of(parcel: MachineParcel, store: ArtefactStore, cache: Path) -> Machine:
    """The machine on the worker's host, its files fetched.

    Raises:
        InfraError: an artefact is damaged or gone.
    """
    return Machine(
        store.fetch(parcel.kernel, cache), store.fetch(parcel.initramfs, cache), parcel.guest,
        parcel.size, parcel.prepare_text, store.fetch(parcel.preload, cache), parcel.cmdline,
    )  # fmt: skip


def files_of(boot: Boot) -> tuple[Path, ...]:
    """The files on this host that a boot needs."""
    machine = boot.machine
    more = (boot.probe.path, boot.probe.functions) if boot.probe else ()
    files = (machine.kernel, machine.initramfs, machine.preload, *more)
    return tuple(file for file in files if file)


def missing_bytes(parcel: Parcel, cache: Path) -> int:
    """Bytes that have to come before a parcel can be booted on this host."""
    machine = parcel.machine
    every = [machine.kernel, machine.initramfs, machine.preload]
    every += parcel.probe.files if parcel.probe else ()
    return sum(artefact.size for artefact in every if not held_in(cache, artefact).exists())


def boot_of(parcel: Parcel, cache: Path) -> Boot:
    """The boot on the worker's host, its files fetched.

    Raises:
        InfraError: an artefact is damaged or gone.
    """
    machine = machine_of(parcel.machine, parcel.store, cache)
    probe = None
    if parcel.probe is not None:
        sent = parcel.probe
        path = parcel.store.fetch(sent.plugin, cache)
        probe = Probe(
            path, sent.plugin.sha256, sent.api, sent.qemu, sent.window, sent.spans, sent.locks,
            sent.model, parcel.store.fetch(sent.functions, cache) if sent.functions else None,
            sent.stacks,
        )  # fmt: skip
    return Boot(
        parcel.name, "", machine, parcel.job_text, parcel.cold, probe, parcel.console_bytes
    )  # fmt: skip
