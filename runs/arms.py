"""The arms of an experiment: their guests, their kernels, and whether they differ at all."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from errors import SeriesError, UsageError
from experiment.ad_hoc import name_of
from experiment.design import AGAIN, wall_arms, wall_plan
from experiment.load import load_guest
from experiment.plan import Plan, make_plan
from experiment.spec import ArmSpec, Experiment, Guest, KernelSpec, SeriesSpec
from host import sandbox
from host.packages import install_line
from kernels import build, intake
from kernels.cache import Kernel, planned
from kernels.make import MakeProgress
from kernels.series import host_code, read_patch
from runs.options import Options
from text import clean


def guest_of(experiment: Experiment) -> Guest:
    """The guest profile the experiment names, of the kernel's architecture."""
    guest = load_guest(Path(experiment.guest))
    return guest.model_copy(update={"arch": experiment.kernel.arch})


def shapes(experiment: Experiment) -> dict[str, dict[str, Guest]]:
    """The guest of each set of runs and arm: of the measured ones under "", of twins by name."""
    guest = guest_of(experiment)
    of_arms = {arm.name: arm.guest.of(guest) for arm in arms_of(experiment)}
    return {"": of_arms} | {
        twin.name: {name: twin.guest.of(shape) for name, shape in of_arms.items()}
        for twin in experiment.twins
    }


def patches_of(experiment: Experiment, arm: ArmSpec, options: Options) -> tuple[Path, ...]:
    """The patch files applied for one arm: of the experiment's series, then of its own."""
    where = {"checkout": options.checkout, "cache": options.cache}
    common: tuple[Path, ...] = ()
    if arm.patches and experiment.series is not None:
        common = intake.patches_of(experiment.series, **where)[: arm.upto]
    return (*common, *(intake.patches_of(arm.series, **where) if arm.series else ()))


def kernel_spec(experiment: Experiment, arm: ArmSpec, flavour: str = "") -> KernelSpec:
    """Source and flavour of an arm's kernel; that of the gate where it is given.

    The experiment's own flavour is what an arm has that names none: one that does keeps it.
    """
    spec = arm.kernel or experiment.kernel
    own = flavour in ("", experiment.kernel.flavour)
    return spec.model_copy(
        update={
            "flavour": spec.flavour if own else flavour,
            "mode": experiment.mode,
            "config": {**spec.config, **arm.config},
        }
    )


def flavours(experiment: Experiment) -> tuple[str, ...]:
    """The kernel flavours in the order they are built: the measured one, then the gate's.

    An arm that names a flavour of its own has it whatever the first of these is.
    """
    first = experiment.kernel.flavour
    of_gate = experiment.check.flavours if experiment.check else ()
    return tuple(dict.fromkeys([first, *of_gate]))


@dataclass(frozen=True)
class PlannedKernel:
    """A kernel of a session: the first arm that boots it, and what it is made of."""

    arm: str
    spec: KernelSpec
    patches: tuple[Path, ...]


def planned_kernels(experiment: Experiment, options: Options) -> tuple[PlannedKernel, ...]:
    """Every kernel that a session needs, each once, in the order they are built."""
    patches = {arm.name: patches_of(experiment, arm, options) for arm in experiment.all_arms}
    planned: list[PlannedKernel] = []
    for flavour in flavours(experiment):
        for arm in sorted(experiment.all_arms, key=lambda arm: len(patches[arm.name])):
            kernel = PlannedKernel(
                arm.name, kernel_spec(experiment, arm, flavour), patches[arm.name]
            )
            if all(
                (earlier.spec, earlier.patches) != (kernel.spec, kernel.patches)
                for earlier in planned
            ):
                planned.append(kernel)
    return tuple(planned)


def build_arms(
    experiment: Experiment,
    options: Options,
    progress: Callable[[str, MakeProgress], None],
    flavour: str = "",
    failures: dict[str, SeriesError] | None = None,
) -> dict[str, Kernel]:
    """Return every arm's kernel, building what is not cached; another flavour if named.

    The unpatched source is built first: the other arms then start from its objects.  With
    ``failures`` an arm that does not build is put there, and its kernel is one that is only
    planned: the others can still be compared.

    Raises:
        SeriesError: an arm does not build, and there are no ``failures``, or it is the base, or
            nothing else is left to compare with it.
        LabError: whatever else building says.
    """
    kernels: dict[str, Kernel] = {}
    failed: dict[str, SeriesError] = {}
    every = [(kernel.spec, kernel.patches) for kernel in planned_kernels(experiment, options)]
    patches = {arm.name: patches_of(experiment, arm, options) for arm in experiment.all_arms}
    specs = {arm.name: kernel_spec(experiment, arm, flavour) for arm in experiment.all_arms}
    expect_arms(experiment, options, (flavour,))
    for arm in sorted(experiment.all_arms, key=lambda arm: len(patches[arm.name])):
        spec = specs[arm.name]

        def shown(so_far: MakeProgress, name: str = arm.name, spec: KernelSpec = spec) -> None:
            number = every.index((spec, patches[name])) + 1
            place = f"kernel {number} of {len(every)}, " if len(every) > 1 else ""
            own = spec.flavour == experiment.kernel.flavour
            which = name if own else f"{name} ({spec.flavour})"
            progress(f"{place}{which}", so_far)

        try:
            alike = [
                error
                for name, error in failed.items()
                if (spec, patches[arm.name]) == (specs[name], patches[name])
            ]
            if alike:
                raise alike[0]
            kernels[arm.name] = options.executor.provide_kernel(
                spec,
                patches[arm.name],
                checkout=options.checkout,
                cache=options.cache,
                progress=shown,
                boxed=needs_box(experiment, options),
            )
        except SeriesError as error:
            failed[arm.name] = error
            named = error if arm.upto is None else _stops_at(error, patches[arm.name])
            if failures is None or arm == experiment.all_arms[0]:
                raise named from None
            failures[arm.name] = named
            where = {"checkout": options.checkout, "cache": options.cache}
            key = build.key_of(spec, patches[arm.name], **where)
            kernels[arm.name] = planned(spec, key, options.cache)
    if failures and len(failures) >= len(experiment.all_arms) - 1:
        raise next(iter(failures.values()))
    if experiment.mode == "wall":
        kernels[AGAIN] = kernels[experiment.all_arms[0].name]
    return {arm.name: kernels[arm.name] for arm in arms_of(experiment)}


