"""What a worker process keeps between parcels: a scratch folder, and snapshots in it."""

from __future__ import annotations

import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fleet.parcel import HOST_ENDINGS
from guests import exact
from guests.exact import BootError, Machine, Snapshot
from runs.boots import MIB
from runs.local import InterruptedRunError
from runs.workspace import require_space, workspace

# A session's arms and their twins; each takes its guest's memory of the disk.
MOST_SNAPSHOTS = 6
Watch = Callable[[str], None]


@dataclass
class _Kept:
    """A snapshot, or the boot under way that makes it; ``users`` are parcels that need it."""

    number: int
    made: Future[Snapshot] = field(default_factory=Future)
    users: int = 0


@dataclass(frozen=True)
class LentSnapshot:
    """A snapshot for one parcel; ``logs`` are those of its boot where this parcel made it."""

    snapshot: Snapshot
    logs: Path | None


class Site:
    """Scratch and snapshots of one process; safe from several threads."""

    def __init__(self, cache: Path, *, most: int = MOST_SNAPSHOTS) -> None:
        self.cache = cache
        self._most = most
        self._open = ExitStack()
        self._scratch: Path | None = None
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._number = 0

    def folder(self, memory_mib: int) -> Path:
        """A new folder for one guest of this memory; the caller removes it.

        Raises:
            InfraError: the disk is too full.
        """
        with self._lock:
            if self._scratch is None:
                place = workspace(self.cache, memory_mib * MIB)
                self._scratch = self._open.enter_context(place)
            self._number += 1
            folder = self._scratch / f"guest-{self._number}"
        require_space(folder.parent, memory_mib * MIB)
        return folder

    @contextmanager
    def snapshot(self, key: str, machine: Machine, watch: Watch) -> Iterator[LentSnapshot]:
        """The snapshot of a machine, booted by whoever asks first; kept while it is used.

        Raises:
            BootError: the machine did not come to its stop point, now or before.
            InfraError, OSError: this host could not boot it; the next one tries again.
        """
        kept, mine = self._join(key)
        try:
            logs = self._make(key, kept, machine, watch) if mine else None
            while True:
                try:
                    snapshot = kept.made.result()
                    break
                except InterruptedRunError:
                    # Nobody waits for the parcel that was booting it; this one is waited for.
                    self._leave(kept)
                    kept, mine = self._join(key)
                    logs = self._make(key, kept, machine, watch) if mine else None
            yield LentSnapshot(snapshot, logs)
        finally:
            self._leave(kept)
            self._evict()

    def close(self) -> None:
        """Remove everything."""
        with self._lock:
            gone = list(self._kept.values())
            self._kept.clear()
            self._scratch = None
        _drop(gone)
        self._open.close()

    def _join(self, key: str) -> tuple[_Kept, bool]:
        """What is kept of a machine, and whether the caller has to make it."""
        with self._lock:
            mine = key not in self._kept
            if mine:
                self._number += 1
                self._kept[key] = _Kept(self._number)
            kept = self._kept[key]
            self._kept.move_to_end(key)
            kept.users += 1
            return kept, mine

    def _leave(self, kept: _Kept) -> None:
        with self._lock:
            kept.users -= 1

    def _make(self, key: str, kept: _Kept, machine: Machine, watch: Watch) -> Path:
        place = None
        try:
            place = self.folder(machine.guest.memory_mib)
            logs = place.with_name(f"{place.name}-logs")
            kept.made.set_result(exact.take_snapshot(machine, place, logs, watch))
        except BaseException as error:
            if not isinstance(error, BootError) or error.ending.kind in HOST_ENDINGS:
                with self._lock:
                    self._kept.pop(key, None)
            if place is not None:
                shutil.rmtree(place, ignore_errors=True)
            kept.made.set_exception(error)
            raise
        return logs

    def _evict(self) -> None:
        """Drop the snapshots that were not used for longest, beyond the number kept."""
        with self._lock:
            idle = [key for key, kept in self._kept.items() if not kept.users]
            doomed = idle[: max(0, len(self._kept) - self._most)]
            gone = [self._kept.pop(key) for key in doomed]
        _drop(gone)


def _drop(gone: Iterable[_Kept]) -> None:
    for kept in gone:
        if kept.made.done() and kept.made.exception() is None:
            snapshot = kept.made.result()
            snapshot.drop()
            shutil.rmtree(snapshot.memory.parent.parent, ignore_errors=True)
