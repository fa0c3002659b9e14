"""Build the one comparison record from a manifest and its run records: pure.

Records become blocks, which stand side by side; blocks become evidence, which is judged; and what
was counted, the checks of correctness or a session's end may take a verdict back.

Where the work is given and the time comes out of it, a rate is known only as finely as the time: a
run of 80 ms in steps of more than 1 %, and two different times can read as the same bandwidth.  A
phase of a given time divides by what was asked for, which is exact.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from analysis import findings as facts
from analysis import statistics, wall
from analysis.counts import Recorded
from analysis.execution import (
    Execution,
    as_explained,
    as_tested,
    differ_in_settings,
    executions,
)
from analysis.explain import explain
from analysis.explain.locks import WAITS
from analysis.findings import data_points
from analysis.model import (
    Again,
    CaseComparison,
    Comparison,
    Exactness,
    FailedRun,
    FailureCount,
    Finding,
    MetricComparison,
    Pair,
    Reference,
    ReportError,
    Summary,
    WallFacts,
)
from analysis.verdict import (
    PENDING,
    Cause,
    Evidence,
    Judgement,
    Verdict,
    judge_primary,
    judge_secondary,
)
from experiment.plan import AGAIN
from results.profile import BEFORE, Counts, with_names
from results.record import ArmGate, CaseRecord, Check, Manifest, Metric, RunRecord, gate_of
from results.session import MeasuredSession
from results.units import shown_unit

# fio prints how long its jobs ran in whole milliseconds.
STEP_S = 0.001
# A timer's period in the guest (CONFIG_HZ=250): by chance a phase begins one earlier or later.
TICK_MS = 4.0
# Of what is divided by, or is, the time that fio ran.
TIMED = ("bw", "iops", "read_bw", "read_iops", "write_bw", "write_iops", "runtime")


class Block(NamedTuple):
    """One block of one case; ``again`` is the A/A arm's run, None in exact mode."""

    base: RunRecord
    patched: RunRecord
    again: RunRecord | None = None


def complete_blocks(
    manifest: Manifest, records: Sequence[RunRecord], case: str, without: Collection[int] = ()
) -> list[Block]:
    """Blocks in which every arm has samples, in order; ``without`` names those left out.

    A block is dropped only whole.
    """
    points = {(r.arm, r.block): r for r in data_points(records) if r.case == case}
    arms = [arm.name for arm in manifest.arms]
    blocks = sorted({block for _, block in points} - set(without))
    rows = [[points.get((arm, block)) for arm in arms] for block in blocks]
    return [Block(*(run for run in runs if run)) for runs in rows if all(runs)]


def pairs_of(blocks: Sequence[Block], metric: str) -> tuple[Pair, ...]:
    """The metric's value on every arm, block by block; a block that lacks one is left out."""
    pairs = []
    for block in blocks:
        values = [(run.samples or {}).get(metric) for run in block if run is not None]
        if None in values:
            continue
        before, after, *again = [value for value in values if value is not None]
        pairs.append(
            Pair(
                block=block.base.block,
                seed=block.base.seed,
                base=before,
                patched=after,
                change=(after - before) / before if before else None,
                again=again[0] if again else None,
            )
        )
    return tuple(pairs)


def failure_count(manifest: Manifest, records: Sequence[RunRecord], case: str) -> FailureCount:
    """How many runs of each arm of one case failed."""
    runs = {
        arm.name: [r for r in records if (r.case, r.arm, r.repeat) == (case, arm.name, False)]
        for arm in manifest.arms
    }
    counts = {arm: (sum(r.failure is not None for r in own), len(own)) for arm, own in runs.items()}
    (base_failed, base_runs), (failed, patched_runs) = list(counts.values())[:2]
    return FailureCount(
        case=case,
        base_failed=base_failed,
        base_runs=base_runs,
        patched_failed=failed,
        patched_runs=patched_runs,
        again=counts.get(AGAIN),
    )


def time_resolution(
    manifest: Manifest, case: CaseRecord, metric: str, records: Iterable[RunRecord]
) -> float:
    """The largest error that the step of a time leaves in the logarithm of a value; 0 for none.

    ``records`` are the case's; the shortest time has the largest error.
    """
    phase, _, short = metric.partition(".")
    if short == BEFORE:
        waited = [ms for each in records if (ms := (each.samples or {}).get(metric, 0.0)) > 0]
        return math.log1p(TICK_MS / min(waited)) if waited else 0.0
    if manifest.experiment.mode == "wall" or short not in TIMED:
        return 0.0
    times = next(
        (
            spec.times.get(manifest.guest.name, {})
            for spec in manifest.experiment.cases
            if spec.name == case.name
        ),
        {},
    )
    by_number = phase in times and times[phase].ios is not None
    if not by_number and f"{phase}.runtime" not in {spec.name for spec in case.metrics}:
        return 0.0
    seconds = [
        samples[f"{phase}.ios"] / samples[f"{phase}.iops"]
        for record in records
        if (samples := record.samples)
        and samples.get(f"{phase}.iops")
        and f"{phase}.ios" in samples
    ]
    return math.log1p(STEP_S / min(seconds)) if seconds and min(seconds) > 0 else 0.0


