import hashlib
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from errors import InfraError
from host import doctor, facts, packages
from host.doctor import KnownRelease, shipped
from host.facts import NOT_FOUND, TOOLS, Tool
from tests.values import data, script

CPUINFO = data(__file__, "cpuinfo")
MEMINFO = "MemTotal:        4014080 kB\nMemFree:  100 kB\nMemAvailable:    3145728 kB\n"
OS_RELEASE = 'NAME="Debian GNU/Linux"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n'
HEAD = "0123456789abcdef0123456789abcdef01234567"
TOOL = {tool.name: tool for tool in TOOLS}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "cpuinfo").write_text(CPUINFO)
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "os-release").write_text(OS_RELEASE)
    return tmp_path


def test_the_machine_is_described(machine: Path) -> None:
    assert facts.distribution("PRETTY_NAME=Alpine\n") == "Alpine"
    values = facts.host_facts(proc=machine, etc=machine)
    assert values["cpu"] == "Intel(R) Xeon(R) CPU @ 2.20GHz"
    assert values["memory"] == "3920 MiB"
    assert values["distribution"] == "Debian GNU/Linux 12 (bookworm)"
    assert values["kernel"] == os.uname().release
    assert values["cores"] == f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}"


def test_a_machine_without_proc_is_no_exception(tmp_path: Path) -> None:
    values = facts.host_facts(proc=tmp_path, etc=tmp_path)
    assert values["cpu"] == values["memory"] == values["distribution"] == NOT_FOUND


@pytest.mark.parametrize(
    ("tool", "output", "version"), data(__file__, "versions_are_read_from_what_tools_print")
)
def test_versions_are_read_from_what_tools_print(tool: str, output: str, version: str) -> None:
    assert facts.version_in(TOOL[tool], output) == version


@pytest.mark.parametrize(("version", "numbers"), data(__file__, "version_numbers_can_be_compared"))
def test_version_numbers_can_be_compared(version: str, numbers: tuple[int, ...]) -> None:
    assert facts.version_numbers(version) == numbers


def test_missing_tools_have_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(packages, "SYSTEM_FOLDERS", ())
    versions = facts.tool_versions()
    assert {versions[tool.name] for tool in TOOLS} == {NOT_FOUND}
    assert versions["python"].startswith("3.")
    assert facts.lab_commit() == NOT_FOUND


def test_tools_of_another_architecture_stand_in_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gcc", "aarch64-linux-gnu-gcc"):
        script(tmp_path / name, f"echo {name} 12.2.0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert facts.tool_versions()["gcc"] == "gcc 12.2.0"
    versions = facts.tool_versions({"gcc": "aarch64-linux-gnu-gcc"})
    assert versions["gcc"] == "aarch64-linux-gnu-gcc 12.2.0"
    assert versions.keys() == facts.tool_versions().keys()


def test_a_tool_that_hangs_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "QUERY_TIMEOUT_S", 0.2)
    assert facts.tool_version(Tool("slow", ("sleep", "30"))) == NOT_FOUND


@pytest.mark.parametrize(
    ("status", "text"), data(__file__, "the_commit_says_when_files_were_changed")
)
def test_the_commit_says_when_files_were_changed(status: str, text: str) -> None:
    assert facts.commit_text(status) == text


def test_the_labs_version_and_commit_come_from_its_checkout(tmp_path: Path) -> None:
    assert facts.lab_version(tmp_path) == NOT_FOUND
    assert facts.lab_commit(tmp_path) == NOT_FOUND
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    assert facts.lab_version(tmp_path) == "1.2.3"
    commit = facts.lab_commit(tmp_path)
    assert len(commit) == 40
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    assert facts.lab_commit(tmp_path) == f"{commit}-dirty"
    assert facts.lab_version(tmp_path) == NOT_FOUND


