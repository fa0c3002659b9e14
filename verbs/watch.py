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
        list[str] | None, typer.Argument(metavar="PATH", help="the same as --paths")
    ] = None,
    paths: Annotated[
        list[str],
        typer.Option(
            "--paths",
            metavar="PATH",
            rich_help_panel=MAILBOX,
            help="queue only series that change files under these, for example mm/ 'fs/*.c'",
        ),
    ] = [],  # noqa: B006
    once: Annotated[
        bool,
        typer.Option("--once", rich_help_panel=MAILBOX, help="check the mailbox once, then exit"),
    ] = False,
    every: Annotated[
        float,
        typer.Option(
            "--every",
            min=1,
            metavar="S",
            rich_help_panel=MAILBOX,
            help="check the mailbox every S seconds",
        ),
    ] = 60.0,
    days: Annotated[
        float,
        typer.Option(
            "--days",
            min=0.01,
            rich_help_panel=MAILBOX,
            help="age of the oldest mail read at the first check, and how long an incomplete "
            "series is waited for",
        ),
    ] = 14.0,
    folder: Folder = QUEUE,
    priority: Priority = 0,
) -> None:
    """Watch a mailbox, and queue every new, complete series that changes files under the paths.

    A series with a missing patch waits until it is complete or --days old.  A newer version
    replaces an older one that is not measured yet.  The queue remembers which mails were read.
    Without --workloads, those are measured that execute what a series changes (see suggest).
    """
    from verbs.actions import watch

    watch.follow(
        request, mailbox, (*paths, *(more_paths or ())), folder,
        once=once, every=every, days=days, priority=priority,
    )  # fmt: skip
