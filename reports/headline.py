"""What happened in a session, in a few words and as an exit code: what every form begins with.

A session without a verdict says why there is none, in place of a list of verdicts that
failed.  The same words stand in text, Markdown, HTML, mails, the summary of a CI job, the
page of a queue and at the end of a run.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from analysis.many import SessionComparison
from analysis.model import FailedRun
from analysis.verdict import (
    MISSING,
    OPEN,
    PENDING,
    UNDECIDED,
    Cause,
    Judgement,
    Verdict,
)
from experiment.plan import AGAIN
from reports.sentences import (
    PLURALS,
    accelerator,
    elsewhere,
    limits,
    upper_first,
    verdict_counts,
)
from results.record import ArmGate, Failure
from results.units import read_name
from text import counted, in_words

# Causes that are named; the findings and the failed runs have all.
MOST_CAUSES = 3


class Headline(NamedTuple):
    """``text`` has no full stop; ``causes`` say why, a line each.

    ``has_verdicts`` is false where a list of verdicts would only say the same once a
    metric.  ``command`` goes on with a session that is not finished, for whoever has its folder.
    """

    text: str
    causes: tuple[str, ...] = ()
    has_verdicts: bool = True
    command: str = ""

    @property
    def sentence(self) -> str:
        """The text as a sentence, for those who have no folder of the session."""
        return f"{self.text}."


class Runs(NamedTuple):
    """Data points of a session: how many are on record, and how many there will be."""

    recorded: int
    planned: int


def headline(session: SessionComparison, folder: str = "") -> Headline:
    """What happened.

    ``folder`` is where the session lies, for the command that goes on with it; there is none
    in what is read elsewhere.
    """
    resume = folder and f"./lab.py run --resume {shlex.quote(folder)}"
    if not session.primary:
        return Headline("No verdict: the experiment has no primary metric")
    if session.exactness.status == "inexact":
        why = session.exactness.text
        return Headline("Session invalid: a repeated run was not bit-identical", (why,), False)
    wall = session.comparisons[0].wall
    if wall is not None and not wall.real_time:
        why = f'guests ran under {accelerator(wall.accelerator)}; mode = "exact" needs no KVM'
        missing = "no KVM" if wall.accelerator == "tcg" else "no real CPUs"
        return Headline(f"No verdict: {missing}", (why,), False)
    broken = _broken(session.gates)
    left = runs(session)
    if left.recorded < left.planned:
        text = f"Not finished: {left.recorded} of {left.planned} runs"
        return Headline(text, (*broken, *_failures(session)), False, resume)
    judged = [m.judgement for m in session.primary if m.judgement.verdict not in MISSING]
    # Runs of a broken arm that were made before its checks stay on record.
    lead = "NOT JUDGED" if left.recorded > left.planned else "NOT MEASURED"
    if broken and not judged:
        # Checks that were not made are made by the session when it goes on.
        unchecked = any(gate.standing == "not run" for gate in session.gates)
        return Headline(f"{lead}: {broken[0]}", broken[1:], False, resume if unchecked else "")
    if not judged:
        first, *others = _lost(session)
        has_numbers = any(metric.judgement.change for metric in session.primary)
        return Headline(f"No verdict: {first}", tuple(others), has_numbers)
    if broken:
        judged_words = verdict_counts(judged)
        return Headline(upper_first(f"{judged_words}; {lead}: {broken[0]}"), broken[1:])
    causes = (
        *(_lost(session) if session.count(Verdict.FAILED) else ()),
        *_to_test(session, folder),
    )
    if all(judgement.verdict is Verdict.NOT_TESTED for judgement in judged):
        reasons = dict.fromkeys(judgement.reason for judgement in judged)
        return Headline(f"Not tested: {next(iter(reasons))}", causes, False)
    if session.manifest.same_code and not left.recorded:
        return Headline("Identical machine code: nothing was booted", has_verdicts=False)
    words = f"{_all(session)}{_ran_in(session)}{_of_data(session)}"
    if pending(session):
        return Headline(upper_first(f"{words}; {PENDING}"), causes, command=resume)
    return Headline(upper_first(words), causes)


def runs(session: SessionComparison) -> Runs:
    """How many data points are on record, and how many are to be made.

    An arm that is broken, or was not checked, is not measured, nor is one that is left
    without another to be compared with.
    """
    manifest = session.manifest
    recorded = sum(made for _, made in session.failures.values())
    withheld = {gate.arm for gate in session.gates if gate.withholds}
    pairs = [{each.manifest.base, each.manifest.patched} for each in session.comparisons]
    measured = set().union(*(pair for pair in pairs if not pair & withheld))
    arms = [arm.name for arm in manifest.arms]
    if measured and AGAIN in arms:
        measured.add(AGAIN)
    return Runs(recorded, manifest.runs_planned * len(measured) // len(arms))


def _all(session: SessionComparison) -> str:
    """The verdicts counted; ``all regressions`` and ``regression`` where they are alike."""
    judged = [metric.judgement for metric in session.primary]
    first = judged[0].verdict
    if first is None or len({each.verdict for each in judged}) > 1:
        return verdict_counts(judged)
    words = f"all {PLURALS[first]}" if len(judged) > 1 else str(first)
    if first is Verdict.NOT_JUDGED:
        return f"{first}: {judged[0].reason}"
    return f"{words}{limits(judged)}"


def _of_data(session: SessionComparison) -> str:
    """That no arm differs in a function; empty where one does, or where it is not known."""
    triages = [comparison.manifest.triage for comparison in session.comparisons]
    if not all(triage and triage.verdict == "data or layout" for triage in triages):
        return ""
    has_modules = any(triage and triage.modules for triage in triages)
    return f"; no function changed, {'modules' if has_modules else 'data or layout'} did"


def _ran_in(session: SessionComparison) -> str:
    """``; the changed functions ran in 1 of 3 cases, not in exec and syscalls``.

    Phases are counted where a case has some of both.  Empty where they ran in all.
    """
    if not session.count(Verdict.NOT_TESTED):
        return ""
    tested: dict[str, dict[str, bool]] = {}
    for metric in session.primary:
        phases = tested.setdefault(metric.case, {})
        ran = metric.judgement.verdict is not Verdict.NOT_TESTED
        phases[metric.phase] = phases.get(metric.phase, False) or ran
    what = "case"
    units = {case: any(phases.values()) for case, phases in tested.items()}
    if len(units) == 1 or any(len(set(phases.values())) > 1 for phases in tested.values()):
        what = "phase"
        units = {
            f"{case} {phase}" if len(tested) > 1 else phase: ran
            for case, phases in tested.items()
            for phase, ran in phases.items()
        }
    idle = [name for name, ran in units.items() if not ran]
    if not idle:  # an arm of several
        arms = [
            comparison.manifest.patched
            for comparison in session.comparisons
            if comparison.count(Verdict.NOT_TESTED) == len(comparison.primary)
        ]
        return f"; of {in_words(arms)} none of the changed functions ran" if arms else ""
    count = f"{len(units) - len(idle)} of {counted(len(units), what)}"
    return f"; the changed functions ran in {count}, not in {in_words(idle)}"


def _to_test(session: SessionComparison, folder: str) -> tuple[str, ...]:
    """How to find workloads that run what was not tested."""
    series = session.manifest.experiment.series
    causes = {metric.judgement.cause for metric in session.primary}
    if Cause.NOT_EXECUTED not in causes or series is None:
        return ()
    # Without the session's folder it is read elsewhere.
    paths = [path if folder else elsewhere(path) for path in (series.path, *series.stack)]
    command = shlex.join(["./lab.py", "suggest", *paths])
    return (f"workloads that run them: {command}",)


def _broken(gates: Sequence[ArmGate]) -> tuple[str, ...]:
    """``patched is broken: BUG: sleeping function called ..., xas_split_alloc()``, a cause each."""
    by_cause: dict[str, list[ArmGate]] = {}
    for gate in gates:
        if gate.withholds and gate.standing != "red":
            by_cause.setdefault(gate.reason, []).append(gate)
        elif gate.withholds:
            problem = gate.problems[0][1]
            where = f", {problem.where}()" if problem.where else ""
            by_cause.setdefault(f"{problem.title}{where}", []).append(gate)
    sentences = []
    for why, alike in by_cause.items():
        names = in_words([gate.arm for gate in alike])
        if alike[0].standing == "red":
            sentences.append(f"{names} {'is' if len(alike) == 1 else 'are'} broken: {why}")
        else:
            sentences.append(f"{names}: not checked for correctness: {why}")
    # What is broken is the news; what was not checked comes after it.
    return tuple(sorted(sentences, key=lambda line: " broken: " not in line))


def _lost(session: SessionComparison) -> tuple[str, ...]:
    """Why verdicts are missing: failed runs, or else the reasons of the verdicts."""
    return _failures(session) or tuple(
        dict.fromkeys(
            metric.judgement.reason
            for metric in session.primary
            if metric.judgement.verdict is Verdict.FAILED
        )
    )


def _failures(session: SessionComparison) -> tuple[str, ...]:
    """``7 runs of patched failed, none of base: invalid, blame workload: THP was on``."""
    by_kind: dict[tuple[str, str, str], list[FailedRun]] = {}
    for run in session.failed_runs:
        by_kind.setdefault((run.arm, run.failure.kind, run.failure.blame), []).append(run)
    sentences = []
    base = session.manifest.arms[0].name
    spared = f", none of {base}" if base not in {run.arm for run in session.failed_runs} else ""
    for alike in by_kind.values():
        failure = alike[0].failure
        sentences.append(
            f"{counted(len(alike), 'run')} of {alike[0].arm} failed{spared}: {failure.kind}, blame "
            f"{failure.blame}: {failure.message}"
        )
    left_out = len(sentences) - MOST_CAUSES
    more = [f"{left_out} more causes are listed with the failed runs"] if left_out > 0 else []
    return (*sentences[:MOST_CAUSES], *more)


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


def outcome(comparison: SessionComparison, *, strict: bool = False) -> int:
    """:func:`exit_code` of a comparison."""
    return exit_code(
        (metric.judgement for metric in comparison.primary),
        (run.failure for run in comparison.failed_runs),
        strict=strict,
        pending=pending(comparison),
    )


def pending(comparison: SessionComparison) -> bool:
    """Whether what may take a verdict back is still to be made: correctness checks, repeats.

    What is not measured, the same code or what checks leave out, is not repeated.
    """
    standings = {gate.standing for gate in comparison.gates}
    repeats = comparison.exactness.status == "pending" and not comparison.manifest.same_code
    return "pending" in standings or (repeats and standings <= {"green"})


def standing_verdicts(comparison: SessionComparison) -> dict[str, dict[str, str]]:
    """By case the verdict of every primary metric; empty while open.

    A verdict is open while more seeds or blocks may decide it.  With more than two arms the names
    are those of arms and metric: ``base -> patched 4k.instructions``.
    """
    verdicts: dict[str, dict[str, str]] = {}
    for each in comparison.comparisons:
        for metric in each.primary:
            arms = f"{comparison.name_of(each)} ".lstrip()
            word = "" if metric.judgement.cause in OPEN else str(metric.judgement.verdict)
            verdicts.setdefault(metric.case, {})[f"{arms}{read_name(metric.name)}"] = word
    return verdicts


def is_decided(comparison: SessionComparison) -> bool:
    """Whether more seeds decide nothing more."""
    return all(word for named in standing_verdicts(comparison).values() for word in named.values())
