"""What is sent into the guest: the preparation, and the job of one run."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from experiment.spec import PhaseTimes
from workloads.spec import Phase, Workload

# Both texts have one fixed size: a snapshot is restored only into a machine
# whose fw_cfg files are as long as they were.
TEXT_BYTES = 4096
LOG_INTERVAL_MS = 50
# What the agent does in a phase with a program of its own, sent behind the job's assignments.
PROGRAM_PHASE = Path(__file__).with_name("program_phase.sh")
# How it sets an arm's files, sent where an arm has any.
ARM_FILES = Path(__file__).with_name("arm_files.sh")
# How many free pages a CPU keeps to itself is tuned by the kernel from second to second, and what
# boot made of it was one draw for all seeds of a build: it decides when pages are given back, a
# thousand at a time (docs/notebook/evidence.md).  So in jobs with programs the lists keep about the
# length that tuning begins with, the low watermark: a 160th of the guest's memory.
FREE_LISTS, FREE_LISTS_FRACTION = "vm.percpu_pagelist_high_fraction", 160
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


def phase_command(
    phase: Phase, times: Mapping[str, PhaseTimes], *, jobs: int, seed: int
) -> tuple[str, ...]:
    """The command of a phase: fio with all that decides what it does, or its program."""
    if phase.program:
        return (*phase.program, str(phase.ops), str(seed))
    return ("fio", *fio_arguments(phase, times[phase.name], jobs=jobs, seed=seed))


def shown_command(phase: Phase, times: Mapping[str, PhaseTimes], *, jobs: int, seed: int) -> str:
    """The command of a phase for a shell, with the setting that a program's phase has besides."""
    command = shlex.join(phase_command(phase, times, jobs=jobs, seed=seed))
    return f"sysctl {FREE_LISTS}={FREE_LISTS_FRACTION}; {command}" if phase.program else command


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
    """Shell assignments for the preparation, padded; ``file_mib`` is of all files together."""
    files = workload.files(jobs)
    values = {
        "MKFS": workload.mkfs,
        "MOUNT_OPTIONS": mount_options or workload.mount_options,
        "FILES": " ".join(files),
        "FILE_MIB": str(file_mib // len(files) if files else 0),
    }
    return _padded(values)


def job_text(
    phases: Sequence[Phase],
    times: Mapping[str, PhaseTimes],
    *,
    jobs: int,
    seed: int,
    limit_bytes: int,
    observe: Literal["contention", ""] = "",
    sysctl: Mapping[str, str] = MappingProxyType({}),
    files: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Shell assignments for the phases of one run, padded to :data:`TEXT_BYTES`.

    A ``limit_bytes`` of 0 is no limit.  ``observe`` is what a twin reads of locks around
    each phase; nothing by default.  ``sysctl`` is written before the first phase, a line
    each: the agent reads it back; so are ``files``, by their paths.
    """
    values = {"OBSERVE": observe, **perturbation(seed).assignments(), "PHASES": str(len(phases))}
    if sysctl:
        values["SYSCTL"] = "\n".join(f"{name}={value}" for name, value in sorted(sysctl.items()))
    own = any(phase.program for phase in phases)
    if own:
        values["FREE_LISTS_FRACTION"] = str(FREE_LISTS_FRACTION)
    for number, phase in enumerate(phases, start=1):
        command = phase_command(phase, times, jobs=jobs, seed=seed)
        command = command if phase.program else (*command, *output_arguments())
        values |= {
            f"NAME_{number}": phase.name,
            f"DROP_{number}": str(int(phase.drop_caches)),
            f"THP_{number}": phase.thp,
            f"LIMIT_{number}": limit_text(limit_bytes),
            f"READAHEAD_{number}": str(phase.readahead_kib),
            # The agent's own phase() runs fio, whatever it is given.
            f"FIO_{number}": shlex.join(command if own else command[1:]),
        }
    script = PROGRAM_PHASE.read_text(encoding="utf-8") if own else ""
    return _padded(values, script + arm_files(files))


def arm_files(files: Mapping[str, str]) -> str:
    """Lines for the agent's shell that set files of an arm; none for none."""
    if not files:
        return ""
    lines = "\n".join(f"{name}={value}" for name, value in files.items())
    return f"ARM_FILES={shlex.quote(lines)}\n{ARM_FILES.read_text(encoding='utf-8')}"


class Perturbation(NamedTuple):
    """What the agent does before the first phase, for no purpose but to differ by seed.

    A loop of ``delay`` turns of the shell, about 14,000 instructions each; ``pages`` of memory,
    and ``entries`` of a folder, that stay until the end.
    """

    delay: int
    pages: int
    entries: int

    def assignments(self) -> dict[str, str]:
        """As the agent reads them."""
        return {name.upper(): str(value) for name, value in self._asdict().items()}


# The most of each: 60 virtual ms, 2 MiB, and some pages of inodes and names.
PERTURBED_MOST = Perturbation(delay=4096, pages=512, entries=256)


def perturbation(seed: int) -> Perturbation:
    """Drawn from the seed, evenly, and for seeds beside each other as for any two.

    What a kernel's size and layout decide is one draw for all runs of an arm; with this each seed
    has its own, equal on both arms.  It is also all that a sequential phase has of its seed: fio
    draws nothing there, and all its runs would be the same.
    """
    drawn = hashlib.sha256(f"perturbation {seed}".encode()).digest()
    parts = (int.from_bytes(drawn[at : at + 4], "big") for at in (0, 4, 8))
    return Perturbation(
        *(part % (most + 1) for part, most in zip(parts, PERTURBED_MOST, strict=True))
    )


def limit_text(limit_bytes: int) -> str:
    """A cgroup's ``memory.max`` as the kernel reads and writes it."""
    return str(limit_bytes) if limit_bytes else "max"


def _padded(values: Mapping[str, str], script: str = "") -> str:
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items()) + script
    if len(text.encode()) > TEXT_BYTES:
        raise ValueError(f"job of {len(text.encode())} bytes, at most {TEXT_BYTES} fit")
    return text + "\n" * (TEXT_BYTES - len(text.encode()))


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
