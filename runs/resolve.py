"""A request, made an experiment that says everything, and all that it comes to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from errors import UsageError
from experiment.ad_hoc import from_kernels, from_series
from experiment.load import Catalogue, known_experiments, load_experiment, load_machine
from experiment.overrides import with_config
from experiment.series_name import from_here
from experiment.spec import LINES, MEMORY, CheckSpec, Experiment, Guest, TwinSpec
from experiment.steps import per_patch
from host.facts import require_usable
from kernels.settle import COMMON, Settled, settle
from kernels.source import identify, release_of
from results.record import QUICK
from runs.coverage import automatic, texts_and_files
from runs.request import Request
from runs.requirements import (
    can_be_modelled,
    require_jobs,
    require_prebuilt,
    require_settings,
    require_supported,
)
from runs.resolved import Resolved, guest_of, resolve

NO_MEMORY = "none"


def resolve_request(
    request: Request,
    *,
    checkout: Path,
    cache: Path,
    here: Path,
    catalogue: Catalogue,
    on_intake: Callable[[Settled], None] = lambda settled: None,
) -> Resolved:
    """What a request comes to, checked, with its series taken in; ``here`` is where the user is.

    ``on_intake`` is called with its series taken in, before anything is made of them.

    Raises:
        UsageError: neither an experiment nor a series is named, or both are.
        SpecError: something in the experiment or the overrides is wrong.
        SeriesError, InfraError: as ``kernels.intake.take_in``; nothing can be built in this cache.
    """
    require_usable(cache, checkout)
    _require_one_subject(request)
    if request.name or request.arms:
        settled = settle(
            _without_series(request, checkout, here, catalogue), checkout=checkout, cache=cache
        )
        on_intake(settled)
    else:
        settled = _of_series(request, checkout, cache, here, catalogue, on_intake)
    experiment = settled.experiment
    if request.check and experiment.prebuilt:
        raise UsageError(
            f"the kernel of {experiment.prebuilt[0]} is prebuilt; checks need kernels of their own",
            where="--check",
            next_step="leave it out",
        )
    if request.per_patch:
        common = settled.series[COMMON].records if COMMON in settled.series else ()
        subjects = [patch.subject for record in common for patch in record.patches]
        experiment = per_patch(experiment, subjects)
    experiment = with_config(experiment, request.config)
    if request.quick and request.check:
        raise UsageError(
            "has no correctness checks", where=QUICK, next_step="leave out --quick or --check"
        )
    guest = guest_of(experiment)
    changes: dict[str, object] = {"twins": _twins(request, experiment, guest)}
    if request.check is not None:
        changes["check"] = (experiment.check or CheckSpec()) if request.check else None
    if request.quick:
        changes |= {"cases": experiment.cases[:1], "check": None}
    experiment = experiment.model_copy(update=changes)
    resolved = resolve(
        experiment, checkout=checkout, cache=cache, series=settled.series, guest=guest
    )
    require_supported(resolved)
    require_jobs(resolved)
    require_settings(resolved, checkout)
    require_prebuilt(resolved, checkout)
    return resolved


def _require_one_subject(request: Request) -> None:
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


def _without_series(
    request: Request, checkout: Path, here: Path, catalogue: Catalogue
) -> Experiment:
    """The experiment of a file, or that of kernels."""
    if request.name:
        # Cases may be overridden, and what explains those that are not there is then no mistake.
        without = ("twins=[]",) if request.twins is False and not request.memory else ()
        return load_experiment(
            Path(request.name), overrides=(*request.all_overrides, *without), catalogue=catalogue
        )
    return from_kernels(
        [from_here(name, here=here, checkout=checkout) for name in request.arms],
        workloads=request.named_workloads,
        overrides=request.all_overrides,
        catalogue=catalogue,
    )


def _twins(request: Request, experiment: Experiment, guest: Guest) -> tuple[TwinSpec, ...]:
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
    guests = [arm.guest.of(guest) for arm in experiment.all_arms]
    if experiment.mode == "wall" or not can_be_modelled(guests):
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


def _of_series(
    request: Request,
    checkout: Path,
    cache: Path,
    here: Path,
    catalogue: Catalogue,
    on_intake: Callable[[Settled], None],
) -> Settled:
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
    release = release_of(identify(settled.experiment.kernel.source, checkout=checkout, cache=cache))
    workloads = automatic(*texts_and_files(settled.series[COMMON]), release)
    return settle(made(workloads), checkout=checkout, cache=cache, known=settled.series)
