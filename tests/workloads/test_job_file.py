"""Job files: what fio itself makes of them is what the lab gives to fio."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from errors import SpecError
from workloads.job_file import JOBS, LAB_GIVES, read_job_file
from workloads.spec import load_catalogue

SHIPPED = sorted(JOBS.glob("*.fio"))
SECTIONS = [
    pytest.param(path, section, id=f"{path.stem}-{section}")
    for path in SHIPPED
    for section in read_job_file(path)
]


def fios_own(path: Path, section: str) -> set[str]:
    """The options of one section, as fio writes them on a command line."""
    done = subprocess.run(
        ["fio", "--showcmd", f"--section={section}", str(path)],
        check=True, capture_output=True, text=True, timeout=10,
    )  # fmt: skip
    options: dict[str, str] = {}
    for word in shlex.split(done.stdout)[1:]:
        key, _, value = word.partition("=")
        # A section's own value comes after the one of [global].
        options[key] = value
    return {f"{key}={value}" for key, value in options.items()}


@pytest.mark.parametrize(("path", "section"), SECTIONS)
def test_arguments_say_what_fio_reads_in_the_file(path: Path, section: str) -> None:
    ours = set(read_job_file(path)[section])
    assert f"--name={section}" in ours
    left = {
        option
        for option in fios_own(path, section)
        if option.partition("=")[0].removeprefix("--") not in LAB_GIVES
    }
    assert left == ours


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_fio_takes_the_file_as_it_is(path: Path) -> None:
    done = subprocess.run(
        ["fio", "--parse-only", str(path)], capture_output=True, text=True, timeout=10
    )
    assert (done.returncode, done.stderr) == (0, "")
    # To be run by hand it needs a size, jobs and an end.
    assert {"size", "numjobs", "runtime"} <= {
        line.partition("=")[0] for line in path.read_text().splitlines()
    }


def test_workloads_have_the_settings_of_their_files() -> None:
    loaded = load_catalogue()
    matrix = read_job_file(JOBS / "thp-matrix.fio")
    assert len(matrix) == 18
    for section, arguments in matrix.items():
        (phase,) = loaded["thp-matrix"].phases_of(section)
        assert phase.fio == (*arguments, "--directory=/mnt")
        engine, _, pattern = section.partition("-")
        assert (phase.option("ioengine"), phase.option("rw")) == (engine, pattern)
    assert loaded["thp-matrix"].phases[0].fio[:-1] == matrix["sync-read"]
    dirty = read_job_file(JOBS / "iomap-dirty.fio")
    for section in dirty:
        assert loaded["iomap-dirty"].phases_of(section)[0].fio[:-1] == dirty[section]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[global]\nbs=4k\n", "no section besides [global]"),
        ("", "no section besides [global]"),
        ("bs=4k\n[a]\n", "no job file that can be read: "),
        ("[a]\n[a]\n", "no job file that can be read: "),
        (None, "no job file that can be read: "),
    ],
)
def test_mistake_is_named_with_its_file(tmp_path: Path, text: str | None, problem: str) -> None:
    path = tmp_path / "x.fio"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_job_file(path)
    assert caught.value.problems[0].startswith(f"{path}: {problem}")


def test_a_key_alone_is_a_switch_and_comments_are_none(tmp_path: Path) -> None:
    path = tmp_path / "x.fio"
    path.write_text("; no\n# no\n[global]\nthread\nsize=1g\n[a]\nrw=read\n[b]\nthread=0\n")
    assert read_job_file(path) == {
        "a": ("--name=a", "--thread", "--rw=read"),
        "b": ("--name=b", "--thread=0"),
    }
