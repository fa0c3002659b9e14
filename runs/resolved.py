"""What an experiment comes to: every arm with its patches, kernels, guest and sizes, made once.

Nothing of it is built or booted.  Files of guests and
machines, the catalogue of workloads and the patches are read here, and nowhere behind it.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from experiment.load import GUESTS, Catalogue, load_guest, load_machine
from experiment.machine import MACHINES, MachineSpec, names_in
from experiment.plan import Plan, Size, make_plan, scaled, wall_arms
from experiment.spec import ArmSpec, CaseSpec, Experiment, Guest, KernelSpec, Observed
from files import digest
from kernels import build, config
from kernels.diff import read_diff
from kernels.intake import Taken, take_in
from kernels.series import host_code, known_series
from kernels.settle import COMMON, series_of
from kernels.source import release_of
from results.record import SeriesRecord
from text import counted
from workloads.metrics import METRIC_NAMES, names_of, thresholds_of
from workloads.spec import Extras, Workload, extras_of, load_catalogue, phase_names, read_catalogue

# The smallest sizes, whatever is measured: what is looked for does not need more.
PROFILE = "smoke"


@dataclass(frozen=True)
class PlannedCheck:
    """One guest of the gate: its arm, its kernel's flavour, vCPUs, and the cases in it."""

    run_id: str
    arm: ArmSpec
    flavour: str
    vcpus: int
    cases: tuple[CaseSpec, ...]
    selftests: tuple[str, ...]

    @property
    def does(self) -> str:
        """What it is, in words: ``lockdep, 4 vCPUs: filemap-4k, filemap-thp``."""
        tests = "".join(f", {name} self-test" for name in self.selftests)
        cases = ", ".join(case.name for case in self.cases)
        return f"{self.flavour}, {counted(self.vcpus, 'vCPU')}{tests}: {cases}"


def planned_checks(
    experiment: Experiment, workloads: Mapping[str, Workload]
) -> tuple[PlannedCheck, ...]:
    """Every guest of the gate, the base's first; cases that prepare alike share one."""
    spec = experiment.check
    if spec is None:
        return ()
    shapes: list[tuple[str, int, tuple[str, ...]]]
    shapes = [(spec.flavour, vcpus, ()) for vcpus in spec.vcpus]
    if spec.selftests:
        shapes.append((spec.selftest_flavour, 1, spec.selftests))
    groups: dict[tuple[str, str, tuple[str, ...], Extras], list[CaseSpec]] = {}
    for case in experiment.cases:
        if not spec.cases or case.name in spec.cases:
            workload = workloads[case.workload].as_variant(case.variant)
            extras = extras_of(workload)
            key = (workload.mkfs, workload.mount_options, workload.files(1), extras)
            groups.setdefault(key, []).append(case)
    return tuple(
        PlannedCheck(
            f"check.{arm.name}.{flavour}.v{vcpus}{f'.{number}' if number else ''}",
            arm,
            flavour,
            vcpus,
            tuple(cases),
            selftests,
        )
        for arm in experiment.all_arms
        for flavour, vcpus, selftests in shapes
        for number, cases in enumerate(groups.values())
    )


@dataclass(frozen=True)
class Bench:
    """The guests and sizes of the judged runs, or of diagnostic ones by name, by arm."""

    name: str
    observe: Observed | Literal[""]
    guests: Mapping[str, Guest]
    sizes: Mapping[str, Size]
    machine: MachineSpec | None = None

    @property
    def guest(self) -> Guest:
        """The guest of the base arm; that of every arm that changes nothing."""
        return next(iter(self.guests.values()))


@dataclass(frozen=True)
class ResolvedArm:
    """An arm, its patches and own series' records, and its kernels by flavour."""

    spec: ArmSpec
    patches: tuple[Path, ...]
    records: tuple[SeriesRecord, ...]
    kernels: Mapping[str, KernelSpec]


@dataclass(frozen=True)
class PlannedKernel:
    """A kernel of a session: the first arm that boots it, and what it is made of."""

    arm: str
    spec: KernelSpec
    patches: tuple[Path, ...]


