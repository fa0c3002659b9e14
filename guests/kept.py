"""Machines at their stop points, kept in the cache from session to session.

Such a machine is a function of what is booted and of its QEMU (docs/inside.md): an entry is named
by all of these, and used as it was put there or not at all.  Repeats boot from cold, without it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import IO

from experiment.architecture import ARCHITECTURES
from experiment.spec import Guest
from files import sha256_of
from guests import exact
from guests.argv import environment, qemu_argv
from guests.exact import Machine, Snapshot
from guests.probe.plugin import Probe
from host import folders
from host.packages import locate
from host.process import run

# Of memory that a machine may have: more takes as long to unpack as to boot.
MOST_MEMORY_MIB = 2048
# Of all entries, on disk: about a hundred machines of the small guests.
MOST_BYTES = 4 << 30
CHUNK = 1 << 16
ZEROS = bytes(CHUNK)
DIGESTS = "sha256.json"
STATE = "state"
LOGS = "logs"
CODEC = "zstd"
ROOT = Path("/")
# Changed with the form of an entry, and with what the lab does to a machine before its stop point.
FORM = 1
# The same of a run, from there to its end.
RUN_FORM = 1
# Code that QEMU puts into a guest of its own accord: it runs, so it counts.
FIRMWARE = ("bios-256k.bin", "kvmvapic.bin", "linuxboot_dma.bin")


def provide(
    machine: Machine, cache: Path, folder: Path, logs: Path, watch: Callable[[str], None]
) -> Snapshot:
    """The snapshot of ``machine`` in a new folder: kept (no CPU time), or booted."""
    if machine.guest.memory_mib > MOST_MEMORY_MIB:
        return exact.take_snapshot(machine, folder, logs, watch)
    entry = kept_folder(cache) / key_of(machine)
    snapshot = _restored(machine, entry, folder, logs)
    if snapshot is None:
        snapshot = exact.take_snapshot(machine, folder, logs, watch)
        # One that is in no memory was taken on a host that has little room.
        if snapshot.held:
            _keep(snapshot, entry, logs)
    return snapshot


def kept_folder(cache: Path) -> Path:
    """Entries, one folder a key."""
    return cache / "boots"


def key_of(machine: Machine) -> str:
    """Name of all that a machine at its stop point is a function of; InfraError: no QEMU."""
    return _key(*_stopped(machine), emulator(_program(machine.guest)))


def run_key(
    machine: Machine, job_text: str, probe: Probe | None, *, cold: bool, console_bytes: int
) -> str:
    """Name of all that an exact run is a function of, on every host; InfraError: no QEMU."""
    counted = None
    if probe is not None:
        # Read by what they hold, and so are the words: where they lie is this host's matter.
        files = [_sha256(path) for path in (probe.path, probe.functions) if path]
        named = replace(probe, path=ROOT / "probe", functions=probe.functions and ROOT / "map")
        counted = [files, named.argument(ROOT / exact.COUNTS, exact.MEMORY)]
    parts = [RUN_FORM, job_text, cold, console_bytes, counted, platform.machine()]
    return _key(*_stopped(machine), *parts, emulator(_program(machine.guest)))


def _program(guest: Guest) -> Path:
    program = ARCHITECTURES[guest.arch].board.qemu
    return locate(program) or Path(program)


def _key(*parts: object) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _stopped(machine: Machine) -> list[object]:
    """What a machine at its stop point is a function of, but for the QEMU."""
    # The names of files are no part of it, what they hold is.
    anywhere = replace(machine, kernel=ROOT / "kernel", initramfs=ROOT / "initramfs")
    files = exact.files_of(anywhere, ROOT, ROOT)
    return [
        FORM,
        qemu_argv(machine.guest, machine.size, files, cmdline=machine.cmdline),
        environment(ROOT / "preload", machine.guest),
        # How long it may boot is part of whether it does.
        machine.guest.model_dump(mode="json"),
        machine.prepare_text,
        *(_sha256(path) for path in (machine.kernel, machine.initramfs, machine.preload)),
    ]


def _sha256(path: Path) -> str:
    status = path.stat()
    return _sha256_at(path, status.st_size, status.st_mtime_ns, status.st_ino)


_sha256_at = lru_cache(maxsize=256)(lambda path, *_status: sha256_of(path))


@lru_cache
def emulator(path: Path) -> Mapping[str, str]:
    """Digests of a QEMU's binary, libraries and firmware; InfraError: it cannot be run."""
    folders = run([str(path), "-L", "help"], timeout_s=60.0).stdout.split()
    # Each where QEMU looks first.
    places = [[Path(at) / name for at in folders] for name in FIRMWARE]
    firmware = [
        next(filter(Path.is_file, each), Path(name))
        for each, name in zip(places, FIRMWARE, strict=True)
    ]
    # Of a QEMU that has none it says so, with a status.
    libraries = run(["ldd", str(path)], timeout_s=60.0, check=False).stdout
    return {
        "QEMU binary": digest_of([path]),
        "QEMU libraries": digest_of(map(Path, sorted(set(re.findall(r"(?<=\s)/\S+", libraries))))),
        "QEMU firmware": digest_of(firmware),
    }


