"""What travels between hosts by content: kernels, roots, small programs, through one store.

A store is a folder that all hosts see, or anything else that fsspec opens by URL.  Files
are named by their SHA-256, and are verified by it each time they arrive.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from errors import InfraError, UsageError
from files import sha256_of, written_beside
from kernels import cache as kernel_cache
from kernels.cache import Kernel
from results import door

FETCHES = 2
VERIFIED: dict[Path, tuple[int, int]] = {}
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,200}")
DIGEST = re.compile(r"[0-9a-f]{64}")
# A client's own, in its cache: who can read that may sign.
KEY_NAME, KEY_BYTES = "store.key", 32
MISSING = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True)
class Artefact:
    """A file by content: the name it goes by, its SHA-256 and its bytes."""

    name: str
    sha256: str
    size: int

    def __post_init__(self) -> None:
        """Refuse what would lead out of the folders that it names files in."""
        if not (FILE_NAME.fullmatch(self.name) and DIGEST.fullmatch(self.sha256)) or self.size < 0:
            raise ValueError("no artefact: a file name, 64 hexadecimal digits and a size are")


@dataclass(frozen=True)
class KernelFiles:
    """A kernel's folder as artefacts, by the kernel's key."""

    key: str
    files: tuple[Artefact, ...]

    def __post_init__(self) -> None:
        """As of an artefact: the key is a folder's name."""
        if not FILE_NAME.fullmatch(self.key):
            raise ValueError("no kernel: its key is no name of a file")


@dataclass(frozen=True)
class ArtefactStore:
    """A store of files by content.  ``url`` is a folder or an fsspec URL."""

    url: str

    def put(self, path: Path, name: str = "") -> Artefact:
        """Keep a file, unless the store has it.

        Raises:
            InfraError: the store cannot be written.
        """
        artefact = Artefact(name or path.name, sha256_of(path), path.stat().st_size)
        if not self._has(artefact):
            self._write(f"blobs/{artefact.sha256}", path.read_bytes())
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
            # Read once a process, unless it was changed.
            known = VERIFIED.get(kept, ()) if kept.exists() else None
            if known is not None and (known == _stamp(kept) or sha256_of(kept) == artefact.sha256):
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

    def put_files(self, kernel: Kernel) -> KernelFiles:
        """Publish the files of a kernel's folder; nobody is given them by the key before `sign`."""
        paths = sorted(path for path in kernel.folder.iterdir() if path.is_file())
        return KernelFiles(kernel.identity.key, tuple(self.put(path) for path in paths))

    def sign(self, files: KernelFiles, cache: Path) -> None:
        """Say, as the client whose cache this is, that these are the files of the kernel."""
        listing = json.dumps(asdict(files)["files"])
        text = json.dumps({"hmac": _signature(files.key, listing, cache), "files": listing})
        self._write(f"kernels/{files.key}.json", text.encode())

    def kernel(self, key: str, cache: Path) -> KernelFiles | None:
        """The files of a kernel, if the store has all of them and this client signed them.

        Whoever can write to a store could name another kernel for a key.

        Raises:
            InfraError: the store cannot be read.
        """
        text = self._read(f"kernels/{key}.json")
        if text is None:
            return None
        try:
            document = json.loads(text)
            if not hmac.compare_digest(document["hmac"], _signature(key, document["files"], cache)):
                return None
            files = KernelFiles(
                key, tuple(Artefact(**entry) for entry in json.loads(document["files"]))
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
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

    def _has(self, artefact: Artefact) -> bool:
        with self._opened("read") as (files, top, _):
            try:
                return bool(files.size(f"{top}/blobs/{artefact.sha256}") == artefact.size)
            except MISSING:
                return False

    def _read(self, place: str) -> bytes | None:
        with self._opened("read") as (files, top, is_folder):
            try:
                if is_folder:
                    return door.read(Path(top), place)
                return bytes(files.cat_file(f"{top}/{place}", start=0, end=door.TEXT))
            except MISSING:
                return None

    def _read_into(self, artefact: Artefact, path: Path) -> str:
        """Fetch a file's bytes, and no more than it has; return their SHA-256."""
        blob = f"blobs/{artefact.sha256}"
        with self._opened("read") as (files, top, is_folder), path.open("wb") as sink:
            try:
                if is_folder:
                    with door.opened(Path(top), blob, artefact.size) as source:
                        sink.write(source.read(artefact.size))
                elif files.size(f"{top}/{blob}") <= artefact.size:
                    files.get_file(f"{top}/{blob}", str(path))
            except MISSING:
                raise InfraError(
                    f"{artefact.name} (SHA-256 {artefact.sha256[:16]}) is not there",
                    where=f"store {self.url}",
                    next_step="name a store that every host sees: --store",
                ) from None
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
        """The store, its top, and whether it is a folder of this host's: others write there, too.

        Whatever a driver raises is the store's trouble: clouds' have no error in common.
        """
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
        try:
            yield files, str(top).rstrip("/"), "file" in files.protocol
        except InfraError:
            raise
        except Exception as error:
            raise InfraError(
                f"cannot be {to_be}: {' '.join(str(error).split()) or type(error).__name__}",
                where=f"store {self.url}",
                next_step="see that it can be reached from here, or name another one: --store",
            ) from None


def held_in(cache: Path, artefact: Artefact) -> Path:
    """Where a host keeps an artefact that arrived."""
    return cache / "fleet" / artefact.sha256


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_ino


def _signature(key: str, files: str, cache: Path) -> str:
    """Of the client whose cache this is; what it signs with is made when it is first needed."""
    path = cache / "fleet" / KEY_NAME
    with FileLock(kernel_cache.lock_path(cache, KEY_NAME)):
        if not path.exists():
            with written_beside(path) as beside:
                beside.touch(mode=0o600)
                beside.write_bytes(secrets.token_bytes(KEY_BYTES))
        own = path.read_bytes()
    return hmac.new(own, f"{key}\0{files}".encode(), hashlib.sha256).hexdigest()
