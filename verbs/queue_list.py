"""The verb that shows a queue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verbs.folders import CHECKOUT
from verbs.options import Json
from verbs.output import emit, log, write_out

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
    """Show waiting entries in order, then finished ones with their results."""
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
    from queues.entry import is_worked_on, result_line, word_of

    word: str = entry.state
    if entry.state in ("done", "failed"):
        word = word_of(entry)
    elif entry.state == "running" and not is_worked_on(entry):
        word = "interrupted"
    priority = f"  priority {entry.priority}" if entry.priority and entry.is_open else ""
    text = entry.message or "; ".join(result_line(outcome) for outcome in entry.results)
    sender = f"  {entry.sender}" if entry.mailbox else ""
    return f"{word:<13}  {entry.id}{priority}  {entry.name}{sender}{f'  ({text})' if text else ''}"