def digest_of(files: Iterable[Path]) -> str:
    """16 hex digits of the contents of these files, in order; of those that are there."""
    total = sha256()
    for path in files:
        if path.is_file():
            total.update(bytes.fromhex(sha256_of(path)))
    return total.hexdigest()[:16]


def _restored(machine: Machine, entry: Path, folder: Path, logs: Path) -> Snapshot | None:
    """The snapshot of an entry; None where there is none, or none that is what was put there."""
    try:
        digests = json.loads((entry / DIGESTS).read_text())
        if digests != _digests(entry):
            return None
        with ExitStack() as kept:
            memory = exact.new_memory(folder, machine.guest, kept)
            if not memory:
                return None
            folder.mkdir(parents=True)
            size = machine.guest.memory_mib * (1 << 20) // len(memory)
            for number, each in enumerate(memory):
                _unpack(entry / f"memory-{number}", each, size)
            shutil.copyfile(entry / STATE, folder / STATE)
            shutil.copytree(entry / LOGS, logs, dirs_exist_ok=True)
            os.utime(entry)
            kept.pop_all()
            return Snapshot(machine, folder / exact.MEMORY, folder / STATE, 0.0, memory)
    except (OSError, ValueError):
        # Another session may be putting it there, or removing it.
        return None


def _keep(snapshot: Snapshot, entry: Path, logs: Path) -> None:
    """Make an entry of a snapshot; a disk that refuses it costs the entry and no more."""
    with suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=".new-", dir=entry.parent))
        try:
            for number, memory in enumerate(snapshot.held):
                _pack(memory, new / f"memory-{number}")
            shutil.copyfile(snapshot.state, new / STATE)
            shutil.copytree(logs, new / LOGS)
            (new / DIGESTS).write_text(json.dumps(_digests(new)))
            shutil.rmtree(entry, ignore_errors=True)
            new.rename(entry)
            # Remove the entries that were not used for longest, beyond the bytes that are kept.
            entries = (path for path in entry.parent.iterdir() if not path.name.startswith("."))
            for path in folders.beyond(entries, MOST_BYTES):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            shutil.rmtree(new, ignore_errors=True)


def _digests(entry: Path) -> dict[str, str]:
    return {
        path.name: sha256_of(path)
        for path in sorted(entry.iterdir())
        if path.is_file() and path.name != DIGESTS
    }


def _pack(memory: IO[bytes], path: Path) -> None:
    import pyarrow as pa  # takes as long as a small report: only where a machine is packed

    at = 0
    with path.open("wb") as file, pa.CompressedOutputStream(file, CODEC) as packed:
        while chunk := os.pread(memory.fileno(), CHUNK, at):
            packed.write(chunk)
            at += len(chunk)


def _unpack(path: Path, memory: IO[bytes], size: int) -> None:
    """Fill ``memory`` with what is packed at ``path``; ValueError: it is not ``size`` bytes."""
    import pyarrow as pa  # as above

    at = 0
    with path.open("rb") as file, pa.CompressedInputStream(file, CODEC) as packed:
        while chunk := packed.read(CHUNK):
            if chunk != ZEROS[: len(chunk)]:
                os.pwrite(memory.fileno(), chunk, at)
            at += len(chunk)
    if at != size:
        raise ValueError(f"{path}: {at} bytes of a memory of {size}")
    os.ftruncate(memory.fileno(), size)
