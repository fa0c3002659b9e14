"""Wall guests for real, on TCG and on a KVM that works: a whole run, and each way to end early.

What goes wrong is written into the texts that the agent reads as shell.
"""

import os
import pickle
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from errors import InfraError
from experiment.load import load_guest
from experiment.plan import scaled
from experiment.spec import Dataset, PhaseTimes, WallShape
from guests import initramfs, virtme
from guests.channel import Machine, Outcome
from guests.virtme import VNG, WallMachine
from host import accelerator, fitness, sandbox
from host.accelerator import QEMU, AcceleratorTest
from kernels.cache import Kernel
from runs.local import Options
from tests.integration.lab_process import CHECKOUT, processes
from tests.values import but, silent
from tests.waiting import wait_until
from workloads import metrics, parse, validity
from workloads.job import job_text, prepare_text
from workloads.spec import load_catalogue

pytestmark = pytest.mark.guest
DATASET = Dataset(cgroup_limit_mib=8192, brd_mib=16384, file_mib=13312, jobs=16)
WORKLOAD = load_catalogue()["filemap-4k"]
NO_PHASES = "PHASES=0\n"
# Overwrites the first instructions of virtme-ng's init, which then dies of them.
BREAK_INIT = """
address=$(grep -m 1 r-xp /proc/1/maps | cut -d - -f 1)
dd if=/dev/zero of=/proc/1/mem bs=4096 seek=$((0x$address / 4096)) count=400 conv=notrunc
exit 1
"""


@pytest.fixture(scope="module", autouse=True)
def impatient() -> Iterator[None]:
    """KVM that boots nothing keeps a CPU busy for half a minute; one that works takes seconds."""
    with pytest.MonkeyPatch.context() as patched:
        for of_kvm in ("kvm", "kvm,arch-capabilities=off"):
            patched.setitem(accelerator.DEADLINE_S, of_kvm, 8.0)
        yield


@pytest.fixture(scope="module", params=["tcg", "kvm"])
def machine(request: pytest.FixtureRequest, wall_kernel: Kernel, options: Options) -> WallMachine:
    """By the translator, and by KVM where it boots kernels: tests/systems/wall-on-kvm.sh."""
    result = AcceleratorTest("tcg", ())
    if request.param == "kvm":
        result = accelerator.provide(wall_kernel.image)
        if result.accelerator == "tcg":
            pytest.skip("KVM boots no kernel here")
    # Translated on a loaded host a boot takes minutes.
    guest = but(load_guest(Path("smoke")), boot_timeout_s=100.0)
    size = scaled(DATASET, guest)
    plain = Machine(
        kernel=wall_kernel.image,
        initramfs=initramfs.provide(options.cache).path,
        guest=guest,
        size=size,
        prepare_text=prepare_text(WORKLOAD, file_mib=size.file_mib),
        preload=Path("of-exact-guests-alone"),
    )
    return virtme.on_host(plain, result, fitness.place(fitness.host_cpus(), vcpus=guest.vcpus))


def ended(machine: WallMachine, logs: Path, text: str = NO_PHASES, **changes: object) -> Outcome:
    guest = but(machine.guest, **changes)
    return virtme.run(replace(machine, guest=guest), text, logs / "run", logs, silent)


def sections(listing: str) -> dict[str, list[str]]:
    """Names by folder, of ``ls`` with several folders."""
    names: dict[str, list[str]] = {}
    for line in filter(None, listing.splitlines()):
        if line.endswith(":"):
            names[line[:-1]] = inside = []
        else:
            inside.append(line)
    return names


def test_a_real_decision_boots_a_real_kernel(wall_kernel: Kernel) -> None:
    """Made once a process: with KVM's attempts it is twenty seconds of CPU time by TCG."""
    decision = accelerator.provide(wall_kernel.image)
    assert decision.attempts[-1].works
    assert all(attempt.reason for attempt in decision.attempts[:-1])


