"""From an experiment to everything a session needs before its first boot."""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from errors import SeriesError, SpecError, WorkloadError
from experiment.architecture import X86_64
from experiment.load import Catalogue, known_guests, load_machine
from experiment.machine import MachineSpec
from experiment.plan import Plan, PlannedRun, Size, require_memory, scaled
from experiment.spec import (
    CONTENTION,
    LINES,
    MEMORY,
    ArmSpec,
    CaseSpec,
    Experiment,
    Guest,
    Observed,
    TwinSpec,
)
from guests import initramfs, native, overlay
from guests.argv import ROOT_IN_RAMFS
from guests.exact import Machine
from guests.initramfs import Initramfs
from guests.probe import fold, lines, memory, plugin
from guests.probe.plugin import Probe
from guests.virtme import WallMachine, on_host
from host import exactness, fitness
from host.exactness import QemuStanding
from host.topology import Placement, host_cpus, place
from kernels import config, patch_folder, prebuilt
from kernels.cache import Kernel
from kernels.make import MakeProgress
from results.record import NOT_BUILT, Failure
from runs.arms import arms_of, build_arms, expect_arms, flavours, plan_of, same_code, shapes
from runs.boots import WallHost
from runs.options import Options
from runs.requirements import require_counted, wants_of
from workloads.job import fio_arguments, job_text, prepare_text
from workloads.metrics import METRIC_NAMES, names_of, thresholds_of
from workloads.spec import (
    Extras,
    Phase,
    Workload,
    extras_of,
    load_catalogue,
    phase_names,
    read_catalogue,
)

log = logging.getLogger(__name__)

MIB = 1 << 20
MOST_TCG_VCPUS = 2


@dataclass(frozen=True)
class Bench:
    """What a set of runs is made on: the measured guests, or those of one twin.

    ``name`` and ``observe`` are empty for the measured ones; guests, sizes and kernels
    are by arm.  ``machine`` is what is modelled, None where nothing is.
    """

    name: str
    observe: Observed | Literal[""]
    guests: Mapping[str, Guest]
    sizes: Mapping[str, Size]
    kernels: Mapping[str, Kernel]
    machine: MachineSpec | None = None

    @property
    def guest(self) -> Guest:
        """The guest of the base arm; that of every arm that changes nothing."""
        return next(iter(self.guests.values()))

    @property
    def size(self) -> Size:
        """The sizes of the base arm."""
        return next(iter(self.sizes.values()))

    def limit_bytes(self, arm: str) -> int:
        """The cgroup's ``memory.max`` on one arm."""
        return self.sizes[arm].cgroup_limit_mib * MIB


