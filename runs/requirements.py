"""What is asked of an experiment before anything is built for it, by what it comes to."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from errors import SpecError
from experiment.architecture import X86_64
from experiment.frozen import Problem
from experiment.spec import Guest, PhaseTimes
from guests.probe.plugin import Probe
from host.packages import locate
from host.process import run
from kernels import config, prebuilt
from kernels.config import ADDITIONS, added_options
from kernels.prebuilt import Want
from kernels.series import read_patch
from kernels.worktree import options_of, require_known
from runs.boots import MIB
from runs.resolved import PlannedKernel, Resolved
from workloads.job import fio_arguments, job_text
from workloads.job_file import place_of
from workloads.metrics import PATH, SLOWPATH_SHARE, WORK

# Files of a guest that are there with an option only, which not every kernel of the lab's has.
OPTIONS = {
    "/sys/kernel/mm/lru_gen/": "LRU_GEN",
    "/sys/kernel/mm/ksm/": "KSM",
    "/sys/kernel/mm/hugepages/": "HUGETLBFS",
    "/sys/kernel/mm/page_idle/": "IDLE_PAGE_TRACKING",
    "/sys/module/zswap/": "ZSWAP",
    "/sys/block/zram": "ZRAM",
    "/sys/kernel/debug/": "DEBUG_FS",
    "/sys/kernel/mm/damon/": "DAMON_SYSFS",
}
PARSE_S, REFUSAL_LINES = 20.0, 2


def require_all(resolved: Resolved, checkout: Path, cache: Path) -> None:
    """Ask all that needs no build; raise SpecError, of kernels of files UsageError."""
    require_supported(resolved)
    require_jobs(resolved)
    require_settings(resolved, checkout)
    require_sources(resolved.planned_kernels(), checkout, cache)
    require_prebuilt(resolved, checkout, cache)


def require_supported(resolved: Resolved) -> None:
    """Raise SpecError for what a mode, or guests of the kernel's architecture, cannot do."""
    experiment = resolved.experiment
    if experiment.mode == "wall":
        require_counted(resolved, None)
    arch = experiment.kernel.arch
    if arch == "x86_64":
        return
    problems = []
    if experiment.check is not None:
        problems.append(
            f"check: correctness checks are untested on {arch}; --no-check leaves them out"
        )
    without = "--no-diagnostics leaves them out"
    models = [("twins", x.name, x.guest, without) for x in experiment.twins]
    models += [("arms", arm.name, arm.guest, "leave it out") for arm in experiment.all_arms]
    for key, name, shape, step in models:
        if shape.cpu is not None:
            problems.append(
                f"{key}: {name}: guest.cpu = {shape.cpu!r} is a model of x86_64, and all guests of "
                f"{arch} have the same; {step}"
            )
    for bench in resolved.benches:
        for guest in bench.guests.values():
            where = f"twins: {bench.name}: guest" if bench.name else "guest"
            for key, value in (("vcpus", guest.vcpus), ("numa_nodes", guest.numa_nodes)):
                if value > 1:
                    problems.append(f"{where}: {key} = {value}: exactness is untested on {arch}")
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))


def require_jobs(resolved: Resolved) -> None:
    """Raise SpecError for what this host's fio, which x86-64 guests have, would not take."""
    fio, experiment = locate("fio"), resolved.experiment
    if experiment.kernel.arch != "x86_64" or fio is None:
        return
    phases = [
        (case.name, phase)
        for case in experiment.cases
        for phase in resolved.workloads[case.workload].phases_of(case.variant)
        if phase.fio
    ]
    commands = [fio_arguments(phase, PhaseTimes(ios=1), jobs=1, seed=1) for _, phase in phases]
    # All at once as a rule: fio takes its time to start.
    if not phases or not _refusal(fio, *commands):
        return
    problems = []
    for (case_name, phase), command in zip(phases, commands, strict=True):
        if words := _refusal(fio, command):
            place = place_of(phase.places, words) or f"case {case_name}"
            problems.append(f"{place}: phase {phase.name}: {words}")
    if problems:
        raise SpecError(problems)


# recall and saves resolve experiment after experiment in one process, of the same jobs as a rule.
@lru_cache(256)
def _refusal(fio: Path, *commands: tuple[str, ...]) -> str:
    """What fio says of these command lines; empty where it takes them."""
    arguments = itertools.chain.from_iterable(commands)
    done = run([str(fio), "--parse-only", *arguments], timeout_s=PARSE_S, check=False)
    lines = done.stderr.splitlines()[:REFUSAL_LINES] or [f"status {done.returncode}"]
    return "; ".join(lines) if done.returncode else ""


