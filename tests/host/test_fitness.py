"""Every check on texts as hosts show them, both ways, and the readers on small trees."""

import os
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import InfraError
from host.accelerator import AcceleratorTest, Attempt
from host.doctor import DoctorCheck
from host.fitness import (
    Counters,
    Cpu,
    Meanwhile,
    Placement,
    check_accelerator,
    check_free_memory,
    check_governor,
    check_ksm,
    check_load,
    check_numa,
    check_other_guests,
    check_placement,
    check_smt,
    check_steal,
    check_swap,
    check_thp,
    check_turbo,
    cpu_list,
    fitness,
    fitness_facts,
    host_cpus,
    meanwhile,
    place,
    processes,
    read_counters,
    read_cpus,
    require_fit,
    side_by_side,
)
from tests.values import data, spaced

STAT = "cpu  1000 200 300 4000 50 6 7 80 0 0\ncpu0 1 2 3 4\nctxt 9\n"
MEMINFO = data(__file__, "meminfo")
# As node/node*/meminfo has it: of the host's 400 huge pages 300 are on the first node.
NODES = {
    0: """\
Node 0 MemTotal:        8192000 kB
Node 0 MemFree:         3072000 kB
Node 0 Active(file):     512000 kB
Node 0 Inactive(file):   512000 kB
Node 0 HugePages_Free:    300
""",
    1: "Node 1 MemFree: 1024000 kB\nNode 1 HugePages_Free: 100\n",
}
KVM = AcceleratorTest("kvm", (Attempt("kvm", True, ""),))
TCG = AcceleratorTest("tcg", (Attempt("kvm", False, "told not to"), Attempt("tcg", True, "")))
THP = "always [madvise] never\n"
QUIET = Meanwhile(0, 0.01, 0.01, 0, 0)


def counters(user: float, idle: float, steal: float, swapped: int = 0) -> Counters:
    return Counters({"user": user, "idle": idle, "steal": steal}, swapped, 0)


def test_meanwhile_is_a_difference_in_shares() -> None:
    shares = meanwhile(counters(100, 100, 10, 5), counters(104, 104, 12, 8), own_cpu_s=3)
    assert (shares.stolen, shares.busy, shares.foreign) == (0.2, 0.4, 0.1)
    assert shares.swapped_pages == 3


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_shares_are_shares(user: float, idle: float, steal: float, own: float) -> None:
    shares = meanwhile(counters(0, 0, 0), counters(user, idle, steal), own_cpu_s=own)
    assert all(0 <= share <= 1 for share in (shares.stolen, shares.busy, shares.foreign))


def test_no_time_at_all_divides_by_nothing() -> None:
    assert meanwhile(counters(1, 1, 1), counters(1, 1, 1)).busy == 0
    assert meanwhile(Counters({}, 0, 0), Counters({}, 0, 0)).stolen == 0


