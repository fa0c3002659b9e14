"""Each check refuses the mistake it is there for, and for no other reason."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from experiment.spec import PhaseTimes
from results.profile import PhaseProfile, Profile
from tests.workloads.conftest import CATALOGUE, LIMIT, Change, Run, counter, recorded, swap
from workloads.job import fio_arguments
from workloads.spec import Check, Phase
from workloads.validity import CHECKS, clock_problems, few_ios, of_user, problems

FIO = '"total_ios" : '


def test_recorded_runs_are_valid(
    run_4k: Run, run_thp: Run, run_dirty: Run, run_matrix: Run
) -> None:
    assert [run.problems for run in (run_4k, run_thp, run_dirty, run_matrix)] == [()] * 4


# workload, file, what is changed in it, and the one problem that must be found
MISTAKES: tuple[tuple[str, str, str, Change, str], ...] = (
    (
        "peak below the limit",
        "filemap-4k",
        "4k/after/cgroup/memory.peak",
        swap("67108864", "50331648"),
        "4k: limit not hit: peak 48.0 MiB of 64 MiB, memory.events max rose by 2097",
    ),
    (
        "limit never reached",
        "filemap-4k",
        "4k/after/cgroup/memory.events",
        counter("max", 0),
        "4k: limit not hit: peak 64.0 MiB of 64 MiB, memory.events max rose by 0",
    ),
    (
        "another limit",
        "filemap-4k",
        "4k/before/cgroup/memory.max",
        swap("67108864", "134217728"),
        "4k: cgroup limit 134217728, expected 67108864",
    ),
    (
        "no limit",
        "filemap-4k",
        "4k/before/cgroup/memory.max",
        swap("67108864", "max"),
        "4k: cgroup limit max, expected 67108864",
    ),
    (
        "uncharged",
        "filemap-4k",
        "4k/after/cgroup/memory.stat",
        lambda stat: counter("pgsteal", 256)(counter("file", 1 << 20)(stat)),
        "4k: file not charged to the cgroup: 2.0 MiB of 64 MiB",
    ),
    (
        "OOM kill",
        "filemap-4k",
        "4k/after/cgroup/memory.events",
        counter("oom_kill", 1),
        "4k: memory.events oom_kill rose by 1",
    ),
    (
        "OOM",
        "filemap-thp",
        "switch/after/cgroup/memory.events",
        counter("oom", 2),
        "switch: memory.events oom rose by 2",
    ),
    (
        "THP left on in the 4k phase",
        "filemap-4k",
        "4k/before/proc/enabled",
        swap("always madvise [never]", "[always] madvise never"),
        "4k: THP state 'always', expected 'never'",
    ),
    (
        "huge pages in the 4k phase",
        "filemap-4k",
        "4k/after/cgroup/memory.stat",
        counter("file_thp", 2 << 20),
        "4k: huge pages present: file_thp 2.0 MiB",
    ),
    (
        "huge pages before the 4k phase",
        "filemap-4k",
        "4k/before/cgroup/memory.stat",
        counter("file_thp", 2 << 20),
        "4k: huge pages present: file_thp 2.0 MiB",
    ),
    (
        "THP absent in the thp phase",
        "filemap-thp",
        "thp/after/cgroup/memory.stat",
        counter("file_thp", 4 << 20),
        "thp: no huge pages: file_thp 4.0 MiB of 54.0 MiB cached",
    ),
    (
        "no huge pages left to split",
        "filemap-thp",
        "switch/before/cgroup/memory.stat",
        counter("file_thp", 0),
        "switch: no huge pages left by the phase before",
    ),
    (
        "caches not dropped",
        "filemap-4k",
        "4k/before/proc/vmstat",
        counter("nr_inactive_file", 13609),
        "4k: caches not dropped: 13609 file pages before the phase",
    ),
    (
        "active caches not dropped",
        "filemap-thp",
        "thp/before/proc/vmstat",
        counter("nr_active_file", 65),
        "thp: caches not dropped: 65 file pages before the phase",
    ),
    (
        "caches not kept",
        "filemap-thp",
        "switch/before/cgroup/memory.stat",
        counter("file", 0),
        "switch: caches not kept: 0.0 MiB of 64 MiB before the phase",
    ),
    (
        "no refaults",
        "filemap-4k",
        "4k/after/proc/vmstat",
        counter("workingset_refault_file", 0),
        "4k: no refaults",
    ),
    (
        "wrong seed",
        "filemap-4k",
        "4k/fio.json",
        swap('"randseed" : "1"', '"randseed" : "2"'),
        "4k: seed 2, expected 1",
    ),
    (
        "no seed",
        "filemap-4k",
        "4k/fio.json",
        swap('"randseed" : "1"', '"other" : "1"'),
        "4k: seed None, expected 1",
    ),
    (
        "seed undone",
        "filemap-4k",
        "4k/fio.json",
        swap('"randrepeat" : "0"', '"randrepeat" : "1"'),
        "4k: seed without effect: fio ran with randrepeat or allrandrepeat",
    ),
    (
        "ended early",
        "filemap-4k",
        "4k/fio.json",
        swap('"runtime" : 2007', '"runtime" : 1200'),
        "4k: fio ran for 1200 ms, expected 2000 ms",
    ),
    (
        "ended late",
        "filemap-4k",
        "4k/fio.json",
        swap('"runtime" : 2007', '"runtime" : 2151'),
        "4k: fio ran for 2151 ms, expected 2000 ms",
    ),
    (
        "seed undone by its default",
        "filemap-4k",
        "4k/fio.json",
        swap('"randrepeat" : "0",', ""),
        "4k: seed without effect: fio ran with randrepeat or allrandrepeat",
    ),
    (
        "seed undone for all generators",
        "filemap-thp",
        "switch/fio.json",
        swap('"randrepeat" : "0"', '"randrepeat" : "0", "allrandrepeat" : "1"'),
        "switch: seed without effect: fio ran with randrepeat or allrandrepeat",
    ),
    (
        "fewer I/Os than asked",
        "filemap-4k",
        "4k/fio.json",
        swap('"runtime" : "2000ms"', '"number_ios" : "40000"'),
        "4k: 149571 I/Os done, expected 160000",
    ),
    ("no I/O", "filemap-4k", "4k/fio.json", swap(f"{FIO}149571", f"{FIO}0"), "4k: no I/O at all"),
    (
        "fio failed",
        "filemap-4k",
        "4k/status",
        swap("0", "1"),
        "4k: fio failed (status 1): no output",
    ),
    (
        "a fio job failed",
        "filemap-thp",
        "thp/fio.json",
        swap('"error" : 0', '"error" : 5'),
        "thp: fio failed (status 0): no output",
    ),
    (
        "work not finished",
        "reclaim-overwrite",
        "overwrite/fio.json",
        swap('"runtime" : 1216', '"runtime" : 60001'),
        "overwrite: work not finished in the 60000 ms that it may take",
    ),
    (
        "more memory left than asked",
        "reclaim-overwrite",
        "overwrite/before/proc/vmstat",
        counter("nr_free_pages", 40000),
        "overwrite: 156 MiB of memory free before the phase, expected 128 MiB",
    ),
    (
        "less memory left than asked",
        "reclaim-overwrite",
        "overwrite/before/proc/vmstat",
        counter("nr_free_pages", 25000),
        "overwrite: 98 MiB of memory free before the phase, expected 128 MiB",
    ),
    (
        "all of it fitted",
        "reclaim-overwrite",
        "overwrite/after/cgroup/memory.stat",
        counter("pgsteal", 40000),
        "overwrite: 156 MiB reclaimed, 248 MiB do not fit into memory",
    ),
    ("tainted", "filemap-4k", "tainted", swap("0", "512"), "kernel tainted: 512"),
    (
        "wrong build id",
        "filemap-4k",
        "notes",
        lambda notes: notes.replace(bytes.fromhex("4dc6a058"), bytes.fromhex("4dc6a059")),
        "kernel identity: booted build id 4dc6a059b44191bb76567f8b167d704456ec6021, "
        "built 4dc6a058b44191bb76567f8b167d704456ec6021",
    ),
    (
        "limit where none is asked",
        "iomap-dirty",
        "overwrite/before/cgroup/memory.max",
        swap("max", "67108864"),
        "overwrite: cgroup limit 67108864, expected max",
    ),
    (
        "not written back",
        "iomap-dirty",
        "overwrite/after/cgroup/io.stat",
        swap("wbytes=4364910592", "wbytes=136814592"),
        "overwrite: not written back: 136814592 bytes reached the device, fio wrote 273629184",
    ),
    (
        "mounted otherwise",
        "thp-matrix",
        "mounts",
        swap("huge=always", "huge=within_size"),
        "io: mounted as tmpfs rw,relatime,huge=within_size, expected tmpfs with huge=always",
    ),
    (
        "mounted with the default",
        "thp-matrix",
        "mounts",
        swap(",huge=always", ""),
        "io: mounted as tmpfs rw,relatime, expected tmpfs with huge=always",
    ),
    (
        "another file system",
        "thp-matrix",
        "mounts",
        swap("tmpfs /mnt tmpfs", "none /mnt ramfs"),
        "io: mounted as ramfs rw,relatime,huge=always, expected tmpfs with huge=always",
    ),
    (
        "nothing mounted",
        "thp-matrix",
        "mounts",
        swap(" /mnt ", " /other "),
        "io: mounted as nothing, expected tmpfs with huge=always",
    ),
    (
        "no huge pages to be had",
        "thp-matrix",
        "io/after/proc/vmstat",
        counter("nr_shmem_hugepages", 7),
        "io: no huge pages: 14 MiB of 32 MiB in tmpfs",
    ),
    (
        "no build id",
        "filemap-4k",
        "notes",
        lambda notes: b"",
        "kernel identity: booted build id none, built 4dc6a058b44191bb76567f8b167d704456ec6021",
    ),
)


@pytest.mark.parametrize(
    ("workload", "name", "change", "problem"),
    [mistake[1:] for mistake in MISTAKES],
    ids=[mistake[0] for mistake in MISTAKES],
)
def test_mistake(workload: str, name: str, change: Change, problem: str) -> None:
    assert recorded(workload).but(name, change).problems == (problem,)


def test_first_postings_mistake() -> None:
    """The 4k test run behind the thp test: nothing dropped, THP left on."""
    thp = recorded("filemap-thp").files
    run = recorded("filemap-4k")
    for name in ("cgroup/memory.stat", "proc/vmstat"):
        run = Run(run.workload, {**run.files, f"4k/before/{name}": thp[f"thp/after/{name}"]})
    run = run.but("4k/before/proc/enabled", swap("madvise [never]", "madvise never"))
    run = run.but("4k/before/proc/enabled", swap("always", "[always]"))
    reasons = "\n".join(run.problems)
    assert "4k: caches not dropped: 13824 file pages before the phase" in reasons
    assert "4k: THP state 'always', expected 'never'" in reasons
    assert "4k: huge pages present: file_thp 54.0 MiB" in reasons


def test_few_pages_may_come_back_after_caches_were_dropped(run_4k: Run) -> None:
    assert run_4k.but("4k/before/proc/vmstat", counter("nr_active_file", 64)).problems == ()


def test_cache_that_fio_dropped_at_the_end_was_charged_all_the_same(run_4k: Run) -> None:
    """As it was in guests of 4 vCPUs, by where the phase ended in fio's pass over its file."""
    dropped = run_4k.but("4k/after/cgroup/memory.stat", counter("file", 8 << 20))
    assert dropped.problems == ()


