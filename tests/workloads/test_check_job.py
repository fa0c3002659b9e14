"""What a guest of the gate is asked to do: its sizes, its steps, and the script's text."""

import dataclasses
import json
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment.plan import Size
from tests.values import data
from tests.waiting import completed
from workloads import check
from workloads.check import (
    OWN_STEPS,
    CheckCase,
    CheckTask,
    Room,
    job_text,
    judge,
    room,
    task_of,
    writes_of,
)
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


@pytest.mark.parametrize(
    ("workload", "given", "expected"),
    [
        # An experiment's own limit and file; where it has none the gate has one of its own.
        ("filemap-4k", size(cgroup_limit_mib=32, brd_mib=80, file_mib=65), (80, 32, 0, 65, 32)),
        ("iomap-dirty", size(), (64, 48, 0, 52, 32)),
        # Memory that is to be left is no limit, and tmpfs has a device of the gate's own.
        ("reclaim-overwrite", size(brd_mib=240, memory_mib=64), (240, 0, 64, 52, 32)),
        ("thp-matrix", size(brd_mib=0, file_mib=16), (64, 0, 0, 52, 32)),
    ],
)
def test_the_gate_has_the_room_of_the_experiment_or_its_own(
    workload: str, given: Size, expected: tuple[int, ...]
) -> None:
    brd, limit, left, image, own = expected
    assert room(given, CATALOGUE[workload]) == Room(brd, limit, left, image, own)


@pytest.mark.parametrize(
    ("name", "variant", "writes"), data(__file__, "what_a_phase_writes_is_known_by_its_job")
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
    ran = completed(
        ["sh", "-c", f"{stand_ins}fill() {{ :; }}\n{function}\n{values}\nown_file"], check=False
    )
    assert (ran.stdout.splitlines(), ran.stderr) == (done, "")


RECORDED = Path(__file__).parent / "recorded/check/loses-nodes"
STEPS = ("1-4k", "whole")
TASK = CheckTask(selftests=(), steps=STEPS, lockdep=True, compared=STEPS)
STATS = b" lock-classes:    656 [max: 8192]\n debug_locks:    1\n"


def fio(blocks: int, written: int = 0) -> bytes:
    done = {"read": {"io_bytes": blocks * 4096}, "write": {"io_bytes": written * 4096}}
    return json.dumps({"jobs": [done]}).encode()


def counted(nodes: int, charged: int, pages: int) -> dict[str, bytes]:
    return {
        "slabinfo": f"# name\nradix_tree_node    {nodes}    910    608\n".encode(),
        "memory.current": f"{charged}\n".encode(),
        "vmstat": f"nr_file_pages {22000 + pages}\nnr_shmem 22000\n".encode(),
    }


def sound() -> dict[str, bytes]:
    """What a guest sends whose kernel is sound."""
    files = {"tainted": b"0\n", "lockdep_stats": STATS}
    for step in TASK.steps:
        files |= {f"{step}/status": b"0\n", f"{step}/fio.out": b"", f"{step}/fio.json": fio(1000)}
    files["1-4k/memory.stat"] = b"file 100\nfile_thp 8388608\n"
    for when, nodes in (("before", 877), ("after", 875)):
        files |= {f"{when}/{name}": text for name, text in counted(nodes, 110592, 3).items()}
    return files


def kinds(files: dict[str, bytes], console: str = "twinboot: done\n") -> list[str]:
    return [problem.kind for problem in judge(console, files, TASK).problems]


def test_a_sound_guest_is_green_and_says_what_was_looked_at() -> None:
    judged = judge("twinboot: done\n", sound(), TASK)
    assert judged.problems == ()
    assert judged.checked == (
        "2000 blocks of 4 KiB read back and compared in 2 steps",
        "up to 8 MiB in huge folios, reclaimed and read again by 4 KiB",
        "nothing left: -2 nodes of trees with the file gone",
        "lockdep watched 656 classes of locks to the end",
    )


def test_wrong_data_is_reported_with_fio_s_words() -> None:
    words = b"crc32c: verify failed at file /mnt/test.img offset 4096, length 4096\nverify: bad"
    files = sound() | {"whole/status": b"1\n", "whole/fio.out": b"verify: bad magic\n" + words}
    (problem,) = judge("", files, TASK).problems
    assert (problem.kind, problem.title) == ("data", "whole: verify: bad magic")
    assert problem.evidence[1].startswith("crc32c: verify failed")
    files = sound() | {"whole/status": b"1\n", "whole/fio.out": words.splitlines()[0]}
    assert kinds(files) == ["data"]


def test_what_a_phase_wrote_is_counted_where_it_is_read_again() -> None:
    steps = ("1-overwrite", "1-overwrite-back", "1-overwrite-again", "1-overwrite-whole")
    task = dataclasses.replace(
        TASK, steps=steps, compared=(steps[1], steps[3]), read_back=(steps[1],)
    )
    files = sound() | {f"{step}/status": b"0\n" for step in steps}
    files |= {f"{steps[0]}/fio.json": fio(500, 512), f"{steps[3]}/fio.json": fio(8192)}
    # Of what is read back, mixed phases have read some before; that is not compared.
    files |= {f"{steps[1]}/fio.json": fio(1012, 512), f"{steps[3]}/memory.stat": b"pgsteal 512\n"}
    judged = judge("", files, task)
    assert judged.problems == ()
    assert judged.checked[:3] == (
        "8704 blocks of 4 KiB read back and compared in 2 steps",
        "512 of them written by the cases' own phases, none lost",
        "2 MiB of page cache reclaimed meanwhile",
    )
    files |= {f"{steps[1]}/fio.json": fio(0, 512)}
    (problem,) = judge("", files, task).problems
    assert problem.title == "1-overwrite-back: no block was read back"


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("whole/status", b"137\n", "step"),
        ("failure", b"umount: busy\n", "step"),
        ("after/memory.current", b"9000000\n", "leak"),
        ("after/slabinfo", b"radix_tree_node   2000   2000  608\n", "leak"),
        ("after/vmstat", b"nr_file_pages 23000\nnr_shmem 22000\n", "leak"),
        ("after/slabinfo", b"", "step"),
        ("tainted", b"512\n", "taint"),
        ("lockdep_stats", b"", "step"),
        ("lockdep_stats", STATS.replace(b"debug_locks:    1", b"debug_locks:    0"), "step"),
    ],
)
def test_each_thing_that_can_be_wrong_is_reported(name: str, text: bytes, kind: str) -> None:
    assert kinds(sound() | {name: text}) == [kind]


