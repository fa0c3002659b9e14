"""Host CPUs from small /sys trees, and placements that never share what they need not."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.topology import Cpu, cpu_list, host_cpus, place, read_cpus


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
    ("text", "cpus"), [("0-3,8\n", (0, 1, 2, 3, 8)), ("5", (5,)), ("", ()), ("\n", ())]
)
def test_cpu_list(text: str, cpus: tuple[int, ...]) -> None:
    assert cpu_list(text) == cpus


def test_what_is_no_list_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        cpu_list("0-3;8")


def test_tree_of_files_is_read(tmp_path: Path) -> None:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    write("cpu/online", "0-3\n")
    for number in range(4):
        write(f"cpu/cpu{number}/topology/core_id", f"{number % 2}\n")
        write(f"cpu/cpu{number}/topology/physical_package_id", "0\n")
    write("node/node0/cpulist", "0,2\n")
    write("node/node1/cpulist", "1,3\n")
    assert read_cpus(tmp_path) == (
        Cpu(0, 0, 0, 0),
        Cpu(0, 0, 0, 2),
        Cpu(1, 0, 1, 1),
        Cpu(1, 0, 1, 3),
    )


def test_without_topology_each_cpu_is_a_core(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/online").write_text("0-1")
    assert read_cpus(tmp_path) == (Cpu(0, 0, 0, 0), Cpu(0, 0, 1, 1))


def test_this_host_has_cpus() -> None:
    assert host_cpus()


def test_lab_keeps_a_whole_core_and_vcpus_get_cores_of_their_own() -> None:
    placement = place(machine(nodes=1, cores=4, threads=2), vcpus=3)
    assert placement is not None
    assert placement.lab == (0, 4)
    assert placement.vcpus == (1, 2, 3)
    assert placement.isolated
    assert placement.nodes == ()


def test_second_threads_serve_when_cores_run_out() -> None:
    placement = place(machine(nodes=1, cores=4, threads=2), vcpus=5)
    assert placement is not None
    assert placement.vcpus == (1, 2, 3, 5, 6)
    assert not placement.isolated


def test_guest_stays_on_one_node_the_one_with_the_most_free_cores() -> None:
    placement = place(machine(nodes=2, cores=4, threads=1), vcpus=4)
    assert placement is not None
    assert placement.vcpus == (4, 5, 6, 7)
    assert placement.nodes == (1,)


def test_guest_too_large_for_a_node_is_bound_to_none() -> None:
    placement = place(machine(nodes=2, cores=4, threads=1), vcpus=6)
    assert placement is not None
    assert placement.nodes == ()
    assert len(placement.vcpus) == 6


def test_guest_nodes_lie_on_host_nodes() -> None:
    placement = place(machine(nodes=2, cores=4, threads=1), vcpus=6, nodes=2)
    assert placement is not None
    assert placement.nodes == (1, 0)
    assert placement.vcpus == (4, 5, 6, 1, 2, 3)


def test_guest_nodes_on_a_host_of_one_node_are_kept_without_binding() -> None:
    placement = place(machine(nodes=1, cores=8, threads=1), vcpus=4, nodes=2)
    assert placement is not None
    assert (placement.vcpus, placement.nodes) == ((1, 2, 3, 4), ())


def test_second_guest_avoids_the_cores_of_the_first() -> None:
    cpus = machine(nodes=1, cores=6, threads=2)
    first = place(cpus, vcpus=2)
    assert first is not None
    second = place(cpus, vcpus=2, occupied=first.vcpus)
    assert second is not None
    assert second.vcpus == (3, 4)


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
