"""A guest of several vCPUs and NUMA nodes is exact, too: cold or restored, on any host."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiment.load import load_machine
from experiment.spec import PhaseTimes, ShapeSpec
from guests import channel, exact, kept
from guests.exact import Machine, Outcome, Snapshot
from guests.probe import counts, fold, plugin
from guests.probe.plugin import Probe
from kernels.cache import Kernel
from runs.local import Options
from tests.integration.lab_process import busy_host
from tests.integration.machines import machine_of
from tests.values import silent
from workloads.job import job_text
from workloads.parse import phase_locks
from workloads.spec import load_catalogue

pytestmark = pytest.mark.guest

NODES = 4
SHAPES = {
    vcpus: ShapeSpec(
        vcpus=vcpus,
        numa_nodes=NODES,
        jobs=vcpus,
        cpu="Nehalem,-hypervisor",
        metronome_ns=20_000,
        more_memory_mib=256,
    )
    for vcpus in (4, 8)
}
WORKLOAD = load_catalogue()["filemap-4k"]
PHASES = WORKLOAD.phases_of("default")


@pytest.fixture(scope="module", params=[pytest.param(4, marks=pytest.mark.long), 8])
def machine(
    request: pytest.FixtureRequest, kernels: dict[str, Kernel], options: Options
) -> Machine:
    return machine_of(SHAPES[request.param], WORKLOAD, kernels["patched"], options)


def test_cold_restored_and_counted_runs_are_equal_wherever_their_memory_is(
    machine: Machine,
    kernels: dict[str, Kernel],
    options: Options,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = job_text(
        PHASES,
        {"4k": PhaseTimes(ramp_s=0, runtime_s=0.2)},
        jobs=machine.size.jobs,
        seed=3,
        limit_bytes=machine.size.cgroup_limit_mib << 20,
        observe="contention",
    )
    kernel = kernels["patched"]
    probe = plugin.provide(options.cache)
    stacked = replace(probe, functions=kernel.system_map, stacks=fold.stack_words(kernel))
    modelled = replace(probe, model=plugin.line_words(load_machine(Path("ice-lake-sp")), kernel))

    def run(of: Machine | Snapshot, name: str, probe: Probe | None = None) -> Outcome:
        return exact.run(of, text, tmp_path / name, tmp_path / name / "logs", silent, probe=probe)

    runs: dict[str, Outcome] = {}
    # A host with room, the same once more, and one without.
    places = {"memory": (stacked, 1 << 20), "cache": (modelled, 1 << 20), "disk": (None, 0)}
    for place, (counting, available_mib) in places.items():
        monkeypatch.setattr(exact, "memory_available_mib", lambda mib=available_mib: mib)
        folder = tmp_path / f"of-{place}"
        boots = tmp_path / "boots"
        snapshot = kept.provide(machine, boots, folder / "kept", folder / "kept-logs", silent)
        assert (snapshot.cpu_s == 0) == (place == "cache")
        on_disk = sum(
            path.stat().st_blocks
            for path in snapshot.memory.parent.glob("memory-*")
            if not path.is_symlink()
        )
        assert (len(snapshot.held), on_disk > 0) == ((NODES, False) if available_mib else (0, True))
        runs[place] = run(snapshot, place, counting)
        snapshot.drop()
        assert not snapshot.memory.parent.exists()
    with busy_host(tmp_path):
        runs["cold"] = run(machine, "cold")
    quiet = runs["disk"]
    assert quiet.files is not None, quiet.ending
    fingerprints = {place: channel.fingerprint(run.files or {}) for place, run in runs.items()}
    assert len(set(fingerprints.values())) == 1, fingerprints
    require_counts(runs["memory"], runs["cache"])
    require_shared(quiet.files)
    require_nodes(quiet.files)


def require_counts(stacked: Outcome, modelled: Outcome) -> None:
    """What was executed is on call paths; and lines moved between the vCPUs."""
    entered = counts.parse(stacked.counts or b"")
    assert len(entered.rows) > 10_000
    executed = (entered.rows["entries"] * entered.rows["instructions"]).sum()
    assert int(entered.stacks["instructions"].sum()) == pytest.approx(int(executed), rel=1e-4)
    assert len(counts.parse(modelled.counts or b"").moves) > 1000


def require_shared(files: dict[str, bytes]) -> None:
    """The tree's lock was waited for, and each vCPU had its turns."""
    locks = phase_locks(files, "4k")
    assert locks.dropped == 0
    tree = [wait for wait in locks.waits if "__filemap_add_folio" in wait.callers[:2]]
    assert sum(wait.count for wait in tree) > 100
    assert all(wait.flags == "SPIN" for wait in tree)
    # None did less than a tenth of its share of the time.
    before, after = (
        [
            int(line.split()[1]) + int(line.split()[3])
            for line in files[f"4k/{place}/proc/stat"].decode().splitlines()
            if line.startswith("cpu") and not line.startswith("cpu ")
        ]
        for place in ("before", "after")
    )
    spent = [end - begin for begin, end in zip(before, after, strict=True)]
    assert min(spent) > max(spent) / 10, spent


def require_nodes(files: dict[str, bytes]) -> None:
    """Each node has its vCPUs, and about as much memory left as the others, whoever wrote."""
    listed = files["4k/before/nodes"].decode().splitlines()
    values = dict(
        line.removeprefix("/sys/devices/system/node/").split(":", 1)
        for line in listed
        if "online" in line or "distance" in line or "cpulist" in line
    )
    vcpus = len(files["4k/after/proc/stat"].decode().split("\ncpu")) - 1
    assert values["online"] == f"0-{NODES - 1}"
    for node in range(NODES):
        first, last = node * vcpus // NODES, (node + 1) * vcpus // NODES - 1
        assert values[f"node{node}/cpulist"] == (f"{first}-{last}" if first < last else f"{first}")
        distances = ["10" if other == node else "20" for other in range(NODES)]
        assert values[f"node{node}/distance"] == " ".join(distances)
    free_kib = [int(line.split()[-2]) for line in listed if " MemFree: " in line]
    assert len(free_kib) == NODES
    # The initramfs fills more of one node than the small file can make up for.
    fullest, *others = sorted(free_kib)
    assert fullest < others[0]
    assert others[-1] - others[0] <= 8 * 1024, free_kib