@dataclass(frozen=True)
class Session:
    """A session ready to be measured.

    ``twins`` are by name, ``probe`` is None where none counts, ``wall`` in exact mode;
    ``checked`` are the kernels of the gate by flavour and arm, as far as they are built.
    ``overlaid`` are the initramfs of prebuilt kernels and of workloads with programs, by the
    kernel's key and the programs; ``unbuilt`` says by flavour and arm why a kernel is only planned;
    ``qemu`` is None in wall mode.
    """

    experiment: Experiment
    plan: Plan
    workloads: Mapping[str, Workload]
    measured: Bench
    twins: Mapping[str, Bench]
    initramfs: Initramfs
    preload: Path
    probe: Probe | None
    same_code: bool
    qemu: QemuStanding | None = None
    wall: WallHost | None = None
    overlaid: Mapping[overlay.Lacks, Initramfs] = field(default_factory=dict)
    checked: Mapping[str, Mapping[str, Kernel]] = field(default_factory=dict)
    unbuilt: Mapping[tuple[str, str], SeriesError] = field(default_factory=dict)

    @property
    def guest(self) -> Guest:
        """The measured guest."""
        return self.measured.guest

    @property
    def roots_sha256(self) -> str:
        """Names the roots of all measured guests: the initramfs, and those with an overlay."""
        # Those of the checks have the same programs, and come later.
        measured = {kernel.identity.key for kernel in self.measured.kernels.values()}
        roots = [root for lacks, root in self.overlaid.items() if lacks.kernel in {"", *measured}]
        if not roots:
            return self.initramfs.sha256
        every = sorted({self.initramfs.sha256, *(root.sha256 for root in roots)})
        return hashlib.sha256(" ".join(every).encode()).hexdigest()

    @property
    def benches(self) -> tuple[Bench, ...]:
        """The measured bench, then those of the twins."""
        return (self.measured, *self.twins.values())

    def bench(self, run: PlannedRun) -> Bench:
        """What a run is made on."""
        return self.twins[run.twin] if run.twin else self.measured

    def case(self, name: str) -> CaseSpec:
        """The case of this name."""
        return next(case for case in self.experiment.cases if case.name == name)

    def arm(self, name: str) -> ArmSpec:
        """The arm of this name, in wall mode also the base again."""
        return next(arm for arm in arms_of(self.experiment) if arm.name == name)

    def workload(self, run: PlannedRun) -> Workload:
        """What a run does, with its variant's settings."""
        case = self.case(run.case)
        return self.workloads[case.workload].as_variant(case.variant)

    def phases(self, case: CaseSpec) -> tuple[Phase, ...]:
        """The phases of a case, with its variant's settings."""
        return self.workloads[case.workload].phases_of(case.variant)

    def machine(self, run: PlannedRun) -> Machine:
        """The machine of a run; equal for runs that prepare alike."""
        bench, workload = self.bench(run), self.workload(run)
        arm, size, kernel = self.arm(run.arm), bench.sizes[run.arm], bench.kernels[run.arm]
        words = ROOT_IN_RAMFS if workload.host_programs and not self.wall else ()
        return Machine(
            kernel=kernel.image,
            initramfs=self.root_of(kernel, extras_of(workload)).path,
            preload=self.preload,
            guest=bench.guests[run.arm],
            size=size,
            prepare_text=prepare_text(
                workload,
                file_mib=size.file_mib,
                jobs=size.jobs,
                mount_options=arm.mount_options,
            ),
            cmdline=(*words, *arm.cmdline),
        )

    def root_of(self, kernel: Kernel, extras: Extras) -> Initramfs:
        """The initramfs of a guest with this kernel, for a workload that needs these extras."""
        lacks = overlay.lacks(kernel, extras)
        return self.overlaid[lacks] if lacks.kernel or any(lacks.extras) else self.initramfs

    def mount_options(self, run: PlannedRun) -> str:
        """What the file system of a run is mounted with."""
        return self.arm(run.arm).mount_options or self.workload(run).mount_options

    def obstacle(self, run: PlannedRun) -> Failure | None:
        """Why a run cannot be made, whatever is tried: what of its kernel does not build."""
        workload, bench = self.workload(run), self.bench(run)
        why = self.lacks(self.experiment.kernel.flavour, run.arm, bench.kernels[run.arm], workload)
        if not why:
            return None
        # What the base lacks, too, is not the doing of whoever wrote the patches.
        base = self.experiment.all_arms[0].name
        of_base = bool(bench.kernels[base].lacks(workload.modules))
        blame: Literal["workload", "series"] = "workload" if of_base else "series"
        return Failure(kind=NOT_BUILT, blame=blame, message=why)

    def lacks(self, flavour: str, arm: str, kernel: Kernel, workload: Workload) -> str:
        """What of an arm's kernel does not build that a workload needs; empty where all did."""
        error = self.unbuilt.get((flavour, arm))
        if error is not None:
            return error.in_one_line
        modules = kernel.lacks(workload.modules)
        return f"modules of {workload.name} do not build with this kernel: {modules}" * bool(
            modules
        )

    @property
    def counts_waits(self) -> bool:
        """Whether the probe looks at how long the measured guests' vCPUs wait."""
        return self.probe is not None and self.guest.vcpus > 1

    def probe_of(self, run: PlannedRun) -> Probe | None:
        """What counts in a run; a repeat shows that the probe is not felt, too."""
        if self.probe is None or run.repeat:
            return None
        bench = self.bench(run)
        kernel = bench.kernels[run.arm]
        # Where vCPUs wait, and what takes locks, is in System.map, which a kernel that
        # --dry-run did not build has not.
        if not kernel.is_built:
            return self.probe
        if bench.observe == MEMORY and bench.machine:
            modelled = memory.words(bench.machine, kernel)
            named = (*modelled, *lines.slab_words(kernel)) if modelled else ()
            stacks = fold.stack_words(kernel)
            return replace(
                self.probe, locks=fold.locks_of(kernel), model=named,
                functions=kernel.system_map if stacks else None, stacks=stacks,
            )  # fmt: skip
        model = lines.words(bench.machine, kernel) if bench.machine else lines.lock_words(kernel)
        waits = fold.spans_of(kernel) if bench.guests[run.arm].vcpus > 1 else ()
        return replace(self.probe, spans=waits, locks=fold.locks_of(kernel), model=model)

    def wall_machine(self, run: PlannedRun) -> WallMachine:
        """The machine of a run in wall mode."""
        assert self.wall is not None
        placement = self.wall.placements[run.twin, run.arm]
        return on_host(self.machine(run), self.wall.accelerator, placement)

    def fio(self, run: PlannedRun) -> dict[str, tuple[str, ...]]:
        """Phase → the arguments that its fio is given; a phase with a program has none."""
        case, jobs = self.case(run.case), self.bench(run).sizes[run.arm].jobs
        times = case.times.get(self.guest.name, {})
        return {
            phase.name: fio_arguments(phase, times[phase.name], jobs=jobs, seed=run.seed)
            for phase in self.phases(case)
            if phase.fio
        }

    def job(self, run: PlannedRun) -> str:
        """What is sent into the guest for a run."""
        bench, case = self.bench(run), self.case(run.case)
        return job_text(
            self.phases(case),
            case.times.get(self.guest.name, {}),
            jobs=bench.sizes[run.arm].jobs,
            seed=run.seed,
            limit_bytes=bench.limit_bytes(run.arm),
            observe="contention" if bench.observe == CONTENTION else "",
            sysctl=self.arm(run.arm).sysctl,
            files=self.arm(run.arm).files,
        )


