"""The verb that finds the patch, or the commit, that moved a metric."""

from __future__ import annotations

import enum
import shlex
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from errors import SpecError, UsageError
from runs.request import SUBJECT, Request
from text import counted, percent
from verbs.cli import Without, flattened
from verbs.invocation import (
    log,
    options,
    placed,
    require_trusted,
    resolved_of,
    resumable,
    write_out,
)
from verbs.options import CHECKOUT, SESSIONS, Booting, Folder, opt

if TYPE_CHECKING:
    from analysis.explain.functions import Attribution
    from experiment.load import Catalogue
    from experiment.spec import CaseSpec, Experiment
    from results.session import MeasuredSession
    from runs.bisect import Result, Search
    from runs.resolved import Resolved

app = typer.Typer(add_completion=False)


SEARCH = "The search"
# A search is of one series in exact mode, and decides itself what it boots of it.
OF_SEARCH = Without("mode", "twins", "per_patch", "check", "arms", "quick", "seeds", "max_seeds")


MOST_SHOWN = 10
NO_REASONS: Mapping[int, str] = {}
SHORT_COMMIT = 12


class BisectExit(enum.IntEnum):
    """Exit codes of ``bisect``; 2, 3 and 4 are those of every verb, 3 also of what never ran."""

    FOUND = 0
    NOTHING = 1
    NOT_TESTED = 3
    RANGE = 5


@app.command("bisect")
@flattened
def bisect_verb(
    request: Annotated[Request, OF_SEARCH],
    booting: Booting,
    metric: Annotated[
        str, opt("--metric PHASE.METRIC", "the metric that changed, for example 4k.bw", SEARCH)
    ] = "",
    threshold: Annotated[
        str, opt("--threshold PERCENT", "smallest change to look for", SEARCH)
    ] = "0.5%",
    between: Annotated[str, opt("--range A..B", "commits in --source git:PATH", SUBJECT)] = "",
    case: Annotated[str, opt("--case CASE", "the case, if several have the metric", SEARCH)] = "",
    seeds: Annotated[
        int | None,
        opt(
            "--seeds",
            "seeds per step; by default as many as the threshold needs",
            SEARCH,
            min=1,
            max=1000,
        ),
    ] = None,
    folder: Folder = None,
    resume: Annotated[Path | None, opt("--resume", "continue the search in this folder")] = None,
) -> None:
    """Find the patch or commit that changed a metric.

    Exit codes: 0 found, 1 no change to find, 3 nothing that changed ran, 5 narrowed down to
    patches that cannot be built or measured.

    Examples:
    ./lab.py bisect filemap-v4 --metric 4k.bw  # which patch of a series
    ./lab.py bisect --range v6.11..v6.12 --source git:/src/linux --metric 4k.bw --workloads \
        filemap-4k --threshold 1%  # which commit
    """
    from experiment.steps import threshold_of
    from reports.forms import write_all
    from reports.sections.answer import KEPT
    from reports.sentences import of_finding
    from results.session import open_session
    from results.store import MANIFEST
    from runs import bisect, session
    from runs.boots import Reporter

    run_options, reporter = options(booting), Reporter()
    # What explains is of no use to a search.
    request = replace(request, twins=False)
    if resume is not None:
        if folder or between or metric or not request.is_empty:
            what = "a search is resumed with the options it was started with"
            step = "give no other option than --parallel and --executor"
            raise UsageError(what, where="--resume", next_step=step)
        target = resume
        with (
            session.locked(target, must_exist=True, head=bisect.STATE),
            placed(run_options, booting, reporter) as on,
            resumable(("bisect", "--resume", str(target)), target / bisect.STATE),
        ):
            session.require_known(bisect.read(target, on).experiment, target, on)
            result = bisect.run(target, on, reporter, reporter.building)
    else:
        with ExitStack() as stack:
            on = stack.enter_context(placed(run_options, booting, reporter))
            if folder is not None:
                session.require_new(folder)
            resolved, commits = _resolved(request, between, stack)
            require_trusted(resolved.series_parts(), on.trusted)
            search = _search(
                resolved, commits, metric, case, threshold_of(threshold), seeds, request
            )
            target = folder or session.new_folder(SESSIONS, resolved.experiment)
            stack.enter_context(session.locked(target))
            stack.enter_context(
                resumable(("bisect", "--resume", str(target)), target / bisect.STATE)
            )
            bisect.begin(search, resolved.series, target, run_options)
            reporter.log(f"session {target}")
            why = (
                "from --seeds"
                if seeds
                else (f"enough to detect a change of {percent(search.threshold)}")
            )
            most = max(1, (len(search.points) - 2).bit_length())
            reporter.log(
                f"{search.last} patches, about {most} steps; {_seeds(search)} a step, {why}"
            )
            result = bisect.run(target, on, reporter, reporter.building)
    recorded = (target / MANIFEST).exists()
    untested = _untested(result, open_session(target)) if recorded else NO_REASONS
    write_out(as_text(result, _shown(result, target), untested))
    if recorded:
        for finding in write_all(target).findings:
            if finding.kind == KEPT:
                log(of_finding(finding))
        log(f"report: {target / 'report.html'}")
    if result.kind == "nothing" and result.search.last in untested:
        raise typer.Exit(BisectExit.NOT_TESTED)
    raise typer.Exit(BisectExit[result.kind.upper()])


