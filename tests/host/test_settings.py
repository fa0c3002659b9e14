from __future__ import annotations

import subprocess
from pathlib import Path

from host.fitness import NOTHING, Setting, as_shell, to_change

CPU = "sys/devices/system/cpu"
MM = "sys/kernel/mm"


def laptop(root: Path, **changes: str) -> None:
    """The files of a laptop with two cores, two threads each, as its distribution sets it up."""
    files = {
        f"{CPU}/smt/control": "on",
        f"{CPU}/intel_pstate/no_turbo": "0",
        f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave",
        f"{CPU}/cpu1/cpufreq/scaling_governor": "performance",
        f"{MM}/ksm/run": "0",
        f"{MM}/transparent_hugepage/enabled": "always [madvise] never",
        f"{MM}/transparent_hugepage/khugepaged/defrag": "1",
        "sys/devices/system/node/node0/meminfo": "",
        "proc/sys/kernel/numa_balancing": "1",
        **changes,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


def changed(root: Path) -> dict[str, tuple[str, str]]:
    return {str(each.path.relative_to(root)): (each.now, each.target)
            for each in to_change(proc=root / "proc", sys=root / "sys")}  # fmt: skip


def test_what_a_laptop_has_to_change(tmp_path: Path) -> None:
    laptop(tmp_path)
    assert changed(tmp_path) == {
        f"{CPU}/smt/control": ("on", "off"),
        f"{CPU}/intel_pstate/no_turbo": ("0", "1"),
        f"{MM}/transparent_hugepage/khugepaged/defrag": ("1", "0"),
        f"{CPU}/cpu0/cpufreq/scaling_governor": ("powersave", "performance"),
    }


def test_balancing_matters_between_nodes_and_khugepaged_where_there_are_huge_pages(
    tmp_path: Path,
) -> None:
    laptop(
        tmp_path,
        **{
            "sys/devices/system/node/node1/meminfo": "",
            f"{MM}/transparent_hugepage/enabled": "always madvise [never]",
        },
    )
    names = changed(tmp_path)
    assert names["proc/sys/kernel/numa_balancing"] == ("1", "0")
    assert f"{MM}/transparent_hugepage/khugepaged/defrag" not in names


def test_the_commands_change_and_undo(tmp_path: Path) -> None:
    laptop(tmp_path)
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    settings = to_change(proc=tmp_path / "proc", sys=tmp_path / "sys")
    there, back = as_shell(settings).split("\n\n")
    subprocess.run(["sh", "-euc", there], check=True)
    assert changed(tmp_path) == {}
    subprocess.run(["sh", "-euc", back], check=True)
    assert {path: path.read_text() for path in before} == before


def test_a_host_that_fits_needs_no_command() -> None:
    assert as_shell(()) == NOTHING
    assert "echo 0 > /x" in as_shell((Setting(Path("/x"), "1", "0"),))
