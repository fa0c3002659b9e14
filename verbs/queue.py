"""Verbs that change a queue of series: add, run, remove, retry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runs.request import Request
from verbs.fields import Without, flattened
from verbs.options import Booting
from verbs.queue_list import QUEUE, QUEUE_PANEL, Folder

app = typer.Typer(no_args_is_help=True, add_completion=False)

Priority = Annotated[
    int,
    typer.Option("--priority", rich_help_panel=QUEUE_PANEL, help="higher ones are measured first"),
]
Entries = Annotated[list[str], typer.Argument(metavar="ID...", help="or how it begins")]
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
            help="series as rows; columns as in docs/queue.md",
        ),
    ] = [],  # noqa: B006
    folder: Folder = QUEUE,
    priority: Priority = 0,
) -> None:
    """Queue series, each as an entry of its own; what is there already stays as it is."""
    if not (series or tables):
        raise typer.BadParameter("no series named", param_hint="SERIES")
    from verbs.actions import queue

    queue.add(request, tuple(series or ()), tables, folder, priority)


@app.command("run")
@flattened
def run_verb(
    where: Booting,
    folder: Folder = QUEUE,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, rich_help_panel=QUEUE_PANEL, help="end after so many entries"
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
            help="look again every S seconds, and do not end",
        ),
    ] = None,
    trust_authors: Annotated[
        bool,
        typer.Option(
            "--trust-authors",
            rich_help_panel=QUEUE_PANEL,
            help="also build what came by mail: its makefiles run as you",
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
    from verbs.actions import queue

    queue.work_all(where, folder, limit=limit, tries=tries, wait=wait, trust_authors=trust_authors)


@app.command("remove")
def remove_verb(names: Entries, folder: Folder = QUEUE) -> None:
    """Take entries out of the queue; sessions stay, and no watch queues the same again."""
    from verbs.actions import queue

    queue.remove(names, folder)


@app.command("retry")
def retry_verb(
    names: Entries,
    folder: Folder = QUEUE,
    anew: Annotated[
        bool,
        typer.Option(
            "--new-session", rich_help_panel=QUEUE_PANEL, help="also where the host ended a session"
        ),
    ] = False,
) -> None:
    """Measure entries again; a session that the host ended goes on, any other is a new one."""
    from verbs.actions import queue

    queue.retry(names, folder, anew=anew)
