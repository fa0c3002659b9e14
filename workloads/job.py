"""What is sent into the guest: the preparation, and the job of one run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from experiment.spec import Observed, PhaseTimes
from workloads.spec import Phase, Workload

# Both texts have one fixed size: a snapshot is restored only into a machine
# whose fw_cfg files are as long as they were.
TEXT_BYTES = 4096
LOG_INTERVAL_MS = 50
# At most 256 KiB, far below what any guest has to spare.
HELD_PAGES = 64
# fio ends at the size of its file, whatever number of I/Os it was given, unless told otherwise.
ENDLESS = "1t"


def fio_arguments(phase: Phase, times: PhaseTimes, *, jobs: int, seed: int) -> tuple[str, ...]:
    """The whole argument list of one fio invocation, without the program's name."""
    arguments = [*phase.fio, f"--numjobs={jobs}"]
    if times.ios is not None:
        arguments += [f"--number_ios={times.ios // jobs}", f"--io_size={ENDLESS}"]
        if phase.drop_caches:
            # A job that has read all of its file would drop it from the cache and begin anew.
            arguments.append("--invalidate=0")
    elif times.runtime_s is not None:
        if phase.time_based:
            arguments.append("--time_based")
        if times.ramp_s > 0:
            arguments.append(f"--ramp_time={_milliseconds(times.ramp_s)}")
        arguments.append(f"--runtime={_milliseconds(times.runtime_s)}")
    arguments += [
        "--group_reporting",
        # Without randrepeat=0, fio before 3.34 reads the same offsets whatever the
        # seed (https://github.com/axboe/fio/issues/1502).
        "--randrepeat=0",
        f"--randseed={seed}",
    ]
    return tuple(arguments)


def output_arguments() -> tuple[str, ...]:
    """Fio arguments that only say where and how its results are written."""
    return (
        "--output-format=json+",
        "--output=fio.json",
        "--write_bw_log=fio",
        f"--log_avg_msec={LOG_INTERVAL_MS}",
        "--per_job_logs=0",
    )


def prepare_text(
    workload: Workload, *, file_mib: int, jobs: int = 1, mount_options: str = ""
) -> str:
    """Shell assignments for the agent's preparation, padded to :data:`TEXT_BYTES`.

    ``file_mib`` is the size of all files together; ``mount_options`` are an arm's, in
    place of the workload's.
    """
    files = workload.files(jobs)
    values = {
        "MKFS": workload.mkfs,
        "MOUNT_OPTIONS": mount_options or workload.mount_options,
        "FILES": " ".join(files),
        "FILE_MIB": str(file_mib // len(files)),
    }
    return _padded(values)


def job_text(
    phases: Sequence[Phase],
    times: Mapping[str, PhaseTimes],
    *,
    jobs: int,
    seed: int,
    limit_bytes: int,
    observe: Observed | Literal[""] = "",
    sysctl: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Shell assignments for the phases of one run, padded to :data:`TEXT_BYTES`.

    A ``limit_bytes`` of 0 is no limit.  ``observe`` is what a twin reads of locks around
    each phase; nothing by default.  ``sysctl`` is written before the first phase, a line
    each: the agent reads it back.
    """
    values = {"OBSERVE": observe, "PHASES": str(len(phases))}
    if sysctl:
        values["SYSCTL"] = "\n".join(f"{name}={value}" for name, value in sorted(sysctl.items()))
    for number, phase in enumerate(phases, start=1):
        arguments = (
            *fio_arguments(phase, times[phase.name], jobs=jobs, seed=seed),
            *output_arguments(),
        )
        values |= {
            f"NAME_{number}": phase.name,
            f"DROP_{number}": str(int(phase.drop_caches)),
            f"THP_{number}": phase.thp,
            f"LIMIT_{number}": limit_text(limit_bytes),
            f"READAHEAD_{number}": str(phase.readahead_kib),
            f"HELD_{number}": str(held_pages(phase, seed)),
            f"FIO_{number}": shlex.join(arguments),
        }
    return _padded(values)


def held_pages(phase: Phase, seed: int) -> int:
    """Pages of memory that are taken before a phase, so that its seed has an effect.

    A sequential phase draws nothing from fio's seed: without this all its runs would be
    the same, and say nothing of how much a result owes to the moment it was taken in.
    """
    return 0 if phase.pattern.startswith("rand") else 1 + seed % HELD_PAGES


def limit_text(limit_bytes: int) -> str:
    """A cgroup's ``memory.max`` as the kernel reads and writes it."""
    return str(limit_bytes) if limit_bytes else "max"


def _padded(values: Mapping[str, str]) -> str:
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    if len(text.encode()) > TEXT_BYTES:
        raise ValueError(f"job of {len(text.encode())} bytes, at most {TEXT_BYTES} fit")
    return text + "\n" * (TEXT_BYTES - len(text.encode()))


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