def summarize(values: Sequence[float]) -> Summary | None:
    """Mean, spread and range of one arm's values; None for no values."""
    if not values:
        return None
    positive = all(value > 0 and math.isfinite(value) for value in values)
    if len(set(values)) == 1:
        mean = values[0]
    elif positive:
        mean = math.exp(statistics.mean([math.log(value) for value in values]))
    else:
        mean = float(np.mean(values))
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    relative = spread / abs(mean) if spread is not None and mean else None
    return Summary(
        mean=mean, stddev=relative, minimum=min(values), maximum=max(values), n=len(values)
    )


@dataclass(frozen=True)
class _Measured:
    """One metric of one case: its pairs, and what is judged of it."""

    case: CaseRecord
    metric: Metric
    pairs: tuple[Pair, ...]
    evidence: Evidence

    @property
    def primary(self) -> bool:
        return self.metric.name in self.case.primary


class _View(NamedTuple):
    """Two arms of a session, everything recorded of them, and what is judged of it.

    ``points`` are the records without those of twins, which are another kernel or another guest:
    none of their numbers stand beside these.
    """

    recorded: Recorded
    points: Sequence[RunRecord]
    wall: WallFacts | None
    blocks: Mapping[str, list[Block]]
    measured: Sequence[_Measured]
    executions: tuple[Execution, ...]


def evidence_of(
    manifest: Manifest,
    records: Sequence[RunRecord],
    case: CaseRecord,
    blocks: Sequence[Block],
    host: WallFacts | None = None,
) -> list[_Measured]:
    """What there is of each metric of a case: primary ones in their order, then the others."""
    seeds = manifest.seeds_of(case.name)
    own = [record for record in records if record.case == case.name and not record.repeat]
    scarce = facts.too_few_ios(manifest, records)
    names = [metric.name for metric in case.metrics]
    measured = []
    for name in [*case.primary, *(name for name in names if name not in case.primary)]:
        metric = case.metrics[names.index(name)]
        pairs = pairs_of(blocks, name)
        few = (case.name, name.partition(".")[0]) in scarce
        wall_arm = host is not None and name in case.primary
        evidence = Evidence(
            direction=metric.direction,
            base=tuple(pair.base for pair in pairs),
            patched=tuple(pair.patched for pair in pairs),
            blocks_planned=len(seeds),
            failures=tuple(record.failure for record in own if record.failure),
            same_code=manifest.same_code,
            unusable="too few I/Os for a verdict" * few,
            dropped=host.reasons(case.name) if host else (),
            case=case.name,
            metric=name,
            resolution=time_resolution(manifest, case, name, own),
            looks=manifest.experiment.looks(len(seeds)),
            again=tuple(p.again for p in pairs if p.again is not None) if wall_arm else None,
            real_time=host is None or host.real_time,
        )
        measured.append(_Measured(case, metric, pairs, evidence))
    return measured


def _judged(
    manifest: Manifest, views: Sequence[_View]
) -> dict[int, tuple[Judgement, Again | None]]:
    """By the identity of each metric its judgement, and in wall mode its A/A."""
    measured, host = [each for view in views for each in view.measured], views[0].wall
    thresholds = manifest.experiment.thresholds
    first = [each for each in measured if each.primary]
    others = [each for each in measured if not each.primary]
    judgements = judge_primary([each.evidence for each in first], thresholds)
    noise: dict[int, Again] = {}
    if host is None:
        judgements += judge_secondary([each.evidence for each in others], thresholds)
    else:
        for each in measured:
            at = each.case.name, each.metric.name
            noise[id(each)] = wall.again(
                each.pairs, thresholds.of(*at), each.evidence.reached, family=len(first)
            )
        # A wall session has one pair of arms.
        withheld = [
            wall.withheld(
                host, noise[id(m)], [noise[id(o)] for o in first if o.case.name == m.case.name]
            )
            for m in others
        ]
        judgements += wall.describe([each.evidence for each in others], withheld, thresholds)
    return {
        id(each): (judgement, noise.get(id(each)))
        for each, judgement in zip([*first, *others], judgements, strict=True)
    }


