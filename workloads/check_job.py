"""What a guest of the gate is asked to do: its sizes, its steps, and the script's text.  Pure.

A phase that only reads is compared with the layout, which has a checksum in each block.
One that writes is done twice: with another kind of checksum than the layout has, and all
that it wrote is read back, so that a write that was lost is told; then with the layout's
kind, and the whole of the files is read from the device, so that a block is told that
nobody wrote to.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from experiment.plan import MIN_BRD_MIB, Size
from workloads.files import names_of
from workloads.job import arm_files, limit_text
from workloads.spec import Phase, Workload

SCRIPT = Path(__file__).with_name("check.sh")
SELFTESTS = Path(__file__).with_name("selftests.toml")
CONTENT = ("--verify=crc32c", "--verify_interval=4096", "--verify_fatal=1")
# What each job of a step reads or writes, in MiB: a huge folio comes and goes for each 4 KiB.
SHARE_MIB = 1
# Of a program's operations, one of so many is done, but in a phase that others need whole.
SHARE_OPS = 10
OWN_STEPS = ("huge", "small", "huge-again", "small-again", "write", "whole", "device")
# Of the gate's own steps where the experiment has no file and no limit that would do:
# those of filemap-v4 in the smallest guest.
IMAGE_MIB, LIMIT_MIB = 52, 32
# Of a limit that the experiment does not have: fio's own memory in each job.
JOB_MIB = 8
# The gate's own file system where the experiment has none on a device: that of the workloads.
MKFS = "mkfs.xfs -q -f --unsupported -c options=/etc/xfs.conf"

SYNCHRONOUS = ("sync", "psync", "pvsync", "pvsync2", "vsync", "mmap")

Writes = Literal["no", "some", "all"]


@dataclass(frozen=True)
class Selftest:
    """A self-test: the initcall that runs it, and how its one line begins."""

    initcall: str
    prints: str


@dataclass(frozen=True)
class CheckCase:
    """A case in a guest of the gate: its workload, and the phases of its variant."""

    workload: Workload
    phases: tuple[Phase, ...]


@dataclass(frozen=True)
class CheckTask:
    """What one guest of the gate was asked to do.

    ``steps`` are all that it makes, ``compared`` those that read something back, and
    ``found_again`` those of them that look for what a phase wrote.  Each of its ``vcpus``
    may hold back some of what is counted as used.
    """

    selftests: tuple[str, ...]
    steps: tuple[str, ...]
    lockdep: bool
    compared: tuple[str, ...] = ()
    read_back: tuple[str, ...] = ()
    vcpus: int = 1


@dataclass(frozen=True)
class Room:
    """Sizes of one guest, in MiB; 0 is none.

    ``limit`` is the cgroup's while the phases run, ``left`` the memory that is not taken
    away meanwhile; ``image`` and ``own_limit`` are of the gate's own steps.
    """

    brd: int
    limit: int
    left: int
    image: int
    own_limit: int


def known_selftests(path: Path = SELFTESTS) -> dict[str, Selftest]:
    """Self-tests by the names that an experiment gives them."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: Selftest(**entry) for name, entry in data.items()}


def command_line(selftests: Sequence[str]) -> tuple[str, ...]:
    """Words for the kernel of a guest of the gate.

    Everything is printed; slabs of tree nodes have red zones and are looked through when
    they are freed; a task that waits for 10 virtual seconds is told.  Self-tests that are
    not asked for are left out: a name that the kernel does not know does nothing.
    """
    words = ["loglevel=7", "slub_debug=FZ,radix_tree_node", "panic_on_warn=0"]
    words.append("sysctl.kernel.hung_task_timeout_secs=10")
    unasked = [test.initcall for name, test in known_selftests().items() if name not in selftests]
    return (*words, *([f"initcall_blacklist={','.join(unasked)}"] if unasked else []))


def room(size: Size, workload: Workload) -> Room:
    """The sizes of a guest for cases of ``workload``, from the experiment's scaled ones.

    A limit of the experiment's holds for the phases.  Where it says what memory is left,
    that much is left and there is no limit; else there is one, of half of the files and
    what the jobs take themselves, but not in tmpfs, where nothing can be reclaimed.  The
    gate's own steps have the experiment's file and limit where there is one file and a
    limit, and sizes of their own else.
    """
    on_device = workload.fs != "tmpfs"
    limit, left = size.cgroup_limit_mib, 0
    if not limit and size.memory_mib:
        left = size.memory_mib
    elif not limit and on_device:
        limit = size.file_mib // 2 + JOB_MIB * size.jobs
    shared = on_device and not workload.file_per_job and size.cgroup_limit_mib
    return Room(
        brd=size.brd_mib if on_device else MIN_BRD_MIB,
        limit=limit,
        left=left,
        image=size.file_mib if shared else IMAGE_MIB,
        own_limit=size.cgroup_limit_mib if shared else LIMIT_MIB,
    )


