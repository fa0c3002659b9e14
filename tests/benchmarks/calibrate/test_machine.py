"""From what was timed to a machine's file: numbers of a made-up host."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.calibrate.hardware import CpuCache, CpuTlb
from benchmarks.calibrate.machine import (
    KEPT,
    MOST_PAIRS,
    HostParts,
    Sample,
    Timed,
    answers,
    as_toml,
    kept_of,
    machine_of,
    pairs_of,
    sample,
    warnings_of,
)
from errors import InfraError
from experiment.load import load_machine
from experiment.machine import MachineSpec, known_machines
from host.fitness import Cpu

LIKE = load_machine(Path("ice-lake-sp"))
CPUS = tuple(
    Cpu(0, core // 8, core % 8, core + 16 * thread) for core in range(16) for thread in range(2)
)
HOST = HostParts(
    title="Some CPU",
    guest=False,
    caches=(
        CpuCache(1, "Data", 48, 12, 64, (0, 16)),
        CpuCache(1, "Instruction", 32, 8, 64, (0, 16)),
        CpuCache(2, "Unified", 2048, 16, 64, (0, 16)),
        CpuCache(3, "Unified", 16384, 16, 64, (*range(8), *range(16, 24))),
    ),
    tlbs=(
        CpuTlb("data", ("4K",), 64, 4),
        CpuTlb("code", ("4K",), 128, 8),
        CpuTlb("second", ("4K", "2M"), 2048, 16),
    ),
    cpus=CPUS,
)


def times(*values: float) -> Sample:
    return Sample(values)


TIMED = Timed(
    cycle=times(0.25, 0.26, 0.25),
    l2=times(3.6, 3.5, 9.0),
    llc=times(17.6, 18.0),
    memory=times(90.0, 91.0),
    far=times(20.0, 22.0),
    near=times(4.0, 5.0),
    l2_kib=1024,
    llc_kib=6144,
    held_kib=6144,
    lost_kib=0,
    huge=True,
    pairs=(times(40.06, 50.0), times(120.0, 130.0)),
    pair_count=120,
    small=(1.1, 1.9, 1.4),
    large=(0.42, 0.5),
)


def made(parts: HostParts = HOST, timed: Timed = TIMED, like: MachineSpec = LIKE) -> MachineSpec:
    return machine_of("mine", parts, timed, like, "2026-01-02")


def test_times_are_the_least_in_cycles_of_this_host() -> None:
    machine = made()
    assert machine.many is not None
    cycles = machine.cycles
    assert (cycles.l2, cycles.llc, cycles.memory, cycles.walk) == (14, 70, 360, 64)
    assert (machine.many.ghz, machine.many.transfer_ns) == (4.0, (40.1, 120.0))
    assert "measured by calibrate, 2026-01-02, Some CPU" in cycles.source
    assert "3.5 ns of 1024 KiB (least of 3, the median 3 % above)" in cycles.source
    assert "every fourth line of 6144 KiB 17.6 ns where L2 does not hold it" in cycles.source
    assert "2 evenly chosen of 120 pairs of cores" in machine.many.source


def test_counters_of_the_kernel_are_the_instructions_of_a_cycle() -> None:
    many = made().many
    assert many is not None
    assert many.instructions_per_cycle == (0.42, 1.9)
    # Of calls that wait for no memory.
    assert many.instructions_per_cycle_in_caches == (1.1, 1.9)
    assert KEPT not in many.source


def test_caches_and_tlbs_are_the_hosts() -> None:
    machine = made()
    assert (machine.l1d.kib, machine.l1d.ways, machine.l1d.cores) == (48, 12, 1)
    assert (machine.l2.kib, machine.l2.cores) == (2048, 1)
    assert (machine.llc.kib, machine.llc.cores) == (16384, 8)
    assert [(tlb.level, tlb.entries) for tlb in machine.tlbs] == [
        ("data", 64),
        ("code", 128),
        ("second", 2048),
    ]
    assert kept_of(machine) == ["prefetch_lines"]
    assert warnings_of(HOST, TIMED) == []


def test_what_the_host_does_not_tell_is_kept_and_says_so() -> None:
    alone = replace(TIMED, pairs=(), pair_count=0, small=(), large=(), huge=False)
    machine = made(replace(HOST, caches=HOST.caches[:2], tlbs=(), guest=True), alone)
    assert kept_of(machine) == ["l2", "llc", "prefetch_lines", "tlbs", "many"]
    assert (machine.l2.kib, machine.tlbs[0].entries) == (LIKE.l2.kib, LIKE.tlbs[0].entries)
    assert machine.l2.source == f"{KEPT} ice-lake-sp: {LIKE.l2.source}"
    assert machine.many is not None
    assert LIKE.many is not None
    assert machine.many.transfer_ns == LIKE.many.transfer_ns
    assert machine.many.instructions_per_cycle == LIKE.many.instructions_per_cycle
    assert f"transfers and instructions per cycle: {KEPT} ice-lake-sp" in machine.many.source
    # The clock was measured.
    assert machine.many.ghz == 4.0
    words = " ".join(warnings_of(replace(HOST, guest=True), alone))
    assert "this host is a guest" in words
    assert "one core" in words
    assert "no huge pages" in words


def test_a_part_of_the_last_level_has_a_power_of_two_of_sets() -> None:
    """260 MiB, as a hypervisor shows them to two CPUs: 13 times 2^14 sets of 20 lines."""
    last = CpuCache(3, "Unified", 266240, 20, 64, (0, 1))
    parts = replace(HOST, caches=(*HOST.caches[:3], last))
    assert (made(parts).llc.cores, made(parts).llc.sets) == (13, 16384)
    divided = made(parts, replace(TIMED, held_kib=6144, lost_kib=12288))
    assert (divided.llc.cores, divided.llc.sets) == (26, 8192)
    assert "2 cores share it; divided by 26, so that no more than 12287 KiB" in divided.llc.source


@pytest.mark.parametrize(
    "tlbs",
    [
        (CpuTlb("data", ("4K",), 60, 4), CpuTlb("code", ("4K",), 128, 8)),
        (CpuTlb("data", ("4K",), 64, 4),),
    ],
)
def test_tlbs_that_the_model_has_no_form_for_are_kept_whole(tlbs: tuple[CpuTlb, ...]) -> None:
    machine = made(replace(HOST, tlbs=tlbs))
    assert [tlb.entries for tlb in machine.tlbs] == [tlb.entries for tlb in LIKE.tlbs]
    assert "tlbs" in kept_of(machine)


@pytest.mark.parametrize(
    "cache",
    [
        CpuCache(1, "Data", 128, 8, 128, (0,)),
        CpuCache(1, "Data", 24, 8, 64, (0,)),
        CpuCache(1, "Data", 16, 8, 64, (0,)),
    ],
)
def test_a_cache_that_the_model_has_no_form_for_is_kept(cache: CpuCache) -> None:
    """Of other lines, of no power of two of sets, or of fewer sets than a page has lines."""
    machine = made(replace(HOST, caches=(cache, *HOST.caches[1:])))
    assert machine.l1d.kib == LIKE.l1d.kib
    assert kept_of(machine) == ["l1d", "prefetch_lines"]


def test_times_in_no_order_make_no_machine() -> None:
    with pytest.raises(InfraError, match="found 14, 70 and 4; each is farther") as caught:
        made(timed=replace(TIMED, memory=times(1.0, 2.0)))
    assert "quiet host" in str(caught.value)


def test_a_busy_host_is_warned_of() -> None:
    (warning,) = warnings_of(HOST, replace(TIMED, llc=times(17.6, 30.0, 31.0)))
    assert warning.startswith("repeats are far apart (last level)")


@pytest.mark.parametrize("name", known_machines())
def test_a_file_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    machine = load_machine(Path(name))
    file = tmp_path / f"{name}.toml"
    file.write_text(as_toml(machine))
    assert load_machine(file) == machine


def test_all_pairs_of_cores_or_some_from_first_to_last() -> None:
    chosen, count = pairs_of(CPUS[:6])
    assert (chosen, count) == ([(0, 1), (0, 2), (1, 2)], 3)
    chosen, count = pairs_of(CPUS)
    assert (len(chosen), count) == (MOST_PAIRS, 120)
    assert (chosen[0], chosen[-1]) == ((0, 1), (14, 15))
    assert len(set(chosen)) == MOST_PAIRS
    # Threads of one core give nothing to each other.
    assert pairs_of(CPUS[:2]) == ([], 0)


def test_answers_are_words_and_numbers() -> None:
    given = answers("huge 0\nns 1.5\nns 0.5\ncpuid 24 0 1 2 3 4\n")
    assert sample(given) == Sample((1.5, 0.5))
    assert sample(given).least == 0.5
    assert given["cpuid"] == [(24, 0, 1, 2, 3, 4)]
    assert answers("") == {}


@pytest.mark.parametrize("text", ["ns", "ns x", "1 2", "\nns 1", "ns nan", "ns inf"])
def test_other_answers_are_named(text: str) -> None:
    with pytest.raises(InfraError, match=r"where a word and numbers belong"):
        answers(text)


@pytest.mark.parametrize("text", ["", "huge 1", "ns 0.0", "ns -1"])
def test_a_measurement_without_times_is_none(text: str) -> None:
    with pytest.raises(InfraError, match="measured ns"):
        sample(answers(text))
