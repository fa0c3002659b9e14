"""A workload that was just begun: its files are whole, and its test passes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from errors import UsageError
from verbs.workload import SKELETON, new

CHECKOUT = Path(__file__).resolve().parents[2]
PLACES = (
    "workloads/catalogue/my-own.toml",
    "workloads/programs/my_own.c",
    "tests/workloads/test_my_own.py",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what a workload and its test need."""
    for name in ("errors.py", "text.py", "files.py", "pyproject.toml"):
        shutil.copy(CHECKOUT / name, tmp_path)
    for name in ("workloads", "experiment", "results", "configs", "guests", "kernels", "host"):
        shutil.copytree(CHECKOUT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.pyc"))
    (tmp_path / "tests/workloads").mkdir(parents=True)
    return tmp_path


def test_a_new_workload_is_whole(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new("my-own", checkout)
    assert tuple(capsys.readouterr().out.split()) == PLACES
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--noconftest",
            "--rootdir=.",
            "-c",
            os.devnull,
            PLACES[2],
        ],
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    program = checkout / "program"
    subprocess.run(["gcc", "-Wall", "-Werror", "-o", program, checkout / PLACES[1]], check=True)
    ran = subprocess.run([program, "read", "30", "7"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith('{"operation": "read", "count": 30, "seed": 7, ')


def test_nothing_is_overwritten(checkout: Path) -> None:
    (checkout / PLACES[2]).write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        new("my-own", checkout)
    assert [(checkout / place).exists() for place in PLACES] == [False, False, True]
    assert (checkout / PLACES[2]).read_text() == "mine"


@pytest.mark.parametrize("name", ["", "../x", "Big", "a_b", "1a", "x" * 41])
def test_names_are_those_of_files(checkout: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no name of a workload"):
        new(name, checkout)


def test_the_skeleton_is_all_that_is_written() -> None:
    assert {path.name for path in (CHECKOUT / SKELETON).iterdir()} == {
        "catalogue.toml",
        "program.c",
        "test.py.in",
    }
