"""Programs of the lab's own: what they print, what a run of one has to show, and its numbers."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from experiment.spec import PhaseTimes
from guests import programs
from results.profile import PhaseProfile, Profile
from tests.values import but, data, spaced
from tests.waiting import completed
from tests.workloads.conftest import Run
from workloads.job import (
    FREE_LISTS,
    PROGRAM_PHASE,
    TEXT_BYTES,
    job_text,
    phase_command,
    shown_command,
)
from workloads.metrics import metrics_of, of_profile, samples
from workloads.parse import PhaseResult, ProgramResult, program_result
from workloads.spec import Phase, all_programs, load_catalogue, programs_of
from workloads.validity import Claim, problems

CATALOGUE = load_catalogue()
WITH_PROGRAMS = {
    name: workload for name, workload in CATALOGUE.items() if programs_of(workload.phases)
}
AGENT = PROGRAM_PHASE.with_name("agent.sh")
# The least of each that does something, on a host of whatever speed.
FEW = 40
# What needs a file system of its own, or rights that a test has not.
IN_GUESTS = {
    *spaced(
        "block cgroups compile direct mapped memory_calls metadata pages policies redis sqlite "
        "statistics swap tracing trees vmalloc"
    )
}
HERE = [
    pytest.param(*phase.program, id="-".join(phase.program))
    for workload in WITH_PROGRAMS.values()
    for phase in workload.phases
    if phase.program and phase.program[0] not in IN_GUESTS and phase.program[1] != "open"
]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    cache = tmp_path_factory.mktemp("programs")
    return {
        source.stem: programs.build(source, programs.STATIC_PROGRAM, cache)
        for source in all_programs()
    }


def output(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return completed([program, *arguments], check=False)


@pytest.mark.parametrize(("program", "operation"), HERE)
def test_each_operation_is_done_and_reported(
    built: dict[str, Path], program: str, operation: str
) -> None:
    done = output(built[program], operation, str(FEW), "7")
    assert (done.returncode, done.stderr) == (0, "")
    result = program_result(done.stdout)
    assert result is not None
    assert (result.operation, result.count, result.seed) == (operation, FEW, 7)
    assert result.ns > 0


def test_each_operation_of_the_catalogue_is_one_of_its_program() -> None:
    for workload in WITH_PROGRAMS.values():
        for phase in workload.phases:
            if phase.program:
                name, operation = phase.program
                (source,) = programs_of([phase])
                assert source.stem == name
                assert f'{{ "{operation}", ' in source.read_text()


def test_no_operation_is_left_out_of_the_catalogue() -> None:
    used = {phase.program for workload in WITH_PROGRAMS.values() for phase in workload.phases}
    for source in all_programs():
        for operation in re.findall(r'\{ "(\w+)", \w+ \}', source.read_text()):
            assert (source.stem, operation) in used


@pytest.mark.parametrize("arguments", [(), ("fault",), ("none", "1", "1"), ("fault", "0", "1")])
def test_without_something_to_do_nothing_is_measured(
    built: dict[str, Path], arguments: tuple[str, ...]
) -> None:
    done = output(built["memory"], *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(" OPERATION COUNT SEED\n")


def test_what_fails_is_no_result(built: dict[str, Path]) -> None:
    # More files than there may be.
    done = output(built["metadata"], "link", "4096", "1")
    assert done.returncode == 1
    assert program_result(done.stdout) is None


SUMMARY = "6,1,2,-;test_vmalloc: Summary: fix_size_alloc_test passed: {}loops: 500 avg: 3 usec\n"


@pytest.mark.parametrize(
    ("words", "wrong"),
    data(__file__, "the_summary_of_the_kernels_own_test_is_read_of_each_release"),
)
def test_the_summary_of_the_kernels_own_test_is_read_of_each_release(
    tmp_path: Path, words: str, wrong: int
) -> None:
    source = next(source for source in all_programs() if source.stem == "vmalloc")
    (tmp_path / "log").write_text(SUMMARY.format(words))
    (tmp_path / "reader.c").write_text(
        f"#define main not_main\n#include {json.dumps(str(source))}\n#undef main\n"
        "int main(void) { require_passed(0, 500); return 0; }\n"
    )
    argv = ["gcc", "-D_GNU_SOURCE", f"-I{source.parent}", "-o", "reader", "reader.c"]
    subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
    with (tmp_path / "log").open() as log:
        assert subprocess.run([tmp_path / "reader"], stdin=log).returncode == wrong


def test_programs_are_short() -> None:
    for source in all_programs():
        assert len(source.read_text().splitlines()) <= 200


def test_no_program_is_called_as_one_of_busybox() -> None:
    """Its shell runs its own, wherever another one of the name is: seen in correctness checks."""
    applets = completed(["busybox", "--list"])
    assert not {source.stem for source in all_programs()} & set(applets.stdout.split())


def test_another_header_is_another_program(tmp_path: Path) -> None:
    source, header = tmp_path / "a.c", tmp_path / "a.h"
    source.write_text('#include "a.h"\n')
    header.write_text("int main(void) { return N; }\n#define M 1\n".replace("N", "3"))
    first, made = programs.digest(source), programs.build(source, (), tmp_path)
    header.write_text("int main(void) { return 4; }\n")
    again = programs.build(source, (), tmp_path)
    assert (programs.digest(source) != first, again != made) == (True, True)
    assert [subprocess.run([each], check=False).returncode for each in (made, again)] == [3, 4]


def test_phase_is_the_agents_with_any_command() -> None:
    """A judged run's agent stays as it is, so its phase() is here once more."""
    function = re.compile(r"^phase\(\) \{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
    mine, agents = (function.search(file.read_text()) for file in (PROGRAM_PHASE, AGENT))
    assert mine is not None
    assert agents is not None
    assert mine[0] == agents[0].replace("clock fio $6", "clock $6")


@pytest.mark.parametrize("name", WITH_PROGRAMS)
def test_jobs_of_programs_fit_and_are_of_the_seed(name: str) -> None:
    phases = WITH_PROGRAMS[name].phases
    texts = [job_text(phases, {}, jobs=4, seed=seed, limit_bytes=32 << 20) for seed in (1, 123456)]
    assert {len(text) for text in texts} == {TEXT_BYTES}
    for seed, text in zip((1, 123456), texts, strict=True):
        assert text.count(PROGRAM_PHASE.read_text()) == 1
        for number, phase in enumerate(phases, start=1):
            command = " ".join(phase_command(phase, {}, jobs=4, seed=seed))
            assert f"FIO_{number}='{command}'\n" in text
            assert command.endswith(f"{phase.ops} {seed}")


@pytest.mark.parametrize("known", [True, False])
def test_the_lists_of_free_pages_are_set_where_the_kernel_has_them(
    known: bool, tmp_path: Path
) -> None:
    kernels_file = tmp_path / "fraction"
    if known:
        kernels_file.write_text("0\n")
    text = job_text(WITH_PROGRAMS["swap"].phases, {}, jobs=4, seed=1, limit_bytes=32 << 20)
    place = f"/proc/sys/{FREE_LISTS.replace('.', '/')}"
    assert place in text
    done = subprocess.run(
        ["sh", "-euc", text.replace(place, str(kernels_file))], check=False, cwd=tmp_path
    )
    assert done.returncode == 0
    assert [file.read_text() for file in tmp_path.iterdir()] == ["160\n"] * known


def test_the_setting_is_on_record_with_the_command_of_a_program_alone() -> None:
    """What moves numbers is in a session's manifest: else history blames the kernel for it."""
    program = WITH_PROGRAMS["swap"].phases[0]
    shown = shown_command(program, {}, jobs=4, seed=7)
    assert shown == f"sysctl {FREE_LISTS}=160; swap pageout 8000 7"
    fio = Phase(name="a", drop_caches=True, thp="never", fio=("--name=a",))
    assert shown_command(fio, {"a": PhaseTimes(ios=8)}, jobs=1, seed=7).startswith("fio --name=a")


def test_no_job_of_fio_alone_changes() -> None:
    phase = Phase(name="a", drop_caches=True, thp="never", fio=("--name=a",))
    text = job_text([phase], {"a": PhaseTimes(ios=8)}, jobs=1, seed=1, limit_bytes=0)
    assert "phase()" not in text
    assert "FREE_LISTS" not in text
    assert "FIO_1='--name=a " in text


def fault(**changes: object) -> Phase:
    return but(CATALOGUE["memory"].phases[0], **changes)


def ran(run_4k: Run, line: str, status: str = "0") -> tuple[Run, Phase]:
    """The recorded run as if its phase had been one of a program that printed this."""
    files = {name: text for name, text in run_4k.files.items() if "fio" not in name}
    files |= {"4k/fio.out": line.encode(), "4k/status": status.encode()}
    return Run("filemap-4k", files), fault(name="4k", ops=50, thp="never")


def line(**changes: object) -> str:
    done = {"operation": "fault", "count": 50, "seed": 1, "ns": 5000}
    return json.dumps({**done, **changes}) + "\n"


def problems_of(run_4k: Run, text: str, status: str = "0") -> tuple[str, ...]:
    run, phase = ran(run_4k, text, status)
    claim = run.claim
    return problems(run.result, Claim((phase,), claim.limit_bytes, 1, claim.build_id))


def test_a_run_of_a_program_is_valid_as_requested(run_4k: Run) -> None:
    assert problems_of(run_4k, line()) == ()
    assert problems_of(run_4k, line(count=49)) == ("4k: count 49, expected 50",)
    assert problems_of(run_4k, line(seed=2)) == ("4k: seed 2, expected 1",)
    assert problems_of(run_4k, line(operation="zero")) == ("4k: operation zero, expected fault",)
    assert problems_of(run_4k, "mmap: Cannot allocate memory\n", "1") == (
        "4k: memory failed (status 1): mmap: Cannot allocate memory",
    )
    # Killed before it said anything.
    assert problems_of(run_4k, "", "137") == ("4k: memory failed (status 137): no output",)
    assert problems_of(run_4k, line(), "1") != ()


def test_metrics_of_a_program(run_4k: Run) -> None:
    run, phase = ran(run_4k, line())
    assert samples(run.result.phases, [phase]) == {"4k.time": 100.0, "4k.ops": 50.0}
    assert [metric.name for metric in metrics_of([phase], counted=True)] == [
        "4k.time",
        "4k.ops",
        "4k.path",
        "4k.before",
    ]
    assert [metric.name for metric in metrics_of([phase])] == ["4k.time", "4k.ops"]


def test_path_of_a_program_is_instructions_for_an_operation() -> None:
    """Of the kernel: neither what programs execute nor what keeps the vCPU from being idle."""
    counted = PhaseProfile(
        phase="fault",
        instructions=58_000,
        kernel=(),
        user={"busybox": 1000, "[programs]": 7000},
        by_vcpu=(51_000,),
        units={"page": 50.0},
    )
    profile = Profile(run_id="a", phases=(counted,))
    assert of_profile(profile, [fault(ops=50)]) == {"fault.path": 1000.0}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"operation": "a"}', '{"operation":"a","count":"x"}', "1\n2"]
)
def test_other_output_is_no_result(text: str) -> None:
    assert program_result(text) is None


def test_the_last_line_counts() -> None:
    assert program_result("warning\n" + line()) == ProgramResult("fault", 50, 1, 5000)


def test_a_phase_of_fio_has_no_program(run_4k: Run) -> None:
    (phase,) = run_4k.result.phases
    assert isinstance(phase, PhaseResult)
    assert phase.program is None
