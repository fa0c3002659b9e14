"""Metrics: from what a phase showed to numbers with a unit and a direction."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from errors import SpecError
from experiment.spec import FUNCTIONS
from results.profile import BEFORE, PER_WORK, Profile
from results.profile import PATH as PATH
from results.profile import WORK as WORK
from results.record import Metric
from workloads.parse import FioResult, PhaseResult, ProgramResult
from workloads.spec import Phase, Workload

MIB = 1 << 20


# Title, unit and direction of each.
TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

Value = Callable[[PhaseResult, FioResult], float]
Which = Callable[[Phase], bool]


def _moved(phase: PhaseResult, counter: str) -> int:
    return phase.after.vmstat[counter] - phase.before.vmstat[counter]


def _reclaim(phase: PhaseResult, counter: str) -> int:
    """Of the cgroup: /proc/vmstat leaves out what a cgroup's limit makes it reclaim."""
    return phase.after.memory_stat[counter] - phase.before.memory_stat[counter]


def _per_second(number: float, fio: FioResult) -> float:
    """So many per second of the time asked.

    fio divides by the time of its last job.  Jobs on one vCPU learn one after the
    other that the time is up, each at its next turn, and read nothing more: some
    milliseconds in which the CPU leaves fio and does no I/O.  In a short run they
    are noise (paired standard deviation 0.23 % with this, 0.33 % with fio's own);
    in a run of minutes they are not seen.
    """
    return number / (fio.planned_ms / 1000)


def _sync_ns(percentile: int) -> tuple[Value, Which]:
    # Of a phase whose time ended before its first sync: no time at all.
    return (
        lambda phase, fio: fio.sync_ns[percentile] if fio.sync_ns else 0.0,
        lambda phase: phase.syncs and _writes(phase),
    )


def _any(phase: Phase) -> bool:
    return True


def _writes(phase: Phase) -> bool:
    return "write" in phase.directions


def _both(phase: Phase) -> bool:
    return len(phase.directions) == 2


def _fills(phase: Phase) -> bool:
    """Pages come from a device and may have to go again."""
    return phase.on_device and "read" in phase.directions


def ios_of(phase: PhaseResult) -> float | None:
    """I/Os of the whole phase, ramp included, or its program's operations; None without either."""
    if phase.fio is not None:
        return ios_with_ramp(phase.fio)
    return float(phase.program.count) if phase.program is not None else None


def ios_with_ramp(fio: FioResult) -> float:
    """I/Os of the whole phase: fio counts none during the ramp, the kernel's events do."""
    if fio.planned_ios:
        return float(fio.ios)
    return _per_second(fio.ios, fio) * (fio.ramp_ms + fio.planned_ms) / 1000


def _per_io(of: Callable[[PhaseResult], float]) -> tuple[Value, Which]:
    """So many of a phase that fills memory for each I/O."""
    return lambda phase, fio: of(phase) / ios_with_ramp(fio), _fills


