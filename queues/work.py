"""Work a queue: one session and one report for each entry, in order, until none is left."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from errors import InfraError
from queues import page
from queues.entry import QueueEntry
from queues.outcome import EntryOutcome, of_error, of_session
from queues.store import SESSIONS, QueueStore, stamp
from reports.write import write_all
from results import door
from results.store import MANIFEST
from runs.request import Request

# Two entries in a row that no series is to blame for: the third would fare no better.  But what
# the lab did not expect may be the doing of what was mailed, so more of those are tried.
MOST_IN_A_ROW, MOST_BUGS_IN_A_ROW = 2, 10


@dataclass(frozen=True)
class Job:
    """What one attempt is to do: begin a session in ``folder``, or finish the one there.

    ``is_from_mail``: its patches are those of whoever mailed them.
    """

    request: Request
    folder: Path
    resume: bool
    is_from_mail: bool = False


Measure = Callable[[Job], None]
Log = Callable[[str], None]


@dataclass(frozen=True)
class Rules:
    """``tries`` is how often an entry is begun that the host ends; ``limit`` None is no limit.

    What somebody mailed is built in a sandbox, with ``has_sandbox``.  Without that, and without
    ``trust_authors``, it is not built: what it adds to the kernel's makefiles would run with the
    rights of this process.
    """

    tries: int = 2
    limit: int | None = None
    trust_authors: bool = False
    has_sandbox: bool = False

    def allow(self, entry: QueueEntry) -> bool:
        """Whether an entry may be built at all."""
        return self.trust_authors or self.has_sandbox or not entry.is_from_mail


def work(store: QueueStore, measure: Measure, log: Log, rules: Rules | None = None) -> int:
    """Work the queue until nothing is left that nobody works on; return how many ended.

    An entry's failure is its outcome, and the next one is taken.  What the host ended is
    tried again at once, as often as ``rules`` say, and then set aside.

    Raises:
        InfraError: two entries in a row were ended by the host or the lab itself.
        KeyboardInterrupt: passed on; the next worker goes on where this one was.
    """
    rules = rules or Rules()
    for problem in store.read().problems:
        log(f"left out  {problem}")
    done, in_a_row, bugs = 0, 0, 0
    while rules.limit is None or done < rules.limit:
        with store.claim(rules.allow) as entry:
            if entry is None:
                break
            ended, ending = _attempt(store, entry, measure, log, rules)
        done += 1
        page.write(store)
        log(line_of(ended))
        in_a_row = in_a_row + 1 if ending.is_in_the_way else 0
        bugs = bugs + 1 if ending.is_in_the_way and ending.is_bug else 0
        if in_a_row - bugs >= MOST_IN_A_ROW or bugs >= MOST_BUGS_IN_A_ROW:
            raise InfraError(
                f"{in_a_row} entries in a row were ended by the host or the lab: {ended.message}",
                where=ended.id,
                next_step="fix that, then ./lab.py queue retry ID, and run the queue again",
            )
    page.write(store)
    return done


def refused(store: QueueStore, rules: Rules) -> tuple[QueueEntry, ...]:
    """What waits and is not worked, since nobody trusted who mailed it."""
    return tuple(e for e in store.read().entries if e.is_open and not rules.allow(e))


def line_of(entry: QueueEntry) -> str:
    """What became of an entry, in one line."""
    results = ", ".join(f"{result.case} {result.metric} {result.verdict}" for result in entry.said)
    why = f"{entry.blame}: {entry.message}" if entry.blame else entry.message or results
    return f"{entry.state}  {entry.id}  {why}"


def _attempt(
    store: QueueStore, entry: QueueEntry, measure: Measure, log: Log, rules: Rules
) -> tuple[QueueEntry, EntryOutcome]:
    """Try an entry until it has an outcome, or the host has ended it often enough."""
    while True:
        folder = store.session(entry)
        resume = (folder / MANIFEST).exists()
        began = entry.began if resume and entry.began else stamp()
        update = {
            "state": "running",
            "began": began,
            "worker": f"{socket.gethostname()}:{os.getpid()}",
        }
        entry = store.save(entry.model_copy(update=update))
        page.write(store)
        log(f"{'goes on' if resume else 'begins'}  {entry.id}  {entry.name}")
        request = entry.question
        if entry.mailbox:
            request = replace(request, series=(str(store.mails(entry)),))
        ending = _ending(Job(request, folder, resume, entry.is_from_mail), measure, log)
        if ending.blame == "host":
            entry = entry.model_copy(update={"tries": entry.tries + 1})
            if entry.tries < rules.tries:
                log(f"again  {entry.id}  {ending.message}")
                continue
        return store.save(ending.of(entry, stamp())), ending


def _ending(job: Job, measure: Measure, log: Log) -> EntryOutcome:
    try:
        door.make_folder(job.folder.parent.parent, f"{SESSIONS}/{job.folder.name}")
        measure(job)
        return of_session(write_all(job.folder))
    except Exception as error:
        ending = of_error(error)
        if ending.blame == "lab":
            # People need the traceback of a bug, and no other.
            log(traceback.format_exc().rstrip())
        return ending
