"""Verbs that change a queue of series: add, run, remove, retry."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from errors import UsageError
from fleet.configured import executor_of
from queues import page, table
from queues.adding import entry_of, of_row, put
from queues.entry import Entry
from queues.store import QueueStore
from queues.work import Job, Rules, refused, work
from runs import prepare
from runs.question import Question
from verbs.asked import (
    CHECKOUT,
    Auto,
    CheckFirst,
    Executor,
    Guests,
    Mode,
    PerPatch,
    Reverse,
    Set,
    Source,
    Store,
    Workloads,
    log,
    options,
)
from verbs.measuring import do_measure
from verbs.queue_list import QUEUE, Folder

app = typer.Typer(no_args_is_help=True)

Priority = Annotated[int, typer.Option(help="higher ones are measured first")]
Entries = Annotated[list[str], typer.Argument(metavar="ID...", help="or how it begins")]


@app.command("add")
def add_verb(
    series: Annotated[
        list[str] | None,
        typer.Argument(metavar="SERIES...", help="FOLDER, FILE, MESSAGE-ID or git:REPOSITORY@A..B"),
    ] = None,
    tables: Annotated[
        list[Path],
        typer.Option("--table", metavar="FILE.csv", help=f"columns {', '.join(table.COLUMNS)}"),
    ] = [],  # noqa: B006
    folder: Folder = QUEUE,
    priority: Priority = 0,
    source: Source = "",
    workloads: Workloads = "",
    auto: Auto = False,
    reverse: Reverse = False,
    overrides: Set = [],  # noqa: B006
    mode: Mode = "",
    per_patch: PerPatch = False,
    check: CheckFirst = None,
) -> None:
    """Queue series, each as an entry of its own; what is there already stays as it is."""
    if not (series or tables):
        raise typer.BadParameter("no series named", param_hint="SERIES")
    catalogue = prepare.catalogue(CHECKOUT)
    asked = Question(
        "", tuple(overrides), mode, None, (), source, workloads, auto, reverse, per_patch, check
    )

    def made(question: Question, here: Path, origin: str, wanted: int) -> Entry:
        return entry_of(
            question, here=here, checkout=CHECKOUT, catalogue=catalogue, priority=wanted,
            origin=origin,
        )  # fmt: skip

    entries = [
        made(replace(asked, series=(name,)), Path.cwd(), "", priority) for name in series or ()
    ]
    for file in tables:
        for row in table.read_table(file):
            question, own = of_row(row, asked)
            wanted = priority if own is None else own
            entries.append(made(question, file.absolute().parent, str(file.absolute()), wanted))
    # All of them are sound, or none is queued.
    store = QueueStore(folder)
    for entry in entries:
        print(f"{entry.id}  {put(store, entry)}")
    page.write(store)


@app.command("run")
def run_verb(
    folder: Folder = QUEUE,
    limit: Annotated[int | None, typer.Option(min=1, help="end after so many entries")] = None,
    tries: Annotated[
        int, typer.Option(min=1, help="how often an entry is begun that the host ends")
    ] = 2,
    wait: Annotated[
        float | None,
        typer.Option(min=1, metavar="S", help="look again every S seconds, and do not end"),
    ] = None,
    guests: Guests = None,
    executor: Executor = "local",
    store: Store = "",
    trust_authors: Annotated[
        bool,
        typer.Option(
            "--trust-authors", help="also build what came by mail: its makefiles run as you"
        ),
    ] = False,
) -> None:
    """Measure what waits, one session and one report an entry, until nothing is left.

    An entry that does not apply, build or boot is its own outcome, and the next one is
    measured.  What a watch queued, or a message-id names, is built with --trust-authors only.
    Exit codes: 0 all were worked, whatever the verdicts; 2 some wait for --trust-authors; 3
    two in a row were ended by the host or the lab, or the queue's folder cannot be written.
    Killed at any moment, the next run goes on where this one was.
    """
    waiting, asked = QueueStore(folder), options(guests_at_once=guests)
    waiting.create()
    # A word that is wrong ends this, and not every entry; nothing is connected yet.
    executor_of(executor, store, checkout=CHECKOUT, cache=asked.cache, say=log)

    def measure(job: Job) -> None:
        question = Question() if job.resume else job.question
        begins, goes_on = (None, job.folder) if job.resume else (job.folder, None)
        # Connected anew each time: a scheduler may have been lost, and be back.
        do_measure(question, begins, goes_on, asked, executor, store)

    named: set[str] = set()
    while True:
        rules = Rules(tries, limit, trust_authors)
        try:
            done = work(waiting, measure, log, rules)
        except KeyboardInterrupt:
            log(f"./lab.py queue run --queue {folder} goes on where this one was")
            raise
        left = refused(waiting, rules)
        for entry in left:
            if entry.id not in named:
                log(
                    f"not built  {entry.id}  {entry.name}: by {entry.author or 'whoever mailed it'}"
                )
        named |= {entry.id for entry in left}
        limit = None if limit is None else limit - done
        if wait is None or limit == 0:
            break
        time.sleep(wait)
    print(waiting.folder / page.INDEX)
    if left:
        raise UsageError(
            f"{len(left)} of what waits came by mail, and was not built: a patch may change "
            "makefiles and scripts, which run with all your rights",
            where=str(waiting.folder),
            next_step="read the patches, or run in a container or as a user that owns nothing "
            "else, and add --trust-authors",
        )


@app.command("remove")
def remove_verb(names: Entries, folder: Folder = QUEUE) -> None:
    """Take entries out of the queue; sessions stay, and no watch queues the same again."""
    store = QueueStore(folder)
    for name in names:
        with store.change(store.find(name).id) as entry:
            store.save(entry.model_copy(update={"state": "removed"}))
        print(f"{entry.id}  removed")
    page.write(store)


@app.command("retry")
def retry_verb(
    names: Entries,
    folder: Folder = QUEUE,
    anew: Annotated[
        bool, typer.Option("--new-session", help="also where the host ended a session")
    ] = False,
) -> None:
    """Measure entries again; a session that the host ended goes on, any other is a new one."""
    store = QueueStore(folder)
    for name in names:
        with store.change(store.find(name).id) as entry:
            if entry.is_open:
                print(f"{entry.id}  waits already")
                continue
            again = store.save(entry.again(anew=anew))
        print(f"{entry.id}  waits, session {again.session}")
    page.write(store)