def compare_views(
    manifests: Sequence[Manifest], session: MeasuredSession, *, explains: bool = True
) -> list[Comparison]:
    """Return what a session shows, a comparison a view: two of its arms (and the A/A arm).

    Every view's primary metrics are one family for Holm, and every view's secondary ones
    one for Benjamini and Hochberg: more arms are more chances to be wrong.  What was counted makes
    no change: it says of a change which functions can have made it (``analysis.execution``).

    Raises:
        ReportError: a view has not exactly two arms (in wall mode those and the A/A
            arm), a primary metric is not among its case's metrics, or a record names a
            case that the manifest does not know.
    """
    points = [record for record in session.records if not record.twin]
    in_wall = manifests[0].experiment.mode == "wall"
    # A repeat checks the whole session, whatever arm it was made on.
    exactness = facts.NO_REPEATS if in_wall else facts.check_exactness(points)
    inexact, open_runs = exactness.status == "inexact", unfinished(session)
    views = [_view(each, session, trusted=not open_runs and not inexact) for each in manifests]
    judged = _judged(manifests[0], views)
    return [_comparison(view, judged, exactness, open_runs, explains=explains) for view in views]


def _comparison(
    view: _View,
    judged: Mapping[int, tuple[Judgement, Again | None]],
    exactness: Exactness,
    open_runs: str,
    *,
    explains: bool,
) -> Comparison:
    recorded, manifest, records = view.recorded, view.recorded.manifest, view.points
    executed = {(each.case, each.phase): each for each in view.executions}
    published = {case.name: _references(recorded, case.name) for case in manifest.cases}
    compared: dict[str, list[MetricComparison]] = {case.name: [] for case in manifest.cases}
    for each in view.measured:
        judgement, again = judged[id(each)]
        metric, name, evidence = each.metric, each.case.name, each.evidence
        phase = metric.name.partition(".")[0]
        if judgement.verdict is not None and open_runs:
            judgement = _nothing(
                judgement, Verdict.NOT_FINISHED, Cause.UNFINISHED, "lab", open_runs
            )
        at = name, phase
        judgement = as_tested(judgement, manifest, executed.get(at), recorded.calls)
        if explains:
            judgement = as_explained(judgement, evidence, recorded, at)
        if judgement.verdict is not None and exactness.status == "inexact":
            reason = "the session is not bit-exact: a repeated run differs"
            why = {"reason": reason, "cause": Cause.INEXACT, "blame": "lab"}
            judgement = judgement.model_copy(update={"verdict": Verdict.FAILED, **why})
        compared[name].append(
            MetricComparison(
                case=name,
                name=metric.name,
                phase=phase,
                title=metric.title,
                unit=shown_unit(metric.unit, manifest.experiment.mode),
                direction=metric.direction,
                primary=each.primary,
                base=summarize(evidence.base),
                patched=summarize(evidence.patched),
                pairs=each.pairs,
                judgement=judgement,
                published=tuple(r for r in published[name] if r.metric == metric.name),
                again=again,
                again_values=summarize([p.again for p in each.pairs if p.again is not None]),
            )
        )
    counts = tuple(failure_count(manifest, records, case.name) for case in manifest.cases)
    failed = tuple(
        FailedRun(**{name: getattr(record, name) for name in FailedRun.model_fields})
        for record in records
        if record.failure is not None
    )
    return Comparison(
        manifest=manifest,
        cases=tuple(
            CaseComparison(
                name=case.name,
                title=case.title,
                size=case.size,
                phases=case.phases,
                metrics=tuple(compared[case.name]),
                published=published[case.name],
                blocks=len(view.blocks[case.name]),
            )
            for case in manifest.cases
        ),
        findings=facts.gather(
            manifest,
            records,
            exactness=exactness,
            counts=counts,
            failed=failed,
            references=[each for of_case in published.values() for each in of_case],
            costs=recorded.costs,
        )
        + facts.of_twins(recorded.records, WAITS.made(recorded))
        + facts.of_executions(manifest, view.executions),
        failed_runs=failed,
        failure_counts=counts,
        exactness=exactness,
        runs_recorded=sum(not record.repeat for record in records),
        executions=view.executions,
        explained=explain(recorded),
        wall=view.wall,
        host_findings=facts.of_host(view.wall, manifest) if view.wall else (),
    )


def _references(recorded: Recorded, case: str) -> tuple[Reference, ...]:
    names = [name for name in Reference.model_fields if name != "case"]
    return tuple(
        Reference(case=case, **{name: getattr(figure, name) for name in names})
        for figure in recorded.published(case)
    )