def test_whole_run_is_valid_and_its_vcpu_is_where_it_was_put(
    machine: WallMachine, wall_kernel: Kernel, tmp_path: Path
) -> None:
    phases = WORKLOAD.phases_of("default")
    limit = machine.size.cgroup_limit_mib << 20
    words: list[str] = []
    canary = tmp_path / "canary"
    canary.write_text("of the host\n")
    # Where the guest has what virtme-ng made its root of.
    host = "/twinboot/host"
    reads = f"cat {host}{canary} {host}/etc/shadow {host}/etc/hostname >$OUT/secrets 2>&1 || true\n"
    lists = f"ls -A {host}/root {host}/home {host}/var {host}/usr >$OUT/host\n"
    curious = replace(machine, prepare_text=reads + lists + machine.prepare_text)
    build_id = wall_kernel.identity.build_id
    claim = validity.Claim(phases, limit, 7, build_id, validity.LEFT_PAGES_WALL)
    # On a loaded host a guest may read less in 1.5 s than its cgroup holds: then it gets more time.
    for runtime_s in (1.5, 6.0, 24.0):
        times = {phase.name: PhaseTimes(ramp_s=0.3, runtime_s=runtime_s) for phase in phases}
        text = job_text(phases, times, jobs=4, seed=7, limit_bytes=limit)
        outcome = virtme.run(curious, text, tmp_path / f"{runtime_s} s", tmp_path, words.append)
        assert outcome.ending.kind == "done"
        files = outcome.files or {}
        result = parse.guest_result(files, ("4k",))
        if not any(of(result.phases[0], claim) for of in (validity.limit_hit, validity.refaults)):
            break
    assert files["secrets"].count(b"No such file") == 3
    assert b"of the host" not in files["secrets"]
    listed = sections(files["host"].decode())
    # Of the host's own folders there are at most those that lead to the lab's programs: on some
    # the guest's init mounts an empty one.
    programs = [place.parts for place in sandbox.programs(VNG, QEMU)]
    for name in ("root", "home", "var"):
        leading = {parts[2] for parts in programs if parts[1] == name and len(parts) > 2}
        assert set(listed[f"{host}/{name}"]) <= leading
    assert "bin" in listed[f"{host}/usr"]
    # A loaded host holds a guest up, too; anything else would be the lab's fault.
    late = f"expected {runtime_s * 1000:.0f} ms"
    assert [problem for problem in validity.problems(result, claim) if late not in problem] == []
    assert metrics.samples(result.phases, phases, real_time=True)["4k.bw"] > 0
    assert "phase 4k" in words
    assert outcome.cpu_s > 0
    if machine.placement is not None:
        cpu = machine.placement.vcpus[0]
        assert (tmp_path / "pinning").read_text() == f"vcpu 0: host CPUs {cpu}\n"


@pytest.mark.long
def test_guest_of_two_numa_nodes(machine: WallMachine, tmp_path: Path) -> None:
    guest = but(machine.guest, vcpus=2, numa_nodes=2)
    listing = "cat /sys/devices/system/node/node*/cpulist >$OUT/nodes\n"
    shaped = replace(
        machine,
        guest=guest,
        prepare_text=listing + machine.prepare_text,
        placement=fitness.place(fitness.host_cpus(), vcpus=2, nodes=2),
    )
    outcome = ended(shaped, tmp_path)
    assert outcome.ending.kind == "done"
    assert outcome.files is not None
    assert outcome.files["nodes"] == b"0\n1\n"
    assert len((tmp_path / "pinning").read_text().splitlines()) == 2


def huge_pages_of(pid: int) -> Counter[int]:
    """How many pages of 2 MiB a process has on each host node."""
    pages: Counter[int] = Counter()
    for line in Path(f"/proc/{pid}/numa_maps").read_text().splitlines():
        if "kernelpagesize_kB=2048" in line:
            pages.update({int(n): int(count) for n, count in re.findall(r" N(\d+)=(\d+)", line)})
    return pages