CHECKS: tuple[tuple[DoctorCheck, str, str], ...] = (
    (check_accelerator(KVM), "ok", "kvm boots a kernel"),
    (check_accelerator(TCG), "fail", "tcg boots a kernel; kvm: told not to"),
    (check_accelerator(None), "warn", "not tried: no kernel"),
    (check_governor(["performance\n"] * 4), "ok", "performance"),
    (check_governor(["performance\n", "powersave\n"]), "warn", "performance, powersave"),
    (check_governor([]), "warn", "not shown by this host"),
    (check_turbo("1\n", ""), "ok", "off"),
    (check_turbo("0\n", ""), "warn", "on"),
    (check_turbo("", "0\n"), "ok", "off"),
    (check_turbo("", "1\n"), "warn", "on"),
    (check_turbo("", ""), "warn", "not shown by this host"),
    (check_smt("1\n"), "warn", "on"),
    (check_smt("0\n"), "ok", "off"),
    (check_smt(""), "ok", "none"),
    (check_numa(1, "1\n"), "ok", "1 node"),
    (check_numa(2, "0\n"), "ok", "2 nodes"),
    (check_numa(2, "1\n"), "warn", "2 nodes, balancing on"),
    (check_steal(QUIET), "ok", "0.0% of CPU time"),
    (check_steal(Meanwhile(0.02, 0, 0, 0, 0)), "fail", "2.0% of CPU time"),
    (check_load(QUIET), "ok", "1.0% of CPU time in use"),
    (check_load(Meanwhile(0, 0.5, 0.5, 0, 0)), "warn", "50.0% of CPU time in use"),
    (check_ksm("0\n"), "ok", "off"),
    (check_ksm("1\n"), "warn", "on"),
    (check_thp(THP, "1\n", huge_pages=True), "ok", "madvise; the guest has pages of its own"),
    (check_thp(THP, "1\n", huge_pages=False), "warn", "madvise, khugepaged at work"),
    (check_thp(THP, "0\n", huge_pages=False), "ok", "madvise"),
    (check_thp("always madvise [never]\n", "1\n", huge_pages=False), "ok", "never"),
    (check_free_memory(MEMINFO, 4096, huge_pages=False), "ok", "8000 MiB available, 5008 needed"),
    (check_free_memory(MEMINFO, 8192, huge_pages=False), "fail", "8000 MiB available, 9104 needed"),
    (check_free_memory(MEMINFO, 801, huge_pages=True), "fail", "400 huge pages free, 401 needed"),
    (check_free_memory(MEMINFO, 800, huge_pages=True), "ok", "8000 MiB available, 912 needed"),
    (check_free_memory("", 800, huge_pages=True), "fail", "0 huge pages free, 400 needed"),
    (
        check_free_memory(MEMINFO, 601, huge_pages=True, bound_to={0: NODES[0]}),
        "fail",
        "300 huge pages free on node 0, 301 needed",
    ),
    (
        check_free_memory(MEMINFO, 600, huge_pages=True, bound_to={0: NODES[0]}),
        "ok",
        "8000 MiB available, 912 needed",
    ),
    (
        check_free_memory(MEMINFO, 402, huge_pages=True, bound_to=NODES),
        "fail",
        "100 huge pages free on node 1, 101 needed",
    ),
    (
        check_free_memory(MEMINFO, 4001, huge_pages=False, bound_to={0: NODES[0]}),
        "fail",
        "4000 MiB available on node 0, 4001 needed",
    ),
    (
        check_free_memory(MEMINFO, 2000, huge_pages=False, bound_to=NODES),
        "ok",
        "8000 MiB available, 2912 needed",
    ),
    (
        check_free_memory(MEMINFO, 2002, huge_pages=False, bound_to=NODES),
        "fail",
        "1000 MiB available on node 1, 1001 needed",
    ),
    (check_swap(MEMINFO), "ok", "2048 MiB, unused"),
    (check_swap("SwapTotal: 2097152 kB\nSwapFree: 1048576 kB\n"), "warn", "1024 MiB in use"),
    (check_swap(""), "ok", "none"),
    (check_other_guests({1: "systemd", 7: "bash"}), "ok", "none"),
    (check_other_guests({7: "qemu-system-x86"}), "fail", "qemu-system-x86 (7)"),
    (check_placement(Placement((1, 2), (0,), (), True), 2), "ok", "vCPUs on 1,2, the lab on 0"),
    (
        check_placement(Placement((1, 5), (0, 4), (), False), 2),
        "warn",
        "vCPUs on 1,5, the lab on 0,4; cores are shared",
    ),
    (check_placement(None, 2), "fail", "no cores left for 2 vCPUs"),
)


@pytest.mark.parametrize(("check", "status", "value"), CHECKS)
def test_checks(check: DoctorCheck, status: str, value: str) -> None:
    assert (check.status, check.found) == (status, value)
    # What is wrong comes with its reason and its mend.
    assert bool(check.why and check.mend) == (status != "ok")


@pytest.mark.parametrize(
    ("check", "command"),
    [
        (check_turbo("0", ""), "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo"),
        (check_turbo("", "1"), "echo 0 > /sys/devices/system/cpu/cpufreq/boost"),
        (check_free_memory(MEMINFO, 1001, huge_pages=True), "sysctl vm.nr_hugepages=501"),
        (
            check_free_memory(MEMINFO, 402, huge_pages=True, bound_to=NODES),
            "echo 101 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages",
        ),
    ],
)
def test_mends_can_be_pasted(check: DoctorCheck, command: str) -> None:
    assert check.mend == command


def test_strict_refuses_what_is_not_ok_and_says_how_to_mend_all() -> None:
    checks = [check_ksm("0"), check_ksm("1"), check_smt("1")]
    require_fit(checks[:1])
    with pytest.raises(InfraError) as caught:
        require_fit(checks)
    assert "ksm: on; smt: on" in caught.value.what
    assert caught.value.next_step == (
        "echo 2 > /sys/kernel/mm/ksm/run; echo off > /sys/devices/system/cpu/smt/control"
    )


