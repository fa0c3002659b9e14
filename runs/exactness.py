"""The promise of exact mode: the same run gives the same bytes.  Whether this host's QEMU keeps it.

Boots under load are compared byte by byte.  What differs only now and then may not differ here: a
session repeats a run of its own, too.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from errors import InfraError
from experiment.load import load_experiment
from experiment.plan import scaled
from experiment.spec import PhaseTimes, ShapeSpec
from files import sha256_of
from guests import exact, initramfs, programs
from guests.exact import BootError, Machine
from host import exactness
from host.exactness import Trial
from host.facts import cores_available
from host.process import spawn
from kernels.cache import Kernel, cached_kernels, hold
from runs.local import workspace
from runs.resolved import catalogue, guest_of
from workloads.job import job_text, prepare_text
from workloads.spec import load_catalogue

MAX_FIELDS = 12
SHOWN = 80


def diverging(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> tuple[str, ...]:
    """What differs between two results: file, line, values; at most :data:`MAX_FIELDS`."""
    differences: list[str] = []
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second:
            differences.append(f"{name}: only in the {'first' if name in first else 'second'} run")
        elif first[name] != second[name]:
            sides = (first[name].splitlines(keepends=True), second[name].splitlines(keepends=True))
            pairs = enumerate(zip(*sides, strict=False), start=1)
            where = f"{len(sides[0])} against {len(sides[1])} lines"
            for number, (left, right) in pairs:
                if left != right:
                    where = f"line {number}{_values(left, right)}"
                    break
            differences.append(f"{name}: {where}")
    if len(differences) > MAX_FIELDS:
        return (*differences[:MAX_FIELDS], f"and {len(differences) - MAX_FIELDS} more files")
    return tuple(differences)


def _values(left: bytes, right: bytes) -> str:
    """Both values, cut to where they differ: lines of /proc/stat are long."""
    bare = left.rstrip(b"\r\n"), right.rstrip(b"\r\n")
    if bare[0] != bare[1]:
        left, right = bare
    shorter = min(len(left), len(right))
    at = next((n for n in range(shorter) if left[n] != right[n]), shorter)
    start, column = (0, "") if at < SHOWN else (at - SHOWN // 2, f", column {at + 1}")
    # Bytes, not text: replacement characters would look the same.
    first, other = (repr(line[start : start + SHOWN])[1:] for line in (left, right))
    return f"{column}: {first} against {other}"


EXPERIMENT = Path("noop")
WORKLOAD = "filemap-4k"
PHASE = "4k"
RUNTIME_S = 0.3
SEED = 3
MEASURED = "perf"
MIB = 1 << 20
# Beside each core's guest: enough that the host takes QEMU's threads off the CPU at odd moments.
LOOPS_PER_CORE = 2
# One vCPU, and several that take turns, which is where the host comes in most easily.
SHAPES = (
    ShapeSpec(),
    ShapeSpec(vcpus=4, jobs=4, cpu="Nehalem,-hypervisor", metronome_ns=20_000, more_memory_mib=256),
)
BUSY = ["sh", "-c", "while :; do :; done"]


def try_exactness(cache: Path, checkout: Path, log: Callable[[str], None]) -> Trial:
    """Boot guests of each shape on a busy host, compare what they sent, and remember it.

    Raises InfraError: no QEMU, kernel or disk, or a guest that the host lost.
    """
    version, binary, preload = exactness.identity()
    kernel = _kernel(cache)
    differences: list[str] = []
    with hold(kernel), workspace(cache, 4 * 1024 * MIB) as scratch:
        for shape in SHAPES:
            machine = _machine(shape, kernel, cache, checkout)
            log(
                f"{machine.guest.vcpus} vCPU{'s' * (machine.guest.vcpus > 1)}: three boots beside "
                f"{_loops()} busy loops, kernel {kernel.identity.release}"
            )
            place = scratch / str(machine.guest.vcpus)
            differences += [
                f"{machine.guest.vcpus} vCPUs: {each}" for each in _compare(machine, place)
            ]
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    vcpus = tuple(shape.vcpus or 1 for shape in SHAPES)
    trial = Trial(version, binary, preload, today, vcpus, tuple(differences))
    exactness.remember(cache, trial)
    return trial


def _kernel(cache: Path) -> Kernel:
    """The built kernel that was used last."""
    for kernel in cached_kernels(cache):
        measured = kernel.identity.flavour == MEASURED
        if measured and kernel.identity.arch == "x86_64" and kernel.image.exists():
            return kernel
    step = "./lab.py build filemap-v4 --no-diagnostics --no-check, or any other experiment"
    raise InfraError("no kernel to boot is in the cache", where=str(cache), next_step=step)


def _machine(shape: ShapeSpec, kernel: Kernel, cache: Path, checkout: Path) -> Machine:
    overrides = ("guest=smoke",)
    experiment = load_experiment(EXPERIMENT, overrides=overrides, catalogue=catalogue(checkout))
    guest, workload = shape.of(guest_of(experiment)), load_catalogue()[WORKLOAD]
    size = scaled(experiment.dataset, guest)
    return Machine(
        kernel=kernel.image,
        initramfs=initramfs.provide(cache).path,
        preload=programs.build(programs.PRELOAD, programs.SHARED_LIBRARY, cache),
        guest=guest,
        size=size,
        prepare_text=prepare_text(workload, file_mib=size.file_mib, jobs=size.jobs),
    )


def _compare(machine: Machine, place: Path) -> tuple[str, ...]:
    """What differs between boots of one machine; empty when every byte is the same."""
    job = job_text(
        load_catalogue()[WORKLOAD].phases_of("default"),
        {PHASE: PhaseTimes(ramp_s=0, runtime_s=RUNTIME_S)},
        jobs=machine.size.jobs,
        seed=SEED,
        limit_bytes=machine.size.cgroup_limit_mib * MIB,
    )
    runs, memories, logs = [], [], place / "logs"
    with ExitStack() as busy:
        for number in range(_loops()):
            log = place.parent / f"busy-{number}"
            busy.enter_context(spawn(BUSY, log=log, env=dict(os.environ)))
        for name in ("first", "second"):
            try:
                kept = exact.take_snapshot(machine, place / name, place / f"{name}.logs", _quiet)
            except BootError as error:
                raise _lost(error.ending.message) from error
            memories.append(sha256_of(kept.memory))
            runs.append(exact.run(kept, job, place / f"{name}-run", logs, _quiet))
            kept.drop()
        runs.append(exact.run(machine, job, place / "cold", logs, _quiet))
    sent: list[Mapping[str, bytes]] = []
    for run in runs:
        if run.files is None:
            raise _lost(run.ending.message)
        sent.append(run.files)
    first, *others = sent
    if memories[0] != memories[1]:
        return ("memory of the guest at its stop point", *diverging(first, others[0]))
    return next((differences for each in others if (differences := diverging(first, each))), ())


def _loops() -> int:
    return LOOPS_PER_CORE * cores_available()


def _quiet(word: str) -> None:
    """Nobody watches the guests of a trial."""


def _lost(message: str) -> InfraError:
    what = f"a guest of the trial did not come to its end: {message}"
    step = "./lab.py doctor; ./lab.py run noop --guest smoke shows a guest's console"
    return InfraError(what, where=exactness.QEMU, next_step=step)