@pytest.mark.parametrize("name", ["whole/status", "before/slabinfo"])
def test_what_was_not_looked_at_is_not_green(name: str) -> None:
    files = sound()
    del files[name]
    assert kinds(files) == ["step"]


def test_a_guest_that_compared_nothing_is_not_green() -> None:
    files = sound() | {f"{step}/fio.json": fio(0) for step in TASK.steps}
    assert kinds(files) == ["step", "step"]
    assert kinds(sound() | {"whole/fio.json": fio(0)}) == ["step"]


def test_a_splat_is_reported_whatever_came_after_it() -> None:
    assert kinds(sound(), "[ 1.0] WARNING: suspicious RCU usage\n") == ["rcu"]
    judged = judge("[ 1.0] kernel BUG at mm/filemap.c:3377!\n", None, TASK)
    assert [problem.kind for problem in judged.problems] == ["crash"]


@pytest.mark.parametrize(
    ("line", "expected"), data(__file__, "self_tests_have_to_pass_and_to_report")
)
def test_self_tests_have_to_pass_and_to_report(line: str, expected: tuple[str, ...]) -> None:
    task = CheckTask(("xarray",), TASK.steps, lockdep=False)
    judged = judge(f"[    9.1] {line}\n", sound(), task)
    assert [problem.kind for problem in judged.problems] == [*expected]
    assert (line in judged.checked) == (not expected)


@given(st.dictionaries(st.sampled_from(sorted(sound())), st.binary(max_size=60)))
def test_any_files_can_be_judged(changed: dict[str, bytes]) -> None:
    judge("", sound() | changed, TASK)


def test_nodes_that_a_real_kernel_lost_are_reported() -> None:
    """Counted in a guest of the series ``broken-leak``."""
    files = sound()
    for path in RECORDED.rglob("*"):
        if path.is_file():
            files[path.relative_to(RECORDED).as_posix()] = path.read_bytes()
    problems = judge("", files, TASK).problems
    assert [problem.title for problem in problems] == [
        "17535 nodes of trees (radix_tree_node) more in use than before, at most 150 are expected",
        "10900 KiB charged to the cgroup more in use than before, at most 768 are expected",
    ]
    assert problems[0].evidence[0].startswith("before: ")
    assert "nodes of trees (radix_tree_node), 10900 KiB" in problems[0].evidence[1]


def test_what_four_vcpus_hold_back_is_no_leak() -> None:
    """Counted in a guest of ``iomap-dirty`` whose kernel lost nothing: 1096 KiB charged.

    228 of them are the guest's own results, 304 are the kernel's, and the rest is what four
    CPUs charged ahead.
    """
    files = sound()
    folder = RECORDED.parent / "four-vcpus"
    for path in folder.rglob("*"):
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
    assert judge("", files, dataclasses.replace(TASK, vcpus=4)).problems == ()
    (problem,) = judge("", files, TASK).problems
    assert "868 KiB charged" in problem.title