def write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_counters_of_a_host(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/stat": STAT,
            "proc/vmstat": "pgpgin 5\npswpin 1\npswpout 2\n",
            "cpu/cpu0/thermal_throttle/core_throttle_count": "3\n",
            "cpu/cpu1/thermal_throttle/core_throttle_count": "4\n",
        },
    )
    totals = read_counters(proc=tmp_path / "proc", system=tmp_path)
    assert (totals.swapped_pages, totals.throttled) == (3, 7)
    assert totals.cpu_s == {
        "user": 10,
        "nice": 2,
        "system": 3,
        "idle": 40,
        "iowait": 0.5,
        "irq": 0.06,
        "softirq": 0.07,
        "steal": 0.8,
    }
    assert read_counters(proc=tmp_path, system=tmp_path / "none") == Counters({}, 0, 0)


def test_noisy_host_as_a_whole(tmp_path: Path) -> None:
    cpu, memory = "sys/devices/system/cpu", "sys/kernel/mm"
    write(
        tmp_path,
        {
            "proc/stat": STAT,
            "proc/vmstat": "",
            "proc/meminfo": MEMINFO,
            "proc/17/comm": "qemu-system-x86\n",
            "proc/sys/kernel/numa_balancing": "1\n",
            f"{cpu}/cpu0/cpufreq/scaling_governor": "powersave\n",
            f"{cpu}/intel_pstate/no_turbo": "0\n",
            f"{cpu}/smt/active": "1\n",
            "sys/devices/system/node/node0/cpulist": "0",
            "sys/devices/system/node/node1/cpulist": "1",
            f"{memory}/ksm/run": "1\n",
            f"{memory}/transparent_hugepage/enabled": THP,
            f"{memory}/transparent_hugepage/khugepaged/defrag": "1\n",
        },
    )
    checks = fitness(
        guest_mib=65536,
        vcpus=1,
        huge_pages=False,
        placement=None,
        accelerator=TCG,
        proc=tmp_path / "proc",
        sys=tmp_path / "sys",
        sample_s=0,
    )
    wrong = {check.name for check in checks if check.status != "ok"}
    names = spaced("accelerator pinning governor turbo smt numa ksm thp memory")
    assert wrong == {*names, "other guests"}
    facts = fitness_facts(checks)
    assert facts["fitness turbo"] == "warn: on"
    assert len(facts) == len(checks) == 13


def test_memory_of_the_node_that_a_guest_is_bound_to(tmp_path: Path) -> None:
    nodes = {f"sys/devices/system/node/node{node}/meminfo": text for node, text in NODES.items()}
    write(tmp_path, {"proc/stat": STAT, "proc/meminfo": MEMINFO, **nodes})
    checks = fitness(
        guest_mib=640,
        vcpus=1,
        huge_pages=True,
        placement=Placement((1,), (0,), (1,), True),
        accelerator=KVM,
        proc=tmp_path / "proc",
        sys=tmp_path / "sys",
        sample_s=0,
    )
    (memory,) = (check for check in checks if check.name == "memory")
    assert memory.found == "100 huge pages free on node 1, 320 needed"


def machine(*, nodes: int, cores: int, threads: int) -> tuple[Cpu, ...]:
    """A server as Linux numbers it: first threads of all cores, then second threads."""
    return tuple(
        sorted(
            Cpu(node, node, core, thread * nodes * cores + node * cores + core)
            for node in range(nodes)
            for core in range(cores)
            for thread in range(threads)
        )
    )


@pytest.mark.parametrize(
    ("cpus", "guests", "lab"),
    [
        (machine(nodes=1, cores=1, threads=1), (0,), None),
        # Of two threads of a core one is used.
        (machine(nodes=1, cores=1, threads=2), (0,), None),
        (machine(nodes=1, cores=2, threads=1), (0, 1), None),
        (machine(nodes=1, cores=2, threads=2), (0, 1), None),
        (machine(nodes=1, cores=4, threads=2), (1, 2), (0, 4)),
        ((), (None,), None),
    ],
)
def test_guests_side_by_side_have_a_core_each(
    cpus: tuple[Cpu, ...], guests: tuple[int | None, ...], lab: tuple[int, ...] | None
) -> None:
    chosen, placement = side_by_side(cpus, 2)
    assert chosen == guests
    assert (placement.lab if placement else None) == lab


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-3,8\n", (0, 1, 2, 3, 8)), ("5", (5,)), ("", ()), ("\n", ())]
)
def test_cpu_list(text: str, cpus: tuple[int, ...]) -> None:
    assert cpu_list(text) == cpus
    with pytest.raises(ValueError, match="invalid literal"):
        cpu_list("0-3;8")


