"""What travels between hosts by content: kernels, roots, small programs, through one store.

A store is a folder that all hosts see, or anything else that fsspec opens by URL.  Files
are named by their SHA-256, and are verified by it each time they arrive.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from errors import InfraError, UsageError
from files import sha256_of
from kernels import cache as kernel_cache
from results import door

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

    def put(self, path: Path, name: str = "") -> Artefact:
        """Keep a file, unless the store has it.  Raises InfraError: the store cannot be written."""
        artefact = Artefact(name or path.name, sha256_of(path), path.stat().st_size)
        if not self._has(artefact):
            self._write(f"blobs/{artefact.sha256}", path.read_bytes())
        return artefact

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
        with self._opened("read") as (files, top, _):
            try:
                return bool(files.size(f"{top}/blobs/{artefact.sha256}") == artefact.size)
            except MISSING:
                return False

    def _read_into(self, artefact: Artefact, path: Path) -> str:
        """Fetch a file's bytes, and no more than it has; return their SHA-256."""
        blob = f"blobs/{artefact.sha256}"
        with self._opened("read") as (files, top, is_folder), path.open("wb") as sink:
            try:
                if is_folder:
                    with door.opened(Path(top), blob, artefact.size) as source:
                        sink.write(source.read(artefact.size))
                elif files.size(f"{top}/{blob}") <= artefact.size:
                    watch = _watch(artefact.size)
                    files.get_file(f"{top}/{blob}", str(path), callback=watch)
            except MISSING:
                what = f"{artefact.name} (SHA-256 {artefact.sha256[:16]}) is not there"
                step = "name a store that every host sees: --store"
                raise InfraError(what, where=f"store {self.url}", next_step=step) from None
        return sha256_of(path)

    def _write(self, place: str, data: bytes) -> None:
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
        # Loads what a URL needs, so only where a store is used.
        import fsspec

        try:
            files, top = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            what = f"cannot be opened: {error}"
            step = "a folder that all hosts see, or a URL that fsspec knows"
            raise UsageError(what, where=f"store {self.url}", next_step=step) from None
        try:
            yield files, str(top).rstrip("/"), "file" in files.protocol
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
