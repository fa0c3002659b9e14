"""From what an experiment comes to, to everything that is there before its first boot."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from errors import SeriesError, WorkloadError
from experiment.plan import Plan, PlannedRun, make_plan, require_memory
from experiment.spec import CONTENTION, LINES, MEMORY, Experiment, Guest, PhaseTimes, TwinSpec
from files import digest
from guests import initramfs, programs
from guests.argv import ROOT_IN_RAMFS
from guests.exact import Machine
from guests.initramfs import Initramfs, Lacks
from guests.probe import fold, plugin
from guests.probe.plugin import Probe
from guests.virtme import WallMachine, on_host
from host import accelerator, doctor, fitness
from host.doctor import QemuStanding
from host.fitness import Placement, host_cpus, place
from kernels import prebuilt
from kernels.cache import Kernel
from results.record import NOT_BUILT, Failure
from runs.boots import MIB, Boot, WallHost
from runs.building import Building, build_arms, same_code, sources_of
from runs.local import Options
from runs.requirements import (
    can_be_modelled,
    can_share_lines,
    require_counted,
    require_job_fits,
    require_set_up,
    wants_of,
)
from runs.resolved import Bench, PlannedCheck, Resolved, ResolvedArm
from workloads.job import job_text, prepare_text
from workloads.spec import Extras, Phase, Workload, extras_of

MOST_TCG_VCPUS = 2


@dataclass(frozen=True)
class Prepared:
    """What a session is measured with; ``experiment`` is ``resolved``'s as it goes on record.

    Diagnostic runs that show nothing on this host are left out of it and of ``benches``.
    ``kernels`` are by flavour and arm, as far as they are built; ``unbuilt`` says by flavour and
    arm why one is only planned.  ``sources`` are files whose lines are counted.  ``probe`` is None
    where none counts, ``wall`` in exact mode and ``qemu`` in wall mode.  ``overlaid`` are the
    initramfs of prebuilt kernels and of workloads with programs.
    """

    resolved: Resolved
    experiment: Experiment
    plan: Plan
    kernels: Mapping[str, Mapping[str, Kernel]]
    initramfs: Initramfs
    preload: Path
    probe: Probe | None
    same_code: bool
    qemu: QemuStanding | None = None
    wall: WallHost | None = None
    overlaid: Mapping[Lacks, Initramfs] = field(default_factory=dict)
    unbuilt: Mapping[tuple[str, str], SeriesError] = field(default_factory=dict)
    sources: frozenset[str] = frozenset()

    @property
    def benches(self) -> tuple[Bench, ...]:
        """The judged runs' guests, then those of the diagnostic runs that are made."""
        twins = (self.resolved.diagnostic[twin.name] for twin in self.experiment.twins)
        return (self.resolved.measured, *twins)

    @property
    def measured(self) -> Mapping[str, Kernel]:
        """The kernels of the judged runs, by arm."""
        return self.kernels[self.resolved.flavours[0]]

    @property
    def roots_sha256(self) -> str:
        """Names the roots of all measured guests: the initramfs, and those with an overlay."""
        # Those of the checks have the same programs, and come later.
        measured = {kernel.identity.key for kernel in self.measured.values()}
        roots = [root for lacks, root in self.overlaid.items() if lacks.kernel in {"", *measured}]
        if not roots:
            return self.initramfs.sha256
        every = sorted({self.initramfs.sha256, *(root.sha256 for root in roots)})
        return digest(" ".join(every))

    @property
    def checks(self) -> tuple[PlannedCheck, ...]:
        """The guests of the correctness checks; none where none are asked or nothing is booted."""
        return self.resolved.checks if self.experiment.check else ()

    def root_of(self, kernel: Kernel, extras: Extras) -> Initramfs:
        """The initramfs of a guest with this kernel, for a workload that needs these extras."""
        lacks = initramfs.lacks(kernel, extras)
        return self.overlaid[lacks] if lacks.kernel or any(lacks.extras) else self.initramfs

    def lacks(self, flavour: str, arm: str, workload: Workload) -> str:
        """What of an arm's kernel does not build that a workload needs; empty where all did."""
        error = self.unbuilt.get((flavour, arm))
        if error is not None:
            return error.in_one_line
        modules = self.kernels[flavour][arm].lacks(workload.modules)
        text = f"modules of {workload.name} do not build with this kernel: {modules}"
        return text if modules else ""


