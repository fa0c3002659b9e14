"""A guest of several NUMA nodes is exact, too, and sees the nodes it was given."""

from pathlib import Path

import pytest

from experiment.spec import PhaseTimes, ShapeSpec
from guests import channel, exact, kept
from guests.exact import Machine
from kernels.cache import Kernel
from runs.local import Options
from tests.integration.machines import machine_of
from tests.values import silent
from workloads.job import job_text
from workloads.spec import load_catalogue

pytestmark = pytest.mark.guest

NODES = 4
SHAPE = ShapeSpec(
    vcpus=4,
    numa_nodes=NODES,
    jobs=4,
    cpu="Nehalem,-hypervisor",
    metronome_ns=20_000,
    more_memory_mib=128,
)
WORKLOAD = load_catalogue()["filemap-4k"]


@pytest.fixture(scope="module")
def machine(kernels: dict[str, Kernel], options: Options) -> Machine:
    return machine_of(SHAPE, WORKLOAD, kernels["patched"], options)


def test_cold_and_restored_runs_are_equal_wherever_their_memory_is(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = job_text(
        WORKLOAD.phases_of("default"),
        {"4k": PhaseTimes(ramp_s=0, runtime_s=0.2)},
        jobs=machine.size.jobs,
        seed=3,
        limit_bytes=machine.size.cgroup_limit_mib << 20,
    )
    runs = []
    # A host with room, the same once more, and one without.
    for place, available_mib in (("memory", 1 << 20), ("cache", 1 << 20), ("disk", 0)):
        monkeypatch.setattr(exact, "memory_available_mib", lambda mib=available_mib: mib)
        folder = tmp_path / place
        snapshot = kept.provide(
            machine, tmp_path / "boots", folder / "kept", folder / "kept-logs", silent
        )
        assert (snapshot.cpu_s == 0) == (place == "cache")
        on_disk = sum(
            path.stat().st_blocks
            for path in snapshot.memory.parent.glob("memory-*")
            if not path.is_symlink()
        )
        assert (len(snapshot.held), on_disk > 0) == ((NODES, False) if available_mib else (0, True))
        restored = folder / "restored"
        runs.append(exact.run(snapshot, text, restored, restored / "logs", silent))
        snapshot.drop()
        assert not snapshot.memory.parent.exists()
    cold = tmp_path / "cold"
    runs.append(exact.run(machine, text, cold, cold / "logs", silent))
    assert runs[0].files is not None, runs[0].ending
    fingerprints = [channel.fingerprint(run.files or {}) for run in runs]
    assert len(set(fingerprints)) == 1, fingerprints

    values = dict(
        line.removeprefix("/sys/devices/system/node/").split(":", 1)
        for line in runs[0].files["4k/before/nodes"].decode().splitlines()
        if "online" in line or "distance" in line or "cpulist" in line
    )
    assert values["online"] == f"0-{NODES - 1}"
    for node in range(NODES):
        assert values[f"node{node}/cpulist"] == str(node)
        distances = ["10" if other == node else "20" for other in range(NODES)]
        assert values[f"node{node}/distance"] == " ".join(distances)
    # The initramfs fills more of one node than the small file can make up for; the others
    # have about as much memory left, whoever wrote.
    free_kib = [
        int(line.split()[-2])
        for line in runs[0].files["4k/before/nodes"].decode().splitlines()
        if " MemFree: " in line
    ]
    assert len(free_kib) == NODES
    fullest, *others = sorted(free_kib)
    assert fullest < others[0]
    assert others[-1] - others[0] <= 8 * 1024, free_kib