# From what a phase and its fio showed, and which phases have it.
OF_FIO: Mapping[str, tuple[Value, Which]] = {
    "bw": (lambda _, fio: _per_second(fio.ios, fio) * (fio.io_bytes / fio.ios) / MIB, _any),
    "iops": (lambda _, fio: _per_second(fio.ios, fio), _any),
    "ios": (lambda _, fio: float(fio.ios), _any),
    "runtime": (lambda _, fio: fio.runtime_ms / 1000, lambda phase: not phase.time_based),
    "read_bw": (lambda _, fio: _per_second(fio.read.io_bytes, fio) / MIB, _both),
    "read_iops": (lambda _, fio: _per_second(fio.read.ios, fio), _both),
    "write_bw": (lambda _, fio: _per_second(fio.write.io_bytes, fio) / MIB, _writes),
    "write_iops": (lambda _, fio: _per_second(fio.write.ios, fio), _writes),
    "device_bytes_per_written_byte": (
        lambda phase, fio: (
            (phase.after.device_written_bytes - phase.before.device_written_bytes)
            / max(1.0, fio.write.io_bytes * (fio.ramp_ms + fio.planned_ms) / fio.planned_ms)
        ),
        lambda phase: phase.on_device and _writes(phase),
    ),
    "sync_p50_ns": _sync_ns(0),
    "sync_p99_ns": _sync_ns(1),
    "sync_p999_ns": _sync_ns(2),
    "guest_ns_per_io": (
        lambda phase, fio: (phase.after.cpu_ns - phase.before.cpu_ns) / ios_with_ramp(fio),
        # With it the cgroup works outside of the time that fio counts I/Os in.
        lambda phase: phase.option("pre_read") in ("", "0"),
    ),
    "refaults_per_io": _per_io(lambda phase: _moved(phase, "workingset_refault_file")),
    "major_faults_per_io": _per_io(lambda phase: _moved(phase, "pgmajfault")),
    "scanned_per_io": _per_io(lambda phase: _reclaim(phase, "pgscan")),
    "reclaim_efficiency": (
        lambda phase, _: _reclaim(phase, "pgsteal") / max(1, _reclaim(phase, "pgscan")),
        _fills,
    ),
    "direct_scan_share": (
        lambda phase, _: _reclaim(phase, "pgscan_direct") / max(1, _reclaim(phase, "pgscan")),
        _fills,
    ),
    "memory_stall_ns_per_io": _per_io(
        lambda phase: phase.after.memory_stall_ns - phase.before.memory_stall_ns
    ),
    "file_thp_mib": (lambda phase, _: phase.after.memory_stat["file_thp"] / MIB, _fills),
}
OF_PROGRAM: Mapping[str, Callable[[ProgramResult], float]] = {
    "time": lambda program: program.ns / program.count,
    "ops": lambda program: float(program.count),
}

# What the document of reclaim-contention reads from a profile of a machine: the time in
# the slow path of spin locks, of all the time that CPUs were not idle.
SLOWPATH_SHARE = "slowpath_share"
# What a path is per, and the unit that counts of functions are given per first.
WORK_TITLE = "1,000 ns of work"
METRIC_NAMES: tuple[str, ...] = (*OF_FIO, *OF_PROGRAM, PATH, WORK, BEFORE, SLOWPATH_SHARE)


def shown_by(phase: Phase) -> tuple[str, ...]:
    """The names of what fio or a program shows of a phase, by what it does."""
    if phase.program:
        return tuple(OF_PROGRAM)
    return tuple(name for name, (_, which) in OF_FIO.items() if which(phase))


def _counted(phase: Phase) -> tuple[str, ...]:
    return (*((PATH, WORK) if phase.costs else (PATH,) if phase.program else ()), BEFORE)


def names_of(phase: Phase) -> tuple[str, ...]:
    """The names of all metrics that a phase can have."""
    return (*shown_by(phase), *_counted(phase), SLOWPATH_SHARE)


def thresholds_of(workloads: Mapping[str, Workload]) -> dict[tuple[str, str], dict[str, float]]:
    """Metrics' own smallest changes by workload and variant; SpecError: no such metric."""
    own: dict[tuple[str, str], dict[str, float]] = {}
    mistakes = []
    for name, workload in workloads.items():
        for variant in ("default", *workload.variants):
            for phase in workload.phases_of(variant):
                allowed = (*names_of(phase), FUNCTIONS)
                mistakes += [
                    f"workloads/catalogue/{name}.toml: thresholds of phase {phase.name} "
                    f"({variant}): no metric is named {metric!r}; allowed: {', '.join(allowed)}"
                    for metric in phase.thresholds
                    if metric not in allowed
                ]
                own.setdefault((name, variant), {}).update(
                    {f"{phase.name}.{metric}": at for metric, at in phase.thresholds.items()}
                )
    if mistakes:
        raise SpecError(list(dict.fromkeys(mistakes)))
    return own


