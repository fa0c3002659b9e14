"""A session needs no root: made by a user without rights, whose home holds kernels alone."""

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from experiment.load import load_guest
from experiment.plan import scaled
from experiment.spec import Dataset
from guests import initramfs, virtme
from guests.virtme import TRANSLATED_PATIENCE, WallMachine
from kernels.cache import Kernel
from runs.local import Options
from tests.integration.conftest import EndedSession
from tests.integration.lab_process import CHECKOUT, FORMS, SMALL, TIMEOUT_S, records_of
from tests.values import but, data, spaced
from workloads.job import prepare_text
from workloads.spec import load_catalogue

pytestmark = pytest.mark.guest

# Nobody's: it is in no file of users, and owns nothing.
UID = 54321
# In mounts of its own: root's home, which others may not enter, is an empty one that holds
# only the folders given, then the command as another user without groups and capabilities.
AS_USER = data(__file__, "as_user")

WALL = data(__file__, "wall")


@dataclass(frozen=True)
class User:
    """An ordinary user with a home of its own."""

    home: Path
    work: Path

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        root = Path.home().resolve()
        needed = [Path(each).resolve() for each in (sys.base_prefix, sys.prefix, CHECKOUT)]
        kept = [str(each) for each in dict.fromkeys(needed) if root in each.parents]
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        given = (self.work, root, UID, len(kept), *kept, *argv)
        return subprocess.run(
            ["unshare", "--mount", "sh", "-euc", AS_USER, "sh", *map(str, given)],
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            env={"HOME": str(self.home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        )


@pytest.fixture(scope="module")
def user(kernels: dict[str, Kernel]) -> Iterator[User]:
    if os.geteuid() != 0:
        pytest.skip("every session of these tests is an ordinary user's: they are not run by root")
    # Folders of pytest's are for their owner alone.
    top = Path(tempfile.mkdtemp(prefix="twinboot-user-"))
    top.chmod(0o755)
    user = User(top / "home", top / "mounts")
    try:
        for kernel in kernels.values():
            kept = user.home / ".cache/twinboot/kernels" / kernel.folder.name
            shutil.copytree(kernel.folder, kept)
        for path in (user.home, *user.home.rglob("*")):
            os.chown(path, UID, UID, follow_symlinks=False)
        if user.run("true").returncode != 0:
            pytest.skip(f"no mounts of one's own here: {user.run('true').stderr.strip()}")
        yield user
    finally:
        shutil.rmtree(top)


def test_a_session_is_an_ordinary_users_and_gives_the_same_bits(
    user: User, small: EndedSession
) -> None:
    who = user.run("sh", "-c", "id -u; id -G; grep CapEff /proc/self/status; ls -A ~ | head -3")
    assert who.stdout.split() == [str(UID), str(UID), "CapEff:", "0" * 16, ".cache"]
    assert user.run("touch", "/etc/twinboot-was-here").returncode != 0

    session = user.home / "session"
    done = user.run(
        sys.executable, str(CHECKOUT / "lab.py"), "run", SMALL, "--session", str(session)
    )
    assert done.returncode == 0, done.stderr
    assert "building" not in done.stderr
    own, roots = records_of(session), records_of(small.folder)
    assert set(own) == {name for name in roots if ".b00." in name}
    for name, record in own.items():
        assert record.failure is None
        assert record.fingerprint == roots[name].fingerprint != ""
        assert record.samples == roots[name].samples
    assert all((session / name).stat().st_size for name in FORMS)
    assert {path.lstat().st_uid for path in user.home.rglob("*")} == {UID}


def test_a_wall_guest_of_an_ordinary_user_comes_to_its_end(
    user: User, wall_kernel: Kernel, options: Options
) -> None:
    """In its box the system's set-user-ID programs are nobody's, and so they are in the guest."""
    shutil.copytree(wall_kernel.folder, user.home / "wall")
    shutil.copy(initramfs.provide(options.cache).path, user.home / "root.cpio")
    guest = but(load_guest(Path("smoke")), boot_timeout_s=100.0)
    size = scaled(Dataset(cgroup_limit_mib=8192, brd_mib=16384, file_mib=13312, jobs=16), guest)
    workload = load_catalogue()["filemap-4k"]
    machine = WallMachine(
        kernel=user.home / "wall" / wall_kernel.image.name,
        initramfs=user.home / "root.cpio",
        guest=guest,
        size=size,
        prepare_text=prepare_text(workload, file_mib=size.file_mib),
        preload=Path("of-exact-guests-alone"),
        accelerator="tcg",
        patience=TRANSLATED_PATIENCE,
    )
    (user.home / "machine").write_bytes(pickle.dumps(machine))
    for path in user.home.rglob("*"):
        os.chown(path, UID, UID, follow_symlinks=False)
    # As another user's lab has it for the name of a run.
    with tempfile.TemporaryDirectory(prefix=virtme.PREFIX):
        done = user.run(sys.executable, "-c", WALL, str(CHECKOUT))
    assert done.stdout.startswith("done "), f"{done.stdout} {done.stderr}"


def test_doctor_of_an_ordinary_user_finds_nothing_that_wants_root(user: User) -> None:
    done = user.run(sys.executable, str(CHECKOUT / "lab.py"), "doctor")
    assert done.returncode == 0, done.stdout
    assert f"{user.home}/.cache/twinboot" in done.stdout


def test_set_up_of_an_ordinary_user_wants_no_root_where_nothing_is_missing(user: User) -> None:
    own = user.home / "checkout"
    for name in spaced(
        "setup/prepare.sh setup/uv.txt host/packages.txt host/systems.txt requirements.lock"
    ):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, own / name)
    # The environment is there: building one is tests/systems/debian.sh's.
    (own / ".venv").mkdir()
    (own / ".venv/bin").symlink_to(Path(sys.prefix).resolve() / "bin")
    for path in (own, *own.rglob("*")):
        os.chown(path, UID, UID, follow_symlinks=False)
    stamp = "cat requirements.lock setup/uv.txt | sha256sum | sed 's/ .*/ tests/' >.venv/.made-from"
    done = user.run("sh", "-c", f"cd {own} && {stamp} && sh setup/prepare.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