def test_fio_that_failed_is_named_by_its_last_line(run_4k: Run) -> None:
    run = run_4k.without("4k/fio.json").but("4k/status", swap("0", "137"))
    run = Run(run.workload, {**run.files, "4k/fio.out": b"first\nKilled\n\n"})
    assert run.problems == ("4k: fio failed (status 137): Killed",)


def test_fio_that_failed_is_named_by_its_own_words_and_their_line(run_4k: Run) -> None:
    run = run_4k.without("4k/fio.json").but("4k/status", swap("0", "1"))
    words = b"fio: failed parsing iodepth=x\nfio: dropped\n\ntrailing\n"
    run = Run(run.workload, {**run.files, "4k/fio.out": words})
    places = {"name": "a.fio:1 [a]", "iodepth": "a.fio:3 [a]"}
    phases = tuple(phase.model_copy(update={"places": places}) for phase in run.phases)
    assert problems(run.result, replace(run.claim, phases=phases)) == (
        "4k: fio failed (status 1): fio: failed parsing iodepth=x; fio: dropped (a.fio:3 [a])",
    )


def test_io_that_left_no_trace_on_the_device_is_no_measurement(run_4k: Run) -> None:
    """As of a file with a relative name, which fio makes on the root, a tmpfs."""
    run = run_4k
    for when in ("before", "after"):
        stat = run.files[f"4k/{when}/cgroup/memory.stat"]
        cached = int(re.findall(rb"^file (\d+)$", stat, re.M)[0])
        run = Run(
            run.workload,
            {
                **run.files,
                f"4k/{when}/cgroup/memory.stat": counter("shmem", cached)(stat),
                f"4k/{when}/cgroup/io.stat": b"",
            },
        )
    (problem,) = run.problems
    assert "left no trace on the file system under test: 0 bytes moved" in problem
    # One that is cached altogether moves nothing and is there, as is what is read without a cache.
    for name in ("cgroup/memory.stat", "cgroup/io.stat"):
        good = Run(
            run.workload, {**run.files, f"4k/after/{name}": run_4k.files[f"4k/after/{name}"]}
        )
        assert good.problems == ()