@dataclass(frozen=True)
class RunParts:
    """What one run is made of: its bench, arm and kernel, what it does, and in which guest."""

    run: PlannedRun
    bench: Bench
    arm: ResolvedArm
    kernel: Kernel
    workload: Workload
    phases: tuple[Phase, ...]
    times: Mapping[str, PhaseTimes]

    @property
    def guest(self) -> Guest:
        """The guest that is booted."""
        return self.bench.guests[self.run.arm]

    @property
    def limit_bytes(self) -> int:
        """The cgroup's ``models.max``."""
        return self.bench.sizes[self.run.arm].cgroup_limit_mib * MIB


def parts_of(prepared: Prepared, run: PlannedRun) -> RunParts:
    """What a run is made of."""
    resolved = prepared.resolved
    bench = resolved.diagnostic[run.twin] if run.twin else resolved.measured
    case = resolved.case(run.case)
    return RunParts(
        run=run,
        bench=bench,
        arm=resolved.arm(run.arm),
        kernel=prepared.measured[run.arm],
        workload=resolved.workload(case),
        phases=resolved.workloads[case.workload].phases_of(case.variant),
        times=case.times.get(bench.guest.name, {}),
    )


def boot_of(prepared: Prepared, run: PlannedRun, *, cold: bool) -> Boot:
    """One run as a guest to boot, a repeat always a ``cold`` one: it checks the snapshot, too.

    Machines are equal for runs that prepare alike.
    """
    parts = parts_of(prepared, run)
    bench, arm, workload = parts.bench, parts.arm.spec, parts.workload
    size = bench.sizes[run.arm]
    words = ROOT_IN_RAMFS if workload.host_programs and not prepared.wall else ()
    machine = Machine(
        kernel=parts.kernel.image,
        initramfs=prepared.root_of(parts.kernel, extras_of(workload)).path,
        preload=prepared.preload,
        guest=parts.guest,
        size=size,
        prepare_text=prepare_text(
            workload, file_mib=size.file_mib, jobs=size.jobs, mount_options=arm.mount_options
        ),
        # An arm's own words come last and so have the last word.
        cmdline=(*words, *arm.cmdline),
    )
    job = job_text(
        parts.phases,
        parts.times,
        jobs=size.jobs,
        seed=run.seed,
        limit_bytes=parts.limit_bytes,
        observe="contention" if bench.observe == CONTENTION else "",
        sysctl=arm.sysctl,
        files=arm.files,
    )
    original = run.model_copy(update={"run_id": run.original_id, "repeat": False})
    return Boot(
        name=run.run_id,
        group=f"{run.arm}-{run.twin}" if run.twin else run.arm,
        machine=machine,
        job_text=job,
        cold=cold or run.repeat,
        probe=_probe_of(prepared, parts),
        original=boot_of(prepared, original, cold=cold) if run.repeat else None,
    )


def wall_boot_of(prepared: Prepared, run: PlannedRun) -> tuple[WallMachine, str]:
    """One run of wall mode as a machine of this host, and its job."""
    wall, boot = prepared.wall, boot_of(prepared, run, cold=True)
    assert wall is not None
    placement = wall.placements[run.twin, run.arm]
    return on_host(boot.machine, wall.accelerator, placement), boot.job_text


