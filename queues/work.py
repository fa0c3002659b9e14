"""Work a queue: one session and one report for each entry, in order, until none is left."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from analysis.many import SessionComparison
from analysis.operations import per_operation
from analysis.verdict import Verdict
from errors import Exit, InfraError, LabError
from queues import page
from queues.store import SESSIONS, Blame, EntryOutcome, PrimaryResult, QueueEntry, QueueStore, stamp
from reports.forms import write_all
from reports.headline import headline, outcome
from reports.sentences import changed_per_unit
from results import door
from results.store import MANIFEST
from runs.request import Request
from text import clean

LONGEST = 600


def of_session(comparison: SessionComparison) -> EntryOutcome:
    """How a session that is whole ended."""
    code, happened = outcome(comparison), headline(comparison)
    series = comparison.manifest.experiment.series
    results = []
    for metric in comparison.primary:
        # A number beside which the report gives no verdict is not shown as one.
        change = metric.judgement.change if happened.has_verdicts else None
        results.append(
            PrimaryResult(
                case=metric.case,
                metric=metric.name,
                verdict=str(metric.judgement.verdict),
                change=change.estimate if change else None,
                low=change.low if change else None,
                high=change.high if change else None,
            )
        )
    blame: Blame = ""
    message, functions = clean("; ".join([happened.text, *happened.causes]), LONGEST), []
    if comparison.count(Verdict.NOT_TESTED) == len(results) > 0:
        pass
    elif code in (Exit.NO_REGRESSION, Exit.REGRESSION):
        message = ""
        for pair in per_operation(comparison).comparisons:
            arm = "" if comparison.is_pair else f"{pair.manifest.patched} "
            functions += [
                clean(f"{arm}{phase.case} {phase.phase}: {changed_per_unit(phase)}", LONGEST)
                for phase in pair.headlines
                if phase.tested
            ]
    else:
        blame, why = _lost(comparison, code)
        message = clean(why, LONGEST) if happened.has_verdicts else message
    return EntryOutcome(
        code=int(code),
        blame=blame,
        title=clean(series.title) if series else "",
        headline=clean(happened.text, LONGEST),
        message=message,
        results=tuple(results),
        functions=tuple(functions),
    )


def of_error(error: Exception) -> EntryOutcome:
    """How an attempt ended that this error ended."""
    code, blame, message, is_bug = Exit.INFRASTRUCTURE, "host", str(error), False
    if isinstance(error, LabError):
        blame, message = error.blame, error.in_one_line
        # What the lab itself wrote, or chose, is no mistake of whoever queued the series.
        code = code if blame == "lab" else error.exit_code
    elif not isinstance(error, OSError):
        blame, message, is_bug = "lab", f"{type(error).__name__}: {error}", True
    return EntryOutcome(
        code=int(code), blame=cast(Blame, blame), message=clean(message, LONGEST), is_bug=is_bug
    )


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
        return first.failure.blame, message
    lost = [m.judgement for m in comparison.primary if m.judgement.verdict is Verdict.FAILED]
    lost = [judgement for judgement in lost if culprit in (None, judgement.blame)] or lost
    # An exit code other than 0 and 1 is the blame of a run or of a verdict.
    assert lost
    return cast(Blame, lost[0].blame), lost[0].reason


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

    An entry's failure is its outcome, and the next one is taken.  What the host ended is tried
    again at once, as often as ``rules`` say, and then set aside.  Raises InfraError: two entries in
    a row were ended by the host or the lab itself; KeyboardInterrupt: passed on; the next worker
    goes on where this one was.
    """
    rules = rules or Rules()
    for problem in store.read().problems:
        log(f"left out  {problem}")
    done, in_a_row, bugs = 0, 0, 0
    while rules.limit is None or done < rules.limit:
        with store.claim(rules.allow) as entry:
            if entry is None:
                break
            entry = _attempt(store, entry, measure, log, rules)
        done += 1
        page.write(store)
        results = "; ".join(map(str, entry.results))
        why = f"{entry.blame}: {entry.message}" if entry.blame else entry.message or results
        log(f"{entry.state}  {entry.id}  {why}")
        # The series had no turn: the host or the lab would stop the next one, too.
        is_in_the_way = entry.blame in ("host", "lab")
        in_a_row = in_a_row + 1 if is_in_the_way else 0
        bugs = bugs + 1 if is_in_the_way and entry.is_bug else 0
        if in_a_row - bugs >= MOST_IN_A_ROW or bugs >= MOST_BUGS_IN_A_ROW:
            what = f"{in_a_row} entries in a row were ended by the host or the lab: {entry.message}"
            step = "fix that, then ./lab.py queue retry ID, and run the queue again"
            raise InfraError(what, where=entry.id, next_step=step)
    page.write(store)
    return done


def refused(store: QueueStore, rules: Rules) -> tuple[QueueEntry, ...]:
    """What waits and is not worked, since nobody trusted who mailed it."""
    return tuple(e for e in store.read().entries if e.is_open and not rules.allow(e))


def _attempt(
    store: QueueStore, entry: QueueEntry, measure: Measure, log: Log, rules: Rules
) -> QueueEntry:
    """Try an entry until it has an outcome, or the host has ended it often enough."""
    while True:
        folder = store.session(entry)
        resume = (folder / MANIFEST).exists()
        update = {
            "state": "running",
            "began": entry.began if resume and entry.began else stamp(),
            "worker": f"{socket.gethostname()}:{os.getpid()}",
        }
        entry = store.save(entry.model_copy(update=update))
        page.write(store)
        log(f"{'goes on' if resume else 'begins'}  {entry.id}  {entry.name}")
        request = entry.question
        if entry.mailbox:
            request = replace(request, series=(str(store.mails(entry)),))
        try:
            door.make_folder(store.folder, f"{SESSIONS}/{folder.name}")
            measure(Job(request, folder, resume, entry.is_from_mail))
            ending = of_session(write_all(folder))
        except Exception as error:
            ending = of_error(error)
            if ending.blame == "lab":
                # People need the traceback of a bug, and no other.
                log(traceback.format_exc().rstrip())
        if ending.blame == "host":
            entry = entry.model_copy(update={"tries": entry.tries + 1})
            if entry.tries < rules.tries:
                log(f"retry  {entry.id}  {ending.message}")
                continue
        return store.save(entry.closed(ending, stamp()))
