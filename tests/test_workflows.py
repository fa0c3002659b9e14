"""The workflows by their text: who may do what, and where an input may go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiment.load import known_experiments
from tests.workflow import CHECKOUT, EXPRESSION, WORKFLOWS, parsed

ACTION = CHECKOUT / ".github" / "actions" / "twinboot" / "action.yml"
FILES = [*sorted(WORKFLOWS.glob("*.yml")), ACTION]
# What a job may do besides reading, and nothing else.
MAY = {
    ("nightly.yml", "keep"): {"contents": "write"},
    ("nightly.yml", "publish"): {"pages": "write", "id-token": "write"},
    ("nightly.yml", "tell"): {"issues": "write"},
    ("compare.yml", "comment"): {"pull-requests": "write"},
}


def steps(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    found = parsed(path)
    if "runs" in found:
        yield from (("", step) for step in found["runs"]["steps"])
    for name, job in found.get("jobs", {}).items():
        yield from ((name, step) for step in job["steps"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_expression_is_pasted_into_a_shell(path: Path) -> None:
    for _, step in steps(path):
        assert not EXPRESSION.search(step.get("run", "")), step["run"]


@pytest.mark.parametrize("path", FILES[:-1], ids=lambda path: path.name)
def test_each_job_may_do_what_it_needs_and_no_more(path: Path) -> None:
    found = parsed(path)
    assert found["permissions"] == {"contents": "read"}
    for name, job in found["jobs"].items():
        assert job.get("permissions", {}) == MAY.get((path.name, name), {})


def test_jobs_that_may_write_run_nothing_of_the_lab_or_of_a_series() -> None:
    for path in FILES[:-1]:
        for name, step in steps(path):
            if (path.name, name) in MAY:
                assert "lab.py" not in step.get("run", "")
                assert "make" not in step.get("run", "").split()
                assert "twinboot" not in step.get("uses", "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_checkouts_leave_no_credentials(path: Path) -> None:
    for _, step in steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_what_guests_and_patches_print_is_no_command() -> None:
    for path in FILES:
        for _, step in steps(path):
            if "lab.py" in step.get("run", "") and " measure " in step["run"]:
                assert step["run"].startswith('echo "::stop-commands::$(od -An -N16 -tx1 ')


def test_a_night_measures_known_experiments_each_in_one_job() -> None:
    job = parsed(WORKFLOWS / "nightly.yml")["jobs"]["measure"]
    matrix = job["strategy"]["matrix"]
    assert set(matrix) == {"experiment"}
    assert set(matrix["experiment"]) <= set(known_experiments())


def test_jobs_of_a_night_share_the_id_of_their_run() -> None:
    job = parsed(WORKFLOWS / "nightly.yml")["jobs"]["record"]
    # The number of the attempt is another when jobs are run again: it is the same night.
    assert job["env"]["NIGHT"] == "run-${{ github.run_id }}"
    named = [step["run"] for step in job["steps"] if '--night "$NIGHT"' in step.get("run", "")]
    assert [re.findall(r"lab\.py ([a-z]+)", run)[0] for run in named] == ["history", "gate"]
