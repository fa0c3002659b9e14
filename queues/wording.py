"""What became of an entry, in words: for the page and for a terminal."""

from __future__ import annotations

import socket
from pathlib import Path

from queues.entry import PrimaryResult, QueueEntry
from reports import wording
from reports.verdict import Verdict

WORST_FIRST = (
    Verdict.FAILED, Verdict.REGRESSION, Verdict.UNEXPLAINED, Verdict.IMPROVEMENT,
    Verdict.INCONCLUSIVE, Verdict.NOT_JUDGED, Verdict.NO_CHANGE, Verdict.NOT_TESTED,
)  # fmt: skip
BLAMES = {
    "series": "series failed", "user": "usage error", "workload": "not measured",
    "host": "host failed", "lab": "lab failed",
}  # fmt: skip


def word_of(entry: QueueEntry) -> str:
    """What became of an ended entry in a few words: who is to blame, or the worst verdict."""
    if entry.blame:
        return BLAMES[entry.blame]
    verdicts = {result.verdict for result in entry.said}
    return next(
        (str(verdict) for verdict in WORST_FIRST if verdict in verdicts), str(Verdict.NO_CHANGE)
    )


def result_line(result: PrimaryResult) -> str:
    """``filemap-4k 4k.bw: -1.31 % [-1.60, -1.02], regression``."""
    change = f"{wording.percent(result.change)} " if result.change is not None else ""
    within = (
        f"{wording.between(result.low, result.high)}"
        if result.low is not None and result.high is not None
        else ""
    )
    shown = f"{change}{within}".strip()
    return f"{result.case} {result.metric}: {shown + ', ' if shown else ''}{result.verdict}"


def is_worked_on(entry: QueueEntry) -> bool:
    """Whether an entry's worker (``HOST:PID``) may be there; of another host nothing is known."""
    host, _, pid = entry.worker.rpartition(":")
    return host != socket.gethostname() or Path(f"/proc/{pid}").exists()
