"""The index page of a queue: what runs, what waits, what came out; one file, no script."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from pages import embed
from queues.entry import Entry, Said
from queues.store import QueueStore, Read
from reports import html, wording
from reports.verdict import Verdict
from reports.write import HTML
from results.store import write_atomically

INDEX = "index.html"
HERE = Path(__file__).parent / "templates"
# The newest; the rest are a number, and on disk.
MOST_ENDED = 500
MOST_WAITING = 500
WORST_FIRST = (
    Verdict.FAILED, Verdict.REGRESSION, Verdict.IMPROVEMENT, Verdict.INCONCLUSIVE,
    Verdict.NO_CHANGE,
)  # fmt: skip
BLAMES = {
    "series": "series broken", "user": "asked wrongly", "workload": "not measured",
    "host": "host failed", "lab": "lab failed",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """An entry as the page shows it; ``report`` is a path from the page, or empty."""

    entry: Entry
    word: str
    style: str
    mark: str
    report: str
    details: tuple[str, ...]


def write(store: QueueStore) -> Path:
    """Write the page anew; readers see the old one or the new one, never half of one."""
    path = store.folder / INDEX
    write_atomically(path, render(store, store.read()))
    return path


def render(store: QueueStore, read: Read) -> str:
    """The page as text: the same for the same entries."""
    running = [entry for entry in read.entries if entry.state == "running"]
    waiting = [entry for entry in read.entries if entry.state == "waiting"]
    closed = [entry for entry in read.entries if not entry.is_open]
    ended = sorted((e for e in closed if e.state in ("done", "failed")), key=_newest, reverse=True)
    style = "\n".join(
        [(html.TEMPLATES / "report.css").read_text(), (HERE / "queue.css").read_text()]
    )
    environment = html.environment_of(HERE, lambda text: wording.typeset(wording.clean(text)))
    page = environment.get_template(
        "queue.html.j2"
    ).render(
        policy=Markup(embed.policy((), (style,))),  # noqa: S704  (made of hashes)
        style=Markup(style),  # noqa: S704  (the lab's own files)
        name=store.folder.name,
        counts=counts(ended, sum(map(is_worked_on, running)), len(waiting)),
        running=[_running(store, entry) for entry in running],
        waiting=waiting[:MOST_WAITING],
        more_waiting=len(waiting[MOST_WAITING:]),
        ended=[_ended(store, entry) for entry in ended[:MOST_ENDED]],
        more_ended=len(ended[MOST_ENDED:]),
        aside=[entry for entry in closed if entry.state == "replaced"][-MOST_ENDED:],
        problems=read.problems,
    )
    return page.rstrip() + "\n"


def counts(ended: Sequence[Entry], running: int, waiting: int) -> str:
    """``2 being measured, 5 waiting; 1 regression, 3 without change, 1 series broken``."""
    words = [word_of(entry)[0] for entry in ended]
    plain = {"regression": "regressions", "improvement": "improvements"}
    found = []
    for word in [*map(str, WORST_FIRST), *BLAMES.values()]:
        count = words.count(word)
        shown = {"no change": "without change"}.get(word, word)
        found += [f"{count} {plain.get(word, shown) if count != 1 else shown}"] if count else []
    now = f"{running} being measured, {waiting} waiting"
    return f"{now}; {', '.join(found)}" if found else now


def word_of(entry: Entry) -> tuple[str, str, str]:
    """What became of an ended entry in a few words, the class that colours them, and a mark."""
    if entry.blame:
        return BLAMES[entry.blame], "failed", html.MARKS["failed"]
    verdicts = {one.verdict for one in entry.said}
    word = next((str(one) for one in WORST_FIRST if one in verdicts), str(Verdict.NO_CHANGE))
    return word, word.replace(" ", "-"), html.MARKS[word]


def said_in_words(one: Said) -> str:
    """``filemap-4k 4k.bw: -1.31 % [-1.60, -1.02], regression``."""
    change = f"{wording.percent(one.change)} " if one.change is not None else ""
    within = (
        f"{wording.between(one.low, one.high)}"
        if one.low is not None and one.high is not None
        else ""
    )
    shown = f"{change}{within}".strip()
    return f"{one.case} {one.metric}: {shown + ', ' if shown else ''}{one.verdict}"


def _newest(entry: Entry) -> tuple[str, str]:
    return entry.ended, entry.id


def _ended(store: QueueStore, entry: Entry) -> Row:
    word, style, mark = word_of(entry)
    details = [entry.message] if entry.message else []
    details += [said_in_words(one) for one in entry.said]
    return Row(entry, word, style, mark, _report(store, entry), tuple(details))


def _running(store: QueueStore, entry: Entry) -> Row:
    gone = "" if is_worked_on(entry) else "its worker is gone; the next one goes on with it"
    word = "interrupted" if gone else "being measured"
    details = (gone,) if gone else ()
    return Row(entry, word, "inconclusive", "…", _report(store, entry), details)


def _report(store: QueueStore, entry: Entry) -> str:
    path = store.session(entry) / HTML
    return path.relative_to(store.folder).as_posix() if path.exists() else ""


def is_worked_on(entry: Entry) -> bool:
    """Whether an entry's worker (``HOST:PID``) may be there; of another host nothing is known."""
    host, _, pid = entry.worker.rpartition(":")
    return host != socket.gethostname() or Path(f"/proc/{pid}").exists()
