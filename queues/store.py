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

import hashlib
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from filelock import FileLock, Timeout
from pydantic import Field, TypeAdapter, ValidationError

from analysis.verdict import Verdict
from errors import InfraError, UsageError
from experiment.ad_hoc import name_of
from experiment.frozen import first_of, likely
from experiment.series_name import from_here, kind_of, split_mail
from kernels.series import missing
from reports import wording
from results import door
from results.door import StoreError
from results.record import Record
from results.units import read_name
from runs.request import Request
from text import clean

HEAD, FORMAT, SCHEMA_VERSION = "queue.json", "twinboot queue", 3
ENTRIES, LOCKS, MAILS, SESSIONS, WATCH = "entries", "locks", "mails", "sessions", "watch"
ENDING = ".json"
# Whoever changes an entry holds its lock for an instant; a worker for as long as it measures.
INSTANT_S = 1.0
State = Literal["waiting", "running", "done", "failed", "removed"]
Blame = Literal["", "user", "series", "workload", "host", "lab"]
# It names files: nothing that leads anywhere else.
ID = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,120}$"
OPEN: tuple[State, ...] = ("waiting", "running")
WORST_FIRST = (
    Verdict.FAILED,
    Verdict.REGRESSION,
    Verdict.UNEXPLAINED,
    Verdict.IMPROVEMENT,
    Verdict.INCONCLUSIVE,
    Verdict.NOT_JUDGED,
    Verdict.NO_CHANGE,
    Verdict.NOT_TESTED,
)
BLAMES: dict[Blame, str] = {
    "series": "series failed",
    "user": "usage error",
    "workload": "not measured",
    "host": "host failed",
    "lab": "lab failed",
}


class PrimaryResult(Record):
    """What a report says of one primary metric; change and interval are fractions."""

    case: str
    metric: str
    verdict: str
    change: float | None = None
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        """``filemap-4k 4k.bw: -1.31 % [-1.60, -1.02], regression``."""
        parts = [wording.percent(self.change)] if self.change is not None else []
        if self.low is not None and self.high is not None:
            parts.append(wording.between(self.low, self.high))
        shown = f"{' '.join(parts)}, " if parts else ""
        return f"{self.case} {read_name(self.metric)}: {shown}{self.verdict}"


class EntryOutcome(Record):
    """How an attempt ended.

    ``code`` is what ``lab.py run`` would have exited with, ``headline`` what the report begins
    with, ``message`` why there is no verdict, ``functions`` which functions changed, a line a
    phase; ``is_bug``: it was ended by an exception that nobody expected.
    """

    code: int | None = None
    blame: Blame = ""
    title: str = ""
    headline: str = ""
    message: str = ""
    results: tuple[PrimaryResult, ...] = ()
    functions: tuple[str, ...] = ()
    is_bug: Annotated[bool, Field(exclude=True)] = False


class QueueEntry(EntryOutcome):
    """A series that waits, is measured, or was.

    ``mailbox`` names the mails that the queue itself keeps; they then stand for the
    question's series.  ``added``, ``began`` and ``ended`` are UTC, ``2026-01-01T00:00:00.000000Z``.
    ``attempt`` counts sessions, ``tries`` how often the host ended this one.  ``author`` is as a
    mail has it, which proves nothing.
    """

    id: Annotated[str, Field(pattern=ID)]
    question: Request
    mailbox: Annotated[str, Field(pattern=f"{ID}|^$")] = ""
    author: str = ""
    version: int = 0
    origin: str = ""
    priority: int = 0
    added: str
    state: State = "waiting"
    attempt: int = 1
    tries: int = 0
    worker: str = ""
    began: str = ""
    ended: str = ""

    @property
    def is_open(self) -> bool:
        """Whether there is something left to do: it waits, or whoever worked on it may be gone."""
        return self.state in OPEN

    @property
    def is_from_mail(self) -> bool:
        """Whether its patches are those of whoever mailed them.

        A watch queued it, or a message-id or link names it.  A file, folder or range was
        chosen by whoever added it.
        """
        return bool(self.mailbox) or "thread" in map(kind_of, self.question.series)

    @property
    def order(self) -> tuple[int, str, str]:
        """Sorts entries as they are worked: by priority, the highest first, then by arrival."""
        return (-self.priority, self.added, self.id)

    @property
    def name(self) -> str:
        """What people call it: its title, else what was asked for."""
        return self.title or clean(", ".join(self.question.series))

    @property
    def session(self) -> str:
        """The name of its session's folder."""
        return self.id if self.attempt == 1 else f"{self.id}-{self.attempt}"

    @property
    def is_worked_on(self) -> bool:
        """Whether its worker (``HOST:PID``) may be there; of another host nothing is known."""
        host, _, pid = self.worker.rpartition(":")
        return host != socket.gethostname() or Path(f"/proc/{pid}").exists()

    @property
    def word(self) -> str:
        """What became of an ended one in a few words: who is to blame, or the worst verdict."""
        if self.blame:
            return BLAMES[self.blame]
        verdicts = {result.verdict for result in self.results}
        return next((str(v) for v in WORST_FIRST if v in verdicts), str(Verdict.NO_CHANGE))

    def closed(self, outcome: EntryOutcome, ended: str) -> QueueEntry:
        """The same, ended so at this time."""
        state = "failed" if outcome.blame else "done"
        update = {"state": state, "ended": ended, "title": self.title or outcome.title}
        return self.model_copy(update=dict(outcome) | update)

    def requeued(self, *, anew: bool = False) -> QueueEntry:
        """The same, waiting once more: a session the host ended goes on, any other is new.

        ``anew`` is a new one in any case.
        """
        goes_on = (self.blame == "host" and not anew) or not self.began
        update = {"state": "waiting", "tries": 0, "worker": "", "began": "", "ended": ""}
        named = {"title": self.title, "attempt": self.attempt + (not goes_on)}
        return self.model_copy(update=dict(EntryOutcome()) | update | named)


def id_of(request: Request) -> str:
    """The id of an entry that asks this: the same request is the same entry."""
    # Keys that came later are no part of the ids of entries without them.
    later = {"guest"} - ({"guest"} if request.guest else set())
    text = TypeAdapter(Request).dump_json(request, exclude=later)
    return f"{name_of(request.series[0])}-{hashlib.sha256(text).hexdigest()[:8]}"


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
            held = self._lock(entry_id).acquire(timeout=INSTANT_S)
        except Timeout:
            raise UsageError(
                "is being measured", where=entry_id, next_step="wait until it has ended"
            ) from None
        with held:
            yield self._entry(entry_id)

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
            # One that waits is held for an instant only, or about to be marked.
            patience_s = INSTANT_S if entry.state == "waiting" else 0
            try:
                held = self._lock(entry.id).acquire(timeout=patience_s)
            except Timeout:
                continue
            with held:
                try:
                    now = self._entry(entry.id)
                except InfraError:
                    continue
                if now.is_open:
                    yield now
                    return
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
            what = clean(f"is no entry of this version of the lab: {first_of(error)}")
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


def stamp() -> str:
    """Now in UTC; the order of such texts is that of time."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def entry_of(request: Request, *, here: Path, checkout: Path, priority: int = 0) -> QueueEntry:
    """A new entry for a request of one series, whose relative paths start ``here``.

    Raises UsageError: there is no such file or folder.
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
    source = from_here(request.source, here=here, checkout=checkout)
    request = replace(request, series=(place,), source=source)
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