def test_tree_of_files_is_read(tmp_path: Path) -> None:
    texts = {"cpu/online": "0-3\n", "node/node0/cpulist": "0,2\n", "node/node1/cpulist": "1,3\n"}
    for number in range(4):
        texts[f"cpu/cpu{number}/topology/core_id"] = f"{number % 2}\n"
        texts[f"cpu/cpu{number}/topology/physical_package_id"] = "0\n"
    write(tmp_path, texts)
    assert read_cpus(tmp_path) == (
        Cpu(0, 0, 0, 0),
        Cpu(0, 0, 0, 2),
        Cpu(1, 0, 1, 1),
        Cpu(1, 0, 1, 3),
    )


def test_without_topology_each_cpu_is_a_core(tmp_path: Path) -> None:
    write(tmp_path, {"cpu/online": "0-1"})
    assert read_cpus(tmp_path) == (Cpu(0, 0, 0, 0), Cpu(0, 0, 1, 1))


def test_this_host_has_cpus_and_processes_with_this_one() -> None:
    assert host_cpus()
    assert processes()[os.getpid()]


@pytest.mark.parametrize(
    ("host", "guest", "vcpus", "nodes", "isolated"),
    [
        # The lab keeps a whole core, and vCPUs get cores of their own; second threads come last.
        ((1, 4, 2), (3, 1), (1, 2, 3), (), True),
        ((1, 4, 2), (5, 1), (1, 2, 3, 5, 6), (), False),
        # On one node, that of the most free cores; one too large for a node is bound to none.
        ((2, 4, 1), (4, 1), (4, 5, 6, 7), (1,), True),
        ((2, 4, 1), (6, 1), (1, 2, 3, 4, 5, 6), (), True),
        # Nodes of a guest lie on the host's, where it has several.
        ((2, 4, 1), (6, 2), (4, 5, 6, 1, 2, 3), (1, 0), True),
        ((1, 8, 1), (4, 2), (1, 2, 3, 4), (), True),
    ],
)
def test_vcpus_have_their_places(
    host: tuple[int, int, int],
    guest: tuple[int, int],
    vcpus: tuple[int, ...],
    nodes: tuple[int, ...],
    isolated: bool,
) -> None:
    cpus = machine(nodes=host[0], cores=host[1], threads=host[2])
    placement = place(cpus, vcpus=guest[0], nodes=guest[1])
    lab = (0, 4) if host == (1, 4, 2) else (0,)
    assert placement == Placement(vcpus, lab, nodes, isolated)


def test_too_few_cpus_are_no_placement() -> None:
    assert place((), vcpus=1) is None
    assert place(machine(nodes=1, cores=1, threads=2), vcpus=1) is None
    assert place(machine(nodes=1, cores=2, threads=1), vcpus=2) is None


@given(
    nodes=st.integers(1, 4),
    cores=st.integers(1, 6),
    threads=st.integers(1, 2),
    vcpus_each=st.integers(1, 6),
    guest_nodes=st.integers(1, 4),
)
def test_no_cpu_is_given_twice(
    nodes: int, cores: int, threads: int, vcpus_each: int, guest_nodes: int
) -> None:
    cpus = machine(nodes=nodes, cores=cores, threads=threads)
    vcpus = vcpus_each * guest_nodes
    placement = place(cpus, vcpus=vcpus, nodes=guest_nodes)
    if placement is None:
        assert vcpus > (nodes * cores - 1) * threads
        return
    assert len(placement.vcpus) == vcpus
    given_out = list(chain(placement.vcpus, placement.lab))
    assert len(set(given_out)) == len(given_out)
    assert set(given_out) <= {cpu.number for cpu in cpus}
    core_of = {cpu.number: (cpu.node, cpu.core) for cpu in cpus}
    if placement.isolated:
        assert len({core_of[number] for number in placement.vcpus}) == vcpus
