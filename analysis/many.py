"""A session of any number of arms: one comparison for each pair that is asked for."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from analysis.by_arm import ArmCell, MetricRow, failures, lay_out
from analysis.comparison import compare_views, unfinished
from analysis.gate import gated
from analysis.model import (
    ArmGate,
    CaseComparison,
    Comparison,
    Exactness,
    FailedRun,
    Finding,
    MetricComparison,
    ReportError,
)
from analysis.verdict import Verdict
from experiment.plan import AGAIN
from results.record import ArmRecord, Manifest, Record
from results.session import MeasuredSession


class Step(NamedTuple):
    """One arm after the first: what it adds to the arm before, and all up to it.

    ``own`` is its comparison with the arm before, ``cell`` its values and its change
    from the first arm.
    """

    arm: ArmRecord
    own: MetricComparison
    cell: ArmCell

    @property
    def title(self) -> str:
        """The patch, as the arm is labelled, without the number that stands before it anyway."""
        return re.sub(r"^\d+: ", "", self.arm.label) or self.arm.name


class SessionComparison(Record):
    """Everything a form may say about a session; one comparison where it has two arms.

    ``comparisons`` are in the order the experiment asks for them; each holds the
    session's head cut to its two arms.  ``rows`` has the same numbers by arm: each metric of
    each case on every arm.
    """

    manifest: Manifest
    comparisons: tuple[Comparison, ...]
    rows: tuple[MetricRow, ...]

    @property
    def is_pair(self) -> bool:
        """Whether one pair of arms is all that is compared: its name need not be said."""
        return len(self.comparisons) == 1

    def name_of(self, comparison: Comparison) -> str:
        """``base -> patched``; empty of the only pair of a session."""
        return "" if self.is_pair else comparison.name

    @property
    def arms(self) -> tuple[ArmRecord, ...]:
        """The arms, base first, without the A/A arm."""
        return tuple(arm for arm in self.manifest.arms if arm.name != AGAIN)

    @property
    def cases(self) -> tuple[CaseComparison, ...]:
        """The cases, of the first pair: their names, sizes and phases are those of all."""
        return self.comparisons[0].cases

    @property
    def exactness(self) -> Exactness:
        """Whether the session is bit-exact: one repeat speaks for all arms."""
        return self.comparisons[0].exactness

    @property
    def primary(self) -> tuple[MetricComparison, ...]:
        """Everything that is judged, comparison by comparison."""
        return tuple(metric for comparison in self.comparisons for metric in comparison.primary)

    @property
    def failed_runs(self) -> tuple[FailedRun, ...]:
        """Every run that is no data point, once."""
        by_id = {
            run.run_id: run for comparison in self.comparisons for run in comparison.failed_runs
        }
        return tuple(by_id.values())

    @property
    def failures(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Failed and recorded runs, by case and arm; in wall mode those of the A/A arm, too."""
        return failures(self.comparisons)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding of any comparison, once."""
        findings: list[Finding] = []
        for each in (finding for comparison in self.comparisons for finding in comparison.findings):
            findings += [] if each in findings else [each]
        return tuple(findings)

    @property
    def gates(self) -> tuple[ArmGate, ...]:
        """What the gate found of each arm, once; empty where none was asked."""
        by_arm = {gate.arm: gate for comparison in self.comparisons for gate in comparison.gates}
        return tuple(by_arm[arm.name] for arm in self.manifest.arms if arm.name in by_arm)

    @property
    def is_by_steps(self) -> bool:
        """Whether each arm is compared with the one before, and there is more than one step."""
        return self.manifest.experiment.compare == "steps" and len(self.arms) > 2

    def course(self, row: MetricRow) -> tuple[Step, ...]:
        """The steps of one metric, in order; none where the session is not by steps."""
        by_name = {comparison.name: comparison for comparison in self.comparisons}
        steps = []
        for before, arm in itertools.pairwise(self.arms) if self.is_by_steps else ():
            own = by_name[f"{before.name} -> {arm.name}"].metric(row.case, row.name)
            assert own is not None
            steps.append(Step(arm, own, row.cell(arm.name)))
        return tuple(steps)

    def count(self, verdict: Verdict) -> int:
        """How many primary metrics have this verdict, over all comparisons."""
        return sum(metric.judgement.verdict is verdict for metric in self.primary)


def views(manifest: Manifest) -> list[Manifest]:
    """The session's head, once for each pair of arms that is compared.

    Raises:
        ReportError: an arm that is to be compared is not on record, or there are fewer
            than two.
    """
    arms = {arm.name: arm for arm in manifest.arms}
    pairs = manifest.experiment.compared
    if len(arms) < 2:
        raise ReportError(f"{len(arms)} arms: a comparison has at least 2")
    missing = sorted({name for pair in pairs for name in pair} - set(arms))
    if missing:
        raise ReportError(f"arms not on record: {', '.join(missing)}")
    if set(arms) - {AGAIN} != {arm.name for arm in manifest.experiment.all_arms}:
        raise ReportError(f"arms {', '.join(arms)}: not those of the experiment")
    return [_view(manifest, arms[base], arms[patched]) for base, patched in pairs]


def _view(manifest: Manifest, base: ArmRecord, patched: ArmRecord) -> Manifest:
    again = [arm for arm in manifest.arms if arm.name == AGAIN]
    arms = (base, patched, *again)
    if len(arms) == len(manifest.arms):
        return manifest
    return manifest.model_copy(
        update={
            "arms": arms,
            "triage": patched.triage if base.name == manifest.base else patched.step,
            "series": (*manifest.series, *patched.series),
            "runs_planned": manifest.runs_planned * len(arms) // len(manifest.arms),
        }
    )


def compare_session(session: MeasuredSession, *, explains: bool = True) -> SessionComparison:
    """Return what the session shows, with all verdicts judged as one family.

    Its correctness checks withhold the verdicts of arms that are broken, or were not
    checked though the experiment asks for it.  What is counted is left out where nothing is to be
    explained, which takes most of the time; verdicts are the same but for those that what was
    counted makes unexplained.

    Raises:
        ReportError: as :func:`analysis.comparison.compare_views`, or a record names an arm
            that the manifest does not know.
    """
    manifest = session.manifest
    names = {arm.name for arm in manifest.arms}
    for record in session.records:
        if record.arm not in names:
            raise ReportError(f"{record.run_id}: arm {record.arm!r}: not in the manifest")
    judged = at_last_look(session)
    compared = [
        gated(compare_view, manifest.base, session.checks)
        for compare_view in compare_views(views(judged.manifest), judged, explains=explains)
    ]
    if judged is not session:
        values = {"judged": len(judged.manifest.seeds), "planned": len(manifest.seeds)}
        stopped = Finding(level="warning", scope="session", kind="between-looks", values=values)
        compared = [
            compare_view.model_copy(update={"findings": (stopped, *compare_view.findings)})
            for compare_view in compared
        ]
    return of_comparisons(judged.manifest, compared)


def at_last_look(session: MeasuredSession) -> MeasuredSession:
    """The session as it was at the last look whose runs are all on record.

    A session that was stopped while it added seeds keeps the verdicts of the look before: to
    judge the runs that happen to be there would be a look that the error rates do not allow for.
    Where not even the first look is complete it is the session itself, unfinished.
    """
    manifest = session.manifest
    looks = manifest.experiment.looks(len(manifest.seeds))
    if not looks.sequential or not unfinished(session):
        return session
    for seeds in sorted(looks.seeds, reverse=True):
        records = tuple(record for record in session.records if record.block < seeds)
        run_ids = {record.run_id for record in records}
        counts = {
            case.name: min(seeds, len(manifest.seeds_of(case.name))) for case in manifest.cases
        }
        until = dataclasses.replace(
            session,
            manifest=manifest.with_seeds(manifest.seeds[:seeds], counts),
            records=records,
            profiles=tuple(each for each in session.profiles if each.run_id in run_ids),
            locks=tuple(each for each in session.locks if each.run_id in run_ids),
        )
        if not unfinished(until):
            return until
    return session


def of_comparisons(manifest: Manifest, comparisons: Sequence[Comparison]) -> SessionComparison:
    """The session of these comparisons, with its numbers by arm."""
    arms = [arm.name for arm in manifest.arms if arm.name != AGAIN]
    return SessionComparison(
        manifest=manifest, comparisons=tuple(comparisons), rows=lay_out(arms, comparisons)
    )
