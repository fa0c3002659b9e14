"""How fit this host is for wall mode, and where vCPUs run on it."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from errors import InfraError
from host import accelerator as accelerators
from host.accelerator import AcceleratorTest
from host.doctor import DoctorCheck, Status, judged
from host.facts import HOST_RESERVE_MIB, QEMU_OVERHEAD_MIB, meminfo_mib, text_of
from text import counted

# Of all CPU time.  A hypervisor that takes 1 % moves a change of 1 %.
STOLEN = 0.01
BUSY = 0.05
SAMPLE_S = 1.0
HUGE_PAGE_MIB = 2
NODE_PAGES = "/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages"
# A node's meminfo has "Node 0 " before each name, and no MemAvailable.
PREFIX = re.compile(r"^Node \d+ ", re.M)
FREE_OF_NODE = ("MemFree", "Active(file)", "Inactive(file)")
NO_NODES: Mapping[int, str] = MappingProxyType({})
TICKS_PER_S = 100
FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
IDLE = ("idle", "iowait")
OTHER_GUESTS = re.compile(r"^(qemu-system-|qemu-kvm|firecracker|cloud-hyperviso|VBoxHeadless)")
UNKNOWN = "not shown by this host"


@dataclass(frozen=True)
class Counters:
    """CPU time (seconds) by kind, pages swapped, thermal events, all since boot."""

    cpu_s: Mapping[str, float]
    swapped_pages: int
    throttled: int


@dataclass(frozen=True)
class Meanwhile:
    """What the host did between two readings; shares are of all its CPU time."""

    stolen: float
    busy: float
    foreign: float
    swapped_pages: int
    throttled: int


def cpu_seconds(stat: str) -> dict[str, float]:
    """CPU time by kind from the text of /proc/stat; empty when it has no such line."""
    match = re.search(r"^cpu +([\d ]+)$", stat, re.M)
    values = [int(word) / TICKS_PER_S for word in match[1].split()] if match else []
    return dict(zip(FIELDS, values, strict=False))


def swapped_pages(vmstat: str) -> int:
    """Pages that went in or out of swap, from the text of /proc/vmstat."""
    return sum(int(value) for value in re.findall(r"^pswp(?:in|out) (\d+)$", vmstat, re.M))


def meanwhile(before: Counters, after: Counters, *, own_cpu_s: float = 0.0) -> Meanwhile:
    """The difference of two readings; ``own_cpu_s`` is what our guest and lab used of it."""
    spent = {kind: after.cpu_s[kind] - before.cpu_s.get(kind, 0.0) for kind in after.cpu_s}
    busy = sum(value for kind, value in spent.items() if kind not in (*IDLE, "steal"))
    # Readings may be less than a tick apart, and an idle counter may run backwards.
    total = max(sum(spent.values()), busy, 1e-9)
    return Meanwhile(
        stolen=max(0.0, spent.get("steal", 0.0)) / total,
        busy=max(0.0, busy) / total,
        foreign=max(0.0, busy - own_cpu_s) / total,
        swapped_pages=after.swapped_pages - before.swapped_pages,
        throttled=after.throttled - before.throttled,
    )


def check_accelerator(test: AcceleratorTest | None) -> DoctorCheck:
    """Whether guests run on real CPUs; None where no kernel is there to boot."""
    if test is None:
        why = "only booting a kernel tells whether KVM runs one"
        return DoctorCheck("accelerator", "warn", "not tried: no kernel", why, "./lab.py build")
    why = "the time of QEMU's translator (TCG) says nothing: wall mode gives no verdict"
    mend = 'use mode = "exact", or a host where KVM boots a kernel'
    return judged("accelerator", test.text(), "" if test.real_time else "fail", why, mend)


def check_governor(governors: Sequence[str]) -> DoctorCheck:
    """Whether every CPU keeps its clock up (texts of cpufreq/scaling_governor)."""
    used = sorted({text.strip() for text in governors if text.strip()})
    bare = "measure on bare metal; a guest of another hypervisor does not own its clock"
    mend = "echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    governor = ", ".join(used) or UNKNOWN
    why = "the clock follows the load, and a run its clock"
    return judged("governor", governor, used != ["performance"], why, mend if used else bare)


def check_turbo(no_turbo: str, boost: str) -> DoctorCheck:
    """Whether turbo is off (texts of intel_pstate/no_turbo and cpufreq/boost)."""
    why = "turbo depends on heat and on what other cores do"
    intel = (no_turbo.strip(), "intel_pstate/no_turbo", "0", "1")
    others = (boost.strip(), "cpufreq/boost", "1", "0")
    for text, path, on, off in (intel, others):
        if text:
            mend = f"echo {off} > /sys/devices/system/cpu/{path}"
            return judged("turbo", "on" if text == on else "off", text == on, why, mend)
    mend = "turn it off in the firmware if it is there"
    return DoctorCheck("turbo", "warn", UNKNOWN, why, mend)


def check_smt(active: str) -> DoctorCheck:
    """Whether two threads share a core (text of smt/active)."""
    why = "a vCPU shares its core with whatever runs on the other thread"
    mend = "echo off > /sys/devices/system/cpu/smt/control"
    on = active.strip() == "1"
    return judged("smt", "on" if on else "off" if active.strip() else "none", on, why, mend)


def check_numa(nodes: int, balancing: str) -> DoctorCheck:
    """Whether the kernel moves a guest's memory between nodes (text of numa_balancing)."""
    on = nodes > 1 and balancing.strip() not in ("", "0")
    count = f"{counted(nodes, 'node')}{', balancing on' if on else ''}"
    why = "pages of the guest are unmapped and moved while it runs"
    return judged("numa", count, on, why, "sysctl kernel.numa_balancing=0")