def _resolved(request: Request, between: str, stack: ExitStack) -> tuple[Resolved, tuple[str, ...]]:
    """What is searched, its series taken in, and the commits of its patches, if it has any."""
    from kernels.git_range import write_line

    if not between:
        return resolved_of(request), ()
    place, at, _ = request.source.removeprefix("git:").partition("@")
    if not request.source.startswith("git:") or not place or at or request.series:
        what = "--range needs --source git:PATH without @REF, and no --series"
        raise UsageError(what, where="--range", next_step="write --range A..B --source git:PATH")
    place = place if (CHECKOUT / Path(place).expanduser()).is_dir() else str(Path(place).resolve())
    patches = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinboot-range-")))
    base, commits = write_line(between, patches, checkout=CHECKOUT, repository=place)
    source = f"git:{place}@{base}"
    if not request.name:
        of_range = replace(request, series=(str(patches),), source=source)
        return resolved_of(of_range), commits
    changed = (
        f"kernel.source={source}",
        f"series.path={patches}",
        "series.stack=[]",
        "series.reverse=false",
        "series.revert=false",
        *request.overrides,
    )
    return resolved_of(Request(name=request.name, overrides=changed, twins=False)), commits


def _search(
    resolved: Resolved,
    commits: tuple[str, ...],
    metric: str,
    case: str,
    threshold: float,
    seeds: int | None,
    request: Request,
) -> Search:
    """The search as it is written down.

    Raises SpecError: wall mode, arms of the experiment's own, or a metric that no case has.
    """
    from experiment.steps import seeds_for, step_arms
    from results.units import recorded_name
    from runs.bisect import Search
    from runs.resolved import catalogue

    experiment = resolved.experiment
    where = f"bisect: {experiment.name}"
    if experiment.mode != "exact":
        words = f'bisect works in exact mode only: leave out mode = "{experiment.mode}"'
        raise SpecError([f"{where}: {words}"])
    if experiment.series is None or experiment.arms:
        raise SpecError([f"{where}: bisect needs a series, and an experiment without [[arms]]"])
    metric = recorded_name(metric)
    case_spec = _case_of(experiment, metric, case, catalogue(CHECKOUT))
    subjects = [patch.subject for record in resolved.common_records for patch in record.patches]
    points = step_arms(experiment.series, subjects)
    if commits:
        named = []
        for arm, commit in zip(points[1:], commits, strict=True):
            label = arm.label.replace(": ", f": {commit[:SHORT_COMMIT]} ", 1)
            named.append(arm.model_copy(update={"label": label}))
        points = (points[0], *named)
    thresholds = experiment.thresholds.model_copy(update={"change": threshold, "metrics": {}})
    update = {
        "cases": (case_spec.model_copy(update={"primary": (metric,), "published": ()}),),
        # A fixed number: points are compared with each other, on the same seeds.
        "blocks": seeds or seeds_for(threshold),
        "max_seeds": None,
        "compare": "steps",
        "twins": (),
        # A point that is broken is found by the search itself, and left out.
        "check": None,
        "thresholds": thresholds,
    }
    return Search(
        experiment=experiment.model_copy(update=update),
        overrides=request.all_overrides,
        points=points,
        metric=metric,
        threshold=threshold,
    )


def _case_of(experiment: Experiment, metric: str, case: str, catalogue: Catalogue) -> CaseSpec:
    measured = {
        spec.name: {
            f"{phase}.{each}"
            for phase in catalogue.workloads[spec.workload][spec.variant]
            for each in catalogue.metrics_of(spec.workload, spec.variant, phase)
        }
        for spec in experiment.cases
    }
    from experiment.frozen import nearest
    from results.units import read_name

    names = sorted(set().union(*measured.values()))
    if metric not in names:
        likely = ", ".join(nearest(metric, map(read_name, names)))
        value = f"found {metric!r}" if metric else "missing"
        raise SpecError([f"--metric: {value}; the nearest of {len(names)}: {likely}"])
    having = [
        spec
        for spec in experiment.cases
        if metric in measured[spec.name] and case in ("", spec.name)
    ]
    if len(having) != 1:
        allowed = ", ".join(spec.name for spec in experiment.cases)
        raise SpecError([f"--case: found {case!r}; name a case that has {metric}: {allowed}"])
    return having[0]


