"""Sessions of wall mode on a host whose KVM boots kernels; see tests/systems/wall-on-kvm.sh.

Single guests, and each way for one to end, are in tests/integration/test_wall_guests.py.
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from errors import Exit
from host import accelerator
from host.accelerator import DEVICE, AcceleratorTest
from kernels.cache import Kernel
from results.store import SessionStore
from runs.local import Options
from tests.integration.lab_process import finish, kill, records_of, run_lab, start, written_ids
from tests.values import spaced
from tests.waiting import wait_until

pytestmark = [pytest.mark.guest, pytest.mark.long]
ONE_BLOCK = spaced(
    "filemap-v4 --mode wall --quick --set guest=smoke --set blocks=1 --no-twins "
    "--no-check --session"
)
# A guest's, where KVM is itself emulated on a busy host.
GUEST_S = 900.0


@pytest.fixture(scope="module")
def kvm(wall_kernel: Kernel, options: Options) -> AcceleratorTest:
    """What runs guests here, where that is KVM."""
    result = accelerator.provide(wall_kernel.image)
    if result.accelerator == "tcg":
        pytest.skip("KVM boots no kernel here")
    return result


def wall_guests() -> list[int]:
    """Process ids of every QEMU that runs a wall guest."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"qemu-system-x86_64") and any(
            b"twinboot-monitor" in w for w in words
        ):
            pids.append(int(folder.name))
    return pids


@contextmanager
def without_kvm() -> Iterator[None]:
    """Take KVM's device away from everybody, which its owner can."""
    mode = DEVICE.stat().st_mode & 0o777
    DEVICE.chmod(0)
    try:
        yield
    finally:
        DEVICE.chmod(mode)


def require_one_block(folder: Path, kvm: AcceleratorTest) -> None:
    """Every run of one block, valid, made in one go, where it was put."""
    records = records_of(folder)
    assert len(records) == 3
    assert [record.failure for record in records.values()] == [None] * 3
    assert all((record.samples or {})["4k.bw"] > 0 for record in records.values())
    assert SessionStore(folder).manifest().provenance.accelerator == kvm.name
    for run_id in records:
        assert (folder / "raw" / run_id / "pinning").read_text().startswith("vcpu 0: host CPUs ")


def test_doctor_says_kvm(kvm: AcceleratorTest) -> None:
    checks = json.loads(run_lab("doctor", "--wall", "--json").stdout)
    (check,) = (check for check in checks if check["name"] == "accelerator")
    assert check["found"] == f"{kvm.name} boots a kernel"
    assert check["status"] == ("ok" if kvm.real_time else "fail")


def test_a_session_outlives_its_kvm_and_the_keyboard(kvm: AcceleratorTest, tmp_path: Path) -> None:
    if not kvm.emulated or DEVICE.stat().st_uid != os.getuid():
        pytest.skip("KVM is taken away from an emulated host alone")
    folder = tmp_path / "session"
    lines = folder / "runs.jsonl"
    resume = ("run", "--resume", str(folder))
    lab = start("run", *ONE_BLOCK, str(folder))
    wait_until(
        lambda: lab.poll() is not None or (lines.exists() and lines.read_text()), "run", GUEST_S
    )
    with without_kvm():
        stopped = finish(lab)
        # What begins before is not stopped.
        made = written_ids(folder)
        refused = run_lab(*resume)
    assert stopped.returncode == Exit.INFRASTRUCTURE, stopped.stderr
    assert "KVM is gone" in stopped.stderr
    assert "--resume" in stopped.stderr
    assert len(made) in (1, 2)
    assert [record.failure for record in records_of(folder).values()] == [None] * len(made)
    assert refused.returncode == Exit.INFRASTRUCTURE, refused.stderr
    assert "KVM is gone" in refused.stderr
    assert written_ids(folder) == made

    lab = start(*resume)
    wait_until(lambda: lab.poll() is not None or wall_guests(), "guest", GUEST_S)
    interrupted = kill(lab, signal.SIGINT)
    assert interrupted.returncode == 130, interrupted.stderr
    assert "--resume" in interrupted.stderr
    assert wall_guests() == []
    assert written_ids(folder) == made

    done = run_lab(*resume)
    assert done.returncode == 0, done.stderr
    # The block whole: what was made of it before is made again.
    assert len(written_ids(folder)) == len(made) + 3
    require_one_block(folder, kvm)
    assert "No verdict" in (folder / "report.md").read_text()
