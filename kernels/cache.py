"""The cache on disk: finished kernels, prepared trees, locks, and its bound."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import ValidationError

from experiment.architecture import ARCHITECTURES, UML
from experiment.arms import PREBUILT, KernelSpec
from files import sha256_of
from host import folders
from host.process import run
from results.record import KernelIdentity
from text import words

log = logging.getLogger(__name__)

IDENTITY = "identity.json"
DIGESTS = "sha256.json"
FAILED_MODULES = "modules.failed"
ANNOUNCE_S = 2.0
CCACHE_TIMEOUT_S = 600.0
# Held while a package is fetched and unpacked.
PACKAGES_LOCK = "packages"
IDLE_S = 24 * 3600.0
# Folder of kept runs (``runs.keeping``).
KEPT_RUNS = "runs"
# Programs of guests, boots, and what travels between hosts: made or fetched when it is wanted.
ARRIVES_AGAIN = words(
    "initramfs/* native/* foreign/* fleet/* store/blobs/* store/kernels/* boots/* "
    f"{KEPT_RUNS}/[0-9a-f]*"
)


class _KernelFile:
    """A kernel's file of this name, which a planned one has not yet."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, kernel: Kernel, owner: type[Kernel]) -> Path:
        return kernel.folder / self._name


class _KernelFiles:
    """A kernel's files of such names, sorted."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def __get__(self, kernel: Kernel, owner: type[Kernel]) -> tuple[Path, ...]:
        return tuple(sorted(kernel.folder.glob(self._pattern)))


@dataclass(frozen=True)
class Kernel:
    """A finished kernel in the cache."""

    folder: Path
    identity: KernelIdentity
    system_map = _KernelFile("System.map")  # addresses of its symbols
    config = _KernelFile("config")  # its final .config
    symbols = _KernelFile("symbols.json.gz")  # size and hash of every function, see kernels.symbols
    touched = _KernelFile("touched.json")  # the files its patches touch, see kernels.compiled
    build_log = _KernelFile("build.log")  # what make said
    # Not every kernel has these: where its functions are defined (kernels.addresses), types of its
    # structures (kernels.btf), the same code in other places (kernels.make; of native mode).
    origins = _KernelFile("origins.json.gz")
    structures = _KernelFiles("*.btf")
    # Who calls whom, once it was asked for (kernels.compare): no part of what was built.
    calls = _KernelFile(".calls.json.gz")
    orders = _KernelFiles("order-*")
    # Of a prebuilt kernel those that the guest loads first, in order.
    modules = _KernelFiles("*.ko")

    @property
    def image(self) -> Path:
        """The image to boot, by its architecture's name for one."""
        names = (each.build.target for each in (*ARCHITECTURES.values(), UML))
        places = [self.folder / name for name in names]
        planned = self.folder / ARCHITECTURES[self.identity.arch].build.target
        return next((place for place in places if place.exists()), planned)

    @property
    def is_built(self) -> bool:
        """Whether it is there; one that is only planned has a key and a place."""
        return (self.folder / IDENTITY).exists()

    def lacks(self, modules: Iterable[str]) -> str:
        """Which of these modules it was built without, and why; empty where it has all."""
        names = [name for name in modules if not (self.folder / f"{name}.ko").exists()]
        if not names or not self.is_built:
            return ""
        failed = self.folder / FAILED_MODULES
        return f"{', '.join(names)}: {failed.read_text() if failed.exists() else 'not built'}"


@dataclass(frozen=True)
class Cleaned:
    """What a clean removed, in order; bytes freed and bytes left."""

    removed: tuple[str, ...]
    freed: int
    left: int


def planned(spec: KernelSpec, key: str, cache: Path) -> Kernel:
    """A kernel that is not built, with its key and its place, and code of its own."""
    # Nothing says yet that two kernels are the same code.
    identity = KernelIdentity(
        key=key,
        arch=spec.arch,
        page_kib=spec.page_kib,
        release="",
        source=spec.source,
        patches=(),
        flavour=PREBUILT if spec.is_prebuilt else spec.configuration,
        compiler="",
        config_sha256="",
        code_key=key,
    )
    return Kernel(kernels_folder(cache) / key, identity)


