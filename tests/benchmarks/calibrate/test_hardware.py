"""Caches and TLBs as a CPU and its kernel tell them."""

from pathlib import Path

import pytest

from benchmarks.calibrate.hardware import (
    AMD_1G,
    AMD_L1,
    AMD_L2,
    INTEL_TLBS,
    CpuCache,
    CpuTlb,
    caches_of,
    cores_of,
    title,
    tlbs_of,
    vendor,
)
from host.fitness import Cpu

INTEL = "vendor_id\t: GenuineIntel\nmodel name\t: Some  CPU @ 2.30GHz\nflags\t\t: fpu hypervisor\n"
ARM = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"


def folder(system: Path, number: int, **files: str) -> None:
    index = system / "cpu" / "cpu3" / "cache" / f"index{number}"
    index.mkdir(parents=True)
    for name, text in files.items():
        (index / name).write_text(f"{text}\n")


def cache(level: int, kind: str, size: str, shared: str, ways: str = "8") -> dict[str, str]:
    return {
        "level": str(level),
        "type": kind,
        "size": size,
        "ways_of_associativity": ways,
        "coherency_line_size": "64",
        "shared_cpu_list": shared,
    }


def test_caches_are_those_that_the_kernel_knows_whole(tmp_path: Path) -> None:
    folder(tmp_path, 0, **cache(1, "Data", "48K", "3", "12"))
    folder(tmp_path, 1, **cache(1, "Instruction", "32K", "3,7"))
    folder(tmp_path, 3, **cache(3, "Unified", "262144K", "0-7", "16"))
    # Arm's kernels often know a level alone, and QEMU's give no ways.
    folder(tmp_path, 2, level="2", type="Unified")
    folder(tmp_path, 4, **cache(4, "Unified", "1024K", "0-7", "0"))
    assert caches_of(3, system=tmp_path) == (
        CpuCache(1, "Data", 48, 12, 64, (3,)),
        CpuCache(1, "Instruction", 32, 8, 64, (3, 7)),
        CpuCache(3, "Unified", 262144, 16, 64, tuple(range(8))),
    )
    assert caches_of(4, system=tmp_path) == ()


def test_threads_of_a_core_share_as_one() -> None:
    cpus = [Cpu(0, 0, core, core + 4 * thread) for core in range(4) for thread in range(2)]
    assert cores_of(CpuCache(3, "Unified", 1, 1, 64, tuple(range(8))), cpus) == 4
    assert cores_of(CpuCache(2, "Unified", 1, 1, 64, (1, 5)), cpus) == 1
    assert cores_of(CpuCache(2, "Unified", 1, 1, 64, (99,)), cpus) == 1


def leaf(level: int, kind: int, sizes: int, ways: int, sets: int, full: int = 0) -> tuple[int, ...]:
    """A subleaf of leaf 18H as Intel's manual has it."""
    return (INTEL_TLBS, 1, 0, ways << 16 | sizes, sets, full << 8 | level << 5 | kind)


def test_leaf_18h_of_intel() -> None:
    rows = [
        leaf(1, 2, 1, 8, 16),
        leaf(1, 2, 6, 8, 2),
        leaf(1, 4, 1, 6, 16),
        leaf(1, 4, 6, 32, 1, 1),
        # Stores have their own, and a subleaf of type 0 is none.
        leaf(1, 5, 15, 16, 1, 1),
        leaf(0, 0, 0, 0, 0),
        leaf(2, 3, 7, 16, 128),
        leaf(2, 3, 9, 16, 64),
    ]
    assert tlbs_of(rows) == (
        CpuTlb("code", ("4K",), 128, 8),
        CpuTlb("code", ("2M",), 16, 8),
        CpuTlb("data", ("4K",), 96, 6),
        CpuTlb("data", ("2M",), 32, 32),
        CpuTlb("second", ("4K", "2M"), 2048, 16),
        CpuTlb("second", ("4K", "1G"), 1024, 16),
    )


def test_functions_of_amd_are_a_tlb_for_all_sizes_of_equal_numbers() -> None:
    rows = [
        (AMD_L1, 0, 0xFF40FF40, 0xFF40FF40, 0, 0),
        (AMD_L2, 0, 0x68004200, 0x68004200, 0, 0),
        (AMD_1G, 0, 0xF040F040, 0xF0400000, 0, 0),
    ]
    assert tlbs_of(rows) == (
        CpuTlb("data", ("4K", "2M", "1G"), 64, 64),
        CpuTlb("code", ("4K", "2M", "1G"), 64, 64),
        CpuTlb("second_data", ("4K", "2M"), 2048, 8),
        CpuTlb("second_code", ("4K", "2M"), 512, 4),
        CpuTlb("second_data", ("1G",), 64, 64),
    )


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [(INTEL_TLBS, 0, 0, 0, 0, 0), (AMD_L1, 0, 0, 0, 0, 0), (AMD_L2, 0, 0, 0, 0x08006040, 0)],
        # Ways are said elsewhere (9) or are reserved.
        [(AMD_L2, 0, 0x98009200, 0x78007200, 0, 0)],
    ],
)
def test_a_hypervisor_that_tells_nothing_is_believed(rows: list[tuple[int, ...]]) -> None:
    assert tlbs_of(rows) == ()


def test_who_made_the_cpu_and_what_it_is_called() -> None:
    assert (vendor(INTEL), title(INTEL)) == ("intel", "Some CPU @ 2.30GHz")
    assert (vendor(ARM), title(ARM)) == ("arm", "CPU 0x41 part 0xd0c")
    assert vendor(INTEL.replace("GenuineIntel", "AuthenticAMD")) == "amd"
    assert (vendor(""), title("")) == ("", "CPU of unknown model")
