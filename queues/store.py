"""A queue on disk: one file an entry, so that any number of processes may work it at once.

    QUEUE/
      queue.json           what this folder is
      entries/ID.json      an entry, written beside its place and renamed
      locks/ID.lock        held by whoever works on the entry, or changes it
      mails/ID.mbox        the mails of a series that came from a mailbox
      sessions/ID/         its session and report
      watch/NAME/          where a watch is in its mailbox
      index.html           what waits, what runs, what came out

A lock goes with its process, however that ends: an entry that runs by its file and whose
lock is free is taken up again by the next worker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from errors import InfraError, UsageError
from experiment.ad_hoc import from_series
from experiment.frozen import likely
from experiment.load import Catalogue
from experiment.series_name import from_here, kind_of, split_mail
from kernels.patch_folder import missing
from queues.entry import QueueEntry, id_of
from results import door
from results.door import StoreError
from runs.request import Request
from text import clean

HEAD, FORMAT, SCHEMA_VERSION = "queue.json", "twinboot queue", 3
ENTRIES, LOCKS, MAILS, SESSIONS, WATCH = "entries", "locks", "mails", "sessions", "watch"
ENDING = ".json"
# Whoever changes an entry holds its lock for an instant; a worker for as long as it measures.
INSTANT_S = 1.0


@dataclass(frozen=True)
class Read:
    """What is in a queue, in the order it is worked, and the files that cannot be read."""

    entries: tuple[QueueEntry, ...]
    problems: tuple[str, ...] = ()


class QueueStore:
    """One queue's folder.  Raises UsageError: the folder holds something else than a queue."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._check()

    def create(self) -> None:
        """Make the folder a queue, if it is none yet."""
        for name in (ENTRIES, LOCKS, MAILS, SESSIONS, WATCH):
            door.make_folder(self.folder, name)
        if not door.exists(self.folder, HEAD):
            head = {"format": FORMAT, "schema_version": SCHEMA_VERSION}
            door.write(self.folder, HEAD, json.dumps(head) + "\n")

    def read(self) -> Read:
        """Every entry; a file that cannot be read is named and stays where it is.

        Raises UsageError: there is no such folder, or it holds something else.
        """
        if not door.exists(self.folder, HEAD):
            # A mistyped name must not look like a queue in which nothing waits.
            step = "check the name, or begin one with ./lab.py queue add SERIES"
            raise UsageError("no queue here", where=str(self.folder), next_step=step)
        entries, problems = [], []
        for name in door.names(self.folder, ENTRIES):
            if name.startswith(".") or not name.endswith(ENDING):
                continue
            try:
                entries.append(self._entry(name.removesuffix(ENDING)))
            except InfraError as error:
                problems.append(f"{name}: {error.what}")
        return Read(tuple(sorted(entries, key=lambda entry: entry.order)), tuple(problems))

    def find(self, name: str) -> QueueEntry:
        """The entry of this id, or the only one whose id begins so.

        Raises UsageError: there is none, or more than one.
        """
        entries = self.read().entries
        matches = [entry for entry in entries if entry.id == name] or [
            entry for entry in entries if name and entry.id.startswith(name)
        ]
        if len(matches) != 1:
            what = "more than one entry begins so" if matches else "no such entry"
            near = likely(name, (entry.id for entry in matches or entries))
            step = f"./lab.py queue list --queue {self.folder}"
            step = f"the nearest: {near}; {step} has all" if near else step
            raise UsageError(what, where=clean(name), next_step=step)
        return matches[0]

    def add(self, entry: QueueEntry) -> bool:
        """Keep a new entry; False where one of its id is there, in whatever state."""
        self.create()
        if self._has(entry):
            return False
        with self._lock(entry.id):
            if self._has(entry):
                return False
            self.save(entry)
        return True

    def save(self, entry: QueueEntry) -> QueueEntry:
        """Write an entry whose lock is held."""
        name = f"{ENTRIES}/{entry.id}{ENDING}"
        door.write(self.folder, name, entry.model_dump_json(indent=1) + "\n")
        return entry

    @contextmanager
    def change(self, entry_id: str) -> Iterator[QueueEntry]:
        """An entry as it is now, which nobody else changes meanwhile.

        Raises UsageError: somebody works on it, or it is gone.
        """
        try:
            lock = self._lock(entry_id)
            lock.acquire(timeout=INSTANT_S)
        except Timeout:
            raise UsageError(
                "is being measured", where=entry_id, next_step="wait until it has ended"
            ) from None
        try:
            yield self._entry(entry_id)
        finally:
            lock.release()

    @contextmanager
    def claim(
        self, may: Callable[[QueueEntry], bool] = lambda entry: True
    ) -> Iterator[QueueEntry | None]:
        """The next entry to work on, its lock held; None where others have all that is left.

        One that ``may`` not be worked on is passed over.
        """
        for entry in self.read().entries:
            if not entry.is_open or not may(entry):
                continue
            lock = self._lock(entry.id)
            try:
                # One that waits is held for an instant only, or about to be marked.
                lock.acquire(timeout=INSTANT_S if entry.state == "waiting" else 0)
            except Timeout:
                continue
            try:
                try:
                    now = self._entry(entry.id)
                except InfraError:
                    continue
                if now.is_open:
                    yield now
                    return
            finally:
                lock.release()
        yield None

    def session(self, entry: QueueEntry) -> Path:
        """The folder of an entry's session."""
        return self.folder / SESSIONS / entry.session

    def mails(self, entry: QueueEntry) -> Path:
        """The file with an entry's mails."""
        return self.folder / MAILS / entry.mailbox

    def _lock(self, entry_id: str) -> FileLock:
        # It follows no link itself.
        return FileLock(door.make_folder(self.folder, LOCKS) / f"{entry_id}.lock")

    def _has(self, entry: QueueEntry) -> bool:
        return door.exists(self.folder, f"{ENTRIES}/{entry.id}{ENDING}")

    def _entry(self, entry_id: str) -> QueueEntry:
        name = f"{ENTRIES}/{entry_id}{ENDING}"
        try:
            entry = QueueEntry.model_validate_json(door.read(self.folder, name))
            if entry.id == entry_id:
                return entry
            what = f"is of another name: it holds {entry.id}"
        except OSError as error:
            what = f"cannot be read: {error.strerror}"
        except StoreError as error:
            what = error.what
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = "".join(f"{part}: " for part in first["loc"])
            what = clean(f"is no entry of this version of the lab: {place}{first['msg']}")
        where = str(self.folder / name)
        raise InfraError(what, where=where, next_step="restore it, or move it away")

    def _check(self) -> None:
        if not self.folder.exists():
            return
        try:
            known = json.loads(door.read(self.folder, HEAD))
            fits = known.get("format") == FORMAT and known.get("schema_version") == SCHEMA_VERSION
        except FileNotFoundError:
            own = {ENTRIES, LOCKS, MAILS, SESSIONS, WATCH}
            # It may have been killed while it was made.
            fits = all(
                path.name in own or path.name.startswith(f".{HEAD}.")
                for path in map(Path, door.names(self.folder))
            )
        except (OSError, StoreError, ValueError, AttributeError, RecursionError):
            fits = False
        if not fits:
            what = "holds something that is no queue of this lab's"
            raise UsageError(what, where=str(self.folder), next_step="name another folder")