def kernels_folder(cache: Path) -> Path:
    """Finished kernels, one folder a key."""
    return cache / "kernels"


def tree_folder(cache: Path, source_key: str) -> Path:
    """The work tree of a source with its object folders."""
    return cache / "trees" / source_key


def ccache_folder(cache: Path) -> Path:
    """The compiler cache, the lab's own."""
    return cache / "ccache"


def load(cache: Path, key: str, *, used: bool = False) -> Kernel | None:
    """The cached kernel of a key; with ``used`` only if it is what was put there, file by file."""
    folder = kernels_folder(cache) / key
    try:
        text = (folder / IDENTITY).read_text()
        kernel = Kernel(folder, KernelIdentity.model_validate_json(text))
    except (OSError, ValidationError):
        return None
    if used:
        now = _digests(folder)
        kept: Any = {}
        with suppress(OSError, ValueError):
            kept = json.loads((folder / DIGESTS).read_text())
        if kept != now:
            names = {*now, *kept} if isinstance(kept, dict) else ()
            changed = next((n for n in sorted(names) if now.get(n) != kept.get(n)), DIGESTS)
            log.warning("%s was changed after it was built and is not used", folder / changed)
            return None
        with suppress(OSError):
            os.utime(folder / IDENTITY)
    return kernel


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a kernel; a link or a folder is none of its files."""
    return {
        path.name: "" if path.is_symlink() or not path.is_file() else sha256_of(path)
        for path in folder.iterdir()
        if path.name != DIGESTS and not path.name.startswith(".")
    }


def cached_kernels(cache: Path) -> list[Kernel]:
    """All finished kernels, the most recently used first."""
    folder = kernels_folder(cache)
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    entries = [load(cache, name) for name in sorted(names) if not name.startswith(".")]
    kernels = [kernel for kernel in entries if kernel is not None]
    return sorted(kernels, key=lambda kernel: _used(kernel.folder / IDENTITY), reverse=True)


@contextmanager
def staged(cache: Path, key: str) -> Iterator[Path]:
    """A folder that becomes the kernel of ``key`` if the block ends well; the lock is held."""
    top = kernels_folder(cache)
    top.mkdir(parents=True, exist_ok=True)
    folder = top / f".new-{key}"
    folders.remove(folder)
    folder.mkdir()
    try:
        yield folder
        (folder / DIGESTS).write_text(json.dumps(_digests(folder)))
        for path in folder.iterdir():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        folders.remove(top / key)
        folder.rename(top / key)
    finally:
        folders.remove(folder)


def lock_path(cache: Path, name: str) -> Path:
    """The file of a lock; never removed, since another process may be waiting on it."""
    folder = cache / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.lock"


@contextmanager
def locked(cache: Path, name: str) -> Iterator[None]:
    """Hold a lock of the cache, waiting for another lab process if it must."""
    lock = FileLock(lock_path(cache, name))
    try:
        lock.acquire(timeout=ANNOUNCE_S)
    except Timeout:
        log.info("waiting for another lab process that holds %s", name)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def hold(*kernels: Kernel) -> Iterator[None]:
    """Keep kernels from being cleaned away while they are in use; any number may hold one."""
    with ExitStack() as held:
        for kernel in kernels:
            path = lock_path(kernel.folder.parent.parent, f"kernel-{kernel.identity.key}")
            fcntl.flock(held.enter_context(path.open("ab")), fcntl.LOCK_SH)
        yield


def clean(cache: Path, max_gib: float) -> Cleaned:
    """Bring the cache down to ``max_gib`` GiB; what is in use stays.

    First go fetched packages and programs of guests that were not used for a day, then
    the least recently used kernels, object folders, trees, and series that were taken in
    (each oldest first); the compiler cache is trimmed to what is left.
    """
    # What killed processes left: half-filled kernels, half-removed folders.
    for path in kernels_folder(cache).glob(".new-*"):
        with suppress(Timeout), FileLock(lock_path(cache, f"kernel-{path.name[5:]}"), timeout=0):
            folders.remove(path)
    for path in cache.glob(".doomed-*"):
        folders.remove(path)
    with suppress(Timeout), FileLock(lock_path(cache, PACKAGES_LOCK), timeout=0):
        for path in cache.glob("packages/.*"):
            folders.remove(path)
    bound = int(max_gib * 2**30)
    sizes = {path: folder_size(path) for path in _pieces(cache)}
    ccache = ccache_folder(cache)
    total = sum(sizes.values()) + folder_size(ccache)
    removed, freed = [], 0
    for path, lock in _pieces(cache).items():
        if total <= bound:
            break
        if not path.exists():
            continue  # went with its tree
        if _remove(cache, path, lock):
            removed.append(str(path.relative_to(cache)))
            total, freed = total - sizes[path], freed + sizes[path]
    if total > bound and ccache.is_dir():
        before = folder_size(ccache)
        size = max(0, bound - (total - before))
        # To ccache, a limit of 0 means "no limit".
        if size == 0 or shutil.which("ccache") is None:
            folders.remove(ccache)
        else:
            # By environment, so that the next build may fill the cache up to its own limit;
            # a little less, since ccache bounds each of its folders and not their sum.
            limit = max(int(size * 0.9) // 1024, 1)
            env = {"CCACHE_DIR": str(ccache), "CCACHE_MAXSIZE": f"{limit}Ki"}
            run(["ccache", "--cleanup"], timeout_s=CCACHE_TIMEOUT_S, env=env)
        # Its memory of source files is no part of what it bounds; since 4.10 it is kept here.
        for path in ccache.glob("tmp/inode-cache-*"):
            path.unlink(missing_ok=True)
        freed += max(0, before - folder_size(ccache))
        removed.append("ccache (trimmed)")
    # Counted anew, and no part of what was freed: others may build here meanwhile.
    left = sum(folder_size(path) for path in _pieces(cache)) + folder_size(ccache)
    return Cleaned(tuple(removed), freed, left)


def folder_size(folder: Path) -> int:
    """Bytes on disk of a file, or of the files below a folder; a tree's without its objects."""
    return folders.size_bytes(folder, apart="src/obj-")


