"""Verbs of a queue of series: add, list, run, remove, retry; and watch, which fills it."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from errors import InfraError, UsageError
from experiment.series_name import from_here
from host import facts
from runs.request import Request
from verbs import session
from verbs.cli import Without, flattened
from verbs.invocation import (
    emit,
    log,
    options,
    placed,
    require_trusted,
    resolved_of,
    write_out,
)
from verbs.options import CHECKOUT, Booting, Json, opt

if TYPE_CHECKING:
    from experiment.spec import Experiment
    from queues.watch import PollReport

app = typer.Typer(add_completion=False)
QUEUE = CHECKOUT / "queue-data"
QUEUE_PANEL = "The queue"
Folder = Annotated[Path, opt("--queue", "folder of the queue", QUEUE_PANEL)]
Priority = Annotated[int, opt("--priority", "higher numbers are measured first", QUEUE_PANEL)]
Entries = Annotated[
    list[str], typer.Argument(metavar="ID...", help="an entry's id, or its beginning")
]
# An entry is one series, which has an argument of its own.
OF_ENTRY = Without("name", "series", "arms")


def require_queued(experiment: Experiment) -> None:
    """Refuse what the queue does not measure.

    Raises UsageError: native mode, whose sessions a queue and its page cannot read; there is no
    such source, or an option that no Kconfig of it has is asked of it without a series.
    """
    from runs.requirements import require_sources
    from runs.resolved import PlannedKernel

    kernel, where = experiment.kernel, {"checkout": CHECKOUT, "cache": facts.cache_folder()}
    require_sources([PlannedKernel("base", kernel, ())], **where)
    if experiment.mode == "native":
        what = "a queue has no sessions of native mode"
        step = "./lab.py run --mode native --series SERIES measures one now"
        raise UsageError(what, where="mode = native", next_step=step)


@app.command("list")
def list_verb(
    folder: Folder = QUEUE,
    everything: Annotated[
        bool, opt("--all", "also entries that were removed", QUEUE_PANEL)
    ] = False,
    as_json: Json = False,
) -> None:
    """Show waiting entries in order, then finished ones with their results.

    Examples:
    ./lab.py queue list  # waiting entries, then results
    ./lab.py queue list --all --json  # also what was removed
    """
    from queues.store import QueueStore

    read = QueueStore(folder).read()
    entries = [entry for entry in read.entries if everything or entry.state != "removed"]
    entries.sort(key=lambda entry: (not entry.is_open, entry.ended, entry.order))
    for problem in read.problems:
        log(f"left out: {problem}")
    if as_json:
        emit(entries)
        return
    for entry in entries:
        word: str = entry.state
        if entry.state in ("done", "failed"):
            word = entry.word
        elif entry.state == "running" and not entry.is_worked_on:
            word = "interrupted"
        parts = [
            f"priority {entry.priority}" if entry.priority and entry.is_open else "",
            f"{entry.name}  {entry.author}" if entry.mailbox else entry.name,
        ]
        if text := entry.message or "; ".join(map(str, entry.results)):
            parts.append(f"({text})")
        write_out("  ".join(filter(None, (f"{word:<13}", entry.id, *parts))))
    if not entries:
        log("the queue is empty")


@app.command("add")
@flattened
def add_verb(
    request: Annotated[Request, OF_ENTRY],
    series: Annotated[
        list[str] | None,
        typer.Argument(metavar="SERIES...", help="FOLDER, FILE, MESSAGE-ID or git:REPOSITORY@A..B"),
    ] = None,
    folder: Folder = QUEUE,
    priority: Priority = 0,
) -> None:
    """Add series to the queue, one entry each; entries that exist are not changed.

    Examples:
    ./lab.py queue add v3.mbox --priority 2  # ahead of the others
    ./lab.py queue add *.mbox --guest smoke  # an entry each
    """
    from experiment.ad_hoc import NotYetKnownError
    from queues import page
    from queues.store import QueueStore, entry_of, put

    if not series:
        raise typer.BadParameter("no series named", param_hint="SERIES")
    requests, here = [replace(request, series=(name,)) for name in series], Path.cwd()
    entries = [entry_of(each, here=here, checkout=CHECKOUT, priority=priority) for each in requests]
    for entry in entries:
        try:
            require_queued(resolved_of(entry.question).experiment)
        except (InfraError, NotYetKnownError) as error:
            # A thread may have to wait for a network, and what a header reaches for a build.
            log(f"{entry.id}: not taken in now, but when it is measured: {error.in_one_line}")
    # All of them are sound, or none is queued.
    store = QueueStore(folder)
    for entry in entries:
        write_out(f"{entry.id}  {put(store, entry)}")
    page.write(store)


@app.command("run")
@flattened
def run_verb(
    where: Booting,
    folder: Folder = QUEUE,
    limit: Annotated[
        int | None, opt("--limit", "stop after this many entries", QUEUE_PANEL, min=1)
    ] = None,
    tries: Annotated[
        int, opt("--tries", "maximum attempts of an entry after host failures", QUEUE_PANEL, min=1)
    ] = 2,
    wait: Annotated[
        float | None,
        opt("--wait S", "keep running, and check the queue every S seconds", QUEUE_PANEL, min=1),
    ] = None,
    trust_authors: Annotated[
        bool,
        opt(
            "--trust-authors",
            "build series from mail without a sandbox, too; their makefiles run as you",
            QUEUE_PANEL,
        ),
    ] = False,
) -> None:
    """Measure all waiting entries, one session and one report each.

    A series that does not apply, build or boot fails its own entry only.  Series from mail (queued
    by watch, or named by message-id) are built in a sandbox; without one with --trust-authors
    only.  Exit codes: 0 all entries were processed, whatever their verdicts; 2 some need
    --trust-authors; 3 two in a row failed because of this host or Twinboot, or the queue's folder
    cannot be written.  After an interruption the next run continues where this one stopped.

    Examples:
    ./lab.py queue run --limit 1  # the first that waits
    ./lab.py queue run --wait 60 --parallel 2  # for ever, two guests at once
    """
    from host import sandbox
    from queues import page
    from queues.store import QueueStore
    from queues.work import Job, Rules, refused, work
    from runs.boots import Reporter

    waiting, run_options = QueueStore(folder), options(where)
    entries = waiting.read().entries
    if wait is None:
        of_open = (entry.question.series for entry in entries if entry.is_open)
        require_trusted(itertools.chain.from_iterable(of_open), run_options.trusted)
    # A word that is wrong ends this, and not every entry; nothing is connected yet.
    with placed(run_options, where, Reporter()):
        boxed = run_options.sandbox is not False and sandbox.available() is not None

    def measure(job: Job) -> None:
        options_here = replace(run_options, sandbox=boxed) if job.is_from_mail else run_options
        # Connected anew each time: a scheduler may have been lost, and be back.
        if job.resume:
            session.measure(Request(), options_here, where, resume=job.folder)
        else:
            session.measure(job.request, options_here, where, folder=job.folder)

    names: set[str] = set()
    while True:
        rules = Rules(tries, limit, trust_authors, boxed)
        try:
            finished = work(waiting, measure, log, rules)
        except KeyboardInterrupt:
            log(f"./lab.py queue run --queue {folder} goes on where this one was")
            raise
        left = refused(waiting, rules)
        for entry in left:
            if entry.id not in names:
                author = entry.author or "an unknown author"
                log(f"not built  {entry.id}  {entry.name}: by {author}")
        names |= {entry.id for entry in left}
        limit = None if limit is None else limit - finished
        if wait is None or limit == 0:
            break
        time.sleep(wait)
    write_out(waiting.folder / page.INDEX)
    if left:
        raise UsageError(
            f"{len(left)} entries came by mail and were not built: this host has no sandbox, and a "
            "patch may change makefiles and scripts, which run with all your rights",
            where=str(waiting.folder),
            next_step=f"{sandbox.remedy()}; or read the patches, and add --trust-authors",
        )


@app.command("remove")
def remove_verb(names: Entries, folder: Folder = QUEUE) -> None:
    """Remove entries from the queue; their sessions are kept, and watch does not queue them
    again.

    Examples:
    ./lab.py queue remove v3-1a2b3c4d  # by its id
    ./lab.py queue remove v3- v4-  # by the beginnings of ids
    """
    from queues import page
    from queues.store import QueueStore

    store = QueueStore(folder)
    for name in names:
        with store.change(store.find(name).id) as entry:
            store.save(entry.model_copy(update={"state": "removed"}))
        write_out(f"{entry.id}  removed")
    page.write(store)


@app.command("retry")
def retry_verb(
    names: Entries,
    folder: Folder = QUEUE,
    anew: Annotated[
        bool,
        opt("--new-session", "start a new session even if the old can be resumed", QUEUE_PANEL),
    ] = False,
) -> None:
    """Measure entries again; a session that the host interrupted is resumed, others start again.

    Examples:
    ./lab.py queue retry v3-1a2b3c4d  # resume its session
    ./lab.py queue retry v3-1a2b3c4d --new-session  # or start a new one
    """
    from queues import page
    from queues.store import QueueStore

    store = QueueStore(folder)
    for name in names:
        with store.change(store.find(name).id) as entry:
            if entry.is_open:
                write_out(f"{entry.id}  is queued already")
                continue
            again = store.save(entry.requeued(anew=anew))
        write_out(f"{entry.id}  requeued, session {again.session}")
    page.write(store)


MAILBOX = "The mailbox"
# The mails are the series, and their files name the workloads where nothing else does.
OF_MAILS = Without("name", "series", "arms", "automatic")


@app.command("watch")
@flattened
def watch_verb(
    request: Annotated[Request, OF_MAILS],
    mailbox: Annotated[
        Path, typer.Argument(help="a public-inbox archive (v2), maildir, mbox or folder of mboxes")
    ],
    more_paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", help="the same as --paths")
    ] = None,
    paths: Annotated[
        list[str],
        opt(
            "--paths PATH",
            "queue only series that change files under these, for example mm/ 'fs/*.c'",
            MAILBOX,
        ),
    ] = [],  # noqa: B006
    once: Annotated[bool, opt("--once", "check the mailbox once, then exit", MAILBOX)] = False,
    every: Annotated[
        float, opt("--every S", "check the mailbox every S seconds", MAILBOX, min=1)
    ] = 60.0,
    days: Annotated[
        float,
        opt(
            "--days",
            "age of the oldest mail read at the first check, and how long an incomplete "
            "series is waited for",
            MAILBOX,
            min=0.01,
        ),
    ] = 14.0,
    folder: Folder = QUEUE,
    priority: Priority = 0,
) -> None:
    """Watch a mailbox, and queue each new series that changes the paths.

    A series with a missing patch waits until it is complete or --days old.  Each version of a
    series is an entry.  The queue remembers which mails were read.
    Without --workloads, those are measured that execute what a series changes (see suggest).

    Examples:
    ./lab.py watch ~/lore/linux-mm mm/ fs/*.c --once  # check a mailbox once
    ./lab.py watch ~/mail/linux-mm.mbox --every 300 --guest smoke  # for ever
    """
    from experiment.ad_hoc import from_series
    from experiment.load import with_config
    from queues.mailboxes import mailbox_of
    from queues.store import QueueStore
    from queues.watch import Selection, Watch
    from runs.resolved import catalogue

    source = from_here(request.source, here=Path.cwd(), checkout=CHECKOUT)
    request = replace(request, source=source, automatic=not request.workloads)
    # What is wrong with it is said now, and not by every entry.
    made = from_series(
        ("x.mbox",),
        source=source,
        workloads=request.named_workloads,
        reverse=request.reverse,
        overrides=request.all_overrides,
        catalogue=catalogue(CHECKOUT),
    )
    require_queued(with_config(made, request.config))
    conditions = Selection(request, (*paths, *(more_paths or ())), priority, days=days)
    watch = Watch(QueueStore(folder), mailbox, conditions)
    before: list[str] = []
    while True:
        try:
            report = watch.poll(mailbox_of(mailbox), time.time())
            for line in lines_of(report, before):
                write_out(line, flush=True)
            before = report.waiting
        except InfraError as error:
            # A mirror may be packed anew while it is read: the next look finds it whole.
            if once:
                raise
            log(error.for_terminal)
        if once:
            break
        time.sleep(every)
    ends = f"{len(report.queued)} series queued, {len(report.waiting)} incomplete"
    log(f"{report.mails} new mails; {ends}")


# Of the mails that are no members of a series, by reason.
MOST_NAMED = 5


def lines_of(report: PollReport, waited: list[str]) -> list[str]:
    """What a look found, a line each; series that ``waited`` before are not told again."""
    kinds = {
        "note": report.notes,
        "queued": report.queued,
        "left out": report.left_out,
        "given up": report.given_up,
        "waits": [line for line in report.waiting if line not in waited],
    }
    lines = [f"{kind:<9} {line}" for kind, texts in kinds.items() for line in texts]
    for why, names in report.unposted.items():
        more = f"; and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        count = "1 mail has" if len(names) == 1 else f"{len(names)} mails have"
        lines.append(
            f"no series {count} a diff and no place in a series ({why}): "
            f"{'; '.join(names[:MOST_NAMED])}{more}"
        )
    if report.elsewhere:
        lines.append(f"ignored   {report.elsewhere} series change no file under --paths")
    return lines