def unfinished(session: MeasuredSession) -> str:
    """``not finished: N of M runs recorded`` where planned runs are missing; else empty.

    Runs that will never be made are not waited for: those of arms whose machine code is the
    same, and of pairs of which the correctness checks withhold an arm.  To judge the runs that
    happen to be there would be a look at the data that the error rates do not allow for.
    """
    manifest = session.manifest
    if not manifest.runs_planned:
        return ""
    names = sound = {arm.name for arm in manifest.arms}
    if manifest.experiment.check is not None:
        sound = {
            name for name in sound if not gate_of(name, manifest.base, session.checks).withholds
        }
    pairs = [pair for pair in manifest.experiment.compared if set(pair) <= sound]
    waited = {
        (case.name, arm, block)
        for case in manifest.cases
        for arm in names & {name for pair in pairs for name in (*pair, AGAIN)}
        for block in range(len(manifest.seeds_of(case.name)))
    }
    recorded = session.recorded
    if waited <= recorded:
        return ""
    return f"not finished: {len(waited & recorded)} of {len(waited)} runs recorded"


def _nothing(
    judgement: Judgement, verdict: Verdict, cause: Cause, blame: str, reason: str
) -> Judgement:
    """What is left of a judgement whose numbers say nothing."""
    return Judgement(
        verdict=verdict, reason=reason, cause=cause, blame=blame, pairs=judgement.pairs
    )


def _view(manifest: Manifest, session: MeasuredSession, *, trusted: bool) -> _View:
    arms = [arm.name for arm in manifest.arms]
    in_wall = manifest.experiment.mode == "wall"
    if in_wall and (len(arms) != 3 or arms[2:] != [AGAIN]):
        raise ReportError(f"arms {', '.join(arms)}: in wall mode a comparison has 2 and {AGAIN}")
    if not in_wall and len(arms) != 2:
        raise ReportError(f"{len(arms)} arms: a comparison has exactly 2")
    for case in manifest.cases:
        missing = set(case.primary) - {metric.name for metric in case.metrics}
        if missing:
            raise ReportError(f"{case.name}: primary metrics not recorded: {sorted(missing)}")
    names = {case.name for case in manifest.cases}
    records = [record for record in session.records if record.arm in arms]
    for record in records:
        if record.case not in names:
            raise ReportError(f"{record.run_id}: case {record.case!r}: not in the manifest")
    points = [record for record in records if not record.twin]
    run_ids = {record.run_id for record in records}
    renamed = dict(manifest.triage.renamed if manifest.triage else ())
    base = {record.run_id for record in records if record.arm == arms[0]}

    def of_both(counts: Iterable[Counts]) -> list[Counts]:
        """What was counted on these arms, by the patched arm's names."""
        return [
            with_names(each, renamed) if renamed and each.run_id in base else each
            for each in counts
            if each.run_id in run_ids
        ]

    profiles = of_both(session.profiles)
    every = executions(manifest, points, profiles)
    host = wall.facts_of(manifest, points) if in_wall else None
    blocks = {
        name: complete_blocks(manifest, points, name, host.without(name) if host else ())
        for name in names
    }
    return _View(
        Recorded(
            manifest,
            records,
            profiles,
            trusted=trusted,
            ran={}
            if differ_in_settings(manifest)
            else {(each.case, each.phase): each.ran for each in every},
            calls=session.calls,
            locks=of_both(session.locks),
            costs=session.costs,
            annotation=session.annotation,
        ),
        points,
        host,
        blocks,
        [
            each
            for case in manifest.cases
            for each in evidence_of(manifest, points, case, blocks[case.name], host)
        ],
        every,
    )


def first_words(gate: ArmGate) -> str:
    """Why an arm is not judged, in one line."""
    if gate.standing == "red":
        problem = gate.problems[0][1]
        where = f" in {problem.where}()" if problem.where else ""
        return f"not judged: a correctness check failed: {problem.title}{where}"
    return f"not judged: correctness was not checked: {gate.reason}"


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

    def judged(metric: MetricComparison) -> MetricComparison:
        judgement = metric.judgement
        if judgement.verdict is not None and withholding:
            blame = "series" if withholding.standing == "red" else "host"
            reason = first_words(withholding)
            judgement = _nothing(judgement, Verdict.FAILED, Cause.UNCHECKED, blame, reason)
        elif judgement.verdict is not None:
            reason = f"{judgement.reason}; {PENDING}" if judgement.reason else PENDING
            judgement = judgement.model_copy(update={"reason": reason})
        return metric.model_copy(update={"judgement": judgement})

    if withholding is None:
        awaiting = Finding(level="warning", scope="session", kind="checks-pending")
        findings = (awaiting, *comparison.findings)
    else:
        # That no run was made is what the gate decided, not something to be finished.
        missing = facts.not_finished(comparison.runs_recorded, comparison.manifest.runs_planned)
        findings = tuple(
            finding
            for finding in comparison.findings
            if (comparison.runs_recorded or finding.scope != "session") and finding != missing
        )
    return changed.with_metrics(judged).model_copy(update={"findings": findings})