@dataclass(frozen=True)
class Resolved:
    """An experiment, and all that it names.

    ``arms`` are those that are booted, the base first; in wall mode the last is the base again.
    ``flavours`` are kernel flavours in the order they are built.  ``series`` are by arm, as in
    ``kernels.settle``.  ``workloads`` are as they are in the base arm's guest.  ``check_profile``
    is the guest profile of the checks, None without checks.  ``left_out`` are cases that native
    mode cannot measure, with why.
    """

    experiment: Experiment
    series: Mapping[str, Taken]
    arms: tuple[ResolvedArm, ...]
    flavours: tuple[str, ...]
    workloads: Mapping[str, Workload]
    measured: Bench
    diagnostic: Mapping[str, Bench]
    checks: tuple[PlannedCheck, ...]
    check_profile: Guest | None
    plan: Plan
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def benches(self) -> tuple[Bench, ...]:
        """The judged runs' guests, then those of diagnostic runs."""
        return (self.measured, *self.diagnostic.values())

    @property
    def built(self) -> tuple[ResolvedArm, ...]:
        """The arms that have kernels of their own: all but the base again."""
        return self.arms[: len(self.experiment.all_arms)]

    @property
    def common_records(self) -> tuple[SeriesRecord, ...]:
        """The records of the experiment's own series."""
        return self.series[COMMON].records if COMMON in self.series else ()

    @property
    def is_mailed(self) -> bool:
        """Whether any patch came by mail, from whoever sent it."""
        return any(r.kind == "thread" for taken in self.series.values() for r in taken.records)

    def arm(self, name: str) -> ResolvedArm:
        """The arm of this name."""
        return next(arm for arm in self.arms if arm.spec.name == name)

    def case(self, name: str) -> CaseSpec:
        """The case of this name."""
        return next(case for case in self.experiment.cases if case.name == name)

    def workload(self, case: CaseSpec) -> Workload:
        """What a case does, with its variant's settings."""
        return self.workloads[case.workload].as_variant(case.variant)

    def series_parts(self) -> tuple[str, ...]:
        """What all series are made of, as they are named."""
        return tuple(part for taken in self.series.values() for part in taken.spec.parts)

    def by_patches(self) -> list[ResolvedArm]:
        """The arms that have kernels of their own, those with fewest patches first."""
        return sorted(self.built, key=lambda arm: len(arm.patches))

    def planned_kernels(self) -> tuple[PlannedKernel, ...]:
        """Every kernel that a session needs, each once, in the order they are built."""
        every: dict[tuple[KernelSpec, tuple[Path, ...]], str] = {}
        for flavour in self.flavours:
            for arm in self.by_patches():
                every.setdefault((arm.kernels[flavour], arm.patches), arm.spec.name)
        return tuple(PlannedKernel(name, *kernel) for kernel, name in every.items())


def resolve(
    experiment: Experiment,
    *,
    checkout: Path,
    cache: Path,
    series: Mapping[str, Taken] | None = None,
    guest: Guest | None = None,
) -> Resolved:
    """All that a settled experiment names; ``series`` and ``guest`` where they are read already.

    Raises SpecError: a guest or a machine that cannot be read, sizes that do not fit a guest, or an
    arm that is called as wall mode's A/A arm; LabError: as ``kernels.intake.take_in``.
    """
    if series is None:
        series = {
            name: take_in(each, checkout=checkout, cache=cache)
            for name, each in series_of(experiment)
        }
    guest = guest or guest_of(experiment)
    in_wall = experiment.mode == "wall"
    specs = wall_arms(experiment) if in_wall else experiment.all_arms
    judged = experiment.kernel.flavour
    of_checks = experiment.check.flavours if experiment.check else ()
    flavours = tuple(dict.fromkeys([judged, *of_checks]))
    arms = []
    for arm in experiment.all_arms:
        spec = arm.kernel or experiment.kernel
        update = {"mode": experiment.mode, "config": {**spec.config, **arm.config}}
        # The experiment's own flavour is what an arm has that names none: one that does keeps it.
        kernels = {
            flavour: spec.model_copy(
                update={**update, "flavour": spec.flavour if flavour == judged else flavour}
            )
            for flavour in flavours
        }
        records = series[arm.name].records if arm.series else ()
        arms.append(ResolvedArm(arm, patches_of(arm, series), records, kernels))
    if in_wall:
        arms.append(replace(arms[0], spec=specs[-1]))
    guests = {arm.name: arm.guest.of(guest) for arm in specs}

    def bench(
        of_arms: Mapping[str, Guest],
        name: str = "",
        observe: Observed | Literal[""] = "",
        machine: str | None = None,
    ) -> Bench:
        sizes = {arm: scaled(experiment.dataset, each) for arm, each in of_arms.items()}
        modelled = load_machine(Path(machine)) if machine else None
        return Bench(name, observe, of_arms, sizes, modelled)

    kernel = experiment.all_arms[0].kernel or experiment.kernel
    vcpus = next(iter(guests.values())).vcpus
    # Arms of several releases are measured alike: as the newest of them has to be.
    releases = {
        release_of((arm.kernel or experiment.kernel).source, checkout)
        for arm in experiment.all_arms
    }
    newest = max(releases, key=lambda each: [int(part) for part in each.split(".") if part])
    workloads = {
        name: workload.on_release(newest).in_guest(page_bytes=kernel.page_kib << 10, vcpus=vcpus)
        for name, workload in load_catalogue().items()
    }
    return Resolved(
        experiment=experiment,
        series=series,
        arms=tuple(arms),
        flavours=flavours,
        workloads=workloads,
        measured=bench(guests),
        diagnostic={
            twin.name: bench(
                {name: twin.guest.of(shape) for name, shape in guests.items()},
                twin.name,
                twin.observe,
                twin.machine,
            )
            for twin in experiment.twins
        },
        checks=planned_checks(experiment, workloads),
        check_profile=load_guest(Path(PROFILE)) if experiment.check else None,
        plan=make_plan(experiment),
    )


