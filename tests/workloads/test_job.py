import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from experiment.spec import PhaseTimes
from tests.values import but, spaced
from tests.waiting import completed
from workloads.job import (
    PERTURBED_MOST,
    TEXT_BYTES,
    fio_arguments,
    job_text,
    output_arguments,
    perturbation,
    prepare_text,
)
from workloads.parse import fio_result
from workloads.spec import Phase, Workload, load_catalogue

CATALOGUE = load_catalogue()
SHIPPED = {
    f"{workload.name}-{variant}-{phase.name}": phase
    for workload in CATALOGUE.values()
    for variant in ("default", *workload.variants)
    for phase in workload.phases_of(variant)
    if phase.fio
}
PHASES = tuple(SHIPPED.values())
TIMES = PhaseTimes(ramp_s=0.6, runtime_s=2)
OFFSETS = 200


def phase(*fio: str, name: str = "4k") -> Phase:
    return Phase(name=name, drop_caches=True, thp="never", fio=fio or ("--name=cached",))


def offsets(folder: Path, seed: int) -> list[list[int]]:
    """For each shipped phase, the first offsets that the real fio goes to, in order.

    One fio has all phases that may write as its jobs, another the rest: a start takes longer than
    they do.
    """
    folder.mkdir()
    groups: dict[bool, list[str]] = {True: ["--output=read"], False: ["--output=written"]}
    for number, shipped in enumerate(PHASES):
        (folder / f"{number}").mkdir()
        with (folder / f"{number}" / "data.0.0").open("wb") as file:
            file.truncate(8 << 20)
        places = {"--filename": f"{number}/data.0.0", "--directory": f"{number}"}
        # Of the times, which depend on this host, none; of the rest everything.
        arguments = [
            f"{option}={places[option]}" if option in places else argument
            for argument in fio_arguments(shipped, TIMES, jobs=1, seed=seed)
            for option in [argument.partition("=")[0]]
            if option not in ("--time_based", "--ramp_time", "--runtime")
        ]
        arguments += [f"--number_ios={OFFSETS}", f"--write_iolog={number}.log"]
        groups["--readonly" in arguments] += arguments
    for arguments in groups.values():
        completed(["fio", *arguments], cwd=folder)
    logs = [(folder / f"{number}.log").read_text() for number in range(len(PHASES))]
    actions = [[line.split() for line in log.splitlines()] for log in logs]
    return [
        [int(words[3]) for words in log if len(words) == 5 and words[2] in ("read", "write")]
        for log in actions
    ]


@pytest.fixture(scope="module")
def three_runs(tmp_path_factory: pytest.TempPathFactory) -> list[list[list[int]]]:
    """The offsets of each phase by one seed, by the same once more, and by another."""
    folder = tmp_path_factory.mktemp("offsets")
    return [offsets(folder / str(run), seed) for run, seed in enumerate((1, 1, 2))]


def shell(program: str, text: str, folder: Path) -> list[str]:
    """Arguments that busybox's shell prints, between NULs, after reading ``text``."""
    source = folder / "job"
    source.write_text(text)
    done = subprocess.run(
        ["busybox", "sh", "-uc", f". {source}; {program}"],
        check=True,
        capture_output=True,
        timeout=300,
    )
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(PHASES)), ids=[*SHIPPED])
def test_same_seed_same_offsets_and_another_seed_others(
    number: int, three_runs: list[list[list[int]]]
) -> None:
    shipped = PHASES[number]
    first, again, other = (run[number] for run in three_runs)
    assert len(first) == OFFSETS
    assert first == again
    if "rand" not in shipped.option("rw"):
        # In order; of two directions, which one is next is up to the seed.
        assert (first == other) == (len(shipped.directions) == 1)
        return
    # Independent patterns over 2048 blocks have the same block at an index once in 2048.
    assert sum(left == right for left, right in zip(first, other, strict=True)) < OFFSETS // 10


@pytest.mark.parametrize(
    ("changes", "times", "own"),
    [
        ({}, TIMES, "--time_based --ramp_time=600ms --runtime=2000ms"),
        ({}, PhaseTimes(ramp_s=0, runtime_s=0.25), "--time_based --runtime=250ms"),
        # A given work has a time that it may take and none that it must.
        ({"time_based": False}, PhaseTimes(ramp_s=0, runtime_s=60), "--runtime=60000ms"),
        # Without a size fio ends when each block of the file was read once.  A pass that ends drops
        # no cache, unless it is kept for the phase: then fio drops it where the original does.
        ({}, PhaseTimes(ios=6000), "--number_ios=1500 --io_size=1t --invalidate=0"),
        ({"drop_caches": False}, PhaseTimes(ios=6000), "--number_ios=1500 --io_size=1t"),
    ],
)
def test_arguments_of_one_phase_in_order(
    changes: dict[str, bool], times: PhaseTimes, own: str
) -> None:
    reads = but(phase("--name=cached", "--rw=randread"), **changes)
    assert fio_arguments(reads, times, jobs=4, seed=7) == spaced(
        f"--name=cached --rw=randread --numjobs=4 {own} "
        "--group_reporting --randrepeat=0 --randseed=7"
    )


