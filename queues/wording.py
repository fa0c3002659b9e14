"""What became of an entry, in words: for the page and for a terminal."""

from __future__ import annotations

import socket
from pathlib import Path

from queues.entry import Entry, Said
from reports import wording
from reports.verdict import Verdict

WORST_FIRST = (
    Verdict.FAILED, Verdict.REGRESSION, Verdict.IMPROVEMENT, Verdict.INCONCLUSIVE,
    Verdict.NO_CHANGE,
)  # fmt: skip
BLAMES = {
    "series": "series failed", "user": "usage error", "workload": "not measured",
    "host": "host failed", "lab": "lab failed",
}  # fmt: skip


def word_of(entry: Entry) -> str:
    """What became of an ended entry in a few words: who is to blame, or the worst verdict."""
    if entry.blame:
        return BLAMES[entry.blame]
    verdicts = {one.verdict for one in entry.said}
    return next((str(one) for one in WORST_FIRST if one in verdicts), str(Verdict.NO_CHANGE))


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


def is_worked_on(entry: Entry) -> bool:
    """Whether an entry's worker (``HOST:PID``) may be there; of another host nothing is known."""
    host, _, pid = entry.worker.rpartition(":")
    return host != socket.gethostname() or Path(f"/proc/{pid}").exists()
