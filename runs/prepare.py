"""From an experiment to everything a session needs before its first boot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from experiment.load import Catalogue, known_guests, load_guest
from experiment.plan import Plan, Size, make_plan, require_memory, scaled
from experiment.spec import ArmSpec, CaseSpec, Experiment, Guest, SpecError
from guests import initramfs, native
from guests.argv import kernel_command_line, machine_argv
from guests.exact import Machine
from guests.initramfs import Initramfs
from host import facts
from host.process import paste
from kernels import build, config, series
from kernels.cache import Kernel
from kernels.make import Progress
from results.record import (
    ArmRecord,
    CaseRecord,
    Manifest,
    PhaseRecord,
    Provenance,
)
from runs.options import Options
from workloads.job import fio_arguments, job_text, prepare_text
from workloads.metrics import METRIC_NAMES, metrics_of
from workloads.spec import Phase, Workload, load_catalogue, phase_names

MIB = 1 << 20


@dataclass(frozen=True)
class Session:
    """A session ready to be measured; kernels and machines by arm."""

    experiment: Experiment
    guest: Guest
    size: Size
    plan: Plan
    workloads: Mapping[str, Workload]
    kernels: Mapping[str, Kernel]
    initramfs: Initramfs
    preload: Path
    same_code: bool

    def case(self, name: str) -> CaseSpec:
        """The case of this name."""
        return next(case for case in self.experiment.cases if case.name == name)

    def phases(self, case: CaseSpec) -> tuple[Phase, ...]:
        """The phases of a case, with its variant's settings."""
        return self.workloads[case.workload].phases_of(case.variant)

    def machine(self, arm: str, case: CaseSpec) -> Machine:
        """The machine that runs ``case`` on ``arm``; equal for cases that prepare alike."""
        return Machine(
            kernel=self.kernels[arm].bzimage,
            initramfs=self.initramfs.path,
            preload=self.preload,
            guest=self.guest,
            size=self.size,
            prepare_text=prepare_text(self.workloads[case.workload], file_mib=self.size.file_mib),
        )

    @property
    def limit_bytes(self) -> int:
        """The cgroup's ``memory.max``."""
        return self.size.cgroup_limit_mib * MIB


def catalogue(checkout: Path) -> Catalogue:
    """Everything an experiment file may name."""
    return Catalogue(
        workloads=phase_names(load_catalogue()),
        metrics=METRIC_NAMES,
        guests=known_guests(),
        flavours=config.known_flavours(checkout),
        series=series.known_series(checkout),
    )


def guest_of(experiment: Experiment) -> Guest:
    """The guest profile the experiment names."""
    return load_guest(Path(experiment.guest))


def patches_of(experiment: Experiment, arm: ArmSpec, checkout: Path) -> tuple[Path, ...]:
    """The patch files applied for one arm."""
    return series.series_patches(checkout, experiment.series.path) if arm.patches else ()


def build_arms(
    experiment: Experiment, options: Options, progress: Callable[[str, Progress], None]
) -> dict[str, Kernel]:
    """Return every arm's kernel, building what is not cached.

    The unpatched source is built first: the other arm then starts from its objects.
    """
    kernels = {}
    for arm in sorted(experiment.both_arms, key=lambda arm: arm.patches):

        def shown(so_far: Progress, name: str = arm.name) -> None:
            progress(name, so_far)

        kernels[arm.name] = build.provide(
            experiment.kernel,
            patches_of(experiment, arm, options.checkout),
            checkout=options.checkout,
            cache=options.cache,
            progress=shown,
        )
    return {arm.name: kernels[arm.name] for arm in experiment.both_arms}


def prepare(
    experiment: Experiment, options: Options, progress: Callable[[str, Progress], None]
) -> Session:
    """Build kernels and initramfs and lay out the plan.

    Raises:
        SpecError: sizes that do not fit the guest, or a job that does not fit fw_cfg.
        LabError: whatever building says.
    """
    guest = guest_of(experiment)
    size = scaled(experiment.dataset, guest)
    image = initramfs.provide(options.cache)
    require_memory(size, guest, image.mib)
    workloads = load_catalogue()
    require_job_fits(experiment, guest, size, workloads)
    kernels = build_arms(experiment, options, progress)
    keys = {kernel.identity.code_key for kernel in kernels.values()}
    return Session(
        experiment=experiment,
        guest=guest,
        size=size,
        plan=make_plan(experiment),
        workloads=workloads,
        kernels=kernels,
        initramfs=image,
        preload=native.build(native.PRELOAD, native.SHARED_LIBRARY, options.cache),
        same_code=len(keys) == 1 and not options.measure_anyway,
    )


def require_job_fits(
    experiment: Experiment, guest: Guest, size: Size, workloads: Mapping[str, Workload]
) -> None:
    """Refuse a case whose job is too long before anything is built for it.

    Raises:
        SpecError: names the case and both lengths.
    """
    for case in experiment.cases:
        try:
            job_text(
                workloads[case.workload].phases_of(case.variant),
                case.times[guest.name],
                jobs=size.jobs,
                seed=experiment.seed + experiment.blocks,
                limit_bytes=size.cgroup_limit_mib * MIB,
            )
        except ValueError as error:
            raise SpecError([f"case {case.name}: {error}; shorten its fio arguments"]) from None


def manifest_of(
    session: Session, options: Options, *, name: str, created: str, overrides: tuple[str, ...]
) -> Manifest:
    """The head of the session's record."""
    data_points = [run for run in session.plan.runs if not run.repeat and not run.twin]
    return Manifest(
        session=name,
        created=created,
        experiment=session.experiment,
        guest=session.guest,
        overrides=overrides,
        arms=tuple(
            ArmRecord(
                name=arm.name,
                label=arm.label or arm.name,
                kernel=session.kernels[arm.name].identity,
            )
            for arm in session.experiment.both_arms
        ),
        cases=tuple(_case_record(session, case) for case in session.experiment.cases),
        seeds=session.plan.seeds,
        runs_planned=0 if session.same_code else len(data_points),
        same_code=session.same_code,
        provenance=Provenance(
            lab_version=facts.lab_version(),
            lab_commit=facts.lab_commit(options.checkout),
            host=facts.host_facts(),
            tools=facts.tool_versions(),
            initramfs_sha256=session.initramfs.sha256,
            qemu_argv=tuple(machine_argv(session.guest)),
            kernel_command_line=kernel_command_line(session.guest, session.size),
            snapshot=options.snapshot,
        ),
    )


def _case_record(session: Session, case: CaseSpec) -> CaseRecord:
    times = case.times[session.guest.name]
    phases = session.phases(case)
    return CaseRecord(
        name=case.name,
        title=session.workloads[case.workload].title,
        phases=tuple(
            PhaseRecord(
                name=phase.name,
                command=paste(
                    [
                        "fio",
                        *fio_arguments(
                            phase,
                            times[phase.name],
                            jobs=session.size.jobs,
                            seed=session.experiment.seed,
                        ),
                    ]
                ),
                caches="dropped" if phase.drop_caches else "kept",
            )
            for phase in phases
        ),
        metrics=metrics_of([phase.name for phase in phases]),
        primary=case.primary,
    )