def _pieces(cache: Path) -> dict[Path, str]:
    """What can be removed, with its lock: first what can be made again, last series."""
    kernels = [kernel.folder for kernel in reversed(cached_kernels(cache))]
    # What is no kernel any more is used by nobody.
    kernels = [
        *(path for path in kernels_folder(cache).glob("[!.]*") if path not in kernels),
        *kernels,
    ]
    objects = sorted(cache.glob("trees/*/src/obj-*"), key=_used)
    trees = sorted(cache.glob("trees/*"), key=lambda tree: _used(tree / "used"))
    return {
        **dict.fromkeys(sorted(cache.glob("packages/*.deb"), key=_used), PACKAGES_LOCK),
        **dict.fromkeys(_idle(cache, *ARRIVES_AGAIN), ""),
        **{path: f"kernel-{path.name}" for path in kernels},
        **{path: f"tree-{path.parent.parent.name}" for path in objects},
        **{path: f"tree-{path.name}" for path in trees},
        **dict.fromkeys(_idle(cache, "threads/*", "series/*"), ""),
    }


def _idle(cache: Path, *patterns: str) -> list[Path]:
    """What has no lock of its own and was not used for a day, oldest first."""
    before = time.time() - IDLE_S
    paths = [path for pattern in patterns for path in cache.glob(pattern) if path.name != "lock"]
    return sorted((path for path in paths if _used(path) < before), key=_used)


def _remove(cache: Path, path: Path, lock: str) -> bool:
    try:
        with FileLock(lock_path(cache, lock), timeout=0) if lock else nullcontext():
            doomed = cache / f".doomed-{os.getpid()}"
            path.rename(doomed)
            folders.remove(doomed)
            return True
    except Timeout:
        log.info("%s is in use and stays", path.relative_to(cache))
    except OSError as error:
        log.warning("%s stays: %s", path.relative_to(cache), error)
    return False


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
