"""Verbs of a queue of series: add, list, run, remove, retry."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from errors import InfraError, UsageError
from runs.request import Request
from verbs import session
from verbs.cli import Without, flattened
from verbs.invocation import emit, log, options, resolved_of, write_out
from verbs.options import CHECKOUT, Booting, Json

if TYPE_CHECKING:
    from queues.entry import QueueEntry, State

QUEUE = CHECKOUT / "queue-data"


app = typer.Typer(add_completion=False)


QUEUE_PANEL = "The queue"


Folder = Annotated[
    Path, typer.Option("--queue", rich_help_panel=QUEUE_PANEL, help="folder of the queue")
]


@app.command("list")
def list_verb(
    folder: Folder = QUEUE,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", rich_help_panel=QUEUE_PANEL, help="also entries that were removed or replaced"
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show waiting entries in order, then finished ones with their results.

    Examples:
    ./lab.py queue list  # waiting entries, then results
    ./lab.py queue list --all --json  # also what was removed
    """
    from queues.store import QueueStore
    from results.record import as_json as as_json_values

    read = QueueStore(folder).read()
    hidden: tuple[State, ...] = () if everything else ("removed", "replaced")
    entries = [entry for entry in read.entries if entry.state not in hidden]
    entries.sort(key=lambda entry: (not entry.is_open, entry.ended, entry.order))
    for problem in read.problems:
        log(f"left out: {problem}")
    if as_json:
        emit([as_json_values(entry) for entry in entries])
        return
    for entry in entries:
        write_out(_line(entry))
    if not entries:
        log("the queue is empty")


def _line(entry: QueueEntry) -> str:
    """An entry in one line: state, id, priority, name, what came out."""
    word: str = entry.state
    if entry.state in ("done", "failed"):
        word = entry.word
    elif entry.state == "running" and not entry.is_worked_on:
        word = "interrupted"
    priority = f"  priority {entry.priority}" if entry.priority and entry.is_open else ""
    text = entry.message or "; ".join(map(str, entry.results))
    sender = f"  {entry.sender}" if entry.mailbox else ""
    return f"{word:<13}  {entry.id}{priority}  {entry.name}{sender}{f'  ({text})' if text else ''}"


Priority = Annotated[
    int,
    typer.Option(
        "--priority", rich_help_panel=QUEUE_PANEL, help="higher numbers are measured first"
    ),
]


Entries = Annotated[
    list[str], typer.Argument(metavar="ID...", help="an entry's id, or its beginning")
]


# An entry is one series, which has an argument of its own.
OF_ENTRY = Without("name", "series", "arms")


@app.command("add")
@flattened
def add_verb(
    request: Annotated[Request, OF_ENTRY],
    series: Annotated[
        list[str] | None,
        typer.Argument(metavar="SERIES...", help="FOLDER, FILE, MESSAGE-ID or git:REPOSITORY@A..B"),
    ] = None,
    tables: Annotated[
        list[Path],
        typer.Option(
            "--table",
            metavar="FILE.csv",
            rich_help_panel=QUEUE_PANEL,
            help="a table with one series a row; see docs/queue.md for the columns",
        ),
    ] = [],  # noqa: B006
    folder: Folder = QUEUE,
    priority: Priority = 0,
) -> None:
    """Add series to the queue, one entry each; entries that exist are not changed.

    Examples:
    ./lab.py queue add v3.mbox --priority 2  # ahead of the others
    ./lab.py queue add --table series.csv --set guest=smoke  # a row each
    """
    if not (series or tables):
        raise typer.BadParameter("no series named", param_hint="SERIES")
    add(request, tuple(series or ()), tables, folder, priority)


@app.command("run")
@flattened
def run_verb(
    where: Booting,
    folder: Folder = QUEUE,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, rich_help_panel=QUEUE_PANEL, help="stop after this many entries"
        ),
    ] = None,
    tries: Annotated[
        int,
        typer.Option(
            "--tries",
            min=1,
            rich_help_panel=QUEUE_PANEL,
            help="maximum attempts of an entry after host failures",
        ),
    ] = 2,
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            min=1,
            metavar="S",
            rich_help_panel=QUEUE_PANEL,
            help="keep running, and check the queue every S seconds",
        ),
    ] = None,
    trust_authors: Annotated[
        bool,
        typer.Option(
            "--trust-authors",
            rich_help_panel=QUEUE_PANEL,
            help="build series from mail without a sandbox, too; their makefiles run as you",
        ),
    ] = False,
) -> None:
    """Measure all waiting entries, one session and one report each.

    A series that does not apply, build or boot fails its own entry only.  Series from mail (queued
    by watch, or named by message-id) are built in a sandbox; without one with --trust-authors
    only.  Exit codes: 0 all entries were processed, whatever their verdicts; 2 some need
    --trust-authors; 3 two in a row failed because of this host or the lab, or the queue's folder
    cannot be written.  After an interruption the next run continues where this one stopped.

    Examples:
    ./lab.py queue run --limit 1  # the first that waits
    ./lab.py queue run --wait 60 --guests 2  # for ever, two guests at once
    """
    work_all(where, folder, limit=limit, tries=tries, wait=wait, trust_authors=trust_authors)


