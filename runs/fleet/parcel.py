"""What travels: a guest to boot, its files by content, and the answer that comes back.

Kernels, roots and small programs go through one store, which is a folder that all hosts see, or
anything else that fsspec opens by URL.  Files are named by their SHA-256, and are verified by it
each time they arrive.  Answers are compressed JSON, which holds values and can run nothing: a
client must not run what a worker sends.  dask's own messages are another matter (SECURITY.md).
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import ConfigDict, TypeAdapter, ValidationError

from errors import InfraError, UsageError
from files import sha256_of
from guests import channel
from guests.channel import Ending
from guests.exact import Outcome
from host import limited
from host.facts import QEMU_OVERHEAD_MIB
from kernels import cache as kernel_cache
from results import door
from runs.boots import Boot
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


FETCHES = 2
# The largest kernel with debug information, at 1 MiB/s.
FETCH_S = 1024.0
VERIFIED: dict[Path, tuple[int, int]] = {}
MISSING = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True)
class Artefact:
    """A file by content: the name it goes by, its SHA-256 and its bytes."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class ArtefactStore:
    """A store of files by content.  ``url`` is a folder or an fsspec URL."""

    url: str

    def put(self, path: Path) -> Artefact:
        """Keep a file, unless the store has it.  Raises InfraError: the store cannot be written."""
        artefact = Artefact(path.name, sha256_of(path), path.stat().st_size)
        if not self._has(artefact):
            self.write(f"blobs/{artefact.sha256}", path.read_bytes())
        return artefact

    def folder(self) -> Path | None:
        """The folder that it is; None for any other URL.  UsageError: fsspec does not know it."""
        with self._opened("read") as (_, top, is_folder):
            return Path(top) if is_folder else None

    def read(self, place: str, most: int) -> bytes:
        """A file's bytes.  Raises FileNotFoundError; LabError: more bytes, no file, no store."""
        if (top := self.folder()) is not None:
            return door.read(top, place, most)
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy"
            self._copy(place, most, copy)
            return copy.read_bytes()

    def fetch(self, artefact: Artefact, cache: Path) -> Path:
        """The file in this host's cache, verified; InfraError: damaged twice, or not there."""
        kept = held_in(cache, artefact)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(kernel_cache.lock_path(cache, f"fleet-{artefact.sha256}")):
            # Read once a process, unless it was changed.
            known = VERIFIED.get(kept, ()) if kept.exists() else None
            if known is not None and (known == _stamp(kept) or sha256_of(kept) == artefact.sha256):
                os.utime(kept)
                VERIFIED[kept] = _stamp(kept)
                return kept
            digest = ""
            for _ in range(FETCHES):
                beside = kept.with_suffix(".new")
                try:
                    digest = self._read_into(artefact, beside)
                    if digest == artefact.sha256:
                        beside.replace(kept)
                        VERIFIED[kept] = _stamp(kept)
                        return kept
                finally:
                    beside.unlink(missing_ok=True)
        raise InfraError(
            f"{artefact.name} is damaged: SHA-256 {digest[:16]} arrived {FETCHES} times, "
            f"{artefact.sha256[:16]} is its name",
            where=f"store {self.url}",
            next_step=f"remove blobs/{artefact.sha256} from the store; it is made again",
        )

    def _has(self, artefact: Artefact) -> bool:
        with self._opened("read") as (files, top, is_folder):
            try:
                blob = f"{top}/blobs/{artefact.sha256}"
                size = Path(blob).stat().st_size if is_folder else files.size(blob)
                return bool(size == artefact.size)
            except MISSING:
                return False

    def _read_into(self, artefact: Artefact, path: Path) -> str:
        """Fetch a file's bytes, and no more than it has; return their SHA-256."""
        try:
            self._copy(f"blobs/{artefact.sha256}", artefact.size, path)
        except FileNotFoundError:
            what = f"{artefact.name} (SHA-256 {artefact.sha256[:16]}) is not there"
            step = "name a store that every host sees: --store"
            raise InfraError(what, where=f"store {self.url}", next_step=step) from None
        return sha256_of(path)

    def _copy(self, place: str, most: int, path: Path) -> None:
        missing = False
        with self._opened("read") as (files, top, is_folder), path.open("wb") as sink:
            try:
                if is_folder:
                    with door.opened(Path(top), place, most) as source:
                        sink.write(source.read(most))
                elif (size := files.size(f"{top}/{place}")) > most:
                    raise ValueError(f"{place} has {size} bytes, and at most {most} are read")
                else:
                    files.get_file(f"{top}/{place}", str(path), callback=_watch(most))
            except MISSING:
                missing = True
        if missing:
            raise FileNotFoundError(place)

    def write(self, place: str, data: bytes) -> None:
        """Keep bytes in a place of the store.  Raises InfraError: it cannot be written."""
        with self._opened("written") as (files, top, is_folder):
            if is_folder:
                # A reader could see half of it; object stores show all or nothing.
                door.write(Path(top), place, data)
            else:
                files.makedirs(f"{top}/{place}".rpartition("/")[0], exist_ok=True)
                files.pipe_file(f"{top}/{place}", data)

    @contextmanager
    def _opened(self, to_be: str) -> Iterator[tuple[Any, str, bool]]:
        """The store, its top, and if it is a folder; whatever a driver raises is its trouble."""
        files, top, is_folder = None, self.url, Path(self.url).is_absolute()
        try:
            if not is_folder:
                # Its import takes a tenth of a second, which a folder does not need.
                import fsspec

                files, top = fsspec.core.url_to_fs(self.url)
                is_folder = "file" in files.protocol
        except (ImportError, ValueError) as error:
            what = f"cannot be opened: {error}"
            step = "a folder that all hosts see, or a URL that fsspec knows"
            raise UsageError(what, where=f"store {self.url}", next_step=step) from None
        try:
            yield files, str(top).rstrip("/"), is_folder
        except InfraError:
            raise
        except Exception as error:
            what = f"cannot be {to_be}: {' '.join(str(error).split()) or type(error).__name__}"
            step = "see that it can be reached from here, or name another one: --store"
            raise InfraError(what, where=f"store {self.url}", next_step=step) from None


def _watch(size: int) -> Any:
    """What a driver tells of each piece, and ends it: a server may send more than it said."""
    from fsspec.callbacks import Callback

    ends_s = time.monotonic() + FETCH_S

    class PieceCount(Callback):  # type: ignore[misc]
        """Counts, too, without a total."""

        def relative_update(self, inc: int = 1) -> None:
            """Called with the bytes of a piece."""
            super().relative_update(inc)
            if self.value > size or time.monotonic() > ends_s:
                raise ValueError(f"it sends more than {size} bytes, or for {FETCH_S:.0f} s")

    return PieceCount()


def held_in(cache: Path, artefact: Artefact) -> Path:
    """Where a host keeps an artefact that arrived."""
    return cache / "fleet" / artefact.sha256


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_ino


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
        answer = self
        if self.outcome is not None and self.outcome.files is not None:
            answer = replace(self, outcome=replace(self.outcome, files={}))
        return zlib.compress(_adapter().dump_json((answer,)), 1)


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
