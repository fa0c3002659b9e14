"""Each check refuses the mistake it is there for, and for no other reason."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from experiment.spec import PhaseTimes
from results.profile import PhaseProfile, Profile
from tests.values import but, data
from tests.workloads.conftest import CATALOGUE, LIMIT, Change, Run, counter, recorded, swap
from workloads.job import fio_arguments
from workloads.spec import Check, Phase
from workloads.validity import CHECKS, clock_problems, few_ios, of_user, problems

FIO = '"total_ios" : '


def test_recorded_runs_are_valid(
    run_4k: Run, run_thp: Run, run_dirty: Run, run_matrix: Run
) -> None:
    assert [run.problems for run in (run_4k, run_thp, run_dirty, run_matrix)] == [()] * 4


def mistakes() -> Iterator[tuple[str, str, str, Change, str]]:
    """Title, workload, file, what is changed in it, and the one problem that must be found."""
    lines = (Path(__file__).parent / "mistakes.txt").read_text().splitlines()[2:]
    for head, changed, problem in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        title, _, where = head.rpartition(": ")
        workload, name = where.split()
        old, into, new = re.split(r" (:=|->) ?", changed[4:], maxsplit=1)
        change = swap(old, new) if into == "->" else counter(old, int(new))
        yield title, workload, name, change, problem.strip()


MISTAKES: tuple[tuple[str, str, str, Change, str], ...] = (
    *mistakes(),
    (
        "uncharged",
        "filemap-4k",
        "4k/after/cgroup/memory.stat",
        lambda stat: counter("pgsteal", 256)(counter("file", 1 << 20)(stat)),
        "4k: file not charged to the cgroup: 2.0 MiB of 64 MiB",
    ),
    (
        "wrong build id",
        "filemap-4k",
        "notes",
        lambda notes: notes.replace(bytes.fromhex("4dc6a058"), bytes.fromhex("4dc6a059")),
        "kernel identity: booted build id 4dc6a059b44191bb76567f8b167d704456ec6021, "
        "built 4dc6a058b44191bb76567f8b167d704456ec6021",
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


@pytest.mark.parametrize(
    ("workload", "name", "change"),
    [
        # A few pages may come back after caches were dropped.
        ("filemap-4k", "4k/before/proc/vmstat", counter("nr_active_file", 64)),
        # Some kernels mix huge pages with others.
        ("filemap-thp", "thp/after/cgroup/memory.stat", counter("file_thp", 12 << 20)),
        # What fio dropped at the end was charged: in guests of 4 vCPUs it depends on where the
        # phase ended in its pass over the file.
        ("filemap-4k", "4k/after/cgroup/memory.stat", counter("file", 8 << 20)),
    ],
)
def test_what_may_differ_is_no_problem(workload: str, name: str, change: Change) -> None:
    assert recorded(workload).but(name, change).problems == ()


def test_fio_that_failed_is_named_by_its_last_line(run_4k: Run) -> None:
    run = run_4k.without("4k/fio.json").but("4k/status", swap("0", "137"))
    run = Run(run.workload, {**run.files, "4k/fio.out": b"first\nKilled\n\n"})
    assert run.problems == ("4k: fio failed (status 137): Killed",)


def test_fio_that_failed_is_named_by_its_own_words_and_their_line(run_4k: Run) -> None:
    run = run_4k.without("4k/fio.json").but("4k/status", swap("0", "1"))
    words = b"fio: failed parsing iodepth=x\nfio: dropped\n\ntrailing\n"
    run = Run(run.workload, {**run.files, "4k/fio.out": words})
    places = {"name": "a.fio:1 [a]", "iodepth": "a.fio:3 [a]"}
    phases = tuple(but(phase, places=places) for phase in run.phases)
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


def test_a_word_of_the_command_line_that_the_kernel_does_not_know_is_the_users(run_4k: Run) -> None:
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


def test_missing_phase_and_agent_failure_are_the_one_problem(run_thp: Run) -> None:
    result = replace(run_thp.result, phases=run_thp.result.phases[:1])
    assert problems(result, run_thp.claim) == ("1 of 2 phases ran",)
    failed = replace(result, failure="switch: THP state never")
    assert problems(failed, run_thp.claim) == ("the agent stopped: switch: THP state never",)
    # No build id was sent: nothing is said about the kernel.
    early = replace(result, failure="mkfs: too small", phases=(), build_id="")
    assert problems(early, run_thp.claim) == ("the agent stopped: mkfs: too small",)


def test_limit_and_build_id_are_the_claims(run_4k: Run) -> None:
    # One that is not known is not compared.
    assert problems(run_4k.result, replace(run_4k.claim, build_id="")) == ()
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


def test_every_check_that_a_phase_may_name_is_known_and_in_a_shipped_phase() -> None:
    named = Phase.model_json_schema()["properties"]["checks"]["items"]["enum"]
    phases = [phase for workload in CATALOGUE.values() for phase in workload.phases]
    assert set(CHECKS) == set(named) == {check for phase in phases for check in phase.checks}


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
    data(__file__, "a_guest_that_ran_something_else_says_so_or_lies_twice"),
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
