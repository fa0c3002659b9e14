"""A request, made an experiment that says everything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from errors import UsageError
from experiment.ad_hoc import from_kernels, from_series
from experiment.kernel_options import with_config
from experiment.load import Catalogue, known_experiments, load_experiment, load_machine
from experiment.places import from_here
from experiment.spec import LINES, MEMORY, CheckSpec, Experiment, TwinSpec
from experiment.steps import per_patch
from host.facts import require_usable
from kernels.intake import records_of
from kernels.settle import settle
from kernels.source import identify, release_of
from results.record import QUICK
from runs.arms import shapes
from runs.prepare import can_be_modelled, workloads_of
from runs.request import Request
from runs.requirements import (
    require_jobs,
    require_prebuilt,
    require_settings,
    require_supported,
)
from runs.suggestion import automatic, texts_and_files


def experiment_of(
    request: Request,
    *,
    checkout: Path,
    cache: Path,
    here: Path,
    catalogue: Catalogue,
    on_intake: Callable[[Experiment], None] = lambda settled: None,
) -> Experiment:
    """The experiment, checked, with its series taken in; ``here`` is where the user is.

    ``on_intake`` is called with its series taken in, before anything is made of them.

    Raises:
        UsageError: neither an experiment nor a series is named, or both are.
        SpecError: something in the experiment or the overrides is wrong.
        SeriesError, InfraError: as ``kernels.intake.keep``; nothing can be built in this cache.
    """
    require_usable(cache, checkout)
    if not request.name and not request.series and not request.arms:
        raise UsageError(
            "no experiment named",
            where="lab.py",
            next_step=f"name a file, or one of: {', '.join(known_experiments())}; "
            "or --series FILE|MESSAGE-ID|A..B, or --arm KERNEL --arm KERNEL",
        )
    if request.arms and (request.of_series or request.per_patch or len(request.arms) == 1):
        raise UsageError(
            "at least two kernels are needed, and no option about a series",
            where="--arm",
            next_step="name two kernels; leave out --series, --source, --reverse, --per-patch",
        )
    if request.name and request.by_series:
        raise UsageError(
            "an experiment cannot be combined with --series or --arm",
            where=request.name,
            next_step="leave one out, or change the experiment: --set series.path=PATH",
        )
    if request.name:
        # Cases may be overridden, and what explains those that are not there is then no mistake.
        without = ("twins=[]",) if request.twins is False and not request.memory else ()
        experiment = load_experiment(
            Path(request.name), overrides=(*request.all_overrides, *without), catalogue=catalogue
        )
    elif request.arms:
        experiment = from_kernels(
            [from_here(name, here=here, checkout=checkout) for name in request.arms],
            workloads=request.named_workloads,
            overrides=request.all_overrides,
            catalogue=catalogue,
        )
    else:
        experiment = _of_series(request, checkout, cache, here, catalogue, on_intake)
    experiment = settle(experiment, checkout=checkout, cache=cache)
    if request.name or request.arms:
        on_intake(experiment)
    if request.check and experiment.prebuilt:
        raise UsageError(
            f"the kernel of {experiment.prebuilt[0]} is prebuilt; checks need kernels of their own",
            where="--check",
            next_step="leave it out",
        )
    if request.check is not None:
        gate = (experiment.check or CheckSpec()) if request.check else None
        experiment = experiment.model_copy(update={"check": gate})
    if request.per_patch:
        experiment = per_patch(experiment, subjects_of(experiment, checkout=checkout, cache=cache))
    experiment = with_config(experiment, request.config)
    if request.quick and request.check:
        raise UsageError(
            "has no correctness checks", where=QUICK, next_step="leave out --quick or --check"
        )
    if request.quick:
        experiment = experiment.model_copy(update={"cases": experiment.cases[:1], "check": None})
    experiment = experiment.model_copy(update={"twins": _twins(request, experiment)})
    require_supported(experiment)
    workloads = workloads_of(experiment)
    require_jobs(experiment, workloads)
    require_settings(experiment, checkout)
    require_prebuilt(experiment, workloads, checkout)
    return experiment


NO_MEMORY = "none"


def _twins(request: Request, experiment: Experiment) -> tuple[TwinSpec, ...]:
    """The diagnostic runs; the one that models memory may be asked for by itself.

    The machine is that of lines that move, too, and without one nothing is modelled.

    Raises:
        UsageError: it cannot be made.
        SpecError: there is no such machine.
    """
    modelled = [twin for twin in experiment.twins if twin.observe == MEMORY]
    others = [twin for twin in experiment.twins if twin.observe != MEMORY]
    diagnostic = not request.quick and request.with_twins
    if not request.memory:
        return experiment.twins if diagnostic else ()
    if request.memory == NO_MEMORY:
        unmodelled = tuple(twin for twin in others if twin.machine is None)
        return unmodelled if diagnostic else ()
    if request.quick:
        raise UsageError(
            "has no diagnostic runs", where=QUICK, next_step="leave out --quick or --memory"
        )
    machine = load_machine(Path(request.memory)).name
    if experiment.mode == "wall" or not can_be_modelled(shapes(experiment)[""].values()):
        raise UsageError(
            "caches are modelled in exact mode, of guests of x86-64 with one vCPU and one node",
            where="--memory",
            next_step="leave it out",
        )
    twins = [twin.model_copy(update={"machine": machine}) for twin in modelled]
    if not twins:
        cases = tuple(case.name for case in experiment.cases)
        twins = [TwinSpec(name=MEMORY, observe=MEMORY, machine=machine, cases=cases)]
    others = [
        twin.model_copy(update={"machine": machine}) if twin.observe == LINES else twin
        for twin in others
    ]
    return (*(others if diagnostic else ()), *twins)


def subjects_of(experiment: Experiment, *, checkout: Path, cache: Path) -> tuple[str, ...]:
    """The subjects of a settled experiment's patches, in the order they apply."""
    if experiment.series is None:
        return ()
    records = records_of(experiment.series, checkout=checkout, cache=cache)
    return tuple(patch.subject for record in records for patch in record.patches)


def _of_series(
    request: Request,
    checkout: Path,
    cache: Path,
    here: Path,
    catalogue: Catalogue,
    on_intake: Callable[[Experiment], None],
) -> Experiment:
    def made(workloads: tuple[str, ...]) -> Experiment:
        source = request.source
        return from_series(
            [from_here(name, here=here, checkout=checkout) for name in request.series],
            source=from_here(source, here=here, checkout=checkout) if source else "",
            workloads=workloads,
            reverse=request.reverse,
            overrides=request.all_overrides,
            catalogue=catalogue,
        )

    named = request.named_workloads
    settled = settle(made(named), checkout=checkout, cache=cache)
    on_intake(settled)
    if named:
        return settled
    assert settled.series is not None
    where = {"checkout": checkout, "cache": cache}
    release = release_of(identify(settled.kernel.source, **where))
    return made(automatic(*texts_and_files(settled.series, **where), release))