@app.command("remove")
def remove_verb(names: Entries, folder: Folder = QUEUE) -> None:
    """Remove entries from the queue; their sessions are kept, and watch does not queue them
    again.

    Examples:
    ./lab.py queue remove v3-1a2b3c4d  # by its id
    ./lab.py queue remove v3- v4-  # by the beginnings of ids
    """
    remove(names, folder)


@app.command("retry")
def retry_verb(
    names: Entries,
    folder: Folder = QUEUE,
    anew: Annotated[
        bool,
        typer.Option(
            "--new-session",
            rich_help_panel=QUEUE_PANEL,
            help="start a new session even if the old can be resumed",
        ),
    ] = False,
) -> None:
    """Measure entries again; a session that the host interrupted is resumed, others start anew.

    Examples:
    ./lab.py queue retry v3-1a2b3c4d  # resume its session
    ./lab.py queue retry v3-1a2b3c4d --new-session  # or start a new one
    """
    retry(names, folder, anew=anew)


def add(
    request: Request,
    series: Sequence[str],
    tables: Sequence[Path],
    folder: Path,
    priority: int,
) -> None:
    """Queue each series, and each row of the tables, with the request's options.

    Raises:
        UsageError, SpecError: one of them cannot be measured; then none is queued.
    """
    from queues import adding, page
    from queues.adding import entry_of, of_row, put
    from queues.store import QueueStore
    from runs.resolved import catalogue as known_names

    catalogue = known_names(CHECKOUT)

    def made(request: Request, here: Path, origin: str, own_priority: int) -> QueueEntry:
        return entry_of(
            request, here=here, checkout=CHECKOUT, catalogue=catalogue, priority=own_priority,
            origin=origin,
        )  # fmt: skip

    entries = [made(replace(request, series=(name,)), Path.cwd(), "", priority) for name in series]
    for file in tables:
        for row in adding.read_table(file):
            of_entry, own = of_row(row, request)
            own_priority = priority if own is None else own
            entries.append(
                made(of_entry, file.absolute().parent, str(file.absolute()), own_priority)
            )
    for entry in entries:
        _take_in(entry)
    # All of them are sound, or none is queued.
    store = QueueStore(folder)
    for entry in entries:
        write_out(f"{entry.id}  {put(store, entry)}")
    page.write(store)


def _take_in(entry: QueueEntry) -> None:
    """Say what is in a series, as it will be measured; a thread may have to wait for a network."""
    try:
        resolved_of(entry.question)
    except InfraError as error:
        log(f"{entry.id}: not taken in now, but when it is measured: {error.in_one_line}")


def work_all(
    where: Booting,
    folder: Path,
    *,
    limit: int | None,
    tries: int,
    wait: float | None,
    trust_authors: bool,
) -> None:
    """Measure what waits until nothing is left, or for ever with ``wait`` (seconds).

    Raises:
        UsageError: something waits that nobody trusted who mailed it.
        InfraError: two entries in a row were ended by the host or the lab.
    """
    from host import sandbox
    from host.packages import install_line
    from queues import page
    from queues.store import QueueStore
    from queues.work import Job, Rules, refused, work
    from runs.fleet.configured import executor_of

    waiting, run_options = QueueStore(folder), options(where)
    waiting.read()
    # A word that is wrong ends this, and not every entry; nothing is connected yet.
    executor_of(
        where.executor,
        where.store,
        checkout=CHECKOUT,
        cache=run_options.cache,
        log=log,
        insecure=where.insecure,
    )

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
                log(
                    f"not built  {entry.id}  {entry.name}: by {entry.author or 'an unknown author'}"
                )
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
            next_step=f"{install_line(['bubblewrap'])}; or read the patches, and add "
            "--trust-authors",
        )


def remove(names: Sequence[str], folder: Path) -> None:
    """Take entries out of the queue.

    Raises:
        UsageError: no such entry, or somebody changes it.
    """
    from queues import page
    from queues.store import QueueStore

    store = QueueStore(folder)
    for name in names:
        with store.change(store.find(name).id) as entry:
            store.save(entry.model_copy(update={"state": "removed"}))
        write_out(f"{entry.id}  removed")
    page.write(store)


def retry(names: Sequence[str], folder: Path, *, anew: bool) -> None:
    """Have entries measured again, in a new session if ``anew``.

    Raises:
        UsageError: no such entry, or somebody changes it.
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
