"""One series of a queue: what is asked of it, how far it is, and what came out.  Pure."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from analysis.verdict import Verdict
from experiment.ad_hoc import name_of
from experiment.series_name import kind_of
from reports import wording
from results.record import Record
from runs.request import Request
from text import clean

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
        return f"{self.case} {self.metric}: {shown}{self.verdict}"


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