def test_a_word_of_the_command_line_that_the_kernel_does_not_know_is_the_users(
    run_4k: Run,
) -> None:
    word = "thp_anonn=16K:always;1M:never"
    line = f'Unknown kernel command line parameters "{word} x=1", will be passed to user space.'
    dmesg = run_4k.files["dmesg"] + f"[    0.02] {line}\n".encode()
    run = Run(run_4k.workload, {**run_4k.files, "dmesg": dmesg})
    claim = replace(run.claim, cmdline=(word, "mitigations=off"))
    (problem,) = problems(run.result, claim)
    assert problem.startswith(
        "kernel command line: thp_anonn=16K:always;1M:never: this kernel does"
    )
    assert of_user(run.result, claim)
    assert not of_user(run.result, run.claim)
    assert of_user(replace(run_4k.result, failure="setting: this kernel has no /sys/x"), claim)


def test_missing_phase(run_thp: Run) -> None:
    result = replace(run_thp.result, phases=run_thp.result.phases[:1])
    assert problems(result, run_thp.claim) == ("1 of 2 phases ran",)


def test_agent_failure_is_the_one_problem(run_thp: Run) -> None:
    result = replace(
        run_thp.result, failure="switch: THP state never", phases=run_thp.result.phases[:1]
    )
    assert problems(result, run_thp.claim) == ("the agent stopped: switch: THP state never",)