@pytest.mark.parametrize("amount", [{}, {"runtime_s": 1, "ios": 5}, {"ramp_s": 1, "ios": 5}])
def test_an_amount_is_a_time_or_a_number(amount: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="runtime_s"):
        PhaseTimes.model_validate(amount)


def test_fio_does_the_number_of_ios_that_it_is_given(tmp_path: Path) -> None:
    """More than the file has blocks, so that jobs begin again; fio says the number back."""
    (tmp_path / "data").write_bytes(bytes(1 << 20))
    reads = phase(f"--filename={tmp_path}/data", "--name=x", "--ioengine=psync", "--rw=randread")
    arguments = fio_arguments(reads, PhaseTimes(ios=2000), jobs=4, seed=3)
    done = completed(["fio", *arguments, "--output-format=json+"], cwd=tmp_path)
    result = fio_result(done.stdout)
    assert result is not None
    assert (result.ios, result.planned_ios, result.planned_ms) == (2000, 2000, 0)


def test_each_seed_has_a_perturbation_of_its_own() -> None:
    """A sequential phase has nothing else of its seed; the same seed is the same on both arms."""
    drawn = [perturbation(seed) for seed in range(1, 2001)]
    assert len(set(drawn)) == len(drawn)
    assert drawn == [perturbation(seed) for seed in range(1, 2001)]
    for name, most in PERTURBED_MOST._asdict().items():
        values = [getattr(each, name) for each in drawn]
        assert (min(values), max(values)) == (pytest.approx(0, abs=9), pytest.approx(most, abs=9))
        # Even, and of neighbours independent: bounds of one in a thousand for 2,000 draws.
        assert abs(sum(values) / len(values) - most / 2) < 0.025 * most
        ordered = sum(left < right for left, right in pairwise(values))
        assert abs(ordered / len(values) - 0.5) < 0.03


def test_only_a_twin_observes_locks_and_a_job_says_how_it_is_perturbed() -> None:
    times = {"4k": TIMES}
    plain = job_text((phase(),), times, jobs=1, seed=5, limit_bytes=1)
    drawn = perturbation(5)
    own = {f"DELAY={drawn.delay}", f"PAGES={drawn.pages}", f"ENTRIES={drawn.entries}"}
    assert own <= set(plain.splitlines())
    twin = job_text((phase(),), times, jobs=1, seed=5, limit_bytes=1, observe="contention")
    assert plain.startswith("OBSERVE=''\n")
    assert twin.startswith("OBSERVE=contention\n")
    assert plain.strip().splitlines()[1:] == twin.strip().splitlines()[1:]


@pytest.mark.skipif(shutil.which("busybox") is None, reason="no busybox")
def test_job_comes_through_the_guests_shell(tmp_path: Path) -> None:
    awkward = ("--name=it's", "--filename=/mnt/a b", '--x="$HOME"`id`', "--y=\\n;*?", "--z=a\nb")
    phases = (phase(*awkward), phase("--name=two", name="switch"))
    times = {"4k": TIMES, "switch": PhaseTimes(ramp_s=0, runtime_s=1)}
    text = job_text(phases, times, jobs=2, seed=9, limit_bytes=67108864)
    words = shell(
        'printf "%s\\0" "$PHASES" "$NAME_1" "$DROP_1" "$THP_1" "$LIMIT_1" "$READAHEAD_1";'
        'printf "%s\\0" "$NAME_2";'
        # As agent.sh does it: quoted once for the assignment, once for fio.
        'eval "set -- $FIO_1"; printf "%s\\0" "$@"; printf "|\\0";'
        'eval "set -- $FIO_2"; printf "%s\\0" "$@"',
        text,
        tmp_path,
    )
    assert words[:7] == ["2", "4k", "1", "never", "67108864", "0", "switch"]
    bar = words.index("|")
    outputs = output_arguments()
    first = fio_arguments(phases[0], times["4k"], jobs=2, seed=9)
    second = fio_arguments(phases[1], times["switch"], jobs=2, seed=9)
    assert tuple(words[7:bar]) == (*first, *outputs)
    assert tuple(words[bar + 1 :]) == (*second, *outputs)


# No NUL (no argument has one) and no surrogates (no file has them).
PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)