def stamp(moment: float | None = None) -> str:
    """A moment (seconds since 1970, now by default) in UTC, so that text order is time order."""
    when = datetime.now(UTC) if moment is None else datetime.fromtimestamp(moment, UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def entry_of(
    request: Request, *, here: Path, checkout: Path, catalogue: Catalogue, priority: int = 0
) -> QueueEntry:
    """A new entry for a request of one series, whose relative paths start ``here``.

    Raises UsageError: there is no such file or folder; SpecError: a workload, an override or the
    source is wrong.
    """
    (name,) = request.series
    place = from_here(name, here=here, checkout=checkout)
    kind = kind_of(place)
    file, mail = split_mail(place)
    path = (checkout / file).expanduser()
    if kind in ("file", "folder"):
        if not path.exists():
            raise missing(name, checkout)
        # Whoever works the queue may be anywhere.
        place = str(path.absolute()) + (f"#{mail}" if mail else "")
    source = from_here(request.source, here=here, checkout=checkout) if request.source else ""
    request = replace(request, series=(place,), source=source)
    from_series(
        request.series,
        source=source,
        workloads=request.named_workloads,
        reverse=request.reverse,
        overrides=request.all_overrides,
        catalogue=catalogue,
    )
    return QueueEntry(id=id_of(request), question=request, added=stamp(), priority=priority)


def put(store: QueueStore, entry: QueueEntry) -> str:
    """Add an entry, or say what is there; a removed one waits again, a waiting one may move up.

    Raises UsageError: it is being changed by somebody else.
    """
    if store.add(entry):
        return "queued"
    known = store.find(entry.id)
    if known.state == "running":
        return "is being measured"
    with store.change(entry.id) as known:
        if known.state == "removed":
            update = {"added": entry.added, "priority": entry.priority}
            store.save(known.requeued().model_copy(update=update))
            return "requeued"
        if known.state == "waiting" and known.priority != entry.priority:
            store.save(known.model_copy(update={"priority": entry.priority}))
            return f"is queued already, now with priority {entry.priority}"
    return "is queued already" if known.state == "waiting" else f"{known.state} already; see retry"
