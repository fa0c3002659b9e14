"""The verb that follows a mailbox and queues what it brings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runs.request import Request
from verbs.fields import Without, flattened
from verbs.queue import Priority
from verbs.queue_list import QUEUE, Folder

app = typer.Typer(add_completion=False)

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
        list[str] | None, typer.Argument(metavar="PATH", help="as --paths")
    ] = None,
    paths: Annotated[
        list[str],
        typer.Option(
            "--paths",
            metavar="PATH",
            rich_help_panel=MAILBOX,
            help="queue what touches one of these, as mm/ fs/*.c; or all",
        ),
    ] = [],  # noqa: B006
    once: Annotated[
        bool, typer.Option("--once", rich_help_panel=MAILBOX, help="look once, and end")
    ] = False,
    every: Annotated[
        float,
        typer.Option(
            "--every", min=1, metavar="S", rich_help_panel=MAILBOX, help="look every S seconds"
        ),
    ] = 60.0,
    days: Annotated[
        float,
        typer.Option(
            "--days",
            min=0.01,
            rich_help_panel=MAILBOX,
            help="how far back the first look goes, and how long a series may stay incomplete",
        ),
    ] = 14.0,
    folder: Folder = QUEUE,
    priority: Priority = 0,
) -> None:
    """Follow a mailbox: queue every new, complete series that touches the given paths.

    A series with a patch missing waits until it is whole, or too old.  A newer version takes
    the place of one that is not measured yet.  What was read is remembered with the queue.
    The workloads are those that execute what a series changes, where --workloads names none.
    """
    from verbs.actions import watch

    watch.follow(
        request, mailbox, (*paths, *(more_paths or ())), folder,
        once=once, every=every, days=days, priority=priority,
    )  # fmt: skip
