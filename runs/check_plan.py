"""The gate's guests, planned: which are booted for which arm, of what shape, and their job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from experiment.plan import Size, memory_needed_mib, scaled
from experiment.spec import ArmSpec, CaseSpec, Experiment, Guest
from workloads.check import CheckCase, CheckTask, command_line, job_text, room, task_of
from workloads.job import prepare_text
from workloads.spec import Extras, Workload, extras_of

# The smallest sizes, whatever is measured: what is looked for does not need more.
PROFILE = "smoke"
# Native spin locks, as on a machine of one's own.
CPU = "Nehalem,-hypervisor"
# Lockdep's tables, and slabs with red zones.
MORE_MEMORY_MIB = 192
# Short turns, so that several vCPUs meet within critical sections.
METRONOME_NS = 20_000
# Seconds of QEMU's CPU time for what is several times slower than a measured guest.
BOOT_S, SILENCE_S, RUN_S = 1800.0, 3600.0, 7200.0


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
        cpus = f"{self.vcpus} vCPU{'' if self.vcpus == 1 else 's'}"
        tests = "".join(f", {name} self-test" for name in self.selftests)
        cases = ", ".join(case.name for case in self.cases)
        return f"{self.flavour}, {cpus}{tests}: {cases}"


@dataclass(frozen=True)
class CheckGuest:
    """What one guest of the gate is booted with and sent, but for its kernel's file."""

    guest: Guest
    size: Size
    prepare_text: str
    job_text: str
    cmdline: tuple[str, ...]
    task: CheckTask
    extras: Extras


def planned(experiment: Experiment, workloads: Mapping[str, Workload]) -> tuple[PlannedCheck, ...]:
    """Every guest of the gate, the base arm's first; none where no gate is asked.

    Cases that prepare their file system and files alike share a guest.
    """
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
            arm, flavour, vcpus, tuple(cases), selftests,
        )
        for arm in experiment.all_arms
        for flavour, vcpus, selftests in shapes
        for number, cases in enumerate(groups.values())
    )  # fmt: skip


def guest_of(
    experiment: Experiment,
    workloads: Mapping[str, Workload],
    entry: PlannedCheck,
    profile: Guest,
    nodes: int,
    initramfs_mib: int,
) -> CheckGuest:
    """What one check is booted with.

    The guest is that of the smallest ``profile``, with room for the kernel's own work, and
    with as many ``nodes`` as the measured one where they can share its vCPUs.

    Raises:
        SpecError: the dataset's sizes are no multiples of the smallest profile's scale.
    """
    profile = profile.model_copy(update={"jobs": max(profile.jobs, entry.vcpus)})
    cases = [
        CheckCase(workload, workload.phases)
        for case in entry.cases
        for workload in [workloads[case.workload].as_variant(case.variant)]
    ]
    workload = cases[0].workload
    size = scaled(experiment.dataset, profile)
    rooms = room(size, workload)
    size = replace(size, brd_mib=rooms.brd)
    # What tmpfs holds is cached without a limit; elsewhere a limit, or what is left.
    cached = replace(size, cgroup_limit_mib=rooms.limit or rooms.left, memory_mib=0)
    needed = memory_needed_mib(cached, profile, initramfs_mib)
    nodes = nodes if entry.vcpus % nodes == 0 else 1
    memory_mib = max(profile.memory_mib, needed) + MORE_MEMORY_MIB
    guest = profile.model_copy(
        update={
            "vcpus": entry.vcpus,
            "numa_nodes": nodes,
            "cpu": CPU,
            "memory_mib": -(-memory_mib // nodes) * nodes,
            "metronome_ns": METRONOME_NS if entry.vcpus > 1 else 0,
            "boot_timeout_s": BOOT_S,
            "silence_timeout_s": SILENCE_S,
            "run_timeout_s": RUN_S,
        }
    )
    return CheckGuest(
        guest=guest,
        size=size,
        prepare_text=prepare_text(
            workload, file_mib=size.file_mib, jobs=size.jobs, mount_options=entry.arm.mount_options
        ),
        job_text=job_text(
            cases, jobs=size.jobs, seed=experiment.seed, room=rooms, file_mib=size.file_mib,
            sysctl=entry.arm.sysctl, files=entry.arm.files,
        ),
        cmdline=(*command_line(entry.selftests), *entry.arm.cmdline),
        task=task_of(cases, entry.selftests, lockdep=not entry.selftests, vcpus=entry.vcpus),
        extras=extras_of(workload),
    )  # fmt: skip