def _probe_of(prepared: Prepared, parts: RunParts) -> Probe | None:
    """What counts in a run; a repeat shows that the probe is not felt, too."""
    probe, bench, kernel = prepared.probe, parts.bench, parts.kernel
    if probe is None or parts.run.repeat:
        return None
    if bench.observe == MEMORY and bench.machine:
        modelled = plugin.memory_words(bench.machine, kernel)
        named = (*modelled, *plugin.slab_words(kernel)) if modelled else ()
        stacks = fold.stack_words(kernel)
        return replace(
            probe,
            locks=fold.locks_of(kernel),
            model=named,
            functions=kernel.system_map if stacks else None,
            stacks=stacks,
        )
    model = plugin.line_words(bench.machine, kernel) if bench.machine else plugin.lock_words(kernel)
    waits = fold.spans_of(kernel) if parts.guest.vcpus > 1 else ()
    return replace(probe, spans=waits, locks=fold.locks_of(kernel), model=model)


def obstacle(prepared: Prepared, run: PlannedRun) -> Failure | None:
    """Why a run cannot be made, whatever is tried: what of its kernel does not build."""
    parts = parts_of(prepared, run)
    flavour, workload = prepared.resolved.flavours[0], parts.workload
    why = prepared.lacks(flavour, run.arm, workload)
    if not why:
        return None
    # What the base lacks, too, is not the doing of whoever wrote the patches.
    base = prepared.resolved.arms[0].spec.name
    of_base = bool(prepared.kernels[flavour][base].lacks(workload.modules))
    blame: Literal["workload", "series"] = "workload" if of_base else "series"
    return Failure(kind=NOT_BUILT, blame=blame, message=why)


def wall_host(guests: Mapping[str, Mapping[str, Guest]], image: Path, options: Options) -> WallHost:
    """What runs wall guests here, and how fit the host is; InfraError: nothing, or unfit."""
    cpus = host_cpus()
    placements: dict[tuple[str, str], Placement | None] = {
        (name, arm): place(cpus, vcpus=guest.vcpus, nodes=guest.numa_nodes)
        for name, of_arms in guests.items()
        for arm, guest in of_arms.items()
    }
    result = accelerator.provide(image)
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


def prepare(resolved: Resolved, options: Options, progress: Building) -> Prepared:
    """Build the judged kernels and the initramfs, and lay out the plan.

    Raises SpecError: sizes or a job that do not fit; InfraError: an inexact QEMU, or too little
    memory; LabError: whatever building says.
    """
    experiment = resolved.experiment
    architecture = experiment.kernel.architecture
    image = (
        initramfs.given(options.root)
        if options.root
        else initramfs.provide(options.cache, architecture)
    )
    for bench in resolved.benches:
        for arm, guest in bench.guests.items():
            require_memory(bench.sizes[arm], guest, image.mib)
    # All that is not installed is named at once, and before a kernel is built for it.
    extras = [extras_of(resolved.workloads[case.workload]) for case in experiment.cases]
    programs.more_programs(name for each in extras for name in each.host_programs)
    require_set_up(resolved)
    require_job_fits(resolved)
    in_wall = experiment.mode == "wall"
    guests = {bench.name: bench.guests for bench in resolved.benches}
    options.executor.require(experiment)
    if not in_wall:
        # Before anything is fetched or built for guests that nobody can boot.
        largest = max(guest.memory_mib for of in guests.values() for guest in of.values())
        options.executor.slots(largest, options.guests_at_once)
    elif options.fit_only and (booted := accelerator.some_kernel(options.cache)):
        wall_host(guests, booted, options)
    qemu = None if in_wall else doctor.standing(architecture.board.qemu)
    probe = plugin.provide(options.cache, architecture) if options.probe and not in_wall else None
    require_counted(resolved, probe)
    judged = resolved.flavours[0]
    failures: dict[str, SeriesError] = {}
    built = build_arms(resolved, options, progress, judged, None if in_wall else failures)
    for name in experiment.prebuilt:
        prebuilt.require(built[name], wants_of(resolved))
    same = same_code(resolved, built) and not options.measure_anyway
    wall = None
    if in_wall and not same:
        wall = wall_host(guests, next(iter(built.values())).image, options)
    # Of the same code nothing is booted, and the checks could find nothing in one arm alone.
    recorded = experiment.model_copy(
        update={
            "unbuilt": tuple(failures),
            "twins": tuple(
                twin
                for twin in experiment.twins
                if not same and _can_run(twin, guests[twin.name].values(), wall, probe)
            ),
            "check": None if same else experiment.check,
        }
    )
    prepared = Prepared(
        resolved=resolved,
        experiment=recorded,
        plan=make_plan(recorded),
        kernels={judged: built},
        initramfs=image,
        preload=programs.build(programs.PRELOAD, programs.SHARED_LIBRARY, options.cache),
        probe=probe,
        same_code=same,
        qemu=qemu,
        wall=wall,
        overlaid=_overlaid(image, built.values(), resolved, options),
        unbuilt={(judged, arm): error for arm, error in failures.items()},
        sources=sources_of(resolved, built) if probe and not same else frozenset(),
    )
    _require_comparable(prepared)
    return prepared


