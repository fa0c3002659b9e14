"""Parsers of what a guest sends back: pure, from file contents to numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from results.record import Timeline
from workloads.job import LOG_INTERVAL_MS

BRD = "1:0"


class ParseError(ValueError):
    """A result that is not what the agent writes; names the file and what is wrong."""


@dataclass(frozen=True)
class Observation:
    """What was read before or after a phase.

    ``memory_stat`` and ``vmstat`` map counters to values (bytes or events);
    ``device_read_bytes`` and ``device_written_bytes`` are what the cgroup moved
    to and from the brd, ``cpu_ns`` is its CPU time.
    """

    memory_stat: Mapping[str, int]
    memory_events: Mapping[str, int]
    memory_peak_bytes: int
    vmstat: Mapping[str, int]
    thp_enabled: str
    device_read_bytes: int
    device_written_bytes: int
    cpu_ns: int


@dataclass(frozen=True)
class FioResult:
    """fio's own figures for one phase, all jobs together; the ramp is not in them."""

    ios: int
    io_bytes: int
    iops: float
    runtime_ms: int
    ramp_ms: int
    error: int
    options: Mapping[str, str]


@dataclass(frozen=True)
class PhaseResult:
    """One phase as the guest saw it."""

    name: str
    status: int
    fio: FioResult | None
    output: str
    before: Observation
    after: Observation
    timeline: Timeline


@dataclass(frozen=True)
class GuestResult:
    """Everything one run sent.  ``failure`` is the agent's own word when a step failed."""

    failure: str
    build_id: str
    release: str
    tainted: int
    phases: tuple[PhaseResult, ...]


def guest_result(files: Mapping[str, bytes], phases: tuple[str, ...]) -> GuestResult:
    """Read the files of one run (path → content) for the given phases, in order.

    Raises:
        ParseError: a file that must be there is not, or cannot be read.
    """
    failure = _text(files, "failure").strip() if "failure" in files else ""
    results = []
    for name in phases:
        if failure and f"{name}/status" not in files:
            break
        results.append(_phase(files, name))
    uname = _text(files, "uname").split() if "uname" in files else []
    return GuestResult(
        failure=failure,
        build_id=build_id(files.get("notes", b"")),
        release=uname[2] if len(uname) > 2 else "",
        tainted=int(_text(files, "tainted")),
        phases=tuple(results),
    )


def build_id(notes: bytes) -> str:
    """The GNU build id (hexadecimal) in ``/sys/kernel/notes``; empty when there is none."""
    offset = 0
    while offset + 12 <= len(notes):
        name_size, value_size, kind = (
            int.from_bytes(notes[offset + at : offset + at + 4], "little") for at in (0, 4, 8)
        )
        name_at = offset + 12
        value_at = name_at + (name_size + 3) // 4 * 4
        if kind == 3 and notes[name_at : name_at + name_size] == b"GNU\0":
            return notes[value_at : value_at + value_size].hex()
        offset = value_at + (value_size + 3) // 4 * 4
    return ""


def counters(text: str) -> dict[str, int]:
    """``name value`` lines, as in vmstat, memory.stat and memory.events."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


def thp_selected(text: str) -> str:
    """The value in brackets of ``transparent_hugepage/enabled``."""
    return text.partition("[")[2].partition("]")[0]


def device_bytes(text: str, device: str) -> tuple[int, int]:
    """Bytes read and written by a cgroup on ``major:minor``, from its ``io.stat``.

    brd keeps no ``/proc/diskstats`` (it is bio-based and does no accounting of its
    own), while ``io.stat`` counts every bio that is submitted.  A device that was
    never used has no line.
    """
    for line in text.splitlines():
        name, *pairs = line.split()
        if name == device:
            values = dict(pair.split("=", 1) for pair in pairs)
            return int(values["rbytes"]), int(values["wbytes"])
    return 0, 0


def timeline(phase: str, log: str, interval_ms: float) -> Timeline:
    """Bandwidth of all jobs together from a merged fio bandwidth log.

    fio writes one job behind the other, each line the job's mean since its line
    before, at times that differ a little between jobs.  So each job is read as a
    step function and the steps are added up in the middle of every interval; times
    are in ms since the jobs began, bandwidth in KiB/s.
    """
    jobs: list[list[tuple[float, float]]] = []
    for line in log.splitlines():
        fields = line.split(",")
        at, value = float(fields[0]), float(fields[1])
        if not jobs or at <= jobs[-1][-1][0]:
            jobs.append([])
        jobs[-1].append((at, value))
    if not jobs:
        return Timeline(phase=phase, t_ms=(), bw_kib_s=())
    # Only where every job still ran: a sum that lacks one is no bandwidth.
    end = min(job[-1][0] for job in jobs)
    middles = [(n + 0.5) * interval_ms for n in range(int(end // interval_ms))]
    sums = [
        sum(next(value for at, value in job if at >= middle) for job in jobs) for middle in middles
    ]
    return Timeline(phase=phase, t_ms=tuple(middles), bw_kib_s=tuple(sums))


def fio_result(text: str) -> FioResult | None:
    """Fio's JSON; None when fio wrote none (it failed before it measured)."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        document: dict[str, Any] = json.loads(text[start:])
        job = document["jobs"][0]
        sides = [job["read"], job["write"]]
        options = {**document.get("global options", {}), **job.get("job options", {})}
        return FioResult(
            ios=sum(int(side["total_ios"]) for side in sides),
            io_bytes=sum(int(side["io_bytes"]) for side in sides),
            iops=sum(float(side["iops"]) for side in sides),
            runtime_ms=max(int(side["runtime"]) for side in sides),
            ramp_ms=int(options.get("ramp_time", "0ms").removesuffix("ms")),
            error=int(job["error"]),
            options=options,
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ParseError(f"fio.json: {error!r}") from None


def _phase(files: Mapping[str, bytes], name: str) -> PhaseResult:
    return PhaseResult(
        name=name,
        status=int(_text(files, f"{name}/status")),
        fio=fio_result(_text(files, f"{name}/fio.json")) if f"{name}/fio.json" in files else None,
        output=_text(files, f"{name}/fio.out"),
        before=_observation(files, f"{name}/before"),
        after=_observation(files, f"{name}/after"),
        timeline=timeline(
            name,
            _text(files, f"{name}/fio_bw.log") if f"{name}/fio_bw.log" in files else "",
            LOG_INTERVAL_MS,
        ),
    )


def _observation(files: Mapping[str, bytes], folder: str) -> Observation:
    read, written = device_bytes(_text(files, f"{folder}/cgroup/io.stat"), BRD)
    return Observation(
        memory_stat=counters(_text(files, f"{folder}/cgroup/memory.stat")),
        memory_events=counters(_text(files, f"{folder}/cgroup/memory.events")),
        memory_peak_bytes=int(_text(files, f"{folder}/cgroup/memory.peak")),
        vmstat=counters(_text(files, f"{folder}/proc/vmstat")),
        thp_enabled=thp_selected(_text(files, f"{folder}/proc/enabled")),
        device_read_bytes=read,
        device_written_bytes=written,
        cpu_ns=counters(_text(files, f"{folder}/cgroup/cpu.stat"))["usage_usec"] * 1000,
    )


def _text(files: Mapping[str, bytes], name: str) -> str:
    try:
        return files[name].decode(errors="replace")
    except KeyError:
        raise ParseError(f"{name}: not among the files the guest sent") from None
