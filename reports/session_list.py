"""Sessions in a list: each with what its report says, in a few lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from analysis.many import SessionComparison, compare_session
from errors import RecordError
from reports import headline, verdict_words
from reports.outcome import outcome
from results.record import Record
from results.session import SessionHead, open_session
from text import clean_line


class ListedMetric(Record):
    """A primary metric of two arms; change and interval are fractions."""

    base: str
    patched: str
    case: str
    metric: str
    verdict: str
    change: float | None
    low: float | None
    high: float | None
    line: str


class ListedSession(Record):
    """A session as its report judges it; ``problem`` says why there is no report.

    ``created`` is UTC, ``exit_code`` that of ``lab.py report``, None without a report.
    """

    folder: str
    created: str = ""
    experiment: str = ""
    mode: str = ""
    subject: str = ""
    exit_code: int | None = None
    verdict: str = ""
    primary: tuple[ListedMetric, ...] = ()
    problem: str = ""


def listed(head: SessionHead) -> ListedSession:
    """What the report of a session says."""
    if head.manifest is None:
        return ListedSession(folder=str(head.folder), problem=head.problem)
    experiment = head.manifest.experiment
    line = ListedSession(
        folder=str(head.folder), created=head.manifest.created, experiment=experiment.name,
        mode=experiment.mode, subject=verdict_words.subject(experiment),
    )  # fmt: skip
    try:
        comparison = compare_session(open_session(head.folder, counted=False))
    except (RecordError, OSError) as error:
        return line.model_copy(update={"problem": str(error).splitlines()[0]})
    update: dict[str, Any] = {
        "exit_code": outcome(comparison),
        "verdict": headline.text(comparison),
        "primary": tuple(_primary(comparison)),
    }
    return line.model_copy(update=update)


def text_lines(sessions: Sequence[ListedSession]) -> list[str]:
    """The list for a terminal: when, exit code, name, verdict; then each primary metric."""
    lines = []
    for session in sessions:
        name = session.folder.rstrip("/").rpartition("/")[2]
        when = session.created[:16].replace("T", " ")
        code = "exit -" if session.exit_code is None else f"exit {session.exit_code}"
        end = f"cannot be reported: {session.problem}" if session.problem else session.verdict
        lines.append(clean_line(f"{when:<16}  {code}  {name}  {end}"))
        lines += [clean_line(f"    {metric.line}") for metric in session.primary]
    return lines


def _primary(session: SessionComparison) -> Iterator[ListedMetric]:
    for pair in session.comparisons:
        for metric in pair.primary:
            change, head = metric.judgement.change, verdict_words.head(metric)
            name = session.name_of(pair)
            yield ListedMetric(
                base=pair.manifest.base,
                patched=pair.manifest.patched,
                case=metric.case,
                metric=metric.name,
                verdict=str(metric.judgement.verdict),
                change=change.estimate if change else None,
                low=change.low if change else None,
                high=change.high if change else None,
                line=f"{name}: {head}" if name else head,
            )