def test_agent_that_stopped_before_the_kernel_was_identified(run_4k: Run) -> None:
    """No build id was sent: nothing is said about the kernel."""
    result = replace(run_4k.result, failure="mkfs: too small", phases=(), build_id="")
    assert problems(result, run_4k.claim) == ("the agent stopped: mkfs: too small",)


def test_kernel_of_unknown_build_id_is_not_compared(run_4k: Run) -> None:
    claim = replace(run_4k.claim, build_id="")
    assert problems(run_4k.result, claim) == ()


def test_limit_is_the_claims(run_4k: Run) -> None:
    reasons = problems(run_4k.result, replace(run_4k.claim, limit_bytes=4 * LIMIT))
    assert [problem.partition(":")[2].split(" ")[1] for problem in reasons] == ["cgroup", "limit"]


def test_few_ios_are_a_finding_and_no_problem(run_4k: Run) -> None:
    assert few_ios(run_4k.result, run_4k.phases) == ()
    few = run_4k.but("4k/fio.json", swap(f"{FIO}149571", f"{FIO}9999"))
    assert few.problems == ()
    assert few_ios(few.result, few.phases) == (
        "4k: 9999 I/Os, fewer than 10000: too few for a verdict",
    )
    enough = run_4k.but("4k/fio.json", swap(f"{FIO}149571", f"{FIO}10000"))
    assert few_ios(enough.result, enough.phases) == ()


def test_every_check_that_a_phase_may_name_is_known() -> None:
    named = Phase.model_json_schema()["properties"]["checks"]["items"]["enum"]
    assert set(CHECKS) == set(named)


@pytest.mark.parametrize("check", sorted(CHECKS))
def test_each_check_is_in_a_shipped_phase(check: str) -> None:
    phases = [phase for workload in CATALOGUE.values() for phase in workload.phases]
    assert any(check in phase.checks for phase in phases)


