"""The unit of work that travels: one guest to boot, and what comes back of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from experiment.plan import Size
from experiment.spec import Guest
from fleet.artefacts import Artefact, ArtefactStore, held_in
from guests import channel
from guests.exact import Machine, Outcome
from guests.probe.plugin import Probe
from host.facts import QEMU_OVERHEAD_MIB
from runs.boots import Boot

# Endings that are a host's trouble and say nothing of the guest.
HOST_ENDINGS = ("lost", "silent")


@dataclass(frozen=True)
class MachineUnit:
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
        return _digest(*parts)


@dataclass(frozen=True)
class ProbeUnit:
    """The probe by content; see ``guests.probe.plugin.Probe``."""

    plugin: Artefact
    api: int
    qemu: str
    window: int
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Unit:
    """One guest to boot.  ``topic`` is where the worker says how far it is."""

    name: str
    store: ArtefactStore
    machine: MachineUnit
    job_text: str
    cold: bool
    probe: ProbeUnit | None
    console_bytes: int
    topic: str

    @property
    def question(self) -> str:
        """The same for units that every sound worker answers with the same bytes."""
        probe = [self.probe.plugin.sha256, repr(self.probe)] if self.probe else []
        return _digest(self.machine.key, self.job_text, "cold" if self.cold else "", *probe)

    @property
    def memory_mib(self) -> int:
        """Host memory that the guest takes."""
        return self.machine.guest.memory_mib + QEMU_OVERHEAD_MIB


@dataclass(frozen=True)
class Answer:
    """What a worker says of one unit: how the guest ended, or why it booted none.

    ``raw`` are the files of the run's raw folder, ``snapshot_raw`` those of the snapshot
    when this unit took it.  ``received`` counts the bytes that were fetched for it.
    """

    worker: str
    host: str
    outcome: Outcome | None
    trouble: str = ""
    raw: dict[str, bytes] = field(default_factory=dict)
    snapshot_raw: dict[str, bytes] = field(default_factory=dict)
    snapshot_cpu_s: float = 0.0
    received: int = 0
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
        return _digest(outcome.ending.kind, channel.fingerprint(outcome.files), counts)


def unit_of(boot: Boot, store: ArtefactStore, kept: dict[Path, Artefact], topic: str) -> Unit:
    """A boot as it travels; ``kept`` are its files in the store."""
    probe = boot.probe
    return Unit(
        boot.name,
        store,
        machine_unit(boot.machine, kept),
        boot.job_text,
        boot.cold,
        ProbeUnit(kept[probe.path], probe.api, probe.qemu, probe.window, probe.spans)
        if probe
        else None,
        boot.console_bytes,
        topic,
    )  # fmt: skip


def machine_unit(machine: Machine, kept: dict[Path, Artefact]) -> MachineUnit:
    """A machine as it travels; ``kept`` are its files in the store."""
    return MachineUnit(
        kept[machine.kernel], kept[machine.initramfs], kept[machine.preload],
        machine.guest, machine.size, machine.prepare_text, machine.cmdline,
    )  # fmt: skip


def machine_of(asked: MachineUnit, store: ArtefactStore, cache: Path) -> Machine:
    """The machine on the worker's host, its files fetched.

    Raises:
        InfraError: an artefact is damaged or gone.
    """
    return Machine(
        store.fetch(asked.kernel, cache), store.fetch(asked.initramfs, cache), asked.guest,
        asked.size, asked.prepare_text, store.fetch(asked.preload, cache), asked.cmdline,
    )  # fmt: skip


def files_of(boot: Boot) -> tuple[Path, ...]:
    """The files on this host that a boot needs."""
    machine = boot.machine
    more = (boot.probe.path,) if boot.probe else ()
    return (machine.kernel, machine.initramfs, machine.preload, *more)


def missing_bytes(unit: Unit, cache: Path) -> int:
    """Bytes that have to come before a unit can be booted on this host."""
    asked = unit.machine
    every = [asked.kernel, asked.initramfs, asked.preload]
    every += [unit.probe.plugin] if unit.probe else []
    return sum(one.size for one in every if not held_in(cache, one).exists())


def boot_of(unit: Unit, cache: Path) -> Boot:
    """The boot on the worker's host, its files fetched.

    Raises:
        InfraError: an artefact is damaged or gone.
    """
    machine = machine_of(unit.machine, unit.store, cache)
    probe = None
    if unit.probe is not None:
        said = unit.probe
        path = unit.store.fetch(said.plugin, cache)
        probe = Probe(path, said.plugin.sha256, said.api, said.qemu, said.window, said.spans)
    return Boot(
        unit.name, "", machine, unit.job_text, unit.cold, probe, unit.console_bytes
    )  # fmt: skip


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
