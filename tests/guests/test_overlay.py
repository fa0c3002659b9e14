"""The initramfs of a prebuilt kernel: the lab's, with modules and an agent behind it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from errors import InfraError
from experiment.architecture import X86_64
from guests import initramfs, programs
from guests.channel import MAGIC
from guests.initramfs import AGENT, Initramfs, Lacks
from kernels.cache import Kernel
from tests.values import but, identity
from tests.waiting import completed
from workloads.spec import Extras

TEXT = initramfs.PREBUILT_AGENT.read_text()


def archive(folder: Path, name: str, files: dict[str, str]) -> Path:
    top = folder / name
    top.mkdir()
    for path, text in files.items():
        (top / path).write_text(text)
    target = folder / f"{name}.cpio"
    subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet", "-F", str(target)],
        cwd=top,
        check=True,
        input="\n".join(files),
        text=True,
    )
    return target


@pytest.fixture
def base(tmp_path: Path) -> Initramfs:
    return Initramfs(archive(tmp_path, "base", {"init": "the agent"}), "ab" * 32)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    folder = tmp_path / "kernel"
    folder.mkdir()
    for name in ("00-brd.ko", "01-xfs.ko"):
        (folder / name).write_text(name)
    return Kernel(folder, identity("1" * 32, release="6", source="deb:a=1", flavour="prebuilt"))


def listed(data: bytes, folder: Path) -> dict[str, str]:
    """What is in one archive."""
    folder.mkdir()
    subprocess.run(["cpio", "-i", "-d", "--quiet"], cwd=folder, check=True, input=data)
    return {
        path.relative_to(folder).as_posix(): path.read_text(errors="replace")
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_second_archive_follows_the_first(base: Initramfs, kernel: Kernel, tmp_path: Path) -> None:
    made = initramfs.overlay(base, kernel, tmp_path)
    data, first = made.path.read_bytes(), base.path.read_bytes()
    assert data.startswith(first)
    assert len(first) % 4 == 0
    files = listed(data[len(first) :], tmp_path / "out")
    assert files.pop("bin/outb").startswith("\x7fELF")
    assert files == {
        "init": TEXT,
        "agent.sh": AGENT.read_text(),
        "modules/00-brd.ko": "00-brd.ko",
        "modules/01-xfs.ko": "01-xfs.ko",
    }
    assert (tmp_path / "out/init").stat().st_mode & 0o111


def test_made_once_and_the_same_bytes(base: Initramfs, kernel: Kernel, tmp_path: Path) -> None:
    made = initramfs.overlay(base, kernel, tmp_path / "one")
    assert made.path == initramfs.path_of(base, Lacks("1" * 32, Extras()), tmp_path / "one")
    inode = made.path.stat().st_ino
    assert initramfs.overlay(base, kernel, tmp_path / "one") == made
    assert made.path.stat().st_ino == inode
    assert initramfs.overlay(base, kernel, tmp_path / "two").sha256 == made.sha256
    names = {path.name for path in made.path.parent.iterdir()}
    assert names == {"lock", made.path.name, made.path.with_suffix(".sha256").name}


def test_another_base_or_kernel_or_name_of_a_program_is_another_image(
    base: Initramfs, tmp_path: Path
) -> None:
    """A program that was renamed was looked for in the image of before, by its new name."""
    places = {
        initramfs.path_of(base, Lacks("1" * 32, Extras()), tmp_path),
        initramfs.path_of(base, Lacks("2" * 32, Extras()), tmp_path),
        initramfs.path_of(Initramfs(base.path, "cd" * 32), Lacks("1" * 32, Extras()), tmp_path),
    }
    for name in ("one.c", "two.c"):
        source = tmp_path / name
        source.write_text("int main(void) { return 0; }\n")
        places.add(initramfs.path_of(base, Lacks("", Extras(programs=(source,))), tmp_path))
    assert len(places) == 5


def test_ports_and_the_status_of_a_run_that_is_done() -> None:
    (exit_port, status), (panic_port, _) = re.findall(r"\boutb (\d+) (\d+)$", TEXT, re.MULTILINE)
    panic, leave = X86_64.board.devices
    assert panic.endswith(f"ioport={panic_port}")
    assert f"iobase={int(exit_port):#x}," in leave
    assert (int(status) << 1) | 1 == X86_64.board.done_status
    assert f'echo "{MAGIC.decode()} $1 $2"; cat /tmp/payload' in TEXT


def modules_loaded(folder: Path, insmod: str) -> subprocess.CompletedProcess[str]:
    """Run load_modules with an insmod of the test's."""
    functions = TEXT.partition("\nmounts\n")[0].replace(". /agent.sh", "")
    functions = functions.replace("/modules/", f"{folder}/").replace("/proc/", f"{folder}/")
    stand_ins = 'fail() { echo "failed: $*"; exit 42; }\n' + insmod
    return completed(
        ["busybox", "sh", "-c", f"{functions}\n{stand_ins}\nOUT={folder}\nload_modules"],
        check=False,
    )


