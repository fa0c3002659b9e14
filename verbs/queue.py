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
    """Add series to the queue, one entry each; entries that exist are not changed."""
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
    """
    from verbs.actions import queue

    queue.work_all(where, folder, limit=limit, tries=tries, wait=wait, trust_authors=trust_authors)


@app.command("remove")
def remove_verb(names: Entries, folder: Folder = QUEUE) -> None:
    """Remove entries from the queue; their sessions are kept, and watch does not queue them
    again.
    """
    from verbs.actions import queue

    queue.remove(names, folder)


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
    """Measure entries again; a session that the host interrupted is resumed, others start anew."""
    from verbs.actions import queue

    queue.retry(names, folder, anew=anew)
