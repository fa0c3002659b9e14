"""The verb that follows a mailbox and queues what it brings."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from errors import InfraError
from experiment.ad_hoc import from_here, from_series
from queues.store import QueueStore
from queues.watch import Look, Wanted, Watch, mailbox_of
from runs import prepare
from runs.question import Question
from verbs.asked import CHECKOUT, CheckFirst, Mode, Reverse, Set, Source, log
from verbs.queue import Priority
from verbs.queue_list import QUEUE, Folder

app = typer.Typer()


@app.command("watch")
def watch_verb(
    mailbox: Annotated[
        Path, typer.Argument(help="a public-inbox archive (v2), maildir, mbox or folder of mboxes")
    ],
    more_paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", help="as --paths")
    ] = None,
    paths: Annotated[
        list[str],
        typer.Option(metavar="PATH", help="queue what touches one of these, as mm/ fs/*.c; or all"),
    ] = [],  # noqa: B006
    folder: Folder = QUEUE,
    once: Annotated[bool, typer.Option("--once", help="look once, and end")] = False,
    every: Annotated[float, typer.Option(min=1, metavar="S", help="look every S seconds")] = 60.0,
    days: Annotated[
        float,
        typer.Option(
            min=0.01,
            help="how far back the first look goes, and how long a series may stay incomplete",
        ),
    ] = 14.0,
    priority: Priority = 0,
    source: Source = "",
    workloads: Annotated[
        str,
        typer.Option(metavar="NAME,NAME", help="what to run; by default what the files call for"),
    ] = "",
    reverse: Reverse = False,
    overrides: Set = [],  # noqa: B006
    mode: Mode = "",
    check: CheckFirst = None,
) -> None:
    """Follow a mailbox: queue every new, complete series that touches the given paths.

    A series with a patch missing waits until it is whole, or too old.  A newer version takes
    the place of one that is not measured yet.  What was read is remembered with the queue.
    """
    source = from_here(source, here=Path.cwd(), checkout=CHECKOUT) if source else ""
    question = Question(
        "", tuple(overrides), mode, None, (), source, workloads, not workloads, reverse, False,
        check,
    )  # fmt: skip
    # What is wrong with it is said now, and not by every entry.
    from_series(
        ("x.mbox",), source=source, workloads=question.named_workloads,
        reverse=reverse, overrides=question.all_overrides, catalogue=prepare.catalogue(CHECKOUT),
    )  # fmt: skip
    wanted = Wanted(question, (*paths, *(more_paths or ())), priority, days=days)
    watch = Watch(QueueStore(folder), mailbox, wanted)
    before: list[str] = []
    while True:
        try:
            look = watch.look(mailbox_of(mailbox), time.time())
            for line in lines_of(look, before):
                print(line, flush=True)
            before = look.waiting
        except InfraError as error:
            # A mirror may be packed anew while it is read: the next look finds it whole.
            if once:
                raise
            log(f"error: {error}")
        if once:
            break
        time.sleep(every)
    log(f"{look.mails} new mails; {len(look.queued)} series queued, {len(look.waiting)} incomplete")


def lines_of(look: Look, waited: list[str]) -> list[str]:
    """What a look found, a line each; series that ``waited`` before are not told again."""
    kinds = {
        "note": look.notes, "queued": look.queued, "replaced": look.replaced,
        "left out": look.left_out, "given up": look.given_up,
        "waits": [line for line in look.waiting if line not in waited],
    }  # fmt: skip
    lines = [f"{kind:<9} {line}" for kind, found in kinds.items() for line in found]
    if look.elsewhere:
        lines.append(f"elsewhere {look.elsewhere} series touch none of the paths")
    return lines
