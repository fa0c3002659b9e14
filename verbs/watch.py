"""The verb that follows a mailbox into a queue, look by look."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from errors import InfraError
from experiment.series_name import from_here
from runs.request import Request
from verbs.cli import Without, flattened
from verbs.invocation import log, write_out
from verbs.options import CHECKOUT
from verbs.queue import QUEUE, Folder, Priority

if TYPE_CHECKING:
    from queues.watch import PollReport

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

    Examples:
    ./lab.py watch ~/lore/linux-mm mm/ fs/*.c --once  # check a mailbox once
    ./lab.py watch ~/mail/linux-mm.mbox --every 300 --set guest=smoke  # for ever
    """
    follow(
        request, mailbox, (*paths, *(more_paths or ())), folder,
        once=once, every=every, days=days, priority=priority,
    )  # fmt: skip


# Of the mails that are no members of a series, by reason.
MOST_NAMED = 5


def follow(
    request: Request,
    mailbox: Path,
    paths: Sequence[str],
    folder: Path,
    *,
    once: bool,
    every: float,
    days: float,
    priority: int,
) -> None:
    """Queue what a mailbox brings, for ever or for one look, a line for each thing that happens.

    ``every`` is in seconds; ``days`` bounds the first look and how long a series may be
    incomplete.

    Raises:
        UsageError, SpecError: no such mailbox, or a request that no series could fulfil.
        InfraError: the mailbox cannot be read in the one look.
    """
    from experiment.ad_hoc import from_series
    from queues.mailboxes import mailbox_of
    from queues.store import QueueStore
    from queues.watch import Selection, Watch
    from runs.resolved import catalogue

    source = request.source
    source = from_here(source, here=Path.cwd(), checkout=CHECKOUT) if source else ""
    request = replace(request, source=source, automatic=not request.workloads)
    # What is wrong with it is said now, and not by every entry.
    from_series(
        ("x.mbox",), source=source, workloads=request.named_workloads,
        reverse=request.reverse, overrides=request.all_overrides,
        catalogue=catalogue(CHECKOUT),
    )  # fmt: skip
    conditions = Selection(request, tuple(paths), priority, days=days)
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


def lines_of(report: PollReport, waited: list[str]) -> list[str]:
    """What a look found, a line each; series that ``waited`` before are not told again."""
    kinds = {
        "note": report.notes, "queued": report.queued, "replaced": report.replaced,
        "left out": report.left_out, "given up": report.given_up,
        "waits": [line for line in report.waiting if line not in waited],
    }  # fmt: skip
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
