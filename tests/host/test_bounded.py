"""Every page that a box can hold, in a control group and without one; by real boxes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from host import bounded, filtered, sandbox
from host.process import run
from host.sandbox import Box, Limits, Tool
from tests.values import data

MIB = 1 << 20
KEPT = "import time; time.sleep(250); print('kept')"
# Each wants 400 MiB of a box of 200, or what would give them.
HOLDERS = data(__file__, "holders")
WITHOUT = data(__file__, "without")


@pytest.mark.slow
@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("name", HOLDERS)
def test_no_page_is_held_beyond_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, grouped: bool
) -> None:
    tool: Tool = "bwrap" if shutil.which("bwrap") else "unshare"
    if not grouped:
        program = tmp_path / "without.py"
        program.write_text(WITHOUT.format(folder=str(sandbox.BOUNDED.parent)))
        monkeypatch.setattr(sandbox, "BOUNDED", program)
    place = tmp_path / "place"
    place.mkdir()
    box = Box(tool, ((place, place),), (), Limits(all_memory_bytes=200 * MIB))
    with box.owned():
        argv = box.argv([str(sandbox.PYTHON), "-c", HOLDERS[name]], place)
        done = run(argv, timeout_s=300, check=False)
    assert "kept" not in done.stdout
    assert done.returncode != 0


def test_a_box_within_its_bound_is_left_alone_and_its_group_is_gone(tmp_path: Path) -> None:
    tool: Tool = "bwrap" if shutil.which("bwrap") else "unshare"
    box = Box(tool, ((tmp_path, tmp_path),), (), Limits(all_memory_bytes=200 * MIB))
    with box.owned():
        done = run(
            box.argv(["sh", "-c", "cat /proc/self/cgroup; exit 3"], tmp_path),
            timeout_s=300,
            check=False,
        )
    assert done.returncode == 3
    left = [path for top in bounded.own_groups().values() for path in top.glob("twinboot-*")]
    assert [path for path in left if not Path("/proc", path.name[9:]).exists()] == []


def test_groups_of_both_versions_are_listed(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:memory:/a/b\n8:pids,x:/\n1:name=systemd:/s\n0::/\n")
    (tmp_path / "mountinfo").write_text(
        "30 29 0:26 / /cg/memory rw - cgroup cgroup rw,memory\n"
        "31 29 0:27 / /cg/pids rw - cgroup cgroup rw,pids\n32 29 0:28 / / rw - ext4 x rw\n"
        "33 29 0:29 / /cg/unified rw - cgroup2 cgroup2 rw\n"
    )
    groups = bounded.own_groups(tmp_path)
    assert {name: str(path) for name, path in groups.items()} == {
        "memory": "/cg/memory/a/b",
        "pids": "/cg/pids",
        "": "/cg/unified",
    }


def test_a_group_of_version_2_gets_all_its_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On folders of files: a kernel's own files are there before anything is written to them."""
    own = tmp_path / "user.slice/scope"
    own.mkdir(parents=True)
    control = own.parent / "cgroup.subtree_control"
    control.write_text("cpu memory pids\n")
    monkeypatch.setattr(bounded, "own_groups", lambda: {"": own})
    real = Path.mkdir

    def mkdir(self: Path) -> None:
        real(self)
        for name in (*bounded.MEMORY_2, "pids.max"):
            (self / name).write_text("max")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    (group,) = bounded.make_groups(1 << 30, 64)
    assert group == own.parent / f"twinboot-{os.getpid()}"
    assert {path.name: path.read_text() for path in group.iterdir()} == {
        "memory.max": str(1 << 30),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "64",
    }


def test_the_count_of_a_process_has_what_it_shares() -> None:
    script = (
        "import mmap, sys\nheld = mmap.mmap(-1, 64 << 20)\nprint('made', flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"made\n"
        counted = bounded.memory_bytes(child.pid)
        child.communicate()
    assert 64 * MIB <= counted < 200 * MIB


def test_a_folder_whose_files_cannot_be_counted_is_too_much(tmp_path: Path) -> None:
    top = os.open(tmp_path, os.O_DIRECTORY)
    for _ in range(30):
        os.mkdir("x" * 200, dir_fd=top)
        below = os.open("x" * 200, os.O_DIRECTORY, dir_fd=top)
        os.close(top)
        top = below
    os.close(top)
    with pytest.raises(OSError, match="too long"):
        bounded.disk_bytes(tmp_path)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_filter_has_steps_of_eight_bytes_and_an_end(machine: str) -> None:
    plain = filtered.program(machine)
    for allowed in (["socketpair"], ["socket", "socketpair", "memfd_create"]):
        less = len(plain) - len(filtered.program(machine, allowed))
        assert less == 2 * 8 * len(allowed)
    assert plain[-8:] == bytes([filtered.RETURN, 0, 0, 0, 0, 0, 0xFF, 0x7F])