def wants_of(resolved: Resolved) -> tuple[Want, ...]:
    """What a prebuilt kernel must have for the cases of an experiment."""
    wanting = {""}
    for case in resolved.experiment.cases:
        workload = resolved.workload(case)
        if workload.fs == "brd":
            wanting |= {workload.fs, workload.mkfs.partition(" ")[0]}
    return tuple(want for want in prebuilt.WANTS if want.of in wanting)


def require_prebuilt(resolved: Resolved, checkout: Path, cache: Path) -> None:
    """Raise UsageError for kernels of files that lack what guests or workloads need."""
    kernels = [arm.spec.kernel or resolved.experiment.kernel for arm in resolved.built]
    wants = wants_of(resolved)
    images = {each.source: each for each in kernels if each.source.startswith("image:")}
    for source, spec in images.items():
        kernel = prebuilt.provide(spec, checkout=checkout, cache=cache)
        prebuilt.require(kernel, wants, where=source)


def require_settings(resolved: Resolved, checkout: Path) -> None:
    """Raise SpecError for settings of arms whose kernel has not what it takes."""
    problems = []
    experiment = resolved.experiment
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
        options = config.parse(config.merge(config.fragments(checkout, kernel)))
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


def require_sources(kernels: Sequence[PlannedKernel], checkout: Path, cache: Path) -> None:
    """Raise UsageError for a source that is not there, SpecError for options of no Kconfig of it.

    What is not at hand yet is not looked for.
    """
    where = {"checkout": checkout, "cache": cache}
    for source in dict.fromkeys(kernel.spec.source for kernel in kernels):
        require_known(source, **where)
    asking = [kernel for kernel in kernels if kernel.spec.config and not kernel.spec.is_prebuilt]
    sources = {
        source: options_of(source, **where)
        for source in dict.fromkeys(kernel.spec.source for kernel in asking)
    }
    every = frozenset[str]().union(*(options or () for options in sources.values()))
    brought: set[str] = set().union(*(_brought(kernel.patches) for kernel in asking))
    problems = []
    for kernel in asking:
        options = sources[kernel.spec.source]
        known = (options or frozenset()) | _brought(kernel.patches)
        for name, value in kernel.spec.config.items() if options is not None else ():
            short = name.removeprefix("CONFIG_")
            # What one release of several does not have is off there.
            if short in known or (value == "n" and short in every | brought):
                continue
            words = f"{kernel.spec.source} has no such option"
            if short in brought:
                words += f", and {kernel.arm} no patch that adds it; ask it of the arm that has one"
            problem = Problem((), words, allowed=tuple(sorted({*known, *brought})), intended=short)
            problem = replace(problem, allowed_word="nearest")
            problems.append(problem.line(f"config (--config): {name}={value}"))
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))


def _brought(patches: Collection[Path]) -> frozenset[str]:
    """Options that patches add."""
    return frozenset(added_options([read_patch(path) for path in patches]))


def uncounted(metrics: Collection[str]) -> list[str]:
    """Those of the metrics, as ``PHASE.METRIC``, that are counted by the probe alone."""
    return [name for name in metrics if name.partition(".")[2] in (PATH, WORK, SLOWPATH_SHARE)]


def require_counted(resolved: Resolved, probe: Probe | None) -> None:
    """Raise SpecError for each case that is judged by what nobody counts."""
    experiment, guest = resolved.experiment, resolved.measured.guest
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


def require_set_up(resolved: Resolved) -> None:
    """Raise SpecError for a case whose workload wants what the dataset leaves out."""
    problems = []
    sizes = [size for bench in resolved.benches for size in bench.sizes.values()]
    for size, case in itertools.product(dict.fromkeys(sizes), resolved.experiment.cases):
        workload = resolved.workload(case)
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
        raise SpecError(list(dict.fromkeys(problems)))


def require_job_fits(resolved: Resolved) -> None:
    """Raise SpecError for a case whose job is too long, before anything is built."""
    experiment = resolved.experiment
    longest = max((twin.blocks for twin in experiment.twins), default=0)
    for case, bench, arm in itertools.product(experiment.cases, resolved.benches, resolved.arms):
        size = bench.sizes[arm.spec.name]
        try:
            job_text(
                resolved.workloads[case.workload].phases_of(case.variant),
                case.times.get(experiment.guest, {}),
                jobs=size.jobs,
                seed=experiment.seed + max(experiment.blocks, longest),
                limit_bytes=size.cgroup_limit_mib * MIB,
                observe="contention",
                sysctl=arm.spec.sysctl,
                files=arm.spec.files,
            )
        except ValueError as error:
            raise SpecError([f"case {case.name}: {error}; shorten its fio arguments"]) from None


def all_x86(guests: Collection[Guest]) -> bool:
    """Whether these guests are of x86-64, whose CPU models diagnostic runs name."""
    return all(guest.arch == X86_64.name for guest in guests)


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
