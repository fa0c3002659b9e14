import shutil
from pathlib import Path

import pytest

from errors import InfraError
from host import doctor, facts, packages, sandbox
from host.doctor import GIB, KNOWN, DoctorCheck, as_text, conclusion, run_checks, worst
from host.packages import SystemPackage
from tests.values import data, script, there

QEMU = data(__file__, "qemu")
KNOWN_BY_TOOL = {known.tool: known for known in KNOWN}
CACHE, ORDER = Path("/cache"), ("ok", "ok", "warn", "fail")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH: real setpriv and shell, and whatever a test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("setpriv", "sh"):
        (folder / name).symlink_to(there(shutil.which(name)))
    # What is found once is kept, for tests behind this one, too: it is not to be found here.
    sandbox.available()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(packages, "SYSTEM_FOLDERS", ())
    return folder


def by_name(checks: tuple[DoctorCheck, ...]) -> dict[str, DoctorCheck]:
    named = {check.name: check for check in checks}
    assert len(named) == len(checks)
    return named


def test_a_package_is_there_when_all_it_provides_is(folder: Path, tmp_path: Path) -> None:
    header = tmp_path / "libelf.h"
    package = SystemPackage("some", "required", ("one", str(header)), "for the test")
    script(folder / "one", "")
    check = doctor.check_package(package)
    assert check.status == "fail"
    assert check.found == f"not found: {header}"
    assert check.why == "for the test"
    assert check.mend == "apt-get install --no-install-recommends some"
    header.touch()
    assert doctor.check_package(package) == DoctorCheck(
        "some", "ok", f"{folder / 'one'} {header}", ""
    )


def test_a_merely_useful_package_only_warns(folder: Path) -> None:
    assert (
        doctor.check_package(SystemPackage("ccache", "useful", ("ccache",), "why")).status == "warn"
    )


@pytest.mark.parametrize(
    ("tool", "version", "status"), data(__file__, "versions_are_held_against_those_known_to_work")
)
def test_versions_are_held_against_those_known_to_work(
    tool: str, version: str, status: str
) -> None:
    check = doctor.check_version(KNOWN_BY_TOOL[tool], version)
    assert check.status == status
    assert check.found == version
    assert bool(check.mend) == (status != "ok")


def test_exact_mode_is_tried_with_a_machine_of_nothing(folder: Path) -> None:
    assert doctor.check_exact_mode().status == "fail"
    script(folder / "qemu-system-x86_64", QEMU.format(version="8.0.0", icount="exit 0"))
    assert doctor.check_exact_mode().status == "ok"


def test_a_qemu_without_tcg_is_quoted(folder: Path) -> None:
    refusal = "echo 'qemu: invalid accelerator tcg' >&2; exit 1"
    script(folder / "qemu-system-x86_64", QEMU.format(version="8.0.0", icount=refusal))
    check = doctor.check_exact_mode()
    assert check.status == "fail"
    assert check.found == "qemu: invalid accelerator tcg"


def test_kvm_is_never_a_reason_to_fail(tmp_path: Path) -> None:
    device = tmp_path / "kvm"
    assert "no access" in doctor.check_kvm(device).found
    device.touch()
    check = doctor.check_kvm(device)
    assert check.status == "ok"
    assert "opens; not needed in exact mode" in check.found


@pytest.mark.parametrize(
    ("check", "status"),
    [
        *zip(map(doctor.check_memory, (24000, 3850, 3000, 1000)), ORDER, strict=True),
        *(
            (doctor.check_disk(CACHE, n * GIB), s)
            for n, s in zip((20, 5, 4, 1), ORDER, strict=True)
        ),
        (doctor.check_cores(1), "warn"),
        (doctor.check_cores(2), "ok"),
    ],
)
def test_memory_disk_and_cores(check: DoctorCheck, status: str) -> None:
    assert check.status == status
    assert check.name != "disk" or check.found.endswith(".0 GiB free at /cache")


def test_the_cache_folder_is_looked_at_and_not_made(tmp_path: Path) -> None:
    cache_folder = tmp_path / "a/b"
    check = doctor.check_cache(cache_folder)
    assert (check.status, check.found) == ("ok", f"{cache_folder}, to be made")
    assert not (tmp_path / "a").exists()
    cache_folder.mkdir(parents=True)
    assert doctor.check_cache(cache_folder).found == str(cache_folder)
    # Below a file it cannot be made.
    (tmp_path / "file").touch()
    check = doctor.check_cache(tmp_path / "file/cache")
    assert check.status == "fail"
    assert "TWINBOOT_CACHE" in check.mend


def test_a_bare_machine_fails_without_an_exception(folder: Path, tmp_path: Path) -> None:
    checks = by_name(run_checks(cache=tmp_path / "cache", proc=tmp_path))
    assert checks["fio"].status == "fail"
    assert checks["ccache"].status == "warn"
    assert checks["exact mode"].status == "fail"
    assert checks["memory"].status == "fail"
    assert "python3-venv" not in checks
    assert worst(checks.values()) == "fail"


def test_a_tool_that_comes_is_no_longer_missed(folder: Path, tmp_path: Path) -> None:
    script(folder / "fio", "echo fio-3.33")
    checks = by_name(run_checks(cache=tmp_path, proc=tmp_path))
    assert checks["fio"].status == "ok"
    assert checks["fio version"].status == "ok"


def test_text_gives_reason_and_mend_and_one_line_for_all() -> None:
    checks = (
        DoctorCheck("qemu", "ok", "/usr/bin/qemu", "never shown"),
        DoctorCheck(
            "fio", "fail", "not found: fio", "makes the load", packages.install_line(["fio"])
        ),
        DoctorCheck("bc", "warn", "not found: bc", "divides", packages.install_line(["bc"])),
    )
    assert as_text(checks) == (
        "ok    qemu  /usr/bin/qemu\n"
        "fail  fio   not found: fio\n"
        "            makes the load\n"
        "            apt-get install --no-install-recommends fio\n"
        "warn  bc    not found: bc\n"
        "            divides\n"
        "            apt-get install --no-install-recommends bc\n"
        "\n"
        "as root: apt-get install --no-install-recommends fio bc"
    )

    assert as_text(checks[:1]) == "ok    qemu  /usr/bin/qemu"
    assert as_text(()) == ""


def test_the_host_is_ready_or_what_is_missing_is_named() -> None:
    checks = [
        DoctorCheck("cores", "ok", "", ""),
        DoctorCheck("disk", "warn", "", ""),
        DoctorCheck("qemu", "fail", "", ""),
        DoctorCheck("fio", "fail", "", ""),
    ]
    assert conclusion(checks) == "this host is not ready, missing: qemu, fio"
    assert conclusion(checks[:2]) == "this host is ready, with warnings: disk"
    assert conclusion(checks[:1]) == "this host is ready"
    # The worst status decides.
    assert [worst(checks[:n]) for n in range(4)] == ["ok", "ok", "warn", "fail"]


def test_a_place_where_no_kernel_can_be_built_is_a_failure(tmp_path: Path) -> None:
    check = doctor.check_cache(tmp_path / "my cache")
    assert (check.status, check.found) == ("fail", f"{tmp_path}/my cache")
    assert "' '" in check.why
    assert "TWINBOOT_CACHE" in check.mend


def test_a_checkout_may_have_blanks_and_commas_and_no_colon(tmp_path: Path) -> None:
    facts.require_usable(tmp_path, tmp_path / "my lab, new")
    with pytest.raises(InfraError, match="move the checkout"):
        facts.require_usable(tmp_path, tmp_path / "a:b")