@pytest.mark.long
def test_guest_memory_is_in_huge_pages_of_its_host_nodes(
    machine: WallMachine, tmp_path: Path
) -> None:
    placement = fitness.place(fitness.host_cpus(), vcpus=2, nodes=2)
    changes = {"vcpus": 2, "numa_nodes": 2, "wall": WallShape(huge_pages=True)}
    guest = but(machine.guest, **changes)
    needed = guest.memory_mib // fitness.HUGE_PAGE_MIB
    free = re.search(r"^HugePages_Free: +(\d+)", Path("/proc/meminfo").read_text(), re.M)
    if free is None or int(free[1]) < needed:
        pytest.skip("too few huge pages are reserved here")
    pages: list[Counter[int]] = []

    def watch(word: str) -> None:
        if not pages:
            names = processes(os.getpid())
            pages.extend(huge_pages_of(p) for p in names if names[p].startswith("qemu-system"))

    shaped = replace(machine, guest=guest, placement=placement)
    outcome = virtme.run(shaped, NO_PHASES, tmp_path / "run", tmp_path, watch)
    assert outcome.ending.kind == "done", outcome.ending
    nodes = placement.nodes if placement else ()
    if nodes:
        assert pages == [dict.fromkeys(nodes, needed // 2)]
    else:
        assert [sum(each.values()) for each in pages] == [needed]


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"accelerator": "kvm"}, "MSR|KVM"), ({"huge": True}, "Cannot allocate memory")],
)
def test_what_the_host_does_not_have_is_the_hosts_fault(
    machine: WallMachine, options: Options, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    if "accelerator" in changes:
        if accelerator.provide(machine.kernel).accelerator == "kvm":
            pytest.skip("KVM boots a kernel here")
        without = replace(machine, accelerator="kvm")
    else:
        if re.search(r"^HugePages_Total: +[1-9]", Path("/proc/meminfo").read_text(), re.M):
            pytest.skip("huge pages are reserved here")
        guest = but(machine.guest, wall=WallShape(huge_pages=True))
        without = replace(machine, guest=guest)
    # There are hosts whose KVM starts a guest and gives up later, with an error of its own.
    with pytest.raises(InfraError, match=message):
        ended(without, tmp_path)


def test_panic(machine: WallMachine, tmp_path: Path) -> None:
    outcome = ended(replace(machine, prepare_text=BREAK_INIT), tmp_path)
    assert outcome.files is None
    assert outcome.ending.kind == "panic"
    assert "Attempted to kill init!" in outcome.ending.message


def killer(name: str) -> Callable[[str], None]:
    """Kills our own QEMU once the guest is ready."""

    def watch(word: str) -> None:
        if word == "ready":
            for pid, command in processes(os.getpid()).items():
                if command.startswith(name):
                    os.kill(pid, signal.SIGKILL)

    return watch


def test_qemu_killed(machine: WallMachine, tmp_path: Path) -> None:
    text = "while :; do sleep 1; done\n"
    outcome = virtme.run(machine, text, tmp_path / "run", tmp_path, killer("qemu-system"))
    assert outcome.files is None
    assert outcome.ending.kind == "lost"
    assert "vng ended with status 255" in outcome.ending.evidence[-1]


def test_lab_that_is_killed_leaves_nothing_running(machine: WallMachine, tmp_path: Path) -> None:
    code = f"""
import pickle, sys
from pathlib import Path
from guests import virtme
machine = pickle.load(sys.stdin.buffer)
place = Path({str(tmp_path)!r})
virtme.run(machine, "while :; do sleep 1; done", place / "run, with a comma", place, print)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, cwd=CHECKOUT) as lab:
        assert lab.stdin is not None
        pickle.dump(machine, lab.stdin)
        lab.stdin.close()
        pid = lab.pid
        wait_until(lambda: any(name.startswith("qemu") for name in processes(pid).values()), "QEMU")
        group = set(processes(lab.pid))
        lab.kill()
        lab.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in group), "end of its guest")
