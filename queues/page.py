"""The index page of a queue: what runs, what waits, what came out; one file, no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from pages import embed
from pages.environment import environment_of
from queues.entry import Entry
from queues.store import QueueStore, Read
from queues.wording import BLAMES, WORST_FIRST, is_worked_on, said_in_words, word_of
from reports import wording
from reports.render import html
from reports.verdict import Verdict
from reports.write import HTML
from results.store import write_atomically

INDEX = "index.html"
HERE = Path(__file__).parent / "templates"
# The newest; the rest are a number, and on disk.
MOST_ENDED = 500
MOST_WAITING = 500


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
    style = "\n".join([html.STYLE.read_text(encoding="utf-8"), (HERE / "queue.css").read_text()])
    environment = environment_of(HERE, lambda text: wording.typeset(wording.clean(text)))
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
    words = [word_of(entry) for entry in ended]
    plain = {"regression": "regressions", "improvement": "improvements"}
    found = []
    for word in [*map(str, WORST_FIRST), *BLAMES.values()]:
        count = words.count(word)
        shown = {"no change": "without change"}.get(word, word)
        found += [f"{count} {plain.get(word, shown) if count != 1 else shown}"] if count else []
    now = f"{running} being measured, {waiting} waiting"
    return f"{now}; {', '.join(found)}" if found else now


def _newest(entry: Entry) -> tuple[str, str]:
    return entry.ended, entry.id


def _ended(store: QueueStore, entry: Entry) -> Row:
    word = word_of(entry)
    kind = "failed" if entry.blame else word
    # Where there is no verdict the message says all that the headline does.
    details = [entry.message] if entry.message.startswith(entry.headline) else [
        f"{entry.headline}.", entry.message
    ]  # fmt: skip
    lost = (Verdict.FAILED, Verdict.INCONCLUSIVE)
    details += [
        said_in_words(one)
        for one in entry.said
        if one.change is not None or one.verdict not in lost
    ]
    return Row(
        entry, word, kind.replace(" ", "-"), wording.MARKS[kind], _report(store, entry),
        tuple(filter(None, details)),
    )  # fmt: skip


def _running(store: QueueStore, entry: Entry) -> Row:
    gone = "" if is_worked_on(entry) else "its worker is gone; the next one goes on with it"
    word = "interrupted" if gone else "being measured"
    details = (gone,) if gone else ()
    return Row(entry, word, "inconclusive", "…", _report(store, entry), details)


def _report(store: QueueStore, entry: Entry) -> str:
    path = store.session(entry) / HTML
    return path.relative_to(store.folder).as_posix() if path.exists() else ""