def writes_of(phase: Phase, workload: Workload) -> Writes:
    """Whether a phase writes to the files, and whether to all of them."""
    if not _of_the_files(phase, workload) or "write" not in phase.directions:
        return "no"
    return "some" if phase.time_based else "all"


def _of_the_files(phase: Phase, workload: Workload) -> bool:
    """Whether the phase works on the files that the agent lays out, and on all of them."""
    return workload.file_per_job or workload.files(1) == names_of(phase.fio)


def _named(cases: Sequence[CheckCase]) -> list[tuple[str, Phase, Workload]]:
    return [
        (f"{number}-{phase.name}", phase, case.workload)
        for number, case in enumerate(cases, start=1)
        for phase in case.phases
    ]


def task_of(
    cases: Sequence[CheckCase], selftests: tuple[str, ...], *, lockdep: bool, vcpus: int
) -> CheckTask:
    """Every step of a guest, in order."""
    steps: list[str] = []
    compared: list[str] = []
    read_back: list[str] = []
    for name, phase, workload in _named(cases):
        kind = writes_of(phase, workload)
        steps.append(name)
        if kind == "no" and _of_the_files(phase, workload):
            compared.append(name)
        if kind != "no":
            read_back.append(f"{name}-back")
            more = [f"{name}-back"]
            more += [f"{name}-again", f"{name}-whole"] if kind == "some" else []
            steps += more
            compared += [step for step in more if not step.endswith("-again")]
    return CheckTask(
        selftests,
        (*steps, *OWN_STEPS),
        lockdep,
        compared=(*compared, *OWN_STEPS),
        read_back=tuple(read_back),
        vcpus=vcpus,
    )


def job_text(
    cases: Sequence[CheckCase],
    *,
    jobs: int,
    seed: int,
    room: Room,
    file_mib: int,
    sysctl: Mapping[str, str] = MappingProxyType({}),
    files: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """What is sent into a guest of the gate: assignments, and the script that reads them.

    ``file_mib`` is that of all files together.
    """
    named = _named(cases)
    values = {
        "JOBS": str(jobs),
        "SEED": str(seed),
        "SHARE": str(SHARE_MIB),
        "LIMIT": limit_text(room.limit << 20),
        "LEFT_MIB": str(room.left),
        "IMAGE_MIB": str(room.image),
        "OWN_LIMIT": str(room.own_limit << 20),
        "OWN_MKFS": MKFS,
        "PHASES": str(len(named)),
    }
    if sysctl:
        values["SYSCTL"] = "\n".join(f"{name}={value}" for name, value in sorted(sysctl.items()))
    for number, (name, phase, workload) in enumerate(named, start=1):
        # What a phase writes must not be what another one wrote.
        own_seed = seed if writes_of(phase, workload) == "no" else seed + number
        values |= {
            f"NAME_{number}": name,
            f"DROP_{number}": str(int(phase.drop_caches)),
            f"THP_{number}": phase.thp,
            f"READAHEAD_{number}": str(phase.readahead_kib),
            f"FIO_{number}": shlex.join(_command(phase, workload, jobs, own_seed, file_mib)),
            f"WRITES_{number}": writes_of(phase, workload),
        }
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    return text + arm_files(files) + SCRIPT.read_text(encoding="utf-8")


def _command(phase: Phase, workload: Workload, jobs: int, seed: int, file_mib: int) -> list[str]:
    """The arguments of fio, or the command of a program."""
    if phase.program:
        ops = phase.ops if phase.whole else max(1, phase.ops // SHARE_OPS)
        return [*phase.program, str(ops), str(seed)]
    arguments = [*phase.fio, f"--numjobs={jobs}"]
    # Without time_based the work is given, and a part of it may not do what it is about.
    arguments += [f"--io_size={SHARE_MIB}M"] if phase.time_based else []
    arguments += ["--group_reporting", "--randrepeat=0", f"--randseed={seed}"]
    # Such an engine has one request under way, and fio a buffer for each that may be.
    arguments += ["--iodepth=1"] if phase.option("ioengine") in SYNCHRONOUS else []
    kind = writes_of(phase, workload)
    if kind == "no":
        return arguments + (list(CONTENT) if _of_the_files(phase, workload) else [])
    if not workload.file_per_job and jobs > 1:
        # A part for each: what two jobs wrote to one block could not be compared.
        part = f"{file_mib * 1024 // jobs // 4 * 4}k"
        arguments += [f"--size={part}", f"--offset_increment={part}"]
    return arguments
