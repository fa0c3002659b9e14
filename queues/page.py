"""The index page of a queue: what runs, what waits, what came out; made of a report's blocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.verdict import MISSING, UNDECIDED
from experiment.series_name import message_id
from queues.entry import BLAMES, WORST_FIRST, QueueEntry, is_worked_on, result_line, word_of
from queues.store import QueueStore, Read
from reports import sentences
from reports.document import (
    Block,
    Fold,
    Heading,
    Item,
    Link,
    Listing,
    Mono,
    Paragraph,
    VerdictRow,
    Verdicts,
    Words,
    listing,
)  # fmt: skip
from reports.forms import HTML
from reports.render import html
from results import door

INDEX = "index.html"
# The newest; the rest are a number, and on disk.
MOST_ENDED = 500
MOST_WAITING = 500
FOOTER = (
    "Times are UTC. ▲ improvement, ▼ regression, = no change, ? inconclusive, ⊘ not tested, ✕ no "
    "verdict. "
    "The name of a series links to its report."
)


def write(store: QueueStore) -> Path:
    """Write the page anew; readers see the old one or the new one, never half of one."""
    door.write(store.folder, INDEX, render(store, store.read()))
    return store.folder / INDEX


def render(store: QueueStore, read: Read) -> str:
    """The page as text: the same for the same entries."""
    running = [entry for entry in read.entries if entry.state == "running"]
    waiting = [entry for entry in read.entries if entry.state == "waiting"]
    closed = [entry for entry in read.entries if not entry.is_open]
    ended = sorted((e for e in closed if e.state in ("done", "failed")), key=_newest, reverse=True)
    aside = [entry for entry in closed if entry.state == "replaced"][-MOST_ENDED:]
    shown = counts(ended, sum(map(is_worked_on, running)), len(waiting))
    blocks: list[Block] = [
        *_section("Being measured", "running", [_running(store, entry) for entry in running]),
        *_section("Waiting", "waiting", list(map(_waiting, waiting[:MOST_WAITING])),
                  len(waiting[MOST_WAITING:])),
        *_section("Results", "results", [_ended(store, entry) for entry in ended[:MOST_ENDED]],
                  len(ended[MOST_ENDED:])),
    ]  # fmt: skip
    if not blocks:
        add = Mono("./lab.py queue add SERIES")
        blocks.append(Paragraph(("The queue is empty. ", add, " adds a series.")))
    if aside:
        summary = f"Replaced by a newer version before they were measured: {len(aside)}"
        lines = tuple(listing(f"{entry.name}: {entry.message}" for entry in aside))
        blocks.append(Fold(summary, lines))
    if read.problems:
        items = tuple(Item(line, "warning") for line in read.problems)
        blocks += [Heading("Entries that cannot be read", 2, "problems"), Listing(items)]
    head: list[Block] = [Heading(store.folder.name, 1), Paragraph(f"{shown}.", "bottom")]
    return html.page(f"{store.folder.name}: {shown}", head, blocks, "Twinboot queue", FOOTER)


def _section(title: str, anchor: str, rows: Sequence[VerdictRow], more: int = 0) -> list[Block]:
    if not rows:
        return []
    rest = [Paragraph(f"{more} more are not shown.", "note")] if more else []
    return [Heading(title, 2, anchor), Verdicts(tuple(rows)), *rest]


def counts(ended: Sequence[QueueEntry], running: int, waiting: int) -> str:
    """``2 being measured, 5 waiting; 1 regression, 3 unchanged, 1 series failed``."""
    words = [word_of(entry) for entry in ended]
    plain = {"regression": "regressions", "improvement": "improvements"}
    parts = []
    for word in [*map(str, WORST_FIRST), *BLAMES.values()]:
        count = words.count(word)
        shown = {"no change": "unchanged"}.get(word, word)
        parts += [f"{count} {plain.get(word, shown) if count != 1 else shown}"] if count else []
    now = f"{running} being measured, {waiting} waiting"
    return f"{now}; {', '.join(parts)}" if parts else now


def _newest(entry: QueueEntry) -> tuple[str, str]:
    return entry.ended, entry.id


def _of(entry: QueueEntry) -> Words:
    """Version, author, id and posting of an entry in a line."""
    facts = [
        *([f"v{entry.version}"] if entry.version > 1 else []), *filter(None, [entry.sender]),
        entry.id, *([f"priority {entry.priority}"] if entry.priority and entry.is_open else []),
    ]  # fmt: skip
    postings = (sentences.posting(message_id(name)) for name in entry.question.series)
    address = next(filter(None, postings), "")
    if not address:
        return ", ".join(facts)
    return (f"{', '.join(facts)}, ", Link("posting", address))


def _waiting(entry: QueueEntry) -> VerdictRow:
    return VerdictRow("waiting", "…", entry.name, lines=(_of(entry),), style="plain")


def _ended(store: QueueStore, entry: QueueEntry) -> VerdictRow:
    word = word_of(entry)
    kind = "failed" if entry.blame else word
    # Where there is no verdict the message says all that the headline does.
    details = [entry.message] if entry.message.startswith(entry.headline) else [
        f"{entry.headline}.", entry.message
    ]  # fmt: skip
    lost = (*MISSING, *UNDECIDED)
    details += [
        result_line(result)
        for result in entry.results
        if result.change is not None or result.verdict not in lost
    ]
    details += entry.functions
    return VerdictRow(
        word, sentences.MARKS[kind], entry.name, interval=_minute(entry.ended), style=kind,
        lines=(_of(entry), *filter(None, details)), to=_report(store, entry),
    )  # fmt: skip


def _running(store: QueueStore, entry: QueueEntry) -> VerdictRow:
    gone = "" if is_worked_on(entry) else "its worker ended; the next worker resumes it"
    word = "interrupted" if gone else "running"
    return VerdictRow(
        word, "…", entry.name, interval=f"since {_minute(entry.began)}", style="inconclusive",
        lines=(_of(entry), *filter(None, [gone])), to=_report(store, entry),
    )  # fmt: skip


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")


def _report(store: QueueStore, entry: QueueEntry) -> str:
    path = store.session(entry) / HTML
    return path.relative_to(store.folder).as_posix() if path.exists() else ""
