"""Build the one comparison record from a manifest and its run records: pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from analysis import findings as facts
from analysis import statistics, wall
from analysis.blocks import (
    complete_blocks,
    failed_runs,
    failure_count,
    pairs_of,
    time_resolution,
    timelines,
)
from analysis.counts import Recorded
from analysis.execution import Execution, as_explained, as_tested, executions
from analysis.explain import explain
from analysis.explain.functions import EXPLANATION as FUNCTIONS
from analysis.explain.locks import WAITS
from analysis.gate import gate_of
from analysis.model import (
    Again,
    CaseComparison,
    Comparison,
    Exactness,
    MetricComparison,
    Pair,
    Reference,
    ReportError,
    Summary,
    WallFacts,
)
from analysis.series_findings import of_executions
from analysis.verdict import (
    Cause,
    Evidence,
    Judgement,
    Verdict,
    decides,
    judge_primary,
    judge_secondary,
)
from experiment.plan import AGAIN
from results.calls import Calls
from results.profile import Locks, Profile
from results.record import CaseRecord, Manifest, Metric, RunRecord
from results.session import MeasuredSession
from results.units import shown_unit


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


def _references(recorded: Recorded, case: str) -> list[Reference]:
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
        for figure in recorded.published(case)
    ]


class _MetricBlocks(NamedTuple):
    """One metric of one case: its blocks, and what is judged of it."""

    case: CaseRecord
    metric: Metric
    pairs: tuple[Pair, ...]
    evidence: Evidence
    view: str

    @property
    def primary(self) -> bool:
        return self.metric.name in self.case.primary


def _metrics(
    manifest: Manifest, records: Sequence[RunRecord], standing: wall.WallStanding | None
) -> list[_MetricBlocks]:
    scarce = facts.too_few_ios(manifest, records)
    metrics = []
    for case in manifest.cases:
        without = standing.without[case.name] if standing else ()
        blocks = complete_blocks(manifest, records, case.name, without)
        seeds = manifest.seeds_of(case.name)
        looks = manifest.experiment.looks(len(seeds))
        failures = tuple(
            r.failure for r in records if r.case == case.name and r.failure and not r.repeat
        )
        for metric in sorted(case.metrics, key=lambda m: _order(case, m)):
            pairs = pairs_of(blocks, metric.name)
            phase = metric.name.partition(".")[0]
            too_few = (case.name, phase) in scarce
            of_case = (r for r in records if r.case == case.name and not r.repeat)
            unusable = "too few I/Os for a verdict" if too_few else ""
            metrics.append(_MetricBlocks(case, metric, pairs, Evidence(
                direction=metric.direction,
                base=tuple(pair.base for pair in pairs),
                patched=tuple(pair.patched for pair in pairs),
                blocks_planned=len(seeds),
                failures=failures,
                same_code=manifest.same_code,
                unusable=unusable or (standing.unusable if standing else ""),
                dropped=standing.dropped(case.name) if standing else (),
                case=case.name,
                metric=metric.name,
                resolution=time_resolution(manifest, case, metric.name, of_case),
                looks=looks,
            ), f"{manifest.base} {manifest.patched}"))  # fmt: skip
    return metrics


def _order(case: CaseRecord, metric: Metric) -> tuple[int, int]:
    """Primary metrics in the order the experiment names them, then the others as they come."""
    if metric.name in case.primary:
        return 0, case.primary.index(metric.name)
    return 1, [m.name for m in case.metrics].index(metric.name)


def _judged(
    manifest: Manifest, measured: Sequence[_MetricBlocks], standing: wall.WallStanding | None
) -> list[tuple[Judgement, Again | None]]:
    """The judgement of each metric, and in wall mode its A/A; same order as given."""
    thresholds = standing.thresholds if standing else manifest.experiment.thresholds
    first = [m for m in measured if m.primary]
    others = [m for m in measured if not m.primary]
    evidence = [m.evidence for m in first]
    if standing is None:
        judgements = [
            *judge_primary(evidence, thresholds),
            *judge_secondary([m.evidence for m in others], thresholds),
        ]
        by_name = dict(zip(map(_key, [*first, *others]), judgements, strict=True))
        return [(by_name[_key(m)], None) for m in measured]
    noise = {
        _key(m): wall.again(
            m.pairs, thresholds.of(m.case.name, m.metric.name),
            specified=manifest.experiment.thresholds.of(m.case.name, m.metric.name),
            family=len(first),
        )
        for m in measured
    }  # fmt: skip
    withheld = [
        wall.withheld(
            standing,
            noise[_key(m)],
            [noise[_key(o)] for o in first if (o.view, o.case.name) == (m.view, m.case.name)],
        )
        for m in others
    ]
    judgements = [
        *judge_primary(
            [
                replace(
                    m.evidence,
                    again=tuple(pair.again for pair in m.pairs if pair.again is not None),
                    real_time=standing.facts.real_time,
                )
                for m in first
            ],
            thresholds,
        ),
        *wall.describe([m.evidence for m in others], withheld, thresholds),
    ]
    by_name = dict(zip(map(_key, [*first, *others]), judgements, strict=True))
    return [(by_name[_key(m)], noise[_key(m)]) for m in measured]


def _key(measured: _MetricBlocks) -> tuple[str, str, str]:
    return measured.view, measured.case.name, measured.metric.name


def _distrusted(judgement: Judgement, exactness: Exactness) -> Judgement:
    if exactness.status != "inexact" or judgement.verdict is None:
        return judgement
    reason = "the session is not bit-exact: a repeated run differs"
    return judgement.model_copy(
        update={"verdict": Verdict.FAILED, "reason": reason, "cause": Cause.INEXACT, "blame": "lab"}
    )


def _check(manifest: Manifest, records: Sequence[RunRecord]) -> None:
    arms = [arm.name for arm in manifest.arms]
    if manifest.experiment.mode == "wall" and (len(arms) != 3 or arms[2:] != [AGAIN]):
        raise ReportError(f"arms {', '.join(arms)}: in wall mode a comparison has 2 and {AGAIN}")
    if manifest.experiment.mode != "wall" and len(arms) != 2:
        raise ReportError(f"{len(arms)} arms: a comparison has exactly 2")
    for case in manifest.cases:
        missing = set(case.primary) - {metric.name for metric in case.metrics}
        if missing:
            raise ReportError(f"{case.name}: primary metrics not recorded: {sorted(missing)}")
    names = {case.name for case in manifest.cases}
    for record in records:
        if record.case not in names:
            raise ReportError(f"{record.run_id}: case {record.case!r}: not in the manifest")


class _View(NamedTuple):
    """Two arms of a session, everything recorded of them, and what is judged of it."""

    manifest: Manifest
    records: Sequence[RunRecord]
    profiles: Sequence[Profile]
    locks: Sequence[Locks]
    standing: wall.WallStanding | None
    exactness: Exactness
    measured: Sequence[_MetricBlocks]
    executions: tuple[Execution, ...]
    calls: Calls | None

    @property
    def points(self) -> Sequence[RunRecord]:
        """The records without those of twins."""
        # A twin is another kernel or another guest: none of its numbers stand beside these.
        return [record for record in self.records if not record.twin]


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
    views = [_view(each, session, exactness) for each in manifests]
    family = [metric for view in views for metric in view.measured]
    judged = _judged(manifests[0], family, views[0].standing)
    open_runs = unfinished(session)
    if open_runs:
        judged = [(_not_yet(judgement, open_runs), again) for judgement, again in judged]
    each = iter(judged)
    return [
        _comparison(
            view, [next(each) for _ in view.measured], finished=not open_runs, explains=explains
        )
        for view in views
    ]


def unfinished(session: MeasuredSession) -> str:
    """``not finished: N of M runs recorded`` where planned exact runs are missing; else empty.

    Runs that will never be made are not waited for: those of arms whose machine code is the
    same, and of pairs of which the correctness checks withhold an arm.  To judge the runs that
    happen to be there would be a look at the data that the error rates do not allow for.  Wall
    sessions have a rule of their own, because they may stop early (``analysis.wall``).
    """
    manifest = session.manifest
    if not manifest.runs_planned or manifest.experiment.mode == "wall":
        return ""
    sound = {arm.name for arm in manifest.arms}
    if manifest.experiment.check is not None:
        sound = {
            name for name in sound if not gate_of(name, manifest.base, session.checks).withholds
        }
    pairs = [pair for pair in manifest.experiment.compared if set(pair) <= sound]
    waited = {
        (case.name, arm, block)
        for case in manifest.cases
        for arm in {name for pair in pairs for name in pair}
        for block in range(len(manifest.seeds_of(case.name)))
    }
    recorded = session.recorded
    if waited <= recorded:
        return ""
    return f"not finished: {len(waited & recorded)} of {len(waited)} runs recorded"


def _not_yet(judgement: Judgement, open_runs: str) -> Judgement:
    if judgement.verdict is None:
        return judgement
    return Judgement(
        verdict=Verdict.NOT_FINISHED, reason=open_runs, cause=Cause.UNFINISHED, blame="lab",
        pairs=judgement.pairs,
    )  # fmt: skip


def _view(manifest: Manifest, session: MeasuredSession, exactness: Exactness) -> _View:
    arms = {arm.name for arm in manifest.arms}
    records = [record for record in session.records if record.arm in arms]
    profiles, locks = session.profiles, session.locks
    _check(manifest, records)
    points = [record for record in records if not record.twin]
    in_wall = manifest.experiment.mode == "wall"
    standing = wall.standing(manifest, points) if in_wall else None
    run_ids = {record.run_id for record in records}
    counted = [profile for profile in profiles if profile.run_id in run_ids]
    return _View(
        manifest,
        records,
        counted,
        [each for each in locks if each.run_id in run_ids],
        standing,
        exactness,
        _metrics(manifest, points, standing),
        executions(manifest, points, counted),
        session.calls,
    )


def _comparison(
    view: _View, judged: Sequence[tuple[Judgement, Again | None]], *, finished: bool, explains: bool
) -> Comparison:
    manifest, standing, records = view.manifest, view.standing, view.points
    compared: dict[str, list[MetricComparison]] = {case.name: [] for case in manifest.cases}
    executed = {(each.case, each.phase): each for each in view.executions}
    recorded = Recorded(
        manifest,
        view.records,
        view.profiles,
        trusted=finished and view.exactness.status != "inexact",
        ran={key: each.ran for key, each in executed.items()},
        calls=view.calls,
        locks=view.locks,
    )
    explained = explain(recorded) if explains else {}
    published = {case.name: _references(recorded, case.name) for case in manifest.cases}
    functions = FUNCTIONS.of(recorded)
    headlines = {(each.case, each.phase): each for each in functions if each.headline}
    for (case, metric, pairs, evidence, _), (judgement, again) in zip(
        view.measured, judged, strict=True
    ):
        phase = metric.name.partition(".")[0]
        here = case.name, phase
        tested = as_tested(judgement, manifest, executed.get(here), view.calls)
        tested = as_explained(tested, evidence, manifest, headlines.get(here))
        compared[case.name].append(MetricComparison(
            case=case.name,
            name=metric.name,
            phase=phase,
            title=metric.title,
            unit=shown_unit(metric.unit, manifest.experiment.mode),
            direction=metric.direction,
            primary=metric.name in case.primary,
            base=summarize(evidence.base),
            patched=summarize(evidence.patched),
            pairs=pairs,
            judgement=_distrusted(tested, view.exactness),
            published=tuple(r for r in published[case.name] if r.metric == metric.name),
            again=again,
            again_values=summarize([p.again for p in pairs if p.again is not None]),
        ))  # fmt: skip
    counts = tuple(failure_count(manifest, records, case.name) for case in manifest.cases)
    failed = failed_runs(records)
    course = _course(manifest, records, standing, compared)
    return Comparison(
        manifest=manifest,
        cases=tuple(
            _case(
                manifest, records, case, compared[case.name], standing, published[case.name]
            )
            for case in manifest.cases
        ),
        findings=facts.gather(
            manifest, records, exactness=view.exactness, counts=counts, failed=failed,
            references=[each for of_case in published.values() for each in of_case],
            course=course,
        )
        + facts.of_twins(view.records, WAITS.of(recorded))
        + of_executions(manifest, view.executions),
        failed_runs=failed,
        failure_counts=counts,
        exactness=view.exactness,
        runs_recorded=sum(not record.repeat for record in records),
        executions=view.executions,
        explained=explained,
        wall=course,
        host_findings=facts.of_host(course) if course else (),
    )  # fmt: skip


def _course(
    manifest: Manifest,
    records: Sequence[RunRecord],
    standing: wall.WallStanding | None,
    compared: Mapping[str, Sequence[MetricComparison]],
) -> WallFacts | None:
    """The facts of a wall session, now that its verdicts are known."""
    if standing is None:
        return None
    open_ = not decides(
        metric.judgement.verdict for case in compared.values() for metric in case if metric.primary
    )
    # At a look that decides nothing the session goes on.
    early = standing.facts.early and not open_
    return standing.facts.model_copy(
        update={
            "early": early,
            "unfinished": standing.facts.unfinished or (standing.facts.early and open_),
            "drift": wall.drift(manifest, records, standing.without),
        }
    )


def _case(
    manifest: Manifest,
    records: Sequence[RunRecord],
    case: CaseRecord,
    metrics: Sequence[MetricComparison],
    standing: wall.WallStanding | None,
    published: Sequence[Reference],
) -> CaseComparison:
    without = standing.without[case.name] if standing else ()
    blocks = complete_blocks(manifest, records, case.name, without)
    return CaseComparison(
        name=case.name,
        title=case.title,
        size=case.size,
        phases=case.phases,
        metrics=tuple(metrics),
        timelines=timelines(case, blocks, shown_unit("MiB/s", manifest.experiment.mode)),
        published=tuple(published),
        blocks=len(blocks),
    )