def catalogue(checkout: Path) -> Catalogue:
    """Everything an experiment file may name; what of it cannot be used is logged."""
    workloads, broken = read_catalogue()
    for problem in itertools.chain.from_iterable(broken.values()):
        log.warning("left out: %s", problem)
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
        guests=known_guests(),
        flavours=config.known_flavours(checkout),
        additions=config.known_additions(checkout),
        needs={name: workload.additions for name, workload in workloads.items()},
        series=patch_folder.known_series(checkout),
        thresholds=thresholds_of(workloads),
        broken=broken,
    )


def workloads_of(experiment: Experiment) -> dict[str, Workload]:
    """The workloads that can be used, as they are in the base arm's guest."""
    kernel = experiment.all_arms[0].kernel or experiment.kernel
    vcpus = next(iter(shapes(experiment)[""].values())).vcpus
    return {
        name: workload.in_guest(page_bytes=kernel.page_kib << 10, vcpus=vcpus)
        for name, workload in load_catalogue().items()
    }


def placements_of(
    guests: Mapping[str, Mapping[str, Guest]],
) -> dict[tuple[str, str], Placement | None]:
    """Where each guest goes on this host, by the names of bench and arm."""
    cpus = host_cpus()
    return {
        (name, arm): place(cpus, vcpus=guest.vcpus, nodes=guest.numa_nodes)
        for name, of_arms in guests.items()
        for arm, guest in of_arms.items()
    }


def wall_host(guests: Mapping[str, Mapping[str, Guest]], image: Path, options: Options) -> WallHost:
    """Find out what runs wall guests on this host, and how fit it is.

    Raises:
        InfraError: no kernel boots at all, or the host is unfit and ``options.fit_only``.
    """
    placements = placements_of(guests)
    result = options.executor.accelerator(options.cache, image)
    first, guest = next(iter(guests[""].items()))
    checks = fitness.fitness(
        guest_mib=guest.memory_mib,
        vcpus=guest.vcpus,
        huge_pages=guest.wall.huge_pages,
        placement=placements["", first],
        accelerator=result,
    )
    if options.fit_only:
        fitness.require_fit(checks)
    return WallHost(result, placements, checks)