def _require_comparable(prepared: Prepared) -> None:
    """Refuse, by whose fault it is, where no pair of arms has what any case needs."""
    experiment = prepared.experiment
    judged = [run for run in prepared.plan.runs if not run.twin and not run.repeat]
    obstacles = {(run.case, run.arm): obstacle(prepared, run) for run in judged}
    is_comparable = any(
        not any(obstacles[case.name, arm] for arm in pair)
        for case in experiment.cases
        for pair in experiment.compared
    )
    # A block of wall mode is every arm, back to back.
    if not is_comparable or (prepared.wall and any(obstacles.values())):
        failure = next(failure for failure in obstacles.values() if failure)
        kind = SeriesError if failure.blame == "series" else WorkloadError
        raise kind(failure.message, where=experiment.name)


def with_kernels(
    prepared: Prepared, options: Options, progress: Building, needed: Collection[str]
) -> Prepared:
    """The session with the kernels of these flavours, for the checks; raises as building."""
    resolved = prepared.resolved
    missing = [flavour for flavour in resolved.flavours[1:] if flavour in needed]
    kernels, unbuilt = dict(prepared.kernels), dict(prepared.unbuilt)
    for flavour in missing:
        failures: dict[str, SeriesError] = {}
        given = None if prepared.wall else failures
        kernels[flavour] = build_arms(resolved, options, progress, flavour, given)
        unbuilt |= {(flavour, arm): error for arm, error in failures.items()}
    later = [kernel for flavour in missing for kernel in kernels[flavour].values()]
    more = _overlaid(prepared.initramfs, later, resolved, options)
    return replace(
        prepared, kernels=kernels, overlaid={**prepared.overlaid, **more}, unbuilt=unbuilt
    )


def _overlaid(
    image: Initramfs, kernels: Iterable[Kernel], resolved: Resolved, options: Options
) -> dict[Lacks, Initramfs]:
    experiment = resolved.experiment
    extras = [extras_of(resolved.workloads[case.workload]) for case in experiment.cases]
    return initramfs.overlays(image, kernels, extras, options.cache, experiment.kernel.architecture)


def _can_run(
    twin: TwinSpec, guests: Collection[Guest], wall: WallHost | None, probe: Probe | None
) -> bool:
    """Whether diagnostic runs can show anything here."""
    if twin.observe == MEMORY:
        return probe is not None and can_be_modelled(guests)
    if twin.observe == LINES:
        return probe is not None and wall is None and can_share_lines(guests)
    if wall is None:
        return True
    # Under TCG more vCPUs than that take minutes to boot.
    most = max(guest.vcpus for guest in guests)
    return wall.accelerator.real_time or most <= MOST_TCG_VCPUS
