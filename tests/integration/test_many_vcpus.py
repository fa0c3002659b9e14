"""A guest of several vCPUs is exact, too: cold or restored, whatever the host does."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from experiment.load import load_machine
from experiment.spec import PhaseTimes, ShapeSpec
from guests import channel, exact
from guests.exact import Machine
from guests.probe import counts, fold, plugin
from host.process import spawn
from kernels.cache import Kernel
from runs.local import Options
from tests.integration.machines import machine_of
from tests.values import silent
from workloads.job import job_text
from workloads.parse import phase_locks
from workloads.spec import load_catalogue

pytestmark = pytest.mark.guest

SHAPES = {
    vcpus: ShapeSpec(
        vcpus=vcpus, jobs=vcpus, cpu="Nehalem,-hypervisor", metronome_ns=20_000, more_memory_mib=256
    )
    for vcpus in (4, 8)
}
WORKLOAD = load_catalogue()["filemap-4k"]
PHASES = WORKLOAD.phases_of("default")


# Four are in test_numa.py as well, each on a node of its own.
@pytest.fixture(scope="module", params=[pytest.param(4, marks=pytest.mark.long), 8])
def machine(
    request: pytest.FixtureRequest, kernels: dict[str, Kernel], options: Options
) -> Machine:
    return machine_of(SHAPES[request.param], WORKLOAD, kernels["patched"], options)


def test_cold_restored_and_counted_runs_are_equal_and_locks_are_waited_for(
    machine: Machine, kernels: dict[str, Kernel], options: Options, tmp_path: Path
) -> None:
    text = job_text(
        PHASES,
        {"4k": PhaseTimes(ramp_s=0, runtime_s=0.3)},
        jobs=machine.size.jobs,
        seed=3,
        limit_bytes=machine.size.cgroup_limit_mib << 20,
        observe="contention",
    )
    snapshot = exact.take_snapshot(machine, tmp_path / "snapshot", tmp_path / "logs", silent)
    quiet = exact.run(snapshot, text, tmp_path / "a", tmp_path / "a-logs", silent)
    # As in busy_host(): they leave the cores to other tests.
    busy_loops = ["nice", "-n", "10", "sh", "-c", "while :; do :; done"]
    with (
        spawn(busy_loops, log=tmp_path / "busy-1", env=dict(os.environ)),
        spawn(busy_loops, log=tmp_path / "busy-2", env=dict(os.environ)),
    ):
        busy = exact.run(snapshot, text, tmp_path / "b", tmp_path / "b-logs", silent)
        cold = exact.run(machine, text, tmp_path / "c", tmp_path / "c-logs", silent)
    assert quiet.files is not None, quiet.ending
    probe = plugin.provide(options.cache)
    kernel = kernels["patched"]
    stacked = replace(probe, functions=kernel.system_map, stacks=fold.stack_words(kernel))
    counted = exact.run(snapshot, text, tmp_path / "d", tmp_path / "d-logs", silent, probe=stacked)
    entered = counts.parse(counted.counts or b"")
    assert len(entered.rows) > 10_000
    executed = (entered.rows["entries"] * entered.rows["instructions"]).sum()
    assert int(entered.stacks["instructions"].sum()) == pytest.approx(int(executed), rel=1e-4)
    model = plugin.line_words(load_machine(Path("ice-lake-sp")), kernel)
    modelled = exact.run(
        snapshot,
        text,
        tmp_path / "e",
        tmp_path / "e-logs",
        silent,
        probe=replace(probe, model=model),
    )
    assert len(counts.parse(modelled.counts or b"").moves) > 1000
    runs = (quiet, busy, cold, counted, modelled)
    fingerprints = [channel.fingerprint(run.files or {}) for run in runs]
    assert len(set(fingerprints)) == 1, fingerprints

    locks = phase_locks(quiet.files, "4k")
    assert locks.dropped == 0
    tree = [wait for wait in locks.waits if "__filemap_add_folio" in wait.callers[:2]]
    assert sum(wait.count for wait in tree) > 100
    assert all(wait.flags == "SPIN" for wait in tree)
    # Each vCPU had its turns: none did less than a tenth of its share of the time.
    spent = [
        int(line.split()[1]) + int(line.split()[3])
        for line in quiet.files["4k/after/proc/stat"].decode().splitlines()
        if line.startswith("cpu") and not line.startswith("cpu ")
    ]
    assert min(spent) > max(spent) / 10, spent
