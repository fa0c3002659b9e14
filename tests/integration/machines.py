"""What is booted without a command: machines of a shape of their own, and judged runs alone."""

from pathlib import Path

from experiment.load import load_experiment
from experiment.plan import scaled
from experiment.spec import ShapeSpec
from guests import initramfs, programs
from guests.exact import Machine
from kernels.cache import Kernel
from results.store import SessionStore
from runs.boots import Reporter
from runs.local import Options
from runs.manifest import manifest_of
from runs.measure import measure
from runs.prepare import prepare
from runs.resolved import Resolved, catalogue, guest_of
from runs.stages import of_twins
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


def measure_judged(made: Resolved, options: Options, folder: Path) -> None:
    """Boot the judged runs into a new session in ``folder``, and no repeat of them."""
    session = of_twins(prepare(made, options, lambda arm, progress: None), ("",))
    store = SessionStore(folder)
    created = "2026-01-01T00:00:00Z"
    store.create(manifest_of(session, options, name="judged", created=created, overrides=()))
    measure(session, options, store, Reporter())
