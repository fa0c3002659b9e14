"""Work a queue: one session and one report for each entry, in order, until none is left."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.many import SessionComparison
from analysis.model import MetricComparison
from analysis.verdict import Verdict
from errors import Exit, InfraError, LabError
from queues import page
from queues.entry import Blame, PrimaryResult, QueueEntry
from queues.store import SESSIONS, QueueStore, stamp
from reports.forms import write_all
from reports.headline import headline, outcome
from reports.sentences import changed_per_unit
from results import door
from results.store import MANIFEST
from runs.request import Request
from text import clean

LONGEST = 600
BLAMES: dict[str, Blame] = {
    "user": "user", "series": "series", "workload": "workload", "host": "host", "lab": "lab",
}  # fmt: skip


@dataclass(frozen=True)
class EntryOutcome:
    """How an attempt ended: an exit code as of ``lab.py run``, who is to blame and why.

    ``headline`` is what the report begins with; empty where there is none.  ``is_bug``: it was
    ended by an exception that nobody expected.
    """

    code: int
    blame: Blame = ""
    message: str = ""
    results: tuple[PrimaryResult, ...] = ()
    title: str = ""
    headline: str = ""
    is_bug: bool = False
    functions: tuple[str, ...] = ()

    @property
    def is_in_the_way(self) -> bool:
        """Whether the series had no turn: the host or the lab would stop the next one, too."""
        return self.blame in ("host", "lab")

    def of(self, entry: QueueEntry, ended: str) -> QueueEntry:
        """The entry, ended so at this time."""
        update = {
            "state": "failed" if self.blame else "done",
            "code": int(self.code),
            "blame": self.blame,
            "headline": self.headline,
            "message": self.message,
            "results": self.results,
            "functions": self.functions,
            "ended": ended,
            "title": entry.title or self.title,
        }
        return entry.model_copy(update=update)


def of_session(comparison: SessionComparison) -> EntryOutcome:
    """The ending of a session that is whole."""
    code = outcome(comparison)
    happened = headline(comparison)
    results = tuple(_result(metric) for metric in comparison.primary)
    if not happened.has_verdicts:
        # A number beside which the report gives no verdict is not shown as one.
        results = tuple(
            result.model_copy(update={"change": None, "low": None, "high": None})
            for result in results
        )
    series = comparison.manifest.experiment.series
    title = clean(series.title) if series else ""
    untested = comparison.count(Verdict.NOT_TESTED) == len(results) > 0
    if untested:
        message = _shown("; ".join([happened.text, *happened.causes]))
        return EntryOutcome(code, "", message, results, title, _shown(happened.text))
    if code in (Exit.NO_REGRESSION, Exit.REGRESSION):
        return EntryOutcome(
            code, results=results, title=title, headline=_shown(happened.text),
            functions=_functions(comparison),
        )  # fmt: skip
    blame, message = _lost(comparison, code)
    if not happened.has_verdicts:
        message = _shown("; ".join([happened.text, *happened.causes]))
    return EntryOutcome(code, blame, message, results, title, _shown(happened.text))


def of_error(error: Exception) -> EntryOutcome:
    """The ending of an attempt that this error ended."""
    if isinstance(error, LabError):
        blame = BLAMES[error.blame]
        # What the lab itself wrote, or chose, is no mistake of whoever queued the series.
        code = Exit.INFRASTRUCTURE if blame == "lab" else error.exit_code
        return EntryOutcome(code, blame, _shown(error.in_one_line))
    if isinstance(error, OSError):
        return EntryOutcome(Exit.INFRASTRUCTURE, "host", _shown(str(error)))
    message = _shown(f"{type(error).__name__}: {error}")
    return EntryOutcome(Exit.INFRASTRUCTURE, "lab", message, is_bug=True)


def _lost(comparison: SessionComparison, code: int) -> tuple[Blame, str]:
    """Who is to blame for a verdict that is missing, and what happened first."""
    culprit = {Exit.SERIES: "series", Exit.USAGE: "user"}.get(Exit(code))
    failed = [run for run in comparison.failed_runs if culprit in (None, run.failure.blame)]
    # What is the host's is made again, so it comes before anybody else's.
    failed.sort(key=lambda run: run.failure.blame != "host")
    if failed:
        first = failed[0]
        more = f" ({len(failed)} runs)" if len(failed) > 1 else ""
        message = f"{first.run_id}: {first.failure.kind}: {first.failure.message}{more}"
        return first.failure.blame, _shown(message)
    lost = [m.judgement for m in comparison.primary if m.judgement.verdict is Verdict.FAILED]
    lost = [judgement for judgement in lost if culprit in (None, judgement.blame)] or lost
    # An exit code other than 0 and 1 is the blame of a run or of a verdict.
    assert lost
    return BLAMES[lost[0].blame], _shown(lost[0].reason)


def _functions(comparison: SessionComparison) -> tuple[str, ...]:
    """Which functions changed, in the words of the report; nothing where none were tested."""
    return tuple(
        _shown(
            f"{'' if comparison.is_pair else f'{pair.manifest.patched} '}"
            f"{phase.case} {phase.phase}: "
            f"{changed_per_unit(phase)}"
        )
        for pair in comparison.comparisons
        for phase in pair.headlines
        if phase.tested
    )


def _result(metric: MetricComparison) -> PrimaryResult:
    change = metric.judgement.change
    return PrimaryResult(
        case=metric.case,
        metric=metric.name,
        verdict=str(metric.judgement.verdict),
        change=change.estimate if change else None,
        low=change.low if change else None,
        high=change.high if change else None,
    )


def _shown(text: str) -> str:
    return clean(text, LONGEST)


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
    results = ", ".join(
        f"{result.case} {result.metric} {result.verdict}" for result in entry.results
    )
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
                log(f"retry  {entry.id}  {ending.message}")
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