def check_steal(sample: Meanwhile) -> DoctorCheck:
    """Whether a hypervisor below takes CPU time."""
    why = "another tenant runs in our time, and no clock of ours shows where"
    wrong: Status | bool = "fail" if sample.stolen > STOLEN else False
    return judged("steal", f"{sample.stolen:.1%} of CPU time", wrong, why, "use a host of its own")


def check_load(sample: Meanwhile) -> DoctorCheck:
    """Whether the host is idle before a session."""
    share = f"{sample.busy:.1%} of CPU time in use"
    why = "other work takes cache, memory bandwidth and CPU time"
    mend = "stop it; top -b -n 1 | head -n 20 names it"
    return judged("load", share, sample.busy > BUSY, why, mend)


def check_ksm(run: str) -> DoctorCheck:
    """Whether equal pages are merged (text of ksm/run)."""
    on = run.strip() == "1"
    why = "pages of equal guests are merged, and each write to one copies it"
    return judged("ksm", "on" if on else "off", on, why, "echo 2 > /sys/kernel/mm/ksm/run")


def check_thp(enabled: str, defrag: str, *, huge_pages: bool) -> DoctorCheck:
    """Whether guest memory stays as it was backed (texts of enabled and khugepaged/defrag)."""
    chosen = enabled.partition("[")[2].partition("]")[0] or "none"
    moves = not huge_pages and chosen in ("always", "madvise") and defrag.strip() != "0"
    note = "; the guest has pages of its own" if huge_pages else ", khugepaged at work" * moves
    why = "how much of a guest is in huge pages differs from boot to boot, and changes"
    mend = "huge_pages = true in the guest's [wall], with pages reserved"
    return judged("thp", f"{chosen}{note}", moves, why, mend)