def metrics_of(
    phases: Sequence[Phase], *, counted: bool = False, waits: bool = False
) -> tuple[Metric, ...]:
    """The metrics of a case with these phases, named ``phase.metric``.

    With ``counted`` there is a probe, with ``waits`` it looks at how long vCPUs wait
    (:func:`of_profile`).
    """
    metrics: list[Metric] = []
    for phase in phases:
        own = (*shown_by(phase), *(_counted(phase) if counted else ()))
        for name in (*own, SLOWPATH_SHARE) if waits else own:
            title, unit, direction = TABLE[name]
            if name == PATH and phase.program:
                title = f"instructions for one {phase.units[0].title}"
            name, title = f"{phase.name}.{name}", f"{phase.name}: {title}"
            metrics.append(Metric(name=name, title=title, unit=unit, direction=direction))
    return tuple(metrics)


def before_phases(phases: Sequence[PhaseResult]) -> dict[str, float]:
    """Samples of a guest that is counted: milliseconds of its clock before each phase."""
    values = {f"{phase.name}.{BEFORE}": phase.before_ns for phase in phases}
    return {name: ns / 1e6 for name, ns in values.items() if ns is not None}


def of_profile(profile: Profile, phases: Sequence[Phase]) -> dict[str, float]:
    """Samples that only the probe has; no path where part of the work was not counted."""
    values = {}
    for phase, spec in zip(profile.phases, phases, strict=True):
        if phase.spinning_share is not None:
            values[f"{phase.phase}.{SLOWPATH_SHARE}"] = 100 * phase.spinning_share
        if spec.program:
            values[f"{phase.phase}.{PATH}"] = phase.in_kernel / spec.ops
        work = work_ns(spec, phase.work)
        if work:
            ios = next(phase.work[cost.name] for cost in spec.costs if cost.ios)
            values[f"{phase.phase}.{PATH}"] = PER_WORK * phase.busy / work
            values[f"{phase.phase}.{WORK}"] = work / ios
    return values


def work_ns(spec: Phase, counts: Mapping[str, float]) -> float | None:
    """The work of a phase that did so many of each of its units; None where one is not counted."""
    if not spec.costs or any(cost.name not in counts for cost in spec.costs):
        return None
    return spec.start_ns + sum(cost.ns * counts[cost.name] for cost in spec.costs)


def uncounted(profile: Profile, phases: Sequence[Phase]) -> tuple[str, ...]:
    """Findings: what a phase's work is made of and this kernel has no function for."""
    return tuple(
        f"{spec.name}: no {PATH} and no {WORK}: nothing in this kernel counts {cost.title}: "
        f"it has no function {' or '.join(cost.calls)}"
        for phase, spec in zip(profile.phases, phases, strict=True)
        for cost in spec.costs
        if cost.name not in phase.work
    )


def samples(
    phases: Sequence[PhaseResult], specs: Sequence[Phase], *, real_time: bool = False
) -> dict[str, float]:
    """All samples of one valid run of the phases ``asked``: ``phase.metric`` → value.

    With ``real_time`` rates are over the time fio ran, as fio's own are: jobs run at the
    same time and a host may hold all of them up, which is no work left undone.  So are
    those of a phase that is not of a given time.
    """
    values = {}
    for phase, spec in zip(phases, specs, strict=False):
        fio = phase.fio
        if fio and (real_time or not spec.time_based or fio.planned_ios > 0):
            fio = replace(fio, planned_ms=fio.runtime_ms)
        for name in shown_by(spec):
            if spec.program:
                value = OF_PROGRAM[name](phase.program) if phase.program else None
            else:
                value = OF_FIO[name][0](phase, fio) if fio else None
            if value is not None:
                values[f"{phase.name}.{name}"] = float(value)
    return values