def _untested(result: Result, session: MeasuredSession) -> dict[int, str]:
    """The points that execute the code of the first one, each with the functions that never ran."""
    from analysis.execution import executions
    from text import enumerated

    search, manifest = result.search, session.manifest
    case, phase = search.experiment.cases[0].name, search.metric.partition(".")[0]
    arms = {arm.name: arm for arm in manifest.arms}
    reasons = {}
    for step in result.steps:
        arm = arms.get(search.points[step.point].name)
        if step.point == 0 or arm is None:
            continue
        update = {"arms": (manifest.arms[0], arm), "triage": arm.triage or manifest.triage}
        of_point = executions(manifest.model_copy(update=update), session.records, session.profiles)
        for each in of_point:
            if (each.case, each.phase) == (case, phase) and not (each.ran or each.earlier):
                reasons[step.point] = (
                    f"none of the changed functions ran ({enumerated(each.never)})"
                )
    return reasons


def _shown(result: Result, folder: Path) -> Attribution | None:
    """Where the change between the two points came from, if the probe counted."""
    from analysis.comparison import compare_views
    from analysis.many import of_comparisons
    from analysis.operations import per_operation
    from results.session import open_session

    search = result.search
    old, new = (search.points[search.stands_for(each)].name for each in (result.old, result.new))
    if result.kind == "nothing" or old == new:
        return None
    session = open_session(folder)
    manifest = session.manifest
    arms = tuple(arm for name in (old, new) for arm in manifest.arms if arm.name == name)
    view = manifest.model_copy(update={"arms": arms, "triage": None})
    (shown,) = per_operation(of_comparisons(view, compare_views([view], session))).comparisons
    phase = search.metric.partition(".")[0]
    return next(
        (
            attribution
            for attribution in shown.attributions
            if attribution.phase == phase and attribution.headline
        ),
        None,
    )


def as_text(
    result: Result, attribution: Attribution | None, untested: Mapping[int, str] = NO_REASONS
) -> str:
    """The steps that were tried, what they show, and the functions that moved.

    ``untested`` are points that execute the code of the first one, with the reason.
    """
    from analysis.statistics import pairs_needed
    from reports.sentences import changed_per_unit

    search = result.search
    lines = [
        f"{search.experiment.title}: {search.shown_metric}, changes of {percent(search.threshold)} "
        f"or more, {_seeds(search)}",
        "",
    ]
    for step in result.steps:
        change = "" if step.change is None else f"{100 * step.change:+.2f} %"
        idle = f"; not tested: {untested[step.point]}" if step.point in untested else ""
        lines.append(f"{step.state:>5} {change:>10}  {step.label} ({step.how}{idle})")
    lines += ["", _outcome(result, untested.get(search.last, ""))]
    if result.finding:
        lines.append(f"note: {result.finding}")
    if attribution and attribution.rows:
        lines += ["", f"instructions per {attribution.unit_title}:"]
        for row in (*attribution.rows[:MOST_SHOWN],):
            counts = row.instructions
            lines.append(
                f"{counts.difference:+10.1f}  {counts.base:10.1f} -> {counts.patched:10.1f}  "
                f"{row.name}{' (user)' if row.user else ''}"
            )
        total = attribution.total
        lines.append(f"{total.difference:+10.1f}  {total.base:10.1f} -> {total.patched:10.1f}  all")
        needed = pairs_needed(1 - search.experiment.thresholds.alpha)
        too_few = f"functions are tested for a change with {needed} seeds or more"
        lines += ["", changed_per_unit(attribution) or too_few]
    return "\n".join(lines)


def _seeds(search: Search) -> str:
    return counted(search.experiment.blocks, "seed")


def _outcome(result: Result, untested: str) -> str:
    search, points = result.search, result.search.points
    if result.kind == "nothing" and untested and search.experiment.series:
        series = search.experiment.series.path
        return (
            f"not tested: {untested}; workloads that run them: "
            f"{shlex.join(['./lab.py', 'suggest', series])}"
        )
    if result.kind == "nothing":
        return (
            f"nothing to bisect: all {search.last} patches together change {search.shown_metric} "
            f"by {100 * result.whole:+.2f} %, less than {percent(search.threshold)}"
        )
    if result.kind == "found":
        return f"the change of {search.shown_metric} comes with patch {points[result.new].label}"
    first, last = points[result.old + 1].label, points[result.new].label
    skipped = [f"  {step.label}: {step.how}" for step in result.steps if step.state == "skip"]
    return "\n".join(
        [
            f"the change of {search.shown_metric} comes with one of these "
            f"{result.new - result.old} patches:",
            f"  from {first}",
            f"  to   {last}",
            "the points between them cannot be built or measured:",
            *skipped,
        ]
    )