@settings(max_examples=40)
@given(mkfs=PLAIN, options=PLAIN)
def test_any_value_comes_through_the_guests_shell(
    tmp_path_factory: pytest.TempPathFactory, mkfs: str, options: str
) -> None:
    workload = Workload(
        name="any", title="any", mkfs=mkfs, mount_options=options, phases=(phase(),)
    )
    folder = tmp_path_factory.mktemp("shell")
    text = prepare_text(workload, file_mib=52)
    words = shell('printf "%s\\0" "$MKFS" "$MOUNT_OPTIONS" "$FILES" "$FILE_MIB"', text, folder)
    assert words == [mkfs, options, "/mnt/test.img", "52"]


def test_files_of_all_jobs_share_the_size() -> None:
    text = prepare_text(CATALOGUE["thp-matrix"], file_mib=32, jobs=4)
    assert "FILES='/mnt/data.0.0 /mnt/data.1.0 /mnt/data.2.0 /mnt/data.3.0'\n" in text
    assert "FILE_MIB=8\n" in text
    assert "MKFS=''\nMOUNT_OPTIONS=huge=never\n" in text
    text = prepare_text(CATALOGUE["thp-matrix"], file_mib=32, mount_options="huge=always")
    assert "MOUNT_OPTIONS=huge=always\n" in text


def test_cases_of_one_workload_prepare_alike() -> None:
    """One snapshot serves all of them: what differs is in the job."""
    texts = {
        variant: job_text(
            CATALOGUE["iomap-dirty"].phases_of(variant),
            {"overwrite": TIMES},
            jobs=4,
            seed=1,
            limit_bytes=0,
        )
        for variant in ("default", "1m")
    }
    assert "READAHEAD_1=64\n" in texts["default"]
    assert "READAHEAD_1=1024\n" in texts["1m"]
    assert all("LIMIT_1=max\n" in text for text in texts.values())


def test_texts_have_one_size() -> None:
    texts = [prepare_text(workload, file_mib=104) for workload in CATALOGUE.values()]
    for workload in CATALOGUE.values():
        times = {each.name: TIMES for each in workload.phases}
        texts += [
            job_text(workload.phases_of(variant), times, jobs=16, seed=2**31 - 1, limit_bytes=1)
            for variant in ("default", *workload.variants)
        ]
    assert {len(text.encode()) for text in texts} == {TEXT_BYTES}


def test_size_counts_bytes_and_the_last_one_fits() -> None:
    def text(padding: str) -> str:
        return job_text((phase(f"--name={padding}"),), {"4k": TIMES}, jobs=1, seed=1, limit_bytes=1)

    empty = len(text("").rstrip("\n")) + 1
    room = TEXT_BYTES - empty
    assert len(text("x" * room).encode()) == TEXT_BYTES
    with pytest.raises(ValueError, match=f"job of {TEXT_BYTES + 1} bytes, at most {TEXT_BYTES}"):
        text("x" * (room + 1))
    with pytest.raises(ValueError, match="at most"):
        text("é" * (TEXT_BYTES // 2))


def test_files_of_an_arm_are_set_behind_the_job(tmp_path: Path) -> None:
    cgroup = tmp_path / "cgroup"
    cgroup.mkdir()
    for name in ("memory.high", "cgroup.subtree_control", "enabled"):
        (tmp_path / name).write_text("")
    phases = load_catalogue()["filemap-4k"].phases
    times = {"4k": PhaseTimes(ios=1000)}
    files = {f"{tmp_path}/memory.high": "24M", f"{tmp_path}/enabled": "it's=y;"}
    plain = job_text(phases, times, jobs=4, seed=1, limit_bytes=0)
    text = job_text(phases, times, jobs=4, seed=1, limit_bytes=0, files=files)
    # Nothing else of the job is another.
    assert text.startswith(plain.rstrip("\n"))
    assert job_text(phases, times, jobs=4, seed=1, limit_bytes=0, files={}) == plain

    def shell(more: str) -> subprocess.CompletedProcess[str]:
        setup = f'OUT={tmp_path}; CGROUP={cgroup}; fail() {{ echo "failed: $*"; exit 42; }}'
        return completed(["busybox", "sh", "-uc", f"{setup}\n{more}"], check=False)

    assert shell(text).returncode == 0
    assert (tmp_path / "memory.high").read_text() == "24M\n"
    assert (tmp_path / "enabled").read_text() == "it's=y;\n"
    gone = job_text(phases, times, jobs=4, seed=1, limit_bytes=0, files={"/sys/nope": "1"})
    done = shell(gone)
    assert (done.returncode, done.stdout) == (42, "failed: setting: this kernel has no /sys/nope\n")
