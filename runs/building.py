"""The kernels of a session: built or taken from the cache, and how long that takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from errors import LabError, SeriesError, UsageError
from experiment.ad_hoc import name_of
from experiment.plan import AGAIN
from experiment.spec import Experiment
from host import sandbox
from kernels import build, symbols
from kernels.addresses import functions_of
from kernels.cache import Kernel, load, planned
from kernels.make import MakeProgress
from kernels.series import read_patch
from results.profile import stem
from results.store import MANIFEST, SessionStore
from runs.coverage import shipped
from runs.local import Options
from runs.requirements import require_sources
from runs.resolved import Resolved, executed_by_builds
from text import clean

# Of a guest with a virtual second or two of work, where nothing tells: one CPU of the host.
UNKNOWN_RUN_S = 20.0

Building = Callable[[str, MakeProgress], None]


def build_arms(
    resolved: Resolved,
    options: Options,
    progress: Building,
    flavour: str,
    failures: dict[str, SeriesError] | None = None,
) -> dict[str, Kernel]:
    """Every arm's kernel of a flavour, the unpatched source first: others start from its objects.

    With ``failures`` an arm that does not build is put there with a planned kernel.  Raises
    SeriesError: one does not build, and there are no ``failures``, or it is the base, or nothing
    else is left to compare; LabError: whatever else building says.
    """
    experiment = resolved.experiment
    kernels: dict[str, Kernel] = {}
    failed: dict[tuple[object, ...], SeriesError] = {}
    every = [(kernel.spec, kernel.patches) for kernel in resolved.planned_kernels()]
    boxed = needs_box(resolved, options)
    for arm in resolved.by_patches():  # a first build takes the whole host
        build.require_applies(options.kernel(arm.kernels[flavour], arm.patches, boxed=boxed))
    require_sources(resolved.planned_kernels(), options.checkout, options.cache)
    for arm in resolved.by_patches():
        name, spec = arm.spec.name, arm.kernels[flavour]
        number = every.index((spec, arm.patches)) + 1
        place = f"kernel {number} of {len(every)}, " if len(every) > 1 else ""
        which = name if spec.flavour == experiment.kernel.flavour else f"{name} ({spec.flavour})"

        def shown(so_far: MakeProgress, title: str = f"{place}{which}") -> None:
            progress(title, so_far)

        request = options.kernel(spec, arm.patches, boxed=boxed)
        try:
            if (spec, arm.patches) in failed:
                raise failed[spec, arm.patches]
            kernels[name] = build.provide(request, shown)
        except SeriesError as error:
            failed[spec, arm.patches] = error
            named = error
            if arm.spec.upto is not None:
                # What stops a part of a series is the last patch of the part.
                last = read_patch(arm.patches[-1])
                named = SeriesError(
                    f"{'' if last.name in error.where else f'{error.where}: '}{error.what}",
                    where=f"the series up to {last.name} ({last.subject})",
                    next_step=error.next_step,
                )
            if failures is None or arm is resolved.arms[0]:
                raise named from None
            failures[name] = named
            kernels[name] = planned(spec, build.key_of(request), options.cache)
    if failures and len(failures) >= len(resolved.built) - 1:
        raise next(iter(failures.values()))
    if experiment.mode == "wall":
        kernels[AGAIN] = kernels[resolved.arms[0].spec.name]
    return {arm.spec.name: kernels[arm.spec.name] for arm in resolved.arms}


def needs_box(resolved: Resolved, options: Options) -> bool:
    """Whether patches are built in a box: as asked, mailed, or executed by a build if it can be.

    Raises UsageError: executed with the user's rights, of a series that is not trusted by name.
    """
    if options.sandbox or (options.sandbox is None and resolved.is_mailed):
        return True
    for series, executed in executed_by_builds(resolved).items():
        if not executed:
            continue
        if options.sandbox is None and sandbox.available() is not None:
            return True
        parts = resolved.series[series].spec.parts
        names = {name_of(part) for part in parts}
        if not names <= set(options.trusted):
            named = ", ".join(executed[:5]) + (", ..." if len(executed) > 5 else "")
            words = " ".join(f"--trust-series {name}" for name in sorted(names))
            raise UsageError(
                f"changes what a build executes on this host, with your rights: {named}",
                where=clean(", ".join(parts)),
                next_step=f"read these files, and add {words}; or "
                + ("leave out --no-sandbox" if sandbox.available() else sandbox.remedy()),
            )
    return False


def same_as_before(resolved: Resolved, kernels: Mapping[str, Kernel]) -> frozenset[str]:
    """Names of the arms that differ in nothing from the arm before them."""
    arms = resolved.experiment.all_arms
    return frozenset(
        arm.name
        for before, arm in itertools.pairwise(arms)
        if arm.settings == before.settings
        and kernels[arm.name].identity.code_key == kernels[before.name].identity.code_key
    )


def same_code(resolved: Resolved, kernels: Mapping[str, Kernel]) -> bool:
    """Whether nothing at all differs between the arms: neither machine code nor a setting."""
    arms = resolved.experiment.all_arms
    return len({(kernels[arm.name].identity.code_key, arm.settings) for arm in arms}) == 1


@dataclass(frozen=True)
class KernelForecast:
    """One kernel: the first arm that boots it, its key, and seconds to build; 0 if cached."""

    arm: str
    flavour: str
    key: str
    cached: bool
    seconds: float


@dataclass(frozen=True)
class RunForecast:
    """Seconds that a run takes, and the session that this is known from; empty if none."""

    seconds: float
    session: str


def forecast_kernels(
    resolved: Resolved, options: Options, *, timed: bool = True
) -> tuple[KernelForecast, ...]:
    """Every kernel of a session, in the order they are built, by how long such builds took.

    Seconds, which all records of objects are read for, are 0 unless ``timed``.  Raises as
    :func:`needs_box`.
    """
    boxed = needs_box(resolved, options)
    rows: list[KernelForecast] = []
    before: dict[tuple[str, str], Sequence[Path]] = {}
    for kernel in resolved.planned_kernels():
        request = options.kernel(kernel.spec, kernel.patches, boxed=boxed)
        key = build.key_of(request)
        cached = load(options.cache, key) is not None
        kind = (kernel.spec.source, kernel.spec.flavour)
        seconds = 0.0
        if timed and not cached:
            seconds = build.seconds_to_build(request, before.get(kind))
            # In a box each begins with the objects of the source.
            before[kind] = () if boxed else kernel.patches
        rows.append(KernelForecast(kernel.arm, kernel.spec.flavour, key, cached, seconds))
    return tuple(rows)


def forecast_run(experiment: Experiment, sessions: Path) -> RunForecast:
    """How long a run takes, by the newest such session, else by what coverage took."""
    manifests = sorted(
        sessions.glob(f"*/{MANIFEST}"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    for path in manifests:
        store = SessionStore(path.parent)
        try:
            manifest = store.manifest()
            # Guests of the checks are on record with the runs' costs, and take longer.
            runs = {record.run_id for record in store.records()}
            costs = [cost for cost in store.costs() if cost.run_id in runs]
        except LabError:
            continue
        then = manifest.experiment
        same = (then.name, then.mode, then.guest) == (
            experiment.name,
            experiment.mode,
            experiment.guest,
        )
        if same and costs:
            return RunForecast(sum(cost.elapsed_s for cost in costs) / len(costs), path.parent.name)
    counted = {(case.case, case.guest): case.run_cpu_s for case in shipped().cases}
    seconds = [
        counted.get((case.name, experiment.guest), UNKNOWN_RUN_S) for case in experiment.cases
    ]
    return RunForecast(sum(seconds) / len(seconds), "")


def sources_of(resolved: Resolved, kernels: Mapping[str, Kernel]) -> frozenset[str]:
    """Files whose lines are counted: those of patches, and those that headers compile otherwise."""
    every = [*kernels.values()]
    if any(not kernel.is_built or not kernel.origins.exists() for kernel in every):
        return frozenset()
    patches = {path for arm in resolved.arms for path in arm.patches}
    files = {file for path in patches for file in read_patch(path).files}
    if any(file.endswith(".h") for file in files):
        tables = [symbols.load(kernel.symbols)[0] for kernel in every]
        changed = {
            stem(change.name)
            for table in tables[1:]
            for change in symbols.differing(tables[0], table)
        }
        files |= {
            file
            for kernel in every
            for name, file in functions_of(kernel).named
            if stem(name) in changed
        }
    return frozenset(files) - {""}