def test_modules_get_their_options_in_turn_and_one_that_is_refused_ends_the_guest(
    kernel: Kernel,
) -> None:
    (kernel.folder / "cmdline").write_text("quiet brd.rd_nr=1 brd.rd_size=9 xfsx.a=1 brdx=2\n")
    done = modules_loaded(kernel.folder, 'insmod() { echo "${1##*/} ${2-} ${3-}"; }')
    assert done.stdout == "00-brd.ko rd_nr=1 rd_size=9\n01-xfs.ko  \n"
    assert done.stderr == ""
    done = modules_loaded(kernel.folder, "insmod() { echo no such device >&2; return 1; }")
    assert (done.returncode, done.stdout) == (42, "failed: module brd: no such device\n")


def test_a_kernel_of_ours_gives_the_modules_that_a_workload_names(
    base: Initramfs, kernel: Kernel, tmp_path: Path
) -> None:
    ours = Kernel(kernel.folder, but(kernel.identity, flavour="perf+tests"))
    extras = Extras(modules=("00-brd",))
    made = initramfs.overlay(base, ours, tmp_path, extras)
    # No agent: it is the workload's program that loads the module.
    data = made.path.read_bytes()[len(base.path.read_bytes()) :]
    assert listed(data, tmp_path / "out") == {"modules/00-brd.ko": "00-brd.ko"}
    # Another kernel's module is another image, and a workload without one needs none.
    assert initramfs.lacks(ours, extras) == Lacks("1" * 32, extras)
    assert initramfs.lacks(ours, Extras()) == Lacks("", Extras())
    roots = initramfs.overlays(base, [ours], [Extras(), extras], tmp_path)
    assert {key: root.path for key, root in roots.items()} == {Lacks("1" * 32, extras): made.path}
    with pytest.raises(InfraError, match="has no module xfs"):
        initramfs.overlay(base, ours, tmp_path, Extras(modules=("xfs",)))


@pytest.fixture
def with_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the PATH, for programs of the host that a workload needs."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_programs_of_the_host_come_with_their_libraries(
    base: Initramfs, kernel: Kernel, tmp_path: Path, with_programs: Path
) -> None:
    shutil.copy(shutil.which("sort") or "", with_programs / "sorter")
    ours = Kernel(kernel.folder, but(kernel.identity, flavour="perf"))
    extras = Extras(host_programs=("sorter",))
    made = initramfs.overlay(base, ours, tmp_path, extras)
    files = listed(made.path.read_bytes()[len(base.path.read_bytes()) :], tmp_path / "out")
    libraries = {name for name in files if name != "usr/bin/sorter"}
    assert "usr/bin/sorter" in files
    assert any("libc.so" in name for name in libraries)
    # Another version of the program is another image.
    shutil.copy(shutil.which("cat") or "", with_programs / "sorter")
    assert initramfs.path_of(base, Lacks("", extras), tmp_path) != made.path


def test_a_missing_program_is_named_with_its_package(
    base: Initramfs, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "locate", lambda name: None)
    with pytest.raises(InfraError, match="not installed: tcc") as failure:
        initramfs.overlay(base, kernel, tmp_path, Extras(host_programs=("tcc",)))
    assert failure.value.next_step.endswith(" tcc, or leave out the workload")
