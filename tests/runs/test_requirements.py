"""What is missing of an experiment before a build: each shipped one has it in every guest."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import SpecError
from experiment.arms import ArmSpec
from experiment.load import EXPERIMENTS
from experiment.machine import names_in
from experiment.plan import Size, require_memory
from guests.probe.plugin import Probe
from kernels import config
from runs.boots import MAX_FIELDS, diverging
from runs.requirements import (
    require_counted,
    require_job_fits,
    require_jobs,
    require_set_up,
    require_settings,
    wants_of,
)
from runs.resolved import Resolved
from tests.runs.made_up import CHECKOUT, resolved, shipped
from tests.values import but

PROBE = Probe(Path("/probe"), "0" * 64, 1, "7.2.22")
# More than the initramfs of the lab is: 17 MB.
INITRAMFS_MIB = 24
ONE_VCPU = ("arms.0.guest={vcpus=1, numa_nodes=1, metronome_ns=0}",)


@pytest.mark.parametrize("name", names_in(EXPERIMENTS))
def test_each_shipped_experiment_has_what_its_workloads_want_and_jobs_that_fit(name: str) -> None:
    made = resolved(shipped(name))
    for bench in made.benches:
        for arm, guest in bench.guests.items():
            require_memory(bench.sizes[arm], guest, INITRAMFS_MIB)
    require_set_up(made)
    require_job_fits(made)


@pytest.mark.parametrize("guest", ["full", "smoke", "wall"])
@pytest.mark.parametrize("name", ["iomap-dirty", "thp-matrix"])
def test_experiments_without_a_limit_run_on_each_guest(name: str, guest: str) -> None:
    made = resolved(shipped(name, f"guest={guest}"))
    (size,) = {*made.measured.sizes.values()}
    require_memory(size, made.measured.guest, INITRAMFS_MIB)
    require_set_up(made)
    require_job_fits(made)
    assert size.cgroup_limit_mib == 0
    # Whole huge pages for each job.
    assert size.file_mib // size.jobs % 2 == 0


def with_phases(made: Resolved, name: str, **changes: object) -> Resolved:
    """The same with other values in the last phase of a workload."""
    workload = made.workloads[name]
    *first, last = workload.phases
    phases = (*first, but(last, **changes))
    changed = but(workload, phases=phases)
    return dataclasses.replace(made, workloads={**made.workloads, name: changed})


def test_a_job_too_long_is_refused_before_anything_is_built() -> None:
    words = ("--name=cached", "--description=" + "x" * 4096)
    made = with_phases(resolved(shipped("filemap-v4")), "filemap-4k", fio=words)
    with pytest.raises(SpecError, match=r"case filemap-4k: job of \d+ bytes, at most 4096 fit"):
        require_job_fits(made)


def test_set_ups_that_lack_something() -> None:
    experiment = shipped("filemap-v4", "twins=[]")
    (case,) = (case for case in experiment.cases if case.workload == "filemap-4k")
    dirty = but(case, workload="iomap-dirty")
    made = resolved(but(experiment, cases=(case, dirty)))
    sizes = dict.fromkeys(made.measured.sizes, Size(0, 0, 30, 4))
    made = dataclasses.replace(made, measured=dataclasses.replace(made.measured, sizes=sizes))
    with pytest.raises(SpecError) as caught:
        require_set_up(made)
    assert [problem.partition(";")[0] for problem in caught.value.problems] == [
        "case filemap-4k: wants a brd",
        "case filemap-4k: checks charged, limit_hit, which want a limit",
        "case iomap-dirty: wants a brd",
        "case iomap-dirty: 30 MiB of files in this guest cannot be shared by 4 jobs, each with a "
        "file of its own",
    ]


@pytest.mark.parametrize(
    ("name", "overrides", "probe", "message"),
    [
        ("reclaim-contention", (), PROBE, ""),
        ("reclaim-contention", (), None, r"overwrite.slowpath_share .* without the probe"),
        ("reclaim-contention", ONE_VCPU, PROBE, "laptop-numa has one vCPU"),
        ("filemap-v4", (), None, r"4k.path .* judge 4k.bw in its place"),
        ("filemap-v4", ('cases.0.primary=["4k.bw"]', 'cases.1.primary=["thp.bw"]'), None, ""),
    ],
)
def test_what_is_judged_must_be_counted(
    name: str, overrides: tuple[str, ...], probe: Probe | None, message: str
) -> None:
    made = resolved(shipped(name, *overrides))
    if message:
        with pytest.raises(SpecError, match=message):
            require_counted(made, probe)
    else:
        require_counted(made, probe)


def test_what_fio_would_refuse_is_refused_before_a_build() -> None:
    made = resolved(shipped("filemap-v4"))
    require_jobs(made)
    places = {"name": "own.fio:1 [a]", "iodepth": "own.fio:7 [a]"}
    fio = (*made.workloads["filemap-thp"].phases[-1].fio, "--iodepth=many")
    changed = with_phases(made, "filemap-thp", fio=fio, places=places)
    with pytest.raises(SpecError) as caught:
        require_jobs(changed)
    assert caught.value.problems == [
        "own.fio:7 [a]: phase switch: fio: failed parsing iodepth=many"
    ]
    kernel = but(made.experiment.kernel, arch="arm64")
    other = but(made.experiment, kernel=kernel)
    require_jobs(dataclasses.replace(changed, experiment=other))


def test_what_a_prebuilt_kernel_must_have_follows_from_the_workloads() -> None:
    def options(name: str) -> set[str]:
        return {want.option for want in wants_of(resolved(shipped(name)))}

    assert options("filemap-v4") - options("thp-matrix") == {"BLK_DEV_RAM", "XFS_FS"}
    assert "EXT4_FS" in options("filemap-ext4")
    # The lab's own configuration has all of it, or Kconfig by itself.
    base = config.parse((CHECKOUT / "configs/kconfig/base.config").read_text())
    missing = {option for option in options("filemap-ext4") if base.get(option, "n") != "y"}
    assert missing == {"X86_IOPL_IOPERM"}


def test_a_setting_that_the_kernel_has_not_the_option_for_is_refused_before_a_build() -> None:
    experiment = shipped("filemap-v4")
    base = ArmSpec(name="base")
    other = ArmSpec(
        name="on", sysfs={"kernel/mm/lru_gen/enabled": "y", "block/ram0/queue/nomerges": "1"}
    )
    arms = but(experiment, arms=(base, other))
    with pytest.raises(SpecError) as caught:
        require_settings(resolved(arms), CHECKOUT)
    assert caught.value.problems == [
        "arms: on: /sys/kernel/mm/lru_gen/enabled needs CONFIG_LRU_GEN, which a kernel of perf has "
        'not; [kernel] additions = ["lru-gen"] switches it on'
    ]
    kernel = but(arms.kernel, additions=("lru-gen",))
    require_settings(resolved(but(arms, kernel=kernel)), CHECKOUT)


FILES = st.dictionaries(st.text(max_size=5), st.binary(max_size=30), max_size=5)


# A line of /proc/stat has several hundred characters.
LONG = b"intr " + b"0 " * 200


@pytest.mark.parametrize(
    ("first", "second", "differences"),
    [
        (
            {"vmstat": b"pgfault 10\npgmajfault 3\npgscan 1\n", "uname": b"x\n"},
            {"vmstat": b"pgfault 10\npgmajfault 4\npgscan 2\n", "uname": b"x\n"},
            ["vmstat: line 2: 'pgmajfault 3' against 'pgmajfault 4'"],
        ),
        (
            {"a": b"", "b": b""},
            {"b": b"", "c": b""},
            ["a: only in the first run", "c: only in the second run"],
        ),
        ({"dmesg": b"one\n"}, {"dmesg": b"one\ntwo\n"}, ["dmesg: 1 against 2 lines"]),
        ({"a": b"x 1\n"}, {"a": b"x 1 \n"}, ["a: line 1: 'x 1' against 'x 1 '"]),
        ({"a": b"x 1"}, {"a": b"x 1\n"}, ["a: line 1: 'x 1' against 'x 1\\n'"]),
        ({"a": b"G\0\xfe"}, {"a": b"G\0\xff"}, [r"a: line 1: 'G\x00\xfe' against 'G\x00\xff'"]),
        (
            {"stat": LONG + b"7 0\n"},
            {"stat": LONG + b"8 0\n"},
            [f"stat: line 1, column 406: '{'0 ' * 20}7 0' against '{'0 ' * 20}8 0'"],
        ),
    ],
    ids=["value", "file", "lines", "white space", "end of line", "no text", "far right"],
)
def test_what_differs_is_shown(
    first: dict[str, bytes], second: dict[str, bytes], differences: list[str]
) -> None:
    assert [*diverging(first, second)] == differences


def test_many_files_are_cut_short_with_their_number() -> None:
    first = {f"file-{number:02}": b"1" for number in range(20)}
    second = {f"file-{number:02}": b"2" for number in range(20)}
    differences = diverging(first, second)
    assert len(differences) == MAX_FIELDS + 1
    assert differences[0].startswith("file-00: ")
    assert differences[-1] == "and 8 more files"


@given(FILES, FILES)
def test_empty_exactly_when_equal(first: dict[str, bytes], second: dict[str, bytes]) -> None:
    differences = diverging(first, second)
    assert (differences == ()) == (first == second)
    for entry in differences:
        left, against, right = entry.rpartition(": ")[2].partition(" against ")
        assert left != right or not against
