"""Metrics: from what a phase showed to numbers with a unit and a direction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from errors import SpecError
from experiment.spec import FUNCTIONS, Direction
from results.profile import PATH as PATH
from results.profile import WORK as WORK
from results.profile import Profile
from results.record import Metric
from workloads.parse import FioResult, PhaseResult, ProgramResult
from workloads.spec import Phase, Workload

MIB = 1 << 20


Value = Callable[[PhaseResult, FioResult], float]


class Definition(NamedTuple):
    """One metric; ``value`` takes phase and fio result, ``when`` says which phases have it."""

    name: str
    title: str
    unit: str
    direction: Direction
    value: Value
    when: Callable[[Phase], bool] = lambda phase: True


class ProgramDefinition(NamedTuple):
    """One metric of a phase with a program of its own; ``value`` takes what the program did."""

    name: str
    title: str
    unit: str
    direction: Direction
    value: Callable[[ProgramResult], float]


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


def _sync_ns(percentile: int) -> Value:
    # Of a phase whose time ended before its first sync: no time at all.
    return lambda phase, fio: fio.sync_ns[percentile] if fio.sync_ns else 0.0


def _writes(phase: Phase) -> bool:
    return "write" in phase.directions


def _both(phase: Phase) -> bool:
    return len(phase.directions) == 2


def _fills(phase: Phase) -> bool:
    """Pages come from a device and may have to go again."""
    return phase.on_device and "read" in phase.directions


def _syncs(phase: Phase) -> bool:
    return phase.syncs and _writes(phase)


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


def _per_io(
    name: str, title: str, of: Callable[[PhaseResult], float], unit: str = "1"
) -> Definition:
    """So many of a phase that fills memory for each I/O."""
    title = f"{title} per I/O, ramp included"
    return Definition(
        f"{name}_per_io",
        title,
        unit,
        "lower",
        lambda phase, fio: of(phase) / ios_with_ramp(fio),
        _fills,
    )


DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        "bw",
        "bandwidth",
        "MiB/s",
        "higher",
        lambda phase, fio: _per_second(fio.ios, fio) * (fio.io_bytes / fio.ios) / MIB,
    ),
    Definition(
        "iops", "I/Os per second", "1/s", "higher", lambda phase, fio: _per_second(fio.ios, fio)
    ),
    Definition("ios", "I/Os measured", "count", "higher", lambda phase, fio: float(fio.ios)),
    Definition(
        "runtime",
        "time for the whole work",
        "s",
        "lower",
        lambda phase, fio: fio.runtime_ms / 1000,
        lambda phase: not phase.time_based,
    ),
    Definition(
        "read_bw",
        "read bandwidth",
        "MiB/s",
        "higher",
        lambda phase, fio: _per_second(fio.read.io_bytes, fio) / MIB,
        _both,
    ),
    Definition(
        "read_iops",
        "reads per second",
        "1/s",
        "higher",
        lambda phase, fio: _per_second(fio.read.ios, fio),
        _both,
    ),
    Definition(
        "write_bw",
        "write bandwidth",
        "MiB/s",
        "higher",
        lambda phase, fio: _per_second(fio.write.io_bytes, fio) / MIB,
        _writes,
    ),
    Definition(
        "write_iops",
        "writes per second",
        "1/s",
        "higher",
        lambda phase, fio: _per_second(fio.write.ios, fio),
        _writes,
    ),
    Definition(
        "device_bytes_per_written_byte",
        "bytes written to the device per byte fio wrote, ramp included",
        "1",
        "lower",
        lambda phase, fio: (
            (phase.after.device_written_bytes - phase.before.device_written_bytes)
            / max(1.0, fio.write.io_bytes * (fio.ramp_ms + fio.planned_ms) / fio.planned_ms)
        ),
        lambda phase: phase.on_device and _writes(phase),
    ),
    *(
        Definition(
            f"sync_{name}_ns", f"{of} of the time that a sync took", "ns", "lower", ns, _syncs
        )
        for name, of, ns in (
            ("p50", "median", _sync_ns(0)),
            ("p99", "99th percentile", _sync_ns(1)),
            ("p999", "99.9th percentile", _sync_ns(2)),
        )
    ),
    Definition(
        "guest_ns_per_io",
        "CPU time of the cgroup per I/O, ramp included",
        "ns",
        "lower",
        lambda phase, fio: (phase.after.cpu_ns - phase.before.cpu_ns) / ios_with_ramp(fio),
        # With it the cgroup works outside of the time that fio counts I/Os in.
        lambda phase: phase.option("pre_read") in ("", "0"),
    ),
    _per_io("refaults", "refaults", lambda phase: _moved(phase, "workingset_refault_file")),
    _per_io("major_faults", "major faults", lambda phase: _moved(phase, "pgmajfault")),
    _per_io("scanned", "pages scanned by reclaim", lambda phase: _reclaim(phase, "pgscan")),
    Definition(
        "reclaim_efficiency",
        "pages reclaimed of those scanned",
        "1",
        "higher",
        lambda phase, fio: _reclaim(phase, "pgsteal") / max(1, _reclaim(phase, "pgscan")),
        _fills,
    ),
    Definition(
        "direct_scan_share",
        "pages scanned by direct reclaim of all scanned",
        "1",
        "lower",
        lambda phase, fio: _reclaim(phase, "pgscan_direct") / max(1, _reclaim(phase, "pgscan")),
        _fills,
    ),
    _per_io(
        "memory_stall_ns",
        "time that a task waited for memory (PSI)",
        lambda phase: phase.after.memory_stall_ns - phase.before.memory_stall_ns,
        unit="ns",
    ),
    Definition(
        "file_thp_mib",
        "huge pages in the page cache at the end",
        "MiB",
        "higher",
        lambda phase, fio: phase.after.memory_stat["file_thp"] / MIB,
        _fills,
    ),
)

PROGRAM_DEFINITIONS: tuple[ProgramDefinition, ...] = (
    ProgramDefinition(
        "time",
        "time for one operation, set-up left out",
        "ns",
        "lower",
        lambda program: program.ns / program.count,
    ),
    ProgramDefinition(
        "ops", "operations measured", "count", "higher", lambda program: float(program.count)
    ),
)

# What the document of reclaim-contention reads from a profile of a machine: the time in
# the slow path of spin locks, of all the time that CPUs were not idle.
SLOWPATH_SHARE = "slowpath_share"
# Path is instructions for a standard amount of work, and work what an I/O needed: an index of
# prices, and one of quantities at fixed prices (Laspeyres).  A path is given for so many ns of
# work, so that tools that print two decimals show it.
PER_WORK = 1000
# That is also the unit that counts of functions are given per first.
WORK_TITLE = "1,000 ns of work"
METRIC_NAMES: tuple[str, ...] = (
    *(definition.name for definition in DEFINITIONS),
    *(definition.name for definition in PROGRAM_DEFINITIONS),
    *(PATH, WORK, SLOWPATH_SHARE),
)


def definitions_of(phase: Phase) -> tuple[Definition | ProgramDefinition, ...]:
    """What is measured of a phase, by what it does."""
    if phase.program:
        return PROGRAM_DEFINITIONS
    return tuple(definition for definition in DEFINITIONS if definition.when(phase))


def names_of(phase: Phase) -> tuple[str, ...]:
    """The names of all metrics that a phase can have."""
    counted = (PATH, WORK) if phase.costs else (PATH,) if phase.program else ()
    return (*(definition.name for definition in definitions_of(phase)), *counted, SLOWPATH_SHARE)


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
        rows = [
            (each.name, each.title, each.unit, each.direction) for each in definitions_of(phase)
        ]
        if counted and phase.program:
            title = f"instructions for one {phase.units[0].title}"
            rows.append((PATH, title, "ns", "lower"))
        if counted and phase.costs:
            rows += [
                (PATH, "instructions for 1,000 ns of work, at fixed costs", "ns", "lower"),
                (WORK, "work per I/O, ramp included, at fixed costs", "ns", "lower"),
            ]
        if waits:
            title = "share of busy vCPU time in the spin locks' slow path"
            rows.append((SLOWPATH_SHARE, title, "%", "lower"))
        for name, title, unit, direction in rows:
            name, title = f"{phase.name}.{name}", f"{phase.name}: {title}"
            metrics.append(Metric(name=name, title=title, unit=unit, direction=direction))
    return tuple(metrics)


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
        for definition in definitions_of(spec):
            if isinstance(definition, ProgramDefinition):
                value = definition.value(phase.program) if phase.program else None
            else:
                value = definition.value(phase, fio) if fio else None
            if value is not None:
                values[f"{phase.name}.{definition.name}"] = float(value)
    return values
