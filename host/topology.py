"""Which CPUs a guest's vCPUs run on: pure over the host's topology, and thin readers."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from host.facts import text_of

SYSTEM = Path("/sys/devices/system")
NODE_FOLDER = re.compile(r"node(\d+)")


@dataclass(frozen=True, order=True)
class Cpu:
    """A logical CPU: its NUMA node, and its core by package and core id."""

    node: int
    package: int
    core: int
    number: int


@dataclass(frozen=True)
class Placement:
    """Host CPUs of a guest: ``vcpus[n]`` is for vCPU n, ``lab`` for everything else.
    ``nodes`` holds the host NUMA node of each guest node.  ``isolated`` is true when
    no vCPU shares a core with the lab or with another vCPU.
    """

    vcpus: tuple[int, ...]
    lab: tuple[int, ...]
    nodes: tuple[int, ...]
    isolated: bool


def cpu_list(text: str) -> tuple[int, ...]:
    """The CPUs in a list as ``0-3,8``; ValueError: the text is no such list."""
    cpus: list[int] = []
    for part in text.strip().split(",") if text.strip() else []:
        first, dash, last = part.partition("-")
        cpus += range(int(first), int(last if dash else first) + 1)
    return tuple(cpus)


def host_cpus(*, system: Path = SYSTEM) -> tuple[Cpu, ...]:
    """The host's CPUs that are online and that this process may use, sorted.
    A host without topology files gives every CPU a core of its own.
    """
    allowed = os.sched_getaffinity(0)
    return tuple(cpu for cpu in read_cpus(system) if cpu.number in allowed)


def read_cpus(system: Path = SYSTEM) -> tuple[Cpu, ...]:
    """All CPUs that are online, sorted by node, package, core and number."""
    nodes = {
        number: int(match[1])
        for folder in sorted((system / "node").glob("node*"))
        if (match := NODE_FOLDER.fullmatch(folder.name))
        for number in cpu_list(text_of(folder / "cpulist"))
    }
    cpus = []
    for number in cpu_list(text_of(system / "cpu" / "online")):
        folder = system / "cpu" / f"cpu{number}" / "topology"
        core, package = (
            text_of(folder / name).strip() for name in ("core_id", "physical_package_id")
        )
        cpus.append(Cpu(nodes.get(number, 0), int(package or 0), int(core or number), number))
    return tuple(sorted(cpus))


def place(
    cpus: Sequence[Cpu], *, vcpus: int, nodes: int = 1, occupied: Collection[int] = ()
) -> Placement | None:
    """Choose host CPUs for a guest of ``vcpus`` in ``nodes`` equal guest nodes.
    The lab keeps the host's first core with all its threads.  Each vCPU gets a core of
    its own; where the cores do not suffice, their other threads are used too, and the
    placement is not isolated.  Each guest node is put on a host node of its own, or all
    anywhere where the host has too few.  ``taken`` are CPUs of other guests.  None when
    there are not enough CPUs: the guest then runs unpinned.
    """
    if not cpus:
        return None
    first = min(cpus, key=lambda cpu: cpu.number)
    lab = tuple(sorted(cpu.number for cpu in cpus if _core(cpu) == _core(first)))
    busy = {_core(cpu) for cpu in cpus if cpu.number in occupied} | {_core(first)}
    free = [cpu for cpu in cpus if _core(cpu) not in busy]
    on_node = {node: [cpu for cpu in free if cpu.node == node] for node in {c.node for c in cpus}}
    # Most cores first, so that as few vCPUs as possible share one.
    order = sorted(on_node, key=lambda node: (-len(_cores(on_node[node])), node))[:nodes]
    share = vcpus // nodes
    pools = [on_node[node] for node in order]
    if len(pools) < nodes or any(len(pool) < share for pool in pools):
        order, pools, share = [], [free], vcpus
    if len(pools[0]) < share:
        return None

    def spread(cpus: Sequence[Cpu]) -> list[Cpu]:
        """First threads of all cores, then second threads, and so on."""
        ranks: Counter[tuple[int, int, int]] = Counter()
        ranked = []
        for cpu in sorted(cpus):
            ranked.append((ranks[_core(cpu)], cpu))
            ranks[_core(cpu)] += 1
        return [cpu for _, cpu in sorted(ranked)]

    return Placement(
        vcpus=tuple(cpu.number for pool in pools for cpu in spread(pool)[:share]),
        lab=lab,
        nodes=tuple(order) if len(on_node) > 1 else (),
        isolated=all(share <= len(_cores(pool)) for pool in pools),
    )


def _core(cpu: Cpu) -> tuple[int, int, int]:
    return cpu.node, cpu.package, cpu.core


def _cores(cpus: Iterable[Cpu]) -> set[tuple[int, int, int]]:
    return {_core(cpu) for cpu in cpus}