def prepare(
    experiment: Experiment, options: Options, progress: Callable[[str, MakeProgress], None]
) -> Session:
    """Build the measured kernels and the initramfs, and lay out the plan.

    Kernels of the gate are built when they are wanted: :func:`with_kernels`.

    Raises:
        SpecError: sizes that do not fit the guest, or a job that does not fit fw_cfg.
        InfraError: the QEMU at hand was found not to be exact, or the host has not the memory.
        LabError: whatever building says.
    """
    architecture = experiment.kernel.architecture
    image = (
        initramfs.given(options.root)
        if options.root
        else initramfs.provide(options.cache, architecture)
    )
    guests = shapes(experiment)
    workloads = workloads_of(experiment)
    sizes = {
        name: {arm: scaled(experiment.dataset, guest) for arm, guest in of_arms.items()}
        for name, of_arms in guests.items()
    }
    for name, of_arms in guests.items():
        for arm, guest in of_arms.items():
            require_memory(sizes[name][arm], guest, image.mib)
    for of_bench in sizes.values():
        for size in set(of_bench.values()):
            require_set_up(experiment, size, workloads)
    require_job_fits(experiment, sizes.values(), workloads)
    in_wall = experiment.mode == "wall"
    if not in_wall:
        # Before anything is fetched or built for guests that nobody can boot.
        largest = max(guest.memory_mib for of in guests.values() for guest in of.values())
        options.executor.slots(largest, options.guests_at_once)
    qemu = None if in_wall else exactness.standing(options.cache, architecture.board.qemu)
    if qemu is not None:
        exactness.require_exact(qemu)
    probe = plugin.provide(options.cache, architecture) if options.probe and not in_wall else None
    require_counted(experiment, next(iter(guests[""].values())), probe)
    failures: dict[str, SeriesError] = {}
    built = build_arms(experiment, options, progress, failures=None if in_wall else failures)
    experiment = experiment.model_copy(update={"unbuilt": tuple(failures)})
    for name in experiment.prebuilt:
        prebuilt.require(built[name], wants_of(experiment, workloads))
    same = same_code(experiment, built) and not options.measure_anyway
    wall = None
    if in_wall and not same:
        wall = wall_host(guests, next(iter(built.values())).image, options)
    twins = (
        ()
        if same
        else tuple(
            twin for twin in experiment.twins if _can_run(twin, guests[twin.name], wall, probe)
        )
    )
    experiment = experiment.model_copy(update={"twins": twins})
    if same:
        # Nothing to boot, and nothing that the gate could find in one arm alone.
        experiment = experiment.model_copy(update={"check": None})

    def bench(name: str, observe: Observed | Literal[""] = "", machine: str | None = None) -> Bench:
        modelled = load_machine(Path(machine)) if machine else None
        return Bench(name, observe, guests[name], sizes[name], built, modelled)

    session = Session(
        experiment=experiment,
        plan=plan_of(experiment),
        workloads=workloads,
        measured=bench(""),
        twins={
            twin.name: bench(twin.name, twin.observe, twin.machine) for twin in experiment.twins
        },
        initramfs=image,
        preload=native.build(native.PRELOAD, native.SHARED_LIBRARY, options.cache),
        probe=probe,
        same_code=same,
        qemu=qemu,
        wall=wall,
        overlaid=_overlaid(image, built.values(), experiment, workloads, options),
        unbuilt=_of_flavour(experiment.kernel.flavour, failures),
    )
    _require_comparable(session)
    return session


def _of_flavour(
    flavour: str, failures: Mapping[str, SeriesError]
) -> dict[tuple[str, str], SeriesError]:
    return {(flavour, arm): error for arm, error in failures.items()}


def _require_comparable(session: Session) -> None:
    """Refuse to measure where no pair of arms has what any case needs.

    Raises:
        SeriesError, WorkloadError: the first reason, by who is to blame.
    """
    judged = [run for run in session.plan.runs if not run.twin and not run.repeat]
    obstacles = {(run.case, run.arm): session.obstacle(run) for run in judged}
    pairs = [
        [obstacles[case.name, arm] for arm in pair]
        for case in session.experiment.cases
        for pair in session.experiment.compared
    ]
    # A block of wall mode is every arm, back to back.
    if any(not any(pair) for pair in pairs) and not (session.wall and any(obstacles.values())):
        return
    failure = next(failure for failure in obstacles.values() if failure)
    if failure.blame == "series":
        raise SeriesError(failure.message, where=session.experiment.name)
    raise WorkloadError(failure.message, where=session.experiment.name)