@pytest.mark.parametrize(
    ("cores", "available_mib", "guest_mib", "count"),
    [(2, 23000, 768, 2), (16, 4096, 768, 3), (1, 64000, 768, 1), (8, 100, 768, 1), (8, 0, 8192, 1)],
)
def test_guests_are_bounded_by_cores_and_memory(
    cores: int, available_mib: int, guest_mib: int, count: int
) -> None:
    assert facts.guests_that_fit(cores, available_mib, guest_mib) == count


@pytest.mark.parametrize(
    ("limits", "available_mib"), data(__file__, "memory_is_what_the_host_and_all_cgroups_leave")
)
def test_memory_is_what_the_host_and_all_cgroups_leave(
    machine: Path, tmp_path: Path, limits: dict[str, tuple[int | str, int]], available_mib: int
) -> None:
    (machine / "self").mkdir()
    (machine / "self/cgroup").write_text("4:memory:/elsewhere\n0::/user.slice/lab.scope\n")
    cgroups = tmp_path / "cgroup"
    for group, (limit, used) in limits.items():
        (cgroups / group).mkdir(parents=True, exist_ok=True)
        (cgroups / group / "memory.max").write_text(f"{limit}\n")
        (cgroups / group / "memory.current").write_text(f"{used}\n")
    assert facts.memory_available_mib(proc=machine, cgroups=cgroups) == available_mib


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWINBOOT_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert facts.cache_folder() == Path("/home/someone/.cache/twinboot")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/x")
    assert facts.cache_folder() == Path("/var/cache/x/twinboot")
    monkeypatch.setenv("TWINBOOT_CACHE", "~/lab")
    assert facts.cache_folder() == Path("/home/someone/lab")


QEMU = "qemu-system-x86_64"
KNOWN = (
    KnownRelease(QEMU, "7.2", "1, 4", "tests"),
    KnownRelease("qemu-system-aarch64", "8.0", "1", "tests"),
)


@pytest.fixture
def qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A QEMU of no release that was run, alone on PATH but for what starts it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("setpriv", "sh"):
        (folder / name).symlink_to(packages.locate(name) or "")
    program = script(folder / QEMU, "echo 'QEMU emulator version 8.2.2 (Other 1:8.2.2)'")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(packages, "SYSTEM_FOLDERS", ())
    return program


@pytest.mark.parametrize(
    ("program", "version", "vcpus"), data(__file__, "a_release_stands_for_its_patch_releases")
)
def test_a_release_stands_for_its_patch_releases(program: str, version: str, vcpus: str) -> None:
    assert doctor.vcpus_run(program, version, KNOWN) == vcpus


def test_doctor_says_what_is_known(qemu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = doctor.check_qemu()
    assert check.status == "warn"
    assert "8.2.2" in check.found
    assert "doctor --kernel" in check.mend
    table = replace(KNOWN[0], release="8.2")
    monkeypatch.setattr(doctor, "shipped", lambda: (table,))
    assert doctor.check_qemu().status == "ok"
    digest = hashlib.sha256(qemu.read_bytes()).hexdigest()
    assert doctor.standing() == doctor.QemuStanding(
        True, digest, "QEMU 8.2.2 (Other 1:8.2.2): this release was run with 1, 4 vCPUs"
    )
    qemu.unlink()
    assert doctor.check_qemu().status == "fail"


def test_the_shipped_table_is_read_and_a_bad_line_is_named() -> None:
    assert {each.program for each in shipped()} == {QEMU, "qemu-system-aarch64"}
    assert all(len(each.release.split(".")) == 2 for each in shipped())
    with pytest.raises(InfraError, match=r"qemu.txt:2"):
        shipped("# comment\nqemu | 7.2 | 1\n")


def test_the_documented_table_is_the_shipped_one() -> None:
    text = (facts.CHECKOUT / "docs" / "systems.md").read_text()
    for each in shipped():
        assert f"| {each.release} | `{each.program}` | {each.vcpus} | {each.what} |" in text
