"""What is asked of an experiment before anything is built for it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from errors import SpecError
from experiment.spec import Experiment, Guest, PhaseTimes
from guests.probe.plugin import Probe
from host.packages import locate
from host.process import run
from kernels import config, prebuilt
from kernels.config import ADDITIONS
from kernels.prebuilt import FILE_SYSTEMS, Want
from runs.arms import shapes
from workloads.files import place_of
from workloads.job import fio_arguments
from workloads.metrics import PATH, SLOWPATH_SHARE, WORK
from workloads.spec import Workload

# Files of a guest that are there with an option only, which not every kernel of the lab's has.
OPTIONS = {
    "/sys/kernel/mm/lru_gen/": "LRU_GEN", "/sys/kernel/mm/ksm/": "KSM",
    "/sys/kernel/mm/hugepages/": "HUGETLBFS", "/sys/kernel/mm/page_idle/": "IDLE_PAGE_TRACKING",
    "/sys/module/zswap/": "ZSWAP", "/sys/block/zram": "ZRAM", "/sys/kernel/debug/": "DEBUG_FS",
    "/sys/kernel/mm/damon/": "DAMON_SYSFS",
}  # fmt: skip
PARSE_S, REFUSAL_LINES = 20.0, 2


def require_supported(experiment: Experiment) -> None:
    """Refuse what guests of the kernel's architecture were not seen to do.

    Raises:
        SpecError: one line for each key.
    """
    arch = experiment.kernel.arch
    if arch == "x86_64":
        return
    problems = []
    if experiment.check is not None:
        problems.append(
            f"check: correctness checks are untested on {arch}; --no-check leaves them out"
        )
    for twin in experiment.twins:
        if twin.guest.cpu is not None:
            problems.append(
                f"twins: {twin.name}: guest.cpu = {twin.guest.cpu!r} is a model of x86_64, and all "
                f"guests of {arch} have the same; --no-twins leaves twins out"
            )
    for arm in experiment.all_arms:
        if arm.guest.cpu is not None:
            problems.append(
                f"arms: {arm.name}: guest.cpu = {arm.guest.cpu!r} is a model of x86_64, and all "
                f"guests of {arch} have the same; leave it out"
            )
    for name, of_arms in shapes(experiment).items():
        for guest in of_arms.values():
            where = f"twins: {name}: guest" if name else "guest"
            for key, value in (("vcpus", guest.vcpus), ("numa_nodes", guest.numa_nodes)):
                if value > 1:
                    problems.append(f"{where}: {key} = {value}: exactness is untested on {arch}")
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))


def require_jobs(experiment: Experiment, workloads: Mapping[str, Workload]) -> None:
    """Refuse what this host's fio, which x86-64 guests have, would not take.

    Raises:
        SpecError: one line for each phase, with the place in its job file and fio's words.
    """
    fio = locate("fio")
    if experiment.kernel.arch != "x86_64" or fio is None:
        return
    phases = [
        (case.name, phase)
        for case in experiment.cases
        for phase in workloads[case.workload].phases_of(case.variant)
        if phase.fio
    ]

    def refusal(*commands: tuple[str, ...]) -> str:
        arguments = itertools.chain.from_iterable(commands)
        done = run([str(fio), "--parse-only", *arguments], timeout_s=PARSE_S, check=False)
        lines = done.stderr.splitlines()[:REFUSAL_LINES] or [f"status {done.returncode}"]
        return "; ".join(lines) if done.returncode else ""

    commands = [fio_arguments(phase, PhaseTimes(ios=1), jobs=1, seed=1) for _, phase in phases]
    # All at once as a rule: fio takes its time to start.
    if not phases or not refusal(*commands):
        return
    problems = []
    for (case_name, phase), command in zip(phases, commands, strict=True):
        if words := refusal(command):
            place = place_of(phase.places, words) or f"case {case_name}"
            problems.append(f"{place}: phase {phase.name}: {words}")
    if problems:
        raise SpecError(problems)


def wants_of(experiment: Experiment, workloads: Mapping[str, Workload]) -> tuple[Want, ...]:
    """What a prebuilt kernel must have for the cases of an experiment."""
    wants = list(prebuilt.GUEST)
    for case in experiment.cases:
        workload = workloads[case.workload].as_variant(case.variant)
        if workload.fs == "brd":
            program = workload.mkfs.partition(" ")[0]
            wants += [prebuilt.BRD, *([FILE_SYSTEMS[program]] if program in FILE_SYSTEMS else [])]
    return tuple(dict.fromkeys(wants))


def require_prebuilt(
    experiment: Experiment, workloads: Mapping[str, Workload], checkout: Path
) -> None:
    """Refuse kernels of files that lack what the guests or the workloads need.

    Raises:
        UsageError: names the kernel, and its options.
    """
    kernels = [arm.kernel or experiment.kernel for arm in experiment.all_arms]
    wants = wants_of(experiment, workloads)
    images = {each.source: each for each in kernels if each.source.startswith("image:")}
    for kernel in images.values():
        prebuilt.require_image(kernel, wants, checkout=checkout)


def require_settings(experiment: Experiment, checkout: Path) -> None:
    """Refuse settings of arms for which the kernel has not what it takes.

    Raises:
        SpecError: one line for each, with the addition that has it where there is one.
    """
    problems = []
    for arm in experiment.all_arms:
        kernel = arm.kernel or experiment.kernel
        needs = {
            name: option
            for name in arm.files
            for start, option in OPTIONS.items()
            if name.startswith(start)
        }
        if kernel.is_prebuilt or not needs:
            continue
        fragments = config.fragments(
            checkout,
            kernel.flavour,
            kernel.architecture,
            kernel.page_kib,
            additions=kernel.additions,
        )
        options = config.parse(config.merge(fragments))
        for name, option in needs.items():
            if options.get(option, "n") == "n":
                able = [
                    each
                    for each in config.known_additions(checkout)
                    if option in config.parse((checkout / ADDITIONS / f"{each}.config").read_text())
                ]
                hint = f'; [kernel] additions = ["{able[0]}"] switches it on' if able else ""
                problems.append(
                    f"arms: {arm.name}: {name} needs CONFIG_{option}, which a kernel of "
                    f"{kernel.configuration} has not{hint}"
                )
    if problems:
        raise SpecError(problems)


def require_counted(experiment: Experiment, guest: Guest, probe: Probe | None) -> None:
    """Refuse to judge by what nobody counts.

    Raises:
        SpecError: one line for each case and metric.
    """
    missing = {}
    if probe is None:
        missing = dict.fromkeys(
            (PATH, WORK, SLOWPATH_SHARE), "nothing is counted without the probe"
        )
    elif guest.vcpus == 1:
        missing = {SLOWPATH_SHARE: f"{guest.name} has one vCPU, so no vCPU ever waits"}
    problems = [
        f"case {case.name}: primary: {name} is counted by the probe; {missing[short]}; judge "
        f"{name.partition('.')[0]}.bw in its place"
        for case in experiment.cases
        for name in case.judged(experiment.mode)
        if (short := name.partition(".")[2]) in missing
    ]
    if problems:
        raise SpecError(problems)