def test_huge_pages_where_none_are_expected(run_matrix: Run) -> None:
    small = replace(run_matrix.claim, mount_options="noatime,huge=never")
    plain = run_matrix.but("mounts", swap(",huge=always", ""))
    assert problems(plain.result, small) == ("io: huge pages in tmpfs: 32 MiB, expected none",)
    none = plain.but("io/after/proc/vmstat", counter("nr_shmem_hugepages", 0))
    assert problems(none.result, small) == ()
    # What tmpfs has when nothing is said.
    assert problems(none.result, replace(small, mount_options="noatime")) == ()


def given(run: Run, **times: float) -> dict[str, tuple[str, ...]]:
    phase_times = PhaseTimes(**times)  # type: ignore[arg-type]
    (phase,) = run.phases
    return {phase.name: fio_arguments(phase, phase_times, jobs=4, seed=1)}


def test_options_that_fio_says_it_ran_with_are_those_given(run_4k: Run, run_dirty: Run) -> None:
    for run, times in ((run_4k, {"runtime_s": 2, "ramp_s": 0.6}), (run_dirty, {"runtime_s": 2})):
        claim = replace(run.claim, fio=given(run, **times))
        assert problems(run.result, claim) == ()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"runtime" : "2000ms"', '"runtime" : "1000ms"', "runtime=1000ms, expected 2000ms"),
        ('"rw" : "randread"', '"rw" : "read"', "rw=read, expected randread"),
        ('"numjobs" : "4"', '"numjobs" : "8"', "numjobs=8, expected 4"),
        ('"numjobs" : "4"', '"numjobs" : "4",\n"bs" : "64k"', "bs=64k, which it was not given"),
        ('"ramp_time" : "600ms",', "", "ramp_time=nothing, expected 600ms"),
        ("/mnt/test.img", "/dev/zero", "filename=/dev/zero, expected /mnt/test.img"),
    ],
)
def test_a_guest_that_ran_something_else_says_so_or_lies_twice(
    run_4k: Run, old: str, new: str, problem: str
) -> None:
    """`job options.runtime = 1000ms` where 2 s were asked for doubled the bandwidth."""
    claim = replace(run_4k.claim, fio=given(run_4k, runtime_s=2, ramp_s=0.6))
    reasons = problems(run_4k.but("4k/fio.json", swap(old, new)).result, claim)
    assert f"4k: fio ran with {problem}" in reasons


@pytest.mark.parametrize(
    ("counted_ms", "valid"),
    [(2607, True), (2900, True), (4500, True), (2570, False), (1300, False), (5600, False)],
)
def test_a_clock_that_goes_otherwise_than_instructions_is_noticed(
    run_4k: Run, counted_ms: int, valid: bool
) -> None:
    """fio says 600 ms of ramp and 2007 ms; four jobs take a second each way at most."""
    phase = PhaseProfile(
        phase="4k",
        instructions=counted_ms * 1_000_000,
        kernel=(),
        user={},
        by_vcpu=(counted_ms,),
        units={},
    )
    reasons = clock_problems(run_4k.result, run_4k.phases, Profile(run_id="r", phases=(phase,)))
    assert (reasons == ()) is valid
    assert all("2607 ms" in line and f"{counted_ms} ms" in line for line in reasons)


@pytest.mark.parametrize(
    ("check", "where", "out", "back"),
    [("swapped", "swap", "pswpout", "pswpin"), ("zswapped", "zswap", "zswpout", "zswpin")],
)
def test_swap_goes_out_and_comes_back(
    run_4k: Run, check: Check, where: str, out: str, back: str
) -> None:
    (phase,) = run_4k.result.phases

    def problem(written: int, read: int) -> str:
        more = {out: phase.before.vmstat.get(out, 0) + written}
        more[back] = phase.before.vmstat.get(back, 0) + read
        after = replace(phase.after, vmstat={**phase.after.vmstat, **more})
        return CHECKS[check](replace(phase, after=after), run_4k.claim)

    assert problem(5, 3) == ""
    assert problem(5, 0) == f"no {where}: 5 pages written to it, 0 read back"
    assert problem(0, 0) == f"no {where}: 0 pages written to it, 0 read back"