def with_kernels(
    session: Session,
    options: Options,
    progress: Callable[[str, MakeProgress], None],
    needed: Collection[str],
) -> Session:
    """The session with the kernels of these flavours, for the gate.

    Raises:
        LabError: whatever building says.
    """
    experiment = session.experiment
    missing = [flavour for flavour in flavours(experiment)[1:] if flavour in needed]
    expect_arms(experiment, options, missing)
    built = {experiment.kernel.flavour: session.measured.kernels}
    unbuilt = dict(session.unbuilt)
    for flavour in missing:
        failures: dict[str, SeriesError] = {}
        given = None if session.wall else failures
        built[flavour] = build_arms(experiment, options, progress, flavour, given)
        unbuilt |= _of_flavour(flavour, failures)
    of_checks = experiment.check.flavours if experiment.check else ()
    later = [kernel for flavour in missing for kernel in built[flavour].values()]
    more = _overlaid(session.initramfs, later, experiment, session.workloads, options)
    return replace(
        session,
        checked={
            **session.checked,
            **{flavour: built[flavour] for flavour in of_checks if flavour in built},
        },
        overlaid={**session.overlaid, **more},
        unbuilt=unbuilt,
    )


def _overlaid(
    image: Initramfs,
    kernels: Iterable[Kernel],
    experiment: Experiment,
    workloads: Mapping[str, Workload],
    options: Options,
) -> dict[overlay.Lacks, Initramfs]:
    extras = [extras_of(workloads[case.workload]) for case in experiment.cases]
    return overlay.provide_all(
        image, kernels, extras, options.cache, experiment.kernel.architecture
    )


def require_set_up(experiment: Experiment, size: Size, workloads: Mapping[str, Workload]) -> None:
    """Refuse a case whose workload wants what the dataset leaves out.

    Raises:
        SpecError: one line for each case and key.
    """
    problems = []
    for case in experiment.cases:
        workload = workloads[case.workload].as_variant(case.variant)
        files = len(workload.files(size.jobs))
        checks = {check for phase in workload.phases for check in phase.checks}
        limited = sorted(checks & {"limit_hit", "charged", "caches_kept"})
        if workload.fs == "brd" and not size.brd_mib:
            problems.append(f"case {case.name}: wants a brd; dataset.brd_mib is not given")
        if limited and not size.cgroup_limit_mib:
            problems.append(
                f"case {case.name}: checks {', '.join(limited)}, which want a limit; "
                "dataset.cgroup_limit_mib is not given"
            )
        if files and size.file_mib % files:
            problems.append(
                f"case {case.name}: {size.file_mib} MiB of files in this guest cannot be shared "
                f"by {files} jobs, each with a file of its own; see dataset.file_mib and the "
                "guest's jobs and scale"
            )
    if problems:
        raise SpecError(problems)


def can_be_modelled(guests: Collection[Guest]) -> bool:
    """Whether the caches of these guests can be: of x86-64, one vCPU, one memory."""
    return all(
        (guest.arch, guest.vcpus, guest.numa_nodes) == (X86_64.name, 1, 1) for guest in guests
    )


def can_share_lines(guests: Collection[Guest]) -> bool:
    """Whether lines that move between their vCPUs can be followed: of x86-64, one memory."""
    return all(
        (guest.arch, guest.numa_nodes) == (X86_64.name, 1) and guest.vcpus > 1 for guest in guests
    )


def _can_run(
    twin: TwinSpec, guests: Mapping[str, Guest], wall: WallHost | None, probe: Probe | None
) -> bool:
    """Whether a twin can show anything here."""
    if twin.observe == MEMORY:
        return probe is not None and can_be_modelled(guests.values())
    if twin.observe == LINES:
        return probe is not None and wall is None and can_share_lines(guests.values())
    if wall is None:
        return True
    # Under TCG more vCPUs than that take minutes to boot.
    most = max(guest.vcpus for guest in guests.values())
    return wall.accelerator.real_time or most <= MOST_TCG_VCPUS


def require_job_fits(
    experiment: Experiment,
    sizes: Collection[Mapping[str, Size]],
    workloads: Mapping[str, Workload],
) -> None:
    """Refuse a case whose job is too long before anything is built for it.

    Raises:
        SpecError: names the case and both lengths.
    """
    longest = max((twin.blocks for twin in experiment.twins), default=0)
    for case, by_arm, arm in itertools.product(experiment.cases, sizes, arms_of(experiment)):
        size = by_arm[arm.name]
        try:
            job_text(
                workloads[case.workload].phases_of(case.variant),
                case.times.get(experiment.guest, {}),
                jobs=size.jobs,
                seed=experiment.seed + max(experiment.blocks, longest),
                limit_bytes=size.cgroup_limit_mib * MIB,
                observe="contention",
                sysctl=arm.sysctl,
                files=arm.files,
            )
        except ValueError as error:
            raise SpecError([f"case {case.name}: {error}; shorten its fio arguments"]) from None