log = logging.getLogger(__name__)


def guest_of(experiment: Experiment) -> Guest:
    """The guest profile the experiment names, of the kernel's architecture."""
    guest = load_guest(Path(experiment.guest))
    return guest.model_copy(update={"arch": experiment.kernel.arch})


def patches_of(arm: ArmSpec, series: Mapping[str, Taken]) -> tuple[Path, ...]:
    """The patch files applied for one arm: of the experiment's series, then of its own."""
    common = series[COMMON].patches[: arm.upto] if arm.patches and COMMON in series else ()
    return (*common, *(series[arm.name].patches if arm.series else ()))


def kernel_keys(resolved: Resolved, *, checkout: Path, cache: Path) -> dict[tuple[str, str], str]:
    """The key of every kernel that is booted, by flavour and arm; raises as ``build.key_of``."""
    return {
        (flavour, arm.spec.name): build.key_of(
            build.KernelRequest(arm.kernels[flavour], arm.patches, checkout, cache)
        )
        for flavour in resolved.flavours
        for arm in resolved.built
    }


def cache_key(keys: Mapping[tuple[str, str], str]) -> str:
    """32 hex digits for a set of kernels: the same for the same ones, whoever asks for them."""
    return digest("\n".join(sorted(set(keys.values()))))[:32]


def executed_by_builds(resolved: Resolved) -> dict[str, tuple[str, ...]]:
    """What a build of each series executes on this host, by arm as in ``Resolved.series``."""
    # Of the patches themselves: a record may come with the session of somebody else.
    return {
        name: host_code(read_diff(path.read_text(errors="replace"), path.name) for path in paths)
        for name, paths in ((name, taken.patches) for name, taken in resolved.series.items())
    }


def catalogue(checkout: Path) -> Catalogue:
    """Everything an experiment file may name; what of it cannot be used is logged."""
    of_workloads = _catalogue_of_workloads()
    for problem in itertools.chain.from_iterable(of_workloads.broken.values()):
        log.warning("left out: %s", problem)
    return replace(
        of_workloads,
        guests=names_in(GUESTS),
        machines=names_in(MACHINES),
        flavours=config.known_flavours(checkout),
        additions=config.known_additions(checkout),
        series=known_series(checkout),
    )


@lru_cache
def _catalogue_of_workloads() -> Catalogue:
    """What workloads have, which are read once a process."""
    workloads, broken = read_catalogue()
    return Catalogue(
        workloads=phase_names(workloads),
        metrics=METRIC_NAMES,
        measured={
            (name, variant, phase.name): names_of(phase)
            for name, workload in workloads.items()
            for variant in ("default", *workload.variants)
            for phase in workload.phases_of(variant)
        },
        fixed=frozenset(
            (name, phase.name)
            for name, workload in workloads.items()
            for phase in workload.phases
            if phase.program
        ),
        guests=(),
        flavours=(),
        needs={name: workload.additions for name, workload in workloads.items()},
        series=(),
        thresholds=thresholds_of(workloads),
        broken=broken,
    )