def check_free_memory(
    meminfo: str, guest_mib: int, *, huge_pages: bool, bound_to: Mapping[int, str] = NO_NODES
) -> DoctorCheck:
    """Whether a guest fits without reclaim, on each host node that it is ``bound_to``, too."""
    why = "a host that reclaims or swaps is measured instead of the guest"
    share_mib = -(-guest_mib // max(1, len(bound_to)))
    texts = {f" on node {node}": PREFIX.sub("", text) for node, text in bound_to.items()}
    for where, text in (texts or {"": meminfo}).items():
        free = re.search(r"^HugePages_Free:\s*(\d+)$", text, re.M)
        pages, needed_pages = int(free[1]) if free else 0, -(-share_mib // HUGE_PAGE_MIB)
        if huge_pages and pages < needed_pages:
            space = f"{pages} huge pages free{where}, {needed_pages} needed"
            mend = f"sysctl vm.nr_hugepages={needed_pages}"
            if where:
                mend = f"echo {needed_pages} > {NODE_PAGES.format(node=where.split()[-1])}"
            return DoctorCheck("memory", "fail", space, why, mend)
    needed = HOST_RESERVE_MIB + QEMU_OVERHEAD_MIB + (0 if huge_pages else guest_mib)
    # What there is and what is needed, of the host and of each node; the first that is short.
    spaces = [(meminfo_mib(meminfo, "MemAvailable"), "", needed)]
    for where, text in texts.items() if not huge_pages else ():
        spaces.append((sum(meminfo_mib(text, name) for name in FREE_OF_NODE), where, share_mib))
    short = next((each for each in spaces if each[0] < each[2]), None)
    there, where, needed = short or spaces[0]
    space = f"{there} MiB available{where}, {needed} needed"
    mend = "end other work, or use a smaller guest"
    return judged("memory", space, "fail" if short else "", why, mend)


def check_swap(meminfo: str) -> DoctorCheck:
    """Whether anything is swapped out (text of /proc/meminfo)."""
    total, free = meminfo_mib(meminfo, "SwapTotal"), meminfo_mib(meminfo, "SwapFree")
    unused = f"{total} MiB, unused" if total else "none"
    state = f"{total - free} MiB in use" if total > free else unused
    why = "what is swapped out comes back while a run is measured"
    return judged("swap", state, total > free, why, "swapoff -a")


def check_other_guests(commands: Mapping[int, str]) -> DoctorCheck:
    """Whether other virtual machines run; ``commands`` maps process ids to their names."""
    others = sorted(pid for pid, name in commands.items() if OTHER_GUESTS.match(name))
    running = ", ".join(f"{commands[pid]} ({pid})" for pid in others)
    why = "they share cache, memory bandwidth and cores with ours"
    mend = "shut them down, or measure when they are gone"
    return judged("other guests", running or "none", "fail" if others else "", why, mend)


def check_placement(placement: Placement | None, vcpus: int) -> DoctorCheck:
    """Whether every vCPU gets a core that nobody shares."""
    why = "vCPUs that share a core, or move between them, are noise"
    mend = f"use a guest with fewer vCPUs than {vcpus}, or a host with more cores"
    if placement is None:
        return DoctorCheck("pinning", "fail", f"no cores left for {vcpus} vCPUs", why, mend)
    pinned, lab = (",".join(map(str, cpus)) for cpus in (placement.vcpus, placement.lab))
    shared = "" if placement.isolated else "; cores are shared"
    cores = f"vCPUs on {pinned}, the lab on {lab}{shared}"
    return judged("pinning", cores, not placement.isolated, why, mend)


def require_fit(checks: Iterable[DoctorCheck]) -> None:
    """Refuse a host on which any check is not ok; the InfraError names each with its mend."""
    wrong = [check for check in checks if check.status != "ok"]
    if wrong:
        raise InfraError(
            "not fit to measure time: "
            + "; ".join(f"{check.name}: {check.found}" for check in wrong),
            where="this host",
            next_step="; ".join(dict.fromkeys(check.mend for check in wrong if check.mend)),
        )


def fitness_facts(checks: Iterable[DoctorCheck]) -> dict[str, str]:
    """The checks for provenance: what was found, by name."""
    return {f"fitness {check.name}": f"{check.status}: {check.found}" for check in checks}


def read_counters(
    *, proc: Path = Path("/proc"), system: Path = Path("/sys/devices/system")
) -> Counters:
    """Read the host's counters now."""
    throttles = system.glob("cpu/cpu*/thermal_throttle/core_throttle_count")
    return Counters(
        cpu_s=cpu_seconds(text_of(proc / "stat")),
        swapped_pages=swapped_pages(text_of(proc / "vmstat")),
        throttled=sum(int(text_of(path) or 0) for path in throttles),
    )


def processes(proc: Path = Path("/proc")) -> dict[int, str]:
    """Names of all processes by id; names are cut to 15 characters by the kernel."""
    folders = (folder for folder in proc.glob("[0-9]*"))
    return {int(folder.name): text_of(folder / "comm").strip() for folder in folders}


def fitness(
    *,
    guest_mib: int,
    vcpus: int,
    huge_pages: bool,
    placement: Placement | None,
    accelerator: AcceleratorTest | None,
    proc: Path = Path("/proc"),
    sys: Path = Path("/sys"),
    sample_s: float = SAMPLE_S,
) -> tuple[DoctorCheck, ...]:
    """Look at this host for ``sample_s`` seconds, while no guest of ours runs."""
    cpu = sys / "devices/system/cpu"
    before = read_counters(proc=proc, system=sys / "devices/system")
    time.sleep(sample_s)
    sample = meanwhile(before, read_counters(proc=proc, system=sys / "devices/system"))
    meminfo = text_of(proc / "meminfo")
    memory = sys / "kernel/mm"
    thp = memory / "transparent_hugepage"
    return (
        check_accelerator(accelerator),
        check_placement(placement, vcpus),
        check_governor([text_of(path) for path in cpu.glob("cpu*/cpufreq/scaling_governor")]),
        check_turbo(text_of(cpu / "intel_pstate/no_turbo"), text_of(cpu / "cpufreq/boost")),
        check_smt(text_of(cpu / "smt/active")),
        check_numa(
            len(list((sys / "devices/system/node").glob("node[0-9]*"))),
            text_of(proc / "sys/kernel/numa_balancing"),
        ),
        check_steal(sample),
        check_load(sample),
        check_ksm(text_of(memory / "ksm/run")),
        check_thp(
            text_of(thp / "enabled"), text_of(thp / "khugepaged/defrag"), huge_pages=huge_pages
        ),
        check_free_memory(
            meminfo,
            guest_mib,
            huge_pages=huge_pages,
            bound_to={
                node: text
                for node in (placement.nodes if placement else ())
                if (text := text_of(sys / f"devices/system/node/node{node}/meminfo"))
            },
        ),
        check_swap(meminfo),
        check_other_guests(processes(proc)),
    )


def wall_checks(cache: Path, *, guest_mib: int, vcpus: int) -> tuple[DoctorCheck, ...]:
    """All that wall mode needs of this host; boots a small guest once a boot of the host.

    Raises InfraError: a program is missing, or QEMU boots no kernel at all.
    """
    kernel = accelerators.some_kernel(cache)
    return fitness(
        guest_mib=guest_mib,
        vcpus=vcpus,
        huge_pages=False,
        placement=place(host_cpus(), vcpus=vcpus),
        accelerator=accelerators.provide(kernel) if kernel else None,
    )


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


def host_cpus() -> tuple[Cpu, ...]:
    """The CPUs that are online and that this process may use, sorted; else each a core."""
    allowed = os.sched_getaffinity(0)
    return tuple(cpu for cpu in read_cpus(SYSTEM) if cpu.number in allowed)


def read_cpus(system: Path) -> tuple[Cpu, ...]:
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


def place(cpus: Sequence[Cpu], *, vcpus: int, nodes: int = 1) -> Placement | None:
    """Choose host CPUs for a guest of ``vcpus`` in ``nodes`` equal guest nodes.

    The lab keeps the host's first core with all its threads.  Each vCPU gets a core of
    its own; where the cores do not suffice, their other threads are used too, and the
    placement is not isolated.  Each guest node is put on a host node of its own, or all
    anywhere where the host has too few.  None when there are not enough CPUs: the guest
    then runs unpinned.
    """
    if not cpus:
        return None
    first = min(cpus, key=lambda cpu: cpu.number)
    lab = tuple(sorted(cpu.number for cpu in cpus if _core(cpu) == _core(first)))
    free = [cpu for cpu in cpus if cpu.number not in lab]
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


def side_by_side(cpus: Sequence[Cpu], most: int) -> tuple[tuple[int | None, ...], Placement | None]:
    """Cores for ``most`` guests of one vCPU at once, and where the lab is kept meanwhile.

    The lab waits while they run: it has a core of its own only where one is left.  At least one
    guest, anywhere (None) where nothing is known of the CPUs.
    """
    placement = place(cpus, vcpus=most)
    if placement is not None and placement.isolated:
        return placement.vcpus, placement
    one_of_each = sorted({_core(cpu): cpu.number for cpu in reversed(cpus)}.values())
    return tuple(one_of_each[:most]) or (None,), None


def _core(cpu: Cpu) -> tuple[int, int, int]:
    return cpu.node, cpu.package, cpu.core


def _cores(cpus: Iterable[Cpu]) -> set[tuple[int, int, int]]:
    return {_core(cpu) for cpu in cpus}
