"""What is made of the console and the files of a guest of the gate."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.check import CheckTask, judge

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
    ("line", "expected"),
    [
        ("XArray: 149 of 149 tests passed", []),
        ("XArray: 148 of 149 tests passed", ["selftest"]),
        ("XArray: 0 of 0 tests passed", ["selftest"]),
        ("", ["selftest"]),
    ],
)
def test_self_tests_have_to_pass_and_to_report(line: str, expected: list[str]) -> None:
    task = CheckTask(("xarray",), TASK.steps, lockdep=False)
    judged = judge(f"[    9.1] {line}\n", sound(), task)
    assert [problem.kind for problem in judged.problems] == expected
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
