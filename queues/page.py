"""The index page of a queue: what runs, what waits, what came out; made of a report's blocks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from analysis.verdict import CALLED
from experiment.series_name import message_id
from queues.store import BLAMES, WORST_FIRST, QueueEntry, QueueStore, Read
from reports import sentences
from reports.document import (
    Block,
    Heading,
    Item,
    Link,
    Listing,
    Mono,
    Paragraph,
    VerdictRow,
    Verdicts,
    Words,
)
from reports.forms import HTML
from reports.render import html
from results import door
from text import counted

INDEX = "index.html"
# The newest; the rest are a number, and on disk.
MOST_SHOWN = 500
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
    by_state: dict[str, list[QueueEntry]] = {}
    for entry in read.entries:
        by_state.setdefault(entry.state, []).append(entry)
    running, waiting = by_state.get("running", []), by_state.get("waiting", [])
    ended = [*by_state.get("done", []), *by_state.get("failed", [])]
    ended.sort(key=lambda entry: (entry.ended, entry.id), reverse=True)
    blocks: list[Block] = []
    for title, anchor, entries, most in (
        ("Being measured", "running", running, len(running)),
        ("Waiting", "waiting", waiting, MOST_SHOWN),
        ("Results", "results", ended, MOST_SHOWN),
    ):
        if entries:
            rows = tuple(_row(store, entry) for entry in entries[:most])
            blocks += [Heading(title, 2, anchor), Verdicts(rows)]
        if entries[most:]:
            blocks.append(Paragraph(f"{len(entries[most:])} more are not shown.", "note"))
    if not blocks:
        add = Mono("./lab.py queue add SERIES")
        blocks.append(Paragraph(("The queue is empty. ", add, " adds a series.")))
    if read.problems:
        items = tuple(Item(line, "warning") for line in read.problems)
        blocks += [Heading("Entries that cannot be read", 2, "problems"), Listing(items)]
    at_work = sum(entry.is_worked_on for entry in running)
    words = Counter(entry.word for entry in ended)
    called = {"regression": "regressions", "improvement": "improvements"}
    counts = []
    # The worst first.
    for word in [*map(str, WORST_FIRST), *BLAMES.values()]:
        if count := words[word]:
            word = "unchanged" if word == "no change" else word
            counts.append(f"{count} {called.get(word, word) if count != 1 else word}")
    results = f"; {', '.join(counts)}" if counts else ""
    shown = f"{at_work} being measured, {len(waiting)} waiting{results}"
    name = store.folder.name
    return html.page(
        f"{name}: {shown}", [Heading(f"{shown}.", 1)], blocks, f"Twinboot queue {name}", FOOTER
    )


def _row(store: QueueStore, entry: QueueEntry) -> VerdictRow:
    """One entry: what became of it, and below it version, author, id and posting in a line."""
    facts = [
        *([f"v{entry.version}"] if entry.version > 1 else []),
        *filter(None, [entry.author]),
        entry.id,
        *([f"priority {entry.priority}"] if entry.priority and entry.is_open else []),
    ]
    postings = (sentences.posting(message_id(name)) for name in entry.question.series)
    address = next(filter(None, postings), "")
    of: Words = ", ".join(facts)
    if address:
        of = (f"{', '.join(facts)}, ", Link("posting", address))
    report = store.session(entry) / HTML
    to = report.relative_to(store.folder).as_posix() if report.exists() else ""
    if entry.state == "waiting":
        return VerdictRow("waiting", "…", entry.name, lines=(of,), style="plain")
    if entry.state == "running":
        word, details = "running", []
        if not entry.is_worked_on:
            word, details = "interrupted", ["its worker ended; the next worker resumes it"]
        mark, style, when = "…", "inconclusive", f"since {_minute(entry.began)}"
    else:
        # Where there is no verdict the message says all that the headline does.
        details = [] if entry.message.startswith(entry.headline) else [f"{entry.headline}."]
        details += [entry.message, *_worst(entry)]
        word, style, when = entry.word, "failed" if entry.blame else entry.word, entry.ended
        mark, when = sentences.MARKS[style], _minute(when)
    lines = (of, *filter(None, details))
    return VerdictRow(word, mark, entry.name, interval=when, style=style, lines=lines, to=to)


def _worst(entry: QueueEntry) -> list[str]:
    """The largest of the changes that the entry's word is about, and which functions made it."""
    if entry.word not in map(str, CALLED):
        return []
    called = [each for each in entry.results if each.verdict == entry.word]
    worst = max(called, key=lambda each: abs(each.change or 0.0))
    more = f"; {counted(len(called) - 1, f'more {entry.word}')}" if called[1:] else ""
    of_phase = f"{worst.case} {worst.metric.partition('.')[0]}: "
    return [f"{worst}{more}", *(line for line in entry.functions if line.startswith(of_phase))]


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")
