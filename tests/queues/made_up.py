"""Sessions that cost nothing: real folders, records and reports, no kernel and no guest."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from analysis.many import SessionComparison, compare_session
from kernels.mail import slug
from queues.store import QueueEntry, QueueStore, entry_of, stamp
from queues.work import Job
from reports.forms import HTML
from results.session import open_session
from results.store import SessionStore
from runs.request import Request
from tests.analysis.factory import ExactSession
from tests.values import but

CHECKOUT = Path(__file__).resolve().parents[2]
SMALL = ExactSession(seeds=(1001, 1002))
SLOWER = ExactSession(effect={"4k": -0.013, "thp": 0.0, "switch": 0.0})


def queued(store: QueueStore, name: str, **more: object) -> QueueEntry:
    """An entry that asks for the series of this name, put into the queue."""
    question = Request(series=(f"git:/src/linux@base..{slug(name)}",), workloads="filemap-4k")
    entry = entry_of(question, here=CHECKOUT, checkout=CHECKOUT)
    entry = but(entry, title=name, added=stamp(), **more)
    assert store.add(entry)
    return entry


@dataclass
class MadeUpMeasuring:
    """Stands in for kernels and guests: writes what a session would have written.

    ``errors`` are what is raised for an entry's session, the next one each time.  ``ledger``
    gets a line a run: whatever is there twice was measured twice.
    """

    ledger: Path | None = None
    pause_s: float = 0.0
    errors: dict[str, list[BaseException | None]] = field(default_factory=dict)
    sessions: dict[str, ExactSession] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    before: Callable[[Job], None] = lambda job: None

    def __call__(self, job: Job) -> None:
        self.jobs.append(job)
        self.before(job)
        name = job.folder.name
        errors = self.errors.get(name, [])
        error = errors.pop(0) if errors else None
        session = self.sessions.get(name, SMALL)
        store = SessionStore(job.folder)
        if not job.resume:
            time.sleep(self.pause_s)  # as long as kernels are built, there is no session
            store.create(session.manifest())
        done = {record.run_id for record in store.records()}
        for record in session.records():
            if record.run_id in done:
                continue
            if error is not None and len(done) == 3:
                raise error
            time.sleep(self.pause_s)
            store.append(record)
            done.add(record.run_id)
            self._note(f"{name} {record.run_id}\n")

    def _note(self, line: str) -> None:
        if self.ledger is not None:
            handle = os.open(self.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.write(handle, line.encode())
            os.close(handle)


def plain_report(folder: Path) -> SessionComparison:
    """Stands in for ``write_all``, which draws for a second: the same comparison, no picture."""
    store = SessionStore(folder)
    (folder / HTML).write_text("a report")
    return compare_session(open_session(store.folder))
