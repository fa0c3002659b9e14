"""What travels between hosts by content: kernels, roots, small programs, through one store.

A store is a folder that all hosts see, or anything else that fsspec opens by URL.  Files
are named by their SHA-256, and are verified by it each time they arrive.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from errors import InfraError, UsageError
from host.digest import sha256_of
from kernels import cache as kernel_cache
from kernels.cache import Kernel

FETCHES = 2
VERIFIED: dict[Path, tuple[int, int]] = {}
MISSING = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True)
class Artefact:
    """A file by content: the name it goes by, its SHA-256 and its bytes."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class KernelFiles:
    """A kernel's folder as artefacts, by the kernel's key."""

    key: str
    files: tuple[Artefact, ...]

    def file(self, name: str) -> Artefact:
        """The file of this name."""
        return next(artefact for artefact in self.files if artefact.name == name)


@dataclass(frozen=True)
class ArtefactStore:
    """A store of files by content.  ``url`` is a folder or an fsspec URL."""

    url: str

    def put(self, path: Path, name: str = "") -> Artefact:
        """Keep a file, unless the store has it.

        Raises:
            InfraError: the store cannot be written.
        """
        digest = sha256_of(path)
        artefact = Artefact(name or path.name, digest, path.stat().st_size)
        if not self._has(artefact):
            self._write(self._blob(artefact), path.read_bytes())
        return artefact

    def fetch(self, artefact: Artefact, cache: Path) -> Path:
        """The file, in this host's cache; verified when it arrives and once a process.

        One that arrives damaged is fetched once more.

        Raises:
            InfraError: names the artefact and the store.
        """
        kept = held_in(cache, artefact)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(kernel_cache.lock_path(cache, f"fleet-{artefact.sha256}")):
            if _is(kept, artefact):
                os.utime(kept)
                VERIFIED[kept] = _stamp(kept)
                return kept
            digest = ""
            for _ in range(FETCHES):
                beside = kept.with_suffix(".new")
                digest = self._read_into(artefact, beside)
                if digest == artefact.sha256:
                    beside.replace(kept)
                    VERIFIED[kept] = _stamp(kept)
                    return kept
                beside.unlink(missing_ok=True)
        raise InfraError(
            f"{artefact.name} is damaged: SHA-256 {digest[:16]} arrived {FETCHES} times, "
            f"{artefact.sha256[:16]} is its name",
            where=f"store {self.url}",
            next_step=f"remove blobs/{artefact.sha256} from the store; it is made again",
        )

    def put_kernel(self, kernel: Kernel) -> KernelFiles:
        """Publish a kernel's folder; its list of files last, so that it is whole."""
        paths = sorted(path for path in kernel.folder.iterdir() if path.is_file())
        files = KernelFiles(kernel.identity.key, tuple(self.put(path) for path in paths))
        listing = json.dumps(asdict(files)["files"])
        text = json.dumps({"sha256": _digest(listing), "files": listing})
        self._write(f"kernels/{files.key}.json", text.encode())
        return files

    def kernel(self, key: str) -> KernelFiles | None:
        """The files of a kernel, if the store has all of them.

        Raises:
            InfraError: the store cannot be read.
        """
        text = self._read(f"kernels/{key}.json")
        if text is None:
            return None
        try:
            document = json.loads(text)
            if _digest(document["files"]) != document["sha256"]:
                return None
            files = KernelFiles(
                key, tuple(Artefact(**entry) for entry in json.loads(document["files"]))
            )
        except (ValueError, KeyError, TypeError):
            return None
        return files if all(self._has(entry) for entry in files.files) else None

    def fetch_kernel(self, files: KernelFiles, cache: Path) -> Kernel:
        """The kernel, in this host's own cache as if it had been built here.

        Raises:
            InfraError: a file of it is damaged or gone.
        """
        with kernel_cache.locked(cache, f"kernel-{files.key}"):
            ready = kernel_cache.load(cache, files.key, used=True)
            if ready is not None:
                return ready
            with kernel_cache.staged(cache, files.key) as folder:
                for artefact in files.files:
                    shutil.copyfile(self.fetch(artefact, cache), folder / Path(artefact.name).name)
        kernel = kernel_cache.load(cache, files.key, used=True)
        if kernel is None:
            raise InfraError(
                f"what is kept of kernel {files.key} is no kernel", where=f"store {self.url}"
            )
        return kernel

    def _blob(self, artefact: Artefact) -> str:
        return f"blobs/{artefact.sha256}"

    def _has(self, artefact: Artefact) -> bool:
        files, top = self._open()
        with self._request("read"):
            try:
                return bool(files.size(f"{top}/{self._blob(artefact)}") == artefact.size)
            except MISSING:
                return False

    def _read(self, place: str) -> bytes | None:
        files, top = self._open()
        with self._request("read"):
            try:
                return bytes(files.cat_file(f"{top}/{place}"))
            except MISSING:
                return None

    def _read_into(self, artefact: Artefact, path: Path) -> str:
        """Fetch a file's bytes; return their SHA-256."""
        files, top = self._open()
        with self._request("read"):
            try:
                files.get_file(f"{top}/{self._blob(artefact)}", str(path))
            except MISSING:
                raise InfraError(
                    f"{artefact.name} (SHA-256 {artefact.sha256[:16]}) is not there",
                    where=f"store {self.url}",
                    next_step="name a store that every host sees: --store",
                ) from None
        return sha256_of(path)

    def _write(self, place: str, data: bytes) -> None:
        files, top = self._open()
        target = f"{top}/{place}"
        with self._request("written"):
            files.makedirs(target.rpartition("/")[0], exist_ok=True)
            if "file" in files.protocol:
                # In a folder a reader could see half of it; object stores show all or nothing.
                beside = f"{target}.{uuid.uuid4().hex}"
                files.pipe_file(beside, data)
                Path(beside).replace(target)
            else:
                files.pipe_file(target, data)

    @contextmanager
    def _request(self, to_be: str) -> Iterator[None]:
        """Whatever a driver raises is the store's trouble: clouds' have no error in common."""
        try:
            yield
        except InfraError:
            raise
        except Exception as error:
            raise InfraError(
                f"cannot be {to_be}: {' '.join(str(error).split()) or type(error).__name__}",
                where=f"store {self.url}",
                next_step="see that it can be reached from here, or name another one: --store",
            ) from None

    def _open(self) -> tuple[Any, str]:
        # Loads what a URL needs, so only where a store is used.
        import fsspec

        try:
            files, top = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise UsageError(
                f"cannot be opened: {error}",
                where=f"store {self.url}",
                next_step="a folder that all hosts see, or a URL that fsspec knows",
            ) from None
        return files, str(top).rstrip("/")


def held_in(cache: Path, artefact: Artefact) -> Path:
    """Where a host keeps an artefact that arrived."""
    return cache / "fleet" / artefact.sha256


def _is(path: Path, artefact: Artefact) -> bool:
    """Whether a file in the cache is whole; read once a process unless it was changed."""
    if not path.exists():
        return False
    if VERIFIED.get(path) == _stamp(path):
        return True
    return sha256_of(path) == artefact.sha256


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_ino


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
