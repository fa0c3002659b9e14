"""What travels: a guest to boot, by content, and the answer that comes back.

Answers are compressed JSON, which holds values and can run nothing: a client must not run what a
worker sends.  dask's own messages are another matter (SECURITY.md).
"""

from __future__ import annotations

import functools
import re
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError

from errors import InfraError
from guests import channel
from guests.channel import Ending
from guests.exact import Outcome
from host import limited
from host.facts import QEMU_OVERHEAD_MIB
from results import door
from runs.boots import Boot
from runs.fleet.artefacts import Artefact, ArtefactStore
from text import clean

# Endings that are a host's trouble and say nothing of the guest.
HOST_ENDINGS = ("lost", "silent", "unreadable")
RESULT = "result"
# Several consoles and results of the largest size, and a third more for being text.
LARGEST = 1 << 30
# Of the raw files of one boot: a dozen, each written durably.
MOST_FILES = 100
NAME = re.compile(r"[\w-][\w.-]{0,99}", re.ASCII)
LONGEST_WORDS = 2000


@dataclass(frozen=True)
class Parcel:
    """One guest to boot.

    ``boot`` has the client's paths, ``files`` the content of each.  ``topic`` is where the worker
    reports how far the guest is, ``inputs`` the digest of all that the run is a function of, with
    the client's files.
    """

    boot: Boot
    files: Mapping[Path, Artefact]
    store: ArtefactStore
    topic: str
    inputs: str

    @property
    def memory_mib(self) -> int:
        """Host memory that the guest takes."""
        return self.boot.machine.guest.memory_mib + QEMU_OVERHEAD_MIB

    def boot_here(self, cache: Path) -> Boot:
        """The boot on the worker's host, its files fetched; InfraError: one is damaged or gone."""
        here = {path: self.store.fetch(file, cache) for path, file in self.files.items()}
        machine, probe = self.boot.machine, self.boot.probe
        machine = replace(
            machine,
            kernel=here[machine.kernel],
            initramfs=here[machine.initramfs],
            preload=here[machine.preload],
        )
        if probe is not None:
            functions = here[probe.functions] if probe.functions else None
            probe = replace(probe, path=here[probe.path], functions=functions)
        return replace(self.boot, machine=machine, probe=probe)


@dataclass(frozen=True)
class Answer:
    """What a worker says of one parcel: how the guest ended, or why it booted none.

    ``raw`` are the files of the run's raw folder, ``snapshot_raw`` those of the snapshot
    when this parcel took it.
    """

    worker: str
    host: str
    outcome: Outcome | None
    trouble: str = ""
    raw: dict[str, bytes] = field(default_factory=dict)
    snapshot_raw: dict[str, bytes] = field(default_factory=dict)
    snapshot_cpu_s: float = 0.0

    def packed(self) -> bytes:
        """As it travels: the files a guest sent are in its raw result already."""
        if self.outcome is not None and self.outcome.files is not None:
            return packed(replace(self, outcome=replace(self.outcome, files={})))
        return packed(self)


def files_of(boot: Boot) -> tuple[Path, ...]:
    """The files on this host that a boot needs."""
    machine = boot.machine
    more = (boot.probe.path, boot.probe.functions) if boot.probe else ()
    return tuple(filter(None, (machine.kernel, machine.initramfs, machine.preload, *more)))


def answer_of(data: bytes) -> Answer:
    """An answer, the guest's files read from its raw result; InfraError: it is none."""
    answer = unpacked(data)
    outcome = answer.outcome
    if outcome is None or outcome.files is None:
        return answer
    try:
        outcome = replace(outcome, files=limited.call(channel.decode, answer.raw.get(RESULT, b"")))
    except (channel.ChannelError, limited.LimitError) as error:
        ending = Ending("lost", f"the result came damaged from {answer.worker}: {error}")
        outcome = Outcome(None, ending, outcome.cpu_s, outcome.elapsed_s)
    return replace(answer, outcome=outcome)


def packed(answer: Answer) -> bytes:
    """An answer as it travels."""
    return zlib.compress(_adapter().dump_json((answer,)), 1)


def unpacked(data: bytes) -> Answer:
    """What came, if it is an answer.  Raises InfraError: it is none."""
    try:
        reader = zlib.decompressobj()
        text = reader.decompress(data, LARGEST)
        if reader.unconsumed_tail or not reader.eof:
            raise ValueError(f"it has more than {LARGEST >> 20} MiB, or no end")
        (answer,) = _adapter().validate_json(text)
        for raw in (answer.raw, answer.snapshot_raw):
            if len(raw) > MOST_FILES:
                raise ValueError(f"it has {len(raw)} files, and a run at most {MOST_FILES}")
            if strange := [name for name in raw if not NAME.fullmatch(name)]:
                raise ValueError(f"{strange[0]!r} is no name of a run's file")
    except (zlib.error, ValueError, ValidationError) as error:
        raise InfraError(
            f"a worker's answer cannot be read: {in_words(error)}", where="fleet"
        ) from None
    return answer


@functools.cache
def _adapter() -> TypeAdapter[tuple[Answer]]:
    # In a tuple: an adapter of a dataclass itself is given no configuration.
    coded = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="null")
    return TypeAdapter(tuple[Answer], config=coded)


def in_words(error: Exception) -> str:
    """What an error says, in one line that JSON can hold."""
    return clean(str(error), LONGEST_WORDS)


def write_raw(folder: Path, files: Mapping[str, bytes]) -> None:
    """The raw files of one boot, instead of those of an earlier attempt."""
    shutil.rmtree(folder, ignore_errors=True)
    door.make_folder(folder)
    for name, data in files.items():
        door.write(folder, name, data)


def read_raw(folder: Path) -> dict[str, bytes]:
    """The raw files of one boot by name; none where it made no folder."""
    if not folder.is_dir():
        return {}
    names = [path.name for path in sorted(folder.iterdir()) if path.is_file()]
    return {name: door.read(folder, name, door.LINES) for name in names}
