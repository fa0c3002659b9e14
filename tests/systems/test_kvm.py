"""The script that makes a host with a working KVM, and all that is tried on one."""

import os
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.waiting import completed

HERE = Path(__file__).parent
SYSTEMS_VARIABLE = "TWINBOOT_TEST_SYSTEMS"
RELEASE = "bookworm"
# Each test has its own, and the machine one of three hours.
TIMEOUT_S = 4 * 3600.0
# What a machine with a KVM has no need to show.
OTHER_HOSTS = {
    "test_what_the_host_does_not_have_is_the_hosts_fault[kvm-changes0-MSR|KVM]",
    "test_what_the_host_does_not_have_is_the_hosts_fault[kvm-changes1-Cannot allocate memory]",
}


@pytest.mark.parametrize("script", ["kvm.sh", "wall-on-kvm.sh"])
def test_a_call_without_its_arguments_is_refused(script: str) -> None:
    done = completed(["sh", HERE / script, RELEASE, "folder"], check=False)
    assert done.returncode == 2
    assert f"usage: {script}" in done.stderr


@pytest.mark.guest
@pytest.mark.long
def test_wall_mode_on_an_emulated_kvm(tmp_path: Path) -> None:
    """An hour and more; its root of Debian stays for the next time, with its kernels."""
    if os.getuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("root and debootstrap are needed for a root of Debian")
    systems = Path(os.environ.get(SYSTEMS_VARIABLE, Path.home() / ".cache/twinboot-systems"))
    systems.mkdir(parents=True, exist_ok=True)
    out = tmp_path / "out"
    done = completed(
        ["sh", HERE / "wall-on-kvm.sh", RELEASE, systems / RELEASE, out],
        check=False,
        timeout=TIMEOUT_S,
    )
    output = (out / "stdout").read_text()[-5000:] if (out / "stdout").exists() else done.stderr
    assert done.returncode == 0, output
    cases = list(ElementTree.parse(out / "tests.xml").iter("testcase"))
    skipped = {case.attrib["name"] for case in cases if case.find("skipped") is not None}
    assert len(cases) > len(skipped)
    assert skipped == OTHER_HOSTS
