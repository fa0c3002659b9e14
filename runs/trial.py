"""Try whether this host's QEMU is exact: two boots under load, compared file by file."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from experiment.load import load_experiment
from experiment.plan import Size, scaled
from experiment.spec import PhaseTimes, ShapeSpec
from guests import exact, initramfs, native
from guests.exact import BootError, Machine, Outcome
from host import exactness
from host.errors import InfraError
from host.exactness import Trial
from host.facts import cores_available
from host.process import spawn
from kernels.cache import Kernel, cached_kernels, hold
from runs.arms import guest_of
from runs.exactness import diverging
from runs.prepare import catalogue
from runs.workspace import workspace
from workloads.job import job_text, prepare_text
from workloads.spec import load_catalogue

EXPERIMENT = Path("noop")
WORKLOAD = "filemap-4k"
PHASE = "4k"
RUNTIME_S = 0.3
SEED = 3
MEASURED = "perf"
MIB = 1 << 20
# One vCPU, and several that take turns, which is where the host comes in most easily.
SHAPES = (
    ShapeSpec(),
    ShapeSpec(vcpus=4, jobs=4, cpu="Nehalem,-hypervisor", metronome_ns=20_000,
              more_memory_mib=256),
)  # fmt: skip
BUSY = ["sh", "-c", "while :; do :; done"]


def try_exactness(cache: Path, checkout: Path, say: Callable[[str], None]) -> Trial:
    """Boot guests of each shape twice on a busy host, compare what they sent, and remember it.

    One boot is kept at its stop point and restored, the other goes on from there. Both run
    beside a busy loop for each core.

    Raises:
        InfraError: no QEMU, no kernel in the cache, no disk, or a guest that the host lost.
    """
    version, binary, preload = exactness.identity()
    kernel = _kernel(cache)
    found: list[str] = []
    with hold(kernel), workspace(cache, 4 * 1024 * MIB) as scratch:
        for shape in SHAPES:
            machine = _machine(shape, kernel, cache, checkout)
            say(f"{machine.guest.vcpus} vCPU{'s' * (machine.guest.vcpus > 1)}: two boots beside "
                f"{cores_available()} busy loops, kernel {kernel.identity.release}")  # fmt: skip
            place = scratch / str(machine.guest.vcpus)
            found += [f"{machine.guest.vcpus} vCPUs: {each}" for each in _compare(machine, place)]
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    vcpus = tuple(shape.vcpus or 1 for shape in SHAPES)
    trial = Trial(version, binary, preload, today, vcpus, tuple(found))
    exactness.remember(cache, trial)
    return trial


def _kernel(cache: Path) -> Kernel:
    """The built kernel that was used last."""
    for kernel in cached_kernels(cache):
        measured = kernel.identity.flavour == MEASURED
        if measured and kernel.identity.arch == "x86_64" and kernel.image.exists():
            return kernel
    raise InfraError(
        "no kernel to boot is in the cache",
        where=str(cache),
        next_step="./lab.py build filemap-v4 --no-twins --no-check, or any other experiment",
    )


def _machine(shape: ShapeSpec, kernel: Kernel, cache: Path, checkout: Path) -> Machine:
    overrides = ("guest=smoke",)
    asked = load_experiment(EXPERIMENT, overrides=overrides, catalogue=catalogue(checkout))
    guest = shape.of(guest_of(asked))
    size = scaled(asked.dataset, guest)
    return Machine(
        kernel=kernel.image,
        initramfs=initramfs.provide(cache).path,
        preload=native.build(native.PRELOAD, native.SHARED_LIBRARY, cache),
        guest=guest,
        size=size,
        prepare_text=prepare_text(
            load_catalogue()[WORKLOAD], file_mib=size.file_mib, jobs=size.jobs
        ),
    )


def _job(size: Size) -> str:
    return job_text(
        load_catalogue()[WORKLOAD].phases_of("default"),
        {PHASE: PhaseTimes(ramp_s=0, runtime_s=RUNTIME_S)},
        jobs=size.jobs,
        seed=SEED,
        limit_bytes=size.cgroup_limit_mib * MIB,
    )


def _compare(machine: Machine, place: Path) -> tuple[str, ...]:
    """What differs between two boots of one machine; empty when every byte is the same."""

    def silent(word: str) -> None:
        """Nobody watches."""

    job = _job(machine.size)
    with ExitStack() as busy:
        for number in range(cores_available()):
            log = place.parent / f"busy-{number}"
            busy.enter_context(spawn(BUSY, log=log, env=dict(os.environ)))
        try:
            kept = exact.take_snapshot(machine, place / "kept", place / "kept-logs", silent)
        except BootError as error:
            raise _lost(error.ending.message) from error
        restored = exact.run_restored(kept, job, place / "a", place / "a-logs", silent)
        cold = exact.run_cold(machine, job, place / "b", place / "b-logs", silent)
    return diverging(_files(restored), _files(cold))


def _files(outcome: Outcome) -> Mapping[str, bytes]:
    if outcome.files is None:
        raise _lost(outcome.ending.message)
    return outcome.files


def _lost(message: str) -> InfraError:
    return InfraError(
        f"a guest of the trial did not come to its end: {message}",
        where=exactness.QEMU,
        next_step="./lab.py doctor; ./lab.py run noop --set guest=smoke shows a guest's console",
    )
