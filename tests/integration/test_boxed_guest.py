"""Where an exact guest's QEMU is while it runs, and that its numbers do not move for it."""

import os
from pathlib import Path

import pytest

from experiment.spec import PhaseTimes, ShapeSpec
from guests import exact
from host import sandbox
from kernels.cache import Kernel
from runs.local import Options
from tests.integration.machines import machine_of
from tests.integration.test_wall_guests import processes
from workloads.job import job_text
from workloads.spec import load_catalogue

pytestmark = pytest.mark.guest
# A mode of seccomp(2): filters.
FILTERED = "2"


def facts_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_qemu_owns_nothing_sees_nothing_and_measures_the_same(
    kernels: dict[str, Kernel], options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = load_catalogue()["filemap-4k"]
    machine = machine_of(ShapeSpec(), workload, next(iter(kernels.values())), options)
    phases = workload.phases_of("default")
    times = {phase.name: PhaseTimes(ramp_s=0.01, runtime_s=0.02) for phase in phases}
    limit_bytes = machine.size.cgroup_limit_mib << 20
    text = job_text(phases, times, jobs=machine.size.jobs, seed=7, limit_bytes=limit_bytes)
    (tmp_path / "canary").write_text("of the host")
    inside: list[tuple[dict[str, str], bool, str]] = []

    def watch(word: str) -> None:
        if word == "ready" and not inside:
            for pid, name in processes(os.getpid()).items():
                if name.startswith("qemu"):
                    canary = Path(f"/proc/{pid}/root{tmp_path}/canary").exists()
                    network = str(Path(f"/proc/{pid}/ns/net").readlink())
                    inside.append((facts_of(pid), canary, network))

    boxed = exact.run(machine, text, tmp_path / "boxed", tmp_path / "boxed-logs", watch)
    monkeypatch.setattr(sandbox, "available", lambda tools: None)
    plain = exact.run(machine, text, tmp_path / "plain", tmp_path / "plain-logs", print)
    assert boxed.files is not None
    assert boxed.files == plain.files
    assert boxed.cpu_s > 1
    ((status, canary, network),) = inside
    assert not canary
    assert network != str(Path("/proc/self/ns/net").readlink())
    assert status["Uid"].split()[1] == str(os.getuid() or sandbox.BOX_UID)
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert (status["Seccomp"], status["NoNewPrivs"]) == (FILTERED, "1")
    result = tmp_path / "boxed-logs" / "result"
    assert result.stat().st_uid == os.getuid()
