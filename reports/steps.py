"""Patch by patch: the course of a change over the arms, and which patch gives it; pure."""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

from reports import verdict_words, wording
from reports.by_arm import ArmCell, MetricRow
from reports.many import SessionComparison
from reports.model import MetricComparison
from reports.verdict import CALLED
from results.record import ArmRecord


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


def is_by_steps(session: SessionComparison) -> bool:
    """Whether each arm is compared with the one before, and there is more than one step."""
    return session.manifest.experiment.compare == "steps" and len(session.arms) > 2


def course(session: SessionComparison, row: MetricRow) -> tuple[Step, ...]:
    """The steps of one metric, in order; none where the session is not by steps."""
    if not is_by_steps(session):
        return ()
    arms = session.arms
    by_pair = {
        (comparison.manifest.base, comparison.manifest.patched): comparison
        for comparison in session.comparisons
    }
    steps = []
    for before, arm in itertools.pairwise(arms):
        comparison = by_pair[before.name, arm.name]
        own = comparison.metric(row.case, row.name)
        assert own is not None
        steps.append(Step(arm, own, row.cell(arm.name)))
    return tuple(steps)


def whole(session: SessionComparison, row: MetricRow) -> MetricComparison | None:
    """The last arm against the first, as it was judged; None where there is no such pair."""
    return row.cells[-1].against


def answer(session: SessionComparison, row: MetricRow) -> str:
    """Which of the patches gives the change, as far as the intervals allow to say it."""
    steps, all_of_them = course(session, row), whole(session, row)
    where = f"{row.case} {row.name}"
    if not steps or all_of_them is None or all_of_them.judgement.change is None:
        return f"{where}: not measured on every step"
    text = f"{where}: all {len(steps)} steps together {wording.change(all_of_them)}"
    bounds = wording.interval(all_of_them)
    text = f"{text} {bounds}, {verdict_words.verdict(all_of_them)}" if bounds else text
    significant = [step for step in steps if step.own.judgement.verdict in CALLED]
    if not significant:
        if all_of_them.judgement.verdict in CALLED:
            return f"{text}; no single step is significant, so the change cannot be attributed"
        return f"{text}; no step changes it significantly"
    those = "; ".join(f"{_step_name(session, step)} {wording.change(step.own)} "
                      f"{wording.bounds(step.own)}" for step in significant)  # fmt: skip
    if all_of_them.judgement.verdict not in CALLED:
        return f"{text}; steps that change it: {those}"
    verdict = all_of_them.judgement.verdict
    along = [step for step in significant if step.own.judgement.verdict is verdict]
    if len(significant) == 1 == len(along) and _stands_apart(along[0], steps):
        return (
            f"{text}; {those} accounts for it: the intervals of all other steps end below its own"
        )
    if not along:
        return f"{text}; the only steps that change it go the other way: {those}"
    if len(significant) == 1:
        more = "others perhaps for as much: intervals overlap"
        return f"{text}; {those} accounts for part of it, {more}"
    return f"{text}; steps that change it: {those}"


def _step_name(session: SessionComparison, step: Step) -> str:
    number = [arm.name for arm in session.arms].index(step.arm.name)
    return f"step {number} ({step.title})"


def _stands_apart(step: Step, steps: tuple[Step, ...]) -> bool:
    """Whether no other step can be as large as this one, in its direction."""
    change = step.own.judgement.change
    if change is None or change.low is None or change.high is None:
        return False
    up = change.estimate > 0
    for other in steps:
        others_change = other.own.judgement.change
        if other is step:
            continue
        if others_change is None or others_change.low is None or others_change.high is None:
            return False
        if (others_change.high >= change.low) if up else (others_change.low <= change.high):
            return False
    return True


def answers(session: SessionComparison) -> list[str]:
    """One sentence for each metric that is judged; none where steps are not compared."""
    if not is_by_steps(session):
        return []
    return [answer(session, row) for row in session.rows if row.primary]
