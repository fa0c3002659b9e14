"""What became of an entry: from what its session shows, or from what ended it.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from errors import Exit, LabError
from queues.entry import Blame, PrimaryResult, QueueEntry
from reports.headline import headline
from reports.many import SessionComparison
from reports.model import MetricComparison
from reports.outcome import outcome
from reports.sentences import changed_per_unit
from reports.verdict import Verdict
from text import clean

LONGEST = 600
BLAMES: dict[str, Blame] = {
    "user": "user", "series": "series", "workload": "workload", "host": "host", "lab": "lab",
}  # fmt: skip


@dataclass(frozen=True)
class EntryOutcome:
    """How an attempt ended: an exit code as of ``lab.py run``, who is to blame and why.

    ``headline`` is what the report begins with; empty where there is none.  ``is_bug``: it was
    ended by an exception that nobody expected.
    """

    code: int
    blame: Blame = ""
    message: str = ""
    results: tuple[PrimaryResult, ...] = ()
    title: str = ""
    headline: str = ""
    is_bug: bool = False
    functions: tuple[str, ...] = ()

    @property
    def is_in_the_way(self) -> bool:
        """Whether the series had no turn: the host or the lab would stop the next one, too."""
        return self.blame in ("host", "lab")

    def of(self, entry: QueueEntry, ended: str) -> QueueEntry:
        """The entry, ended so at this time."""
        update = {
            "state": "failed" if self.blame else "done",
            "code": int(self.code),
            "blame": self.blame,
            "headline": self.headline,
            "message": self.message,
            "said": self.results,
            "functions": self.functions,
            "ended": ended,
            "title": entry.title or self.title,
        }
        return entry.model_copy(update=update)


def of_session(comparison: SessionComparison) -> EntryOutcome:
    """The ending of a session that is whole."""
    code = outcome(comparison)
    happened = headline(comparison)
    results = tuple(_result(metric) for metric in comparison.primary)
    if not happened.has_verdicts:
        # A number beside which the report gives no verdict is not shown as one.
        results = tuple(
            result.model_copy(update={"change": None, "low": None, "high": None})
            for result in results
        )
    series = comparison.manifest.experiment.series
    title = clean(series.title) if series else ""
    untested = comparison.count(Verdict.NOT_TESTED) == len(results) > 0
    if untested:
        message = _shown("; ".join([happened.text, *happened.causes]))
        return EntryOutcome(code, "", message, results, title, _shown(happened.text))
    if code in (Exit.NO_REGRESSION, Exit.REGRESSION):
        return EntryOutcome(
            code, results=results, title=title, headline=_shown(happened.text),
            functions=_functions(comparison),
        )  # fmt: skip
    blame, message = _lost(comparison, code)
    if not happened.has_verdicts:
        message = _shown("; ".join([happened.text, *happened.causes]))
    return EntryOutcome(code, blame, message, results, title, _shown(happened.text))


def of_error(error: Exception) -> EntryOutcome:
    """The ending of an attempt that this error ended."""
    if isinstance(error, LabError):
        blame = BLAMES[error.blame]
        # What the lab itself wrote, or chose, is no mistake of whoever queued the series.
        code = Exit.INFRASTRUCTURE if blame == "lab" else error.exit_code
        return EntryOutcome(code, blame, _shown(error.in_one_line))
    if isinstance(error, OSError):
        return EntryOutcome(Exit.INFRASTRUCTURE, "host", _shown(str(error)))
    message = _shown(f"{type(error).__name__}: {error}")
    return EntryOutcome(Exit.INFRASTRUCTURE, "lab", message, is_bug=True)


def _lost(comparison: SessionComparison, code: int) -> tuple[Blame, str]:
    """Who is to blame for a verdict that is missing, and what happened first."""
    culprit = {Exit.SERIES: "series", Exit.USAGE: "user"}.get(Exit(code))
    failed = [run for run in comparison.failed_runs if culprit in (None, run.failure.blame)]
    # What is the host's is made again, so it comes before anybody else's.
    failed.sort(key=lambda run: run.failure.blame != "host")
    if failed:
        first = failed[0]
        more = f" ({len(failed)} runs)" if len(failed) > 1 else ""
        message = f"{first.run_id}: {first.failure.kind}: {first.failure.message}{more}"
        return first.failure.blame, _shown(message)
    lost = [m.judgement for m in comparison.primary if m.judgement.verdict is Verdict.FAILED]
    lost = [judgement for judgement in lost if culprit in (None, judgement.blame)] or lost
    # An exit code other than 0 and 1 is the blame of a run or of a verdict.
    assert lost
    return BLAMES[lost[0].blame], _shown(lost[0].reason)


def _functions(comparison: SessionComparison) -> tuple[str, ...]:
    """Which functions changed, in the words of the report; nothing where none were tested."""
    return tuple(
        _shown(
            f"{'' if comparison.is_pair else f'{pair.manifest.patched} '}"
            f"{phase.case} {phase.phase}: "
            f"{changed_per_unit(phase)}"
        )
        for pair in comparison.comparisons
        for phase in pair.headlines
        if phase.tested
    )


def _result(metric: MetricComparison) -> PrimaryResult:
    change = metric.judgement.change
    return PrimaryResult(
        case=metric.case,
        metric=metric.name,
        verdict=str(metric.judgement.verdict),
        change=change.estimate if change else None,
        low=change.low if change else None,
        high=change.high if change else None,
    )


def _shown(text: str) -> str:
    return clean(text, LONGEST)