def needs_box(experiment: Experiment, options: Options) -> bool:
    """Whether patches are built in a box: as asked, else where somebody mailed one of them.

    What a build executes on the host is built in a box, too, if there is one.

    Raises:
        UsageError: it would be executed with all of the user's rights, and the user has not named
            the series as trusted.
    """
    mailed = is_mailed(experiment, options)
    if options.sandbox or (options.sandbox is None and mailed):
        return True
    for series in _every_series(experiment):
        executed = _host_code_of(series, options)
        if not executed:
            continue
        if options.sandbox is None and sandbox.available() is not None:
            return True
        names = {name_of(part) for part in series.parts}
        if not names <= set(options.trusted):
            named = ", ".join(executed[:5]) + (", ..." if len(executed) > 5 else "")
            words = " ".join(f"--trust-series {name}" for name in sorted(names))
            raise UsageError(
                f"changes what a build executes on this host, with your rights: {named}",
                where=clean(", ".join(series.parts)),
                next_step=f"read these files, and add {words}; or build it in a sandbox"
                + ("" if sandbox.available() else f": {install_line(['bubblewrap'])}"),
            )
    return False


def is_mailed(experiment: Experiment, options: Options) -> bool:
    """Whether any patch came by mail, from whoever sent it."""
    where = {"checkout": options.checkout, "cache": options.cache}
    return any(
        record.kind == "thread"
        for series in _every_series(experiment)
        for record in intake.records_of(series, **where)
    )


def _every_series(experiment: Experiment) -> tuple[SeriesSpec, ...]:
    given = [experiment.series, *(arm.series for arm in experiment.arms)]
    return tuple(series for series in given if series is not None)


def _host_code_of(series: SeriesSpec, options: Options) -> tuple[str, ...]:
    # Of the patches themselves: a record may come with the session of somebody else.
    paths = intake.patches_of(series, checkout=options.checkout, cache=options.cache)
    return host_code(path.read_text(errors="replace") for path in paths)


def expect_arms(experiment: Experiment, options: Options, flavours: Sequence[str]) -> None:
    """Tell the executor that every arm will be asked for in each of these flavours."""
    arms = [(arm, patches_of(experiment, arm, options)) for arm in experiment.all_arms]
    arms.sort(key=lambda each: len(each[1]))
    options.executor.expect_kernels(
        [
            (kernel_spec(experiment, arm, flavour), patches)
            for flavour in flavours
            for arm, patches in arms
        ],
        checkout=options.checkout,
        cache=options.cache,
        boxed=needs_box(experiment, options),
    )


def _stops_at(error: SeriesError, patches: Sequence[Path]) -> SeriesError:
    """The same error, of a part of a series: what stops it is the last patch of the part."""
    last = read_patch(patches[-1])
    blamed = "" if last.name in error.where else f"{error.where}: "
    return SeriesError(
        f"{blamed}{error.what}",
        where=f"the series up to {last.name} ({last.subject})",
        next_step=error.next_step,
    )


def kernel_keys(experiment: Experiment, options: Options) -> dict[tuple[str, str], str]:
    """The content key of every kernel that is booted, by flavour and arm; builds nothing.

    Raises:
        UsageError: source, flavour or patch does not exist.
        InfraError: a package or tool is missing.
    """
    keys = {}
    for flavour in flavours(experiment):
        for arm in experiment.all_arms:
            keys[flavour, arm.name] = build.key_of(
                kernel_spec(experiment, arm, flavour),
                patches_of(experiment, arm, options),
                checkout=options.checkout,
                cache=options.cache,
            )
    return keys


def cache_key(keys: Mapping[tuple[str, str], str]) -> str:
    """32 hex digits for a set of kernels: the same for the same ones, whoever asks for them."""
    return hashlib.sha256("\n".join(sorted(set(keys.values()))).encode()).hexdigest()[:32]


def arms_of(experiment: Experiment) -> tuple[ArmSpec, ...]:
    """The arms that are booted: in wall mode the base again, too."""
    return wall_arms(experiment) if experiment.mode == "wall" else experiment.all_arms


def plan_of(experiment: Experiment) -> Plan:
    """Every run of the session, in the order they are made."""
    return wall_plan(experiment) if experiment.mode == "wall" else make_plan(experiment)


def same_as_before(experiment: Experiment, kernels: Mapping[str, Kernel]) -> frozenset[str]:
    """Names of the arms that differ in nothing from the arm before them."""
    return frozenset(
        arm.name
        for before, arm in itertools.pairwise(experiment.all_arms)
        if arm.settings == before.settings
        and kernels[arm.name].identity.code_key == kernels[before.name].identity.code_key
    )


def same_code(experiment: Experiment, kernels: Mapping[str, Kernel]) -> bool:
    """Whether nothing at all differs between the arms: neither machine code nor a setting."""
    arms = experiment.all_arms
    return len({(kernels[arm.name].identity.code_key, arm.settings) for arm in arms}) == 1
