"""Machines of a shape of their own, for tests that boot without a session."""

from pathlib import Path

from experiment.load import load_experiment
from experiment.plan import scaled
from experiment.spec import ShapeSpec
from guests import initramfs, programs
from guests.exact import Machine
from kernels.cache import Kernel
from runs.local import Options
from runs.resolved import catalogue, guest_of
from tests.integration.lab_process import CHECKOUT, SMALL
from workloads.job import prepare_text
from workloads.spec import Workload


def machine_of(shape: ShapeSpec, workload: Workload, kernel: Kernel, options: Options) -> Machine:
    """The small experiment's guest in this shape, prepared for the workload."""
    experiment = load_experiment(Path(SMALL), overrides=(), catalogue=catalogue(CHECKOUT))
    guest = shape.of(guest_of(experiment))
    size = scaled(experiment.dataset, guest)
    return Machine(
        kernel=kernel.image,
        initramfs=initramfs.provide(options.cache).path,
        preload=programs.build(programs.PRELOAD, programs.SHARED_LIBRARY, options.cache),
        guest=guest,
        size=size,
        prepare_text=prepare_text(workload, file_mib=size.file_mib),
    )
