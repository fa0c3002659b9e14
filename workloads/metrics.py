"""Metrics: from what a phase showed to numbers with a unit and a direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from experiment.spec import Direction
from results.record import Metric
from workloads.parse import FioResult, PhaseResult

MIB = 1 << 20


@dataclass(frozen=True)
class Definition:
    """One metric of a phase; ``value`` takes the phase and its fio result."""

    name: str
    title: str
    unit: str
    direction: Direction
    value: Callable[[PhaseResult, FioResult], float]


def _moved(phase: PhaseResult, counter: str) -> int:
    return phase.after.vmstat[counter] - phase.before.vmstat[counter]


def _reclaim(phase: PhaseResult, counter: str) -> int:
    """Of the cgroup: /proc/vmstat leaves out what a cgroup's limit makes it reclaim."""
    return phase.after.memory_stat[counter] - phase.before.memory_stat[counter]


def _iops(fio: FioResult) -> float:
    """I/Os per second of the time asked.

    fio divides by the time of its last job.  Jobs on one vCPU learn one after the
    other that the time is up, each at its next turn, and read nothing more: some
    milliseconds in which the CPU leaves fio and does no I/O.  In a short run they
    are noise (paired standard deviation 0.23 % with this, 0.33 % with fio's own);
    in a run of minutes they are not seen.
    """
    return fio.ios / (fio.asked_ms / 1000)


def ios_with_ramp(fio: FioResult) -> float:
    """I/Os of the whole phase: fio counts none during the ramp, the kernel's events do."""
    return _iops(fio) * (fio.ramp_ms + fio.asked_ms) / 1000


DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        "bw", "bandwidth", "MiB/s", "higher",
        lambda phase, fio: _iops(fio) * (fio.io_bytes / fio.ios) / MIB,
    ),
    Definition("iops", "I/Os per second", "1/s", "higher", lambda phase, fio: _iops(fio)),
    Definition("ios", "I/Os measured", "count", "higher", lambda phase, fio: float(fio.ios)),
    Definition(
        "guest_ns_per_io", "CPU time of the cgroup per I/O, ramp included", "ns", "lower",
        lambda phase, fio: (phase.after.cpu_ns - phase.before.cpu_ns) / ios_with_ramp(fio),
    ),
    Definition(
        "refaults_per_io", "refaults per I/O, ramp included", "1", "lower",
        lambda phase, fio: _moved(phase, "workingset_refault_file") / ios_with_ramp(fio),
    ),
    Definition(
        "major_faults_per_io", "major faults per I/O, ramp included", "1", "lower",
        lambda phase, fio: _moved(phase, "pgmajfault") / ios_with_ramp(fio),
    ),
    Definition(
        "device_bytes_per_fio_byte", "device bytes per fio byte, ramp included", "1", "lower",
        lambda phase, fio: (phase.after.device_read_bytes - phase.before.device_read_bytes)
        / (ios_with_ramp(fio) * fio.io_bytes / fio.ios),
    ),
    Definition(
        "scanned_per_io", "pages scanned by reclaim per I/O, ramp included", "1", "lower",
        lambda phase, fio: _reclaim(phase, "pgscan") / ios_with_ramp(fio),
    ),
    Definition(
        "reclaim_efficiency", "pages reclaimed of those scanned", "1", "higher",
        lambda phase, fio: _reclaim(phase, "pgsteal") / max(1, _reclaim(phase, "pgscan")),
    ),
    Definition(
        "direct_scan_share", "pages scanned by direct reclaim of all scanned", "1", "lower",
        lambda phase, fio: _reclaim(phase, "pgscan_direct") / max(1, _reclaim(phase, "pgscan")),
    ),
    Definition(
        "memory_stall_ns_per_io", "time that a task waited for memory (PSI) per I/O, ramp included",
        "ns", "lower",
        lambda phase, fio: (phase.after.memory_stall_ns - phase.before.memory_stall_ns)
        / ios_with_ramp(fio),
    ),
    Definition(
        "file_thp_mib", "huge pages in the page cache at the end", "MiB", "higher",
        lambda phase, fio: phase.after.memory_stat["file_thp"] / MIB,
    ),
)  # fmt: skip

METRIC_NAMES: tuple[str, ...] = tuple(definition.name for definition in DEFINITIONS)


def metrics_of(phases: Sequence[str]) -> tuple[Metric, ...]:
    """The metrics of a case with these phases, named ``phase.metric``."""
    return tuple(
        Metric(
            name=f"{phase}.{definition.name}",
            title=f"{phase}: {definition.title}",
            unit=definition.unit,
            direction=definition.direction,
        )
        for phase in phases
        for definition in DEFINITIONS
    )


def samples(phases: Sequence[PhaseResult], *, real_time: bool = False) -> dict[str, float]:
    """All samples of one valid run: ``phase.metric`` → value.

    With ``real_time`` rates are over the time fio ran, as fio's own are: jobs run at the
    same time and a host may hold all of them up, which is no work left undone.
    """

    def rated(fio: FioResult) -> FioResult:
        return replace(fio, asked_ms=fio.runtime_ms) if real_time else fio

    return {
        f"{phase.name}.{definition.name}": float(definition.value(phase, rated(phase.fio)))
        for phase in phases
        if phase.fio is not None
        for definition in DEFINITIONS
    }
