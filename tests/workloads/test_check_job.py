"""What a guest of the gate is asked to do: its sizes, its steps, and the script's text."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping

import pytest

from experiment.plan import Size
from workloads import check
from workloads.check import OWN_STEPS, CheckCase, Room, job_text, room, task_of, writes_of
from workloads.spec import load_catalogue

CATALOGUE = load_catalogue()
ROOM = Room(brd=64, limit=32, left=0, image=52, own_limit=32)


def case(name: str, variant: str = "default") -> CheckCase:
    return CheckCase(CATALOGUE[name], CATALOGUE[name].phases_of(variant))


def text_of(*cases: CheckCase, rooms: Room = ROOM, jobs: int = 4, file_mib: int = 32) -> str:
    return job_text(cases, jobs=jobs, seed=1, room=rooms, file_mib=file_mib)


def values(text: str) -> Mapping[str, str]:
    """The assignments, as a shell has them."""
    words = shlex.split(text[: text.index("# The gate's job")])
    return dict(word.partition("=")[::2] for word in words)


def size(**sizes: int) -> Size:
    given = {"cgroup_limit_mib": 0, "brd_mib": 64, "file_mib": 32, "jobs": 4}
    return Size(**(given | sizes))


def test_self_tests_that_are_not_requested_are_left_out_of_the_boot() -> None:
    words = check.command_line(("xarray",))
    (word,) = [word for word in words if word.startswith("initcall_blacklist=")]
    assert "ida_checks" in word
    assert "xarray_checks" not in word


def test_an_experiment_s_own_limit_and_file_are_those_of_the_gate() -> None:
    given = size(cgroup_limit_mib=32, brd_mib=80, file_mib=65)
    assert room(given, CATALOGUE["filemap-4k"]) == Room(
        brd=80, limit=32, left=0, image=65, own_limit=32
    )


def test_without_a_limit_the_gate_has_one_of_its_own() -> None:
    assert room(size(), CATALOGUE["iomap-dirty"]) == Room(
        brd=64, limit=48, left=0, image=52, own_limit=32
    )


def test_memory_that_is_to_be_left_is_no_limit() -> None:
    given = size(brd_mib=240, file_mib=188, memory_mib=64)
    assert room(given, CATALOGUE["reclaim-overwrite"]) == Room(
        brd=240, limit=0, left=64, image=52, own_limit=32
    )


def test_tmpfs_has_no_limit_and_the_gate_a_device_of_its_own() -> None:
    assert room(size(brd_mib=0, file_mib=16), CATALOGUE["thp-matrix"]) == Room(
        brd=64, limit=0, left=0, image=52, own_limit=32
    )


@pytest.mark.parametrize(
    ("name", "variant", "writes"),
    [
        ("filemap-4k", "default", "no"),
        ("iomap-dirty", "1m", "some"),
        ("reclaim-overwrite", "default", "all"),
        ("thp-matrix", "mmap-randread", "no"),
        ("thp-matrix", "libaio-randrw", "some"),
    ],
)
def test_what_a_phase_writes_is_known_by_its_job(name: str, variant: str, writes: str) -> None:
    chosen = case(name, variant)
    assert [writes_of(phase, chosen.workload) for phase in chosen.phases] == [writes]


def test_a_phase_that_reads_is_one_step_and_one_that_writes_is_read_again() -> None:
    cases = [case("filemap-4k"), case("iomap-dirty"), case("reclaim-overwrite")]
    task = task_of(cases, (), lockdep=True, vcpus=1)
    again = ("2-overwrite-back", "2-overwrite-again", "2-overwrite-whole")
    assert task.steps == (
        "1-4k",
        "2-overwrite",
        *again,
        "3-overwrite",
        "3-overwrite-back",
        *OWN_STEPS,
    )
    assert task.compared == (
        "1-4k",
        "2-overwrite-back",
        "2-overwrite-whole",
        "3-overwrite-back",
        *OWN_STEPS,
    )
    assert task.read_back == ("2-overwrite-back", "3-overwrite-back")


def test_every_step_of_a_task_is_one_that_the_script_makes() -> None:
    made = check.SCRIPT.read_text()
    for step in OWN_STEPS:
        assert f"\nstep {step} " in made
    for word in ("back", "again", "whole"):
        assert f'step "$1-{word}" ' in made


def test_reads_are_compared_and_the_script_has_how_to_check_what_writes() -> None:
    given = values(text_of(case("filemap-4k"), case("iomap-dirty")))
    assert (given["NAME_1"], given["NAME_2"]) == ("1-4k", "2-overwrite")
    assert (given["WRITES_1"], given["WRITES_2"]) == ("no", "some")
    assert "--verify=crc32c" in given["FIO_1"]
    assert "--verify" not in given["FIO_2"]
    assert "--filename_format=data.$jobnum.$filenum" in shlex.split(given["FIO_2"])
    assert given["READAHEAD_2"] == "64"
    # The job has 64: buffers of 1 MiB each would not fit into any limit.
    assert shlex.split(given["FIO_2"])[-1] == "--iodepth=1"
    # Two phases of one seed would write the same blocks; what only reads has the guest's.
    assert "--randseed=1" in given["FIO_1"]
    assert "--randseed=3" in given["FIO_2"]


def test_one_file_is_written_in_parts_and_as_a_whole() -> None:
    fio = values(text_of(case("reclaim-overwrite"), file_mib=188))["FIO_1"].split()
    assert "--size=48128k" in fio
    assert "--offset_increment=48128k" in fio
    assert not [word for word in fio if word.startswith("--io_size")]
    assert "--offset_increment" not in text_of(case("reclaim-overwrite"), jobs=1)


def test_limits_are_written_as_the_kernel_reads_them() -> None:
    given = values(text_of(case("reclaim-overwrite"), rooms=Room(240, 0, 64, 52, 32)))
    assert (given["LIMIT"], given["OWN_LIMIT"], given["LEFT_MIB"]) == ("max", "33554432", "64")


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_the_job_is_a_script_that_the_agent_can_read(name: str) -> None:
    shell = shutil.which("busybox")
    argv = [shell, "sh", "-n"] if shell else ["sh", "-n"]
    assert subprocess.run(argv, input=text_of(case(name)), text=True, check=False).returncode == 0


def test_a_phase_that_others_need_is_done_whole() -> None:
    """Of 2,048 files a tenth was made, and what came after it did not find the others."""
    metadata = load_catalogue()["metadata"]
    text = job_text([CheckCase(metadata, metadata.phases)], jobs=1, seed=7, room=ROOM, file_mib=52)
    assert "'metadata create 2048 7'" in text
    assert "'metadata stat 2000 7'" in text


@pytest.mark.parametrize(
    ("files", "done"),
    [("", ["umount /mnt", "format m", "mount"]), ("/mnt/a /mnt/b", ["rm /mnt/a /mnt/b"])],
)
def test_the_gates_own_file_has_no_room_taken_by_what_programs_left(
    files: str, done: list[str]
) -> None:
    text = check.SCRIPT.read_text()
    function = text[text.index("own_file() {") : text.index('\nREAD="')]
    stand_ins = "".join(
        f'{name}() {{ echo "{name}{arguments}"; }}\n'
        for name, arguments in (("umount", " $*"), ("format", " $*"), ("mount", ""), ("rm", " $*"))
    )
    values = f"MKFS=m OWN_MKFS=m IMAGE=/i IMAGE_MIB=1 FILES='{files}'"
    ran = subprocess.run(
        ["sh", "-c", f"{stand_ins}fill() {{ :; }}\n{function}\n{values}\nown_file"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (ran.stdout.splitlines(), ran.stderr) == (done, "")
