"""Build the one comparison record from a manifest and its run records: pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from experiment.spec import CaseSpec
from reports import findings as facts
from reports import statistics
from reports.attribution import attribute
from reports.locks import compare_locks
from reports.model import (
    CaseComparison,
    Comparison,
    Exactness,
    FailedRun,
    FailureCount,
    MetricComparison,
    Pair,
    Reference,
    ReportError,
    Summary,
    TimelineComparison,
)
from reports.verdict import Evidence, Judgement, Verdict, judge_primary, judge_secondary
from results.locks import Locks
from results.profile import Profile
from results.record import CaseRecord, Manifest, Metric, RunRecord

# Units that are a rate over time: in exact mode that time is virtual.
RATES = ("/s",)
TIMELINE_POINTS = 240
KIB_PER_MIB = 1024.0


def shown_unit(unit: str, mode: str) -> str:
    """The unit as printed: exact mode counts virtual seconds and says so."""
    if mode == "exact" and unit.endswith(RATES) and not unit.startswith("virtual"):
        return f"virtual {unit}"
    return unit


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


def _complete_blocks(
    manifest: Manifest, records: Sequence[RunRecord], case: str
) -> list[tuple[RunRecord, RunRecord]]:
    """Blocks where both arms have samples, base first; a block is dropped only whole."""
    points = {(r.arm, r.block): r for r in facts.data_points(records) if r.case == case}
    blocks = sorted({block for _, block in points})
    pairs = [
        (points.get((manifest.base, block)), points.get((manifest.patched, block)))
        for block in blocks
    ]
    return [(base, patched) for base, patched in pairs if base and patched]


def _pairs(blocks: Sequence[tuple[RunRecord, RunRecord]], metric: str) -> tuple[Pair, ...]:
    found = []
    for base, patched in blocks:
        before, after = (base.samples or {}).get(metric), (patched.samples or {}).get(metric)
        if before is None or after is None:
            continue
        found.append(
            Pair(
                block=base.block,
                seed=base.seed,
                base=before,
                patched=after,
                change=(after - before) / before if before else None,
            )
        )
    return tuple(found)


def _references(manifest: Manifest, case: str) -> list[Reference]:
    specs: dict[str, CaseSpec] = {spec.name: spec for spec in manifest.experiment.cases}
    return [
        Reference(
            case=case,
            metric=figure.metric,
            unit=figure.unit,
            base=figure.base,
            patched=figure.patched,
            change=figure.change,
            document=figure.document,
            note=figure.note,
        )
        for figure in (specs[case].published if case in specs else ())
    ]


def _timelines(
    manifest: Manifest, case: CaseRecord, blocks: Sequence[tuple[RunRecord, RunRecord]]
) -> tuple[TimelineComparison, ...]:
    found = []
    unit = shown_unit("MiB/s", manifest.experiment.mode)
    for phase in case.phases:
        both = [
            (one, other)
            for base, patched in blocks
            for one in base.timelines
            for other in patched.timelines
            if one.phase == other.phase == phase.name and len(one.t_ms) > 1 and len(other.t_ms) > 1
        ]
        if not both:
            continue
        lines = [line for pair in both for line in pair]
        start, end = max(line.t_ms[0] for line in lines), min(line.t_ms[-1] for line in lines)
        points = min(TIMELINE_POINTS, min(len(line.t_ms) for line in lines))
        if end <= start:
            continue
        grid = np.linspace(start, end, points)
        arms = [
            tuple(
                tuple(
                    float(value) / KIB_PER_MIB
                    for value in np.interp(grid, line.t_ms, line.bw_kib_s)
                )
                for line in arm
            )
            for arm in zip(*both, strict=True)
        ]
        found.append(
            TimelineComparison(
                case=case.name,
                phase=phase.name,
                unit=unit,
                t_s=tuple(float(t) / 1000 for t in grid),
                base=arms[0],
                patched=arms[1],
            )
        )
    return tuple(found)


def _failed(records: Sequence[RunRecord]) -> tuple[FailedRun, ...]:
    return tuple(
        FailedRun(
            run_id=r.run_id, case=r.case, arm=r.arm, block=r.block, seed=r.seed, repeat=r.repeat,
            failure=r.failure,
        )
        for r in records
        if r.failure is not None
    )  # fmt: skip


def _count(manifest: Manifest, records: Sequence[RunRecord], case: str) -> FailureCount:
    runs = {
        arm.name: [r for r in records if (r.case, r.arm, r.repeat) == (case, arm.name, False)]
        for arm in manifest.arms
    }
    base, patched = runs[manifest.base], runs[manifest.patched]
    return FailureCount(
        case=case,
        base_failed=sum(r.failure is not None for r in base),
        base_runs=len(base),
        patched_failed=sum(r.failure is not None for r in patched),
        patched_runs=len(patched),
    )


def _metrics(
    manifest: Manifest, records: Sequence[RunRecord]
) -> list[tuple[CaseRecord, Metric, tuple[Pair, ...], Evidence]]:
    scarce = facts.too_few_ios(manifest, records)
    found = []
    for case in manifest.cases:
        blocks = _complete_blocks(manifest, records, case.name)
        failures = tuple(
            r.failure for r in records if r.case == case.name and r.failure and not r.repeat
        )
        for metric in sorted(case.metrics, key=lambda m: _order(case, m)):
            pairs = _pairs(blocks, metric.name)
            phase = metric.name.partition(".")[0]
            too_few = (case.name, phase) in scarce
            found.append((case, metric, pairs, Evidence(
                direction=metric.direction,
                base=tuple(pair.base for pair in pairs),
                patched=tuple(pair.patched for pair in pairs),
                blocks_planned=len(manifest.seeds),
                failures=failures,
                same_code=manifest.same_code,
                unusable="too few I/Os to be evidence" if too_few else "",
            )))  # fmt: skip
    return found


def _order(case: CaseRecord, metric: Metric) -> tuple[int, int]:
    """Primary metrics in the order the experiment names them, then the others as they come."""
    if metric.name in case.primary:
        return 0, case.primary.index(metric.name)
    return 1, [m.name for m in case.metrics].index(metric.name)


def _distrusted(judgement: Judgement, exactness: Exactness) -> Judgement:
    if exactness.status != "inexact" or judgement.verdict is None:
        return judgement
    reason = "the session is not bit-exact: a repeated run differs"
    return judgement.model_copy(
        update={"verdict": Verdict.FAILED, "reason": reason, "blame": "lab"}
    )


def _check(manifest: Manifest, records: Sequence[RunRecord]) -> None:
    if len(manifest.arms) != 2:
        raise ReportError(f"{len(manifest.arms)} arms: a comparison has exactly 2")
    for case in manifest.cases:
        missing = set(case.primary) - {metric.name for metric in case.metrics}
        if missing:
            raise ReportError(f"{case.name}: primary metrics not recorded: {sorted(missing)}")
    known = {(case.name, arm.name) for case in manifest.cases for arm in manifest.arms}
    for record in records:
        if (record.case, record.arm) not in known:
            raise ReportError(
                f"{record.run_id}: case {record.case!r}, arm {record.arm!r}: not in the manifest"
            )


def compare(
    manifest: Manifest,
    records: Sequence[RunRecord],
    profiles: Sequence[Profile] = (),
    locks: Sequence[Locks] = (),
) -> Comparison:
    """Return what the session shows.

    ``profiles`` and ``locks`` explain it; they reach no judgement.

    Raises:
        ReportError: the session has not exactly two arms, a primary metric is not
            among its case's metrics, or a record names a case or an arm that the
            manifest does not know.
    """
    _check(manifest, records)
    attributions = attribute(manifest, records, profiles)
    of_locks = compare_locks(manifest, records, profiles, locks)
    of_twins = facts.of_twins(records, of_locks)
    # A twin is another kernel or another guest: none of its numbers stand beside these.
    records = [record for record in records if not record.twin]
    exactness = facts.check_exactness(records)
    measured = _metrics(manifest, records)
    thresholds = manifest.experiment.thresholds
    first = [m for m in measured if m[1].name in m[0].primary]
    others = [m for m in measured if m[1].name not in m[0].primary]
    judgements = judge_primary([m[3] for m in first], thresholds)
    judgements += judge_secondary([m[3] for m in others], thresholds)
    compared: dict[str, list[MetricComparison]] = {case.name: [] for case in manifest.cases}
    for (case, metric, pairs, evidence), judgement in zip(first + others, judgements, strict=True):
        compared[case.name].append(MetricComparison(
            case=case.name,
            name=metric.name,
            phase=metric.name.partition(".")[0],
            title=metric.title,
            unit=shown_unit(metric.unit, manifest.experiment.mode),
            direction=metric.direction,
            primary=metric.name in case.primary,
            base=summarize(evidence.base),
            patched=summarize(evidence.patched),
            pairs=pairs,
            judgement=_distrusted(judgement, exactness),
            published=tuple(
                r for r in _references(manifest, case.name) if r.metric == metric.name
            ),
        ))  # fmt: skip
    counts = tuple(_count(manifest, records, case.name) for case in manifest.cases)
    failed = _failed(records)
    return Comparison(
        manifest=manifest,
        cases=tuple(_case(manifest, records, case, compared[case.name]) for case in manifest.cases),
        findings=facts.gather(
            manifest, records, exactness=exactness, counts=counts, failed=failed,
            references=[r for case in manifest.cases for r in _references(manifest, case.name)],
        ) + of_twins,
        failed_runs=failed,
        failure_counts=counts,
        exactness=exactness,
        runs_recorded=sum(not record.repeat for record in records),
        attributions=attributions,
        locks=of_locks,
    )  # fmt: skip


def _case(
    manifest: Manifest,
    records: Sequence[RunRecord],
    case: CaseRecord,
    metrics: Sequence[MetricComparison],
) -> CaseComparison:
    blocks = _complete_blocks(manifest, records, case.name)
    return CaseComparison(
        name=case.name,
        title=case.title,
        phases=case.phases,
        metrics=tuple(metrics),
        timelines=_timelines(manifest, case, blocks),
        published=tuple(_references(manifest, case.name)),
        blocks=len(blocks),
    )
