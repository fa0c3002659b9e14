"""The gate's findings in a comparison: who is to blame, and which verdicts are withheld."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.findings import not_finished
from analysis.model import ArmGate, Comparison, Finding, MetricComparison
from analysis.verdict import PENDING, Cause, Judgement, Verdict
from results.checks import Check, standing


def gate_of(arm: str, base: str, checks: Sequence[Check]) -> ArmGate:
    """What the checks of a session say of one arm; ``base`` is the session's first arm.

    The base arm is never to blame a series for: what is red there is red before it.
    """
    own = tuple(check for check in checks if check.arm == arm)
    of_base = standing(own, [check for check in checks if check.arm == base])
    return ArmGate(
        arm=arm, standing=of_base.arm, problems=of_base.problems, inherited=of_base.inherited,
        checks=own, reason=of_base.reason,
    )  # fmt: skip


def first_words(gate: ArmGate) -> str:
    """Why an arm is not judged, in one line."""
    if gate.standing == "red":
        problem = gate.problems[0][1]
        where = f" in {problem.where}()" if problem.where else ""
        return f"not judged: a correctness check failed: {problem.title}{where}"
    return f"not judged: correctness was not checked: {gate.reason}"


def awaited(metric: MetricComparison) -> MetricComparison:
    """The metric with a verdict that correctness may yet take back."""
    judgement = metric.judgement
    if judgement.verdict is None:
        return metric
    reason = f"{judgement.reason}; {PENDING}" if judgement.reason else PENDING
    return metric.model_copy(update={"judgement": judgement.model_copy(update={"reason": reason})})


def withheld(metric: MetricComparison, gate: ArmGate) -> MetricComparison:
    """The metric without a verdict, for the reason that the gate gives."""
    if metric.judgement.verdict is None:
        return metric
    blame = "series" if gate.standing == "red" else "host"
    judgement = Judgement(
        verdict=Verdict.FAILED, reason=first_words(gate), cause=Cause.UNCHECKED, blame=blame,
        pairs=metric.judgement.pairs,
    )  # fmt: skip
    return metric.model_copy(update={"judgement": judgement})


def gated(comparison: Comparison, base: str, checks: Sequence[Check]) -> Comparison:
    """The comparison with what the gate found of its arms.

    Where the experiment asks for no gate it is returned as it is.
    """
    if comparison.manifest.experiment.check is None:
        return comparison
    names = (comparison.manifest.base, comparison.manifest.patched)
    gates = tuple(gate_of(name, base, checks) for name in names)
    changed = comparison.model_copy(update={"gates": gates})
    # The patched arm first: it is the one that is asked about.
    withholding = next((gate for gate in reversed(gates) if gate.withholds), None)
    if withholding is None and not any(gate.standing == "pending" for gate in gates):
        return changed
    cases = tuple(
        case.model_copy(
            update={
                "metrics": tuple(
                    withheld(metric, withholding) if withholding else awaited(metric)
                    for metric in case.metrics
                )
            }
        )
        for case in comparison.cases
    )
    if withholding is None:
        awaiting = Finding(level="warning", scope="session", kind="checks-pending")
        findings = (awaiting, *comparison.findings)
        return changed.model_copy(update={"cases": cases, "findings": findings})
    # That no run was made is what the gate decided, not something to be finished.
    missing = not_finished(comparison.runs_recorded, comparison.manifest.runs_planned)
    findings = tuple(
        finding
        for finding in comparison.findings
        if (comparison.runs_recorded or finding.scope != "session") and finding != missing
    )
    return changed.model_copy(update={"cases": cases, "findings": findings})
