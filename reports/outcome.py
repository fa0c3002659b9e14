"""The exit code of a whole comparison: pure, so that a script can rely on it."""

from __future__ import annotations

from collections.abc import Iterable

from analysis.many import SessionComparison
from analysis.model import Comparison
from analysis.verdict import MISSING, OPEN, UNDECIDED, Judgement, Verdict, decides
from results.record import Failure


def exit_code(
    primary: Iterable[Judgement],
    failures: Iterable[Failure],
    *,
    strict: bool = False,
    pending: bool = False,
) -> int:
    """Return 0, 1, 2, 3, 4 or (only with ``strict``) 5; the table is in design terms:

    4 a run failed by the series' fault, 1 a regression, 3 or 2 a verdict was lost to
    host, lab or workload, or to the user, 3 nothing that differs ran in any judged phase,
    5 inconclusive or unexplained, 0 none of these.

    A run that failed by the series' fault counts even where enough others were
    left to judge: a kernel that panics once is not merely slow.  Failures of host,
    lab or workload count only where they cost a verdict.  While correctness checks are
    ``pending`` nothing passes: what would be 0 or 5 is 3.
    """
    judgements = list(primary)
    verdicts = {judgement.verdict for judgement in judgements}
    blames = {j.blame for j in judgements if j.verdict in MISSING}
    if "series" in blames or any(failure.blame == "series" for failure in failures):
        return 4
    if Verdict.REGRESSION in verdicts:
        return 1
    if blames:
        return 2 if blames == {"user"} else 3
    if pending or verdicts == {Verdict.NOT_TESTED}:
        return 3
    return 5 if strict and verdicts & set(UNDECIDED) else 0


def outcome(comparison: Comparison | SessionComparison, *, strict: bool = False) -> int:
    """:func:`exit_code` of a comparison."""
    return exit_code(
        (metric.judgement for metric in comparison.primary),
        (run.failure for run in comparison.failed_runs),
        strict=strict,
        pending=pending(comparison),
    )


def pending(comparison: Comparison | SessionComparison) -> bool:
    """Whether what may take a verdict back is still to be made: correctness checks, repeats.

    What is not measured, the same code or what checks leave out, is not repeated.
    """
    standings = {gate.standing for gate in comparison.gates}
    repeats = comparison.exactness.status == "pending" and not comparison.manifest.same_code
    return "pending" in standings or (repeats and standings <= {"green"})


def standing_verdicts(comparison: SessionComparison) -> dict[str, dict[str, str]]:
    """By case the verdict of every primary metric of an exact session; empty while open.

    A verdict is open while more seeds may decide it.  With more than two arms the names are
    those of arms and metric: ``base -> patched 4k.path``.
    """
    verdicts: dict[str, dict[str, str]] = {}
    for each in comparison.comparisons:
        for metric in each.primary:
            arms = f"{comparison.name_of(each)} ".lstrip()
            word = "" if metric.judgement.cause in OPEN else str(metric.judgement.verdict)
            verdicts.setdefault(metric.case, {})[f"{arms}{metric.name}"] = word
    return verdicts


def decided(comparison: SessionComparison) -> bool:
    """Whether a wall session on its way may stop: no primary metric is left open.

    True at a pre-set look only, judged at the look's own share of the error rates:
    between looks every primary metric is inconclusive.
    """
    return decides(metric.judgement.verdict for metric in comparison.primary)
