"""A night by hand: the steps of nightly.yml, in order, on this machine, at smoke size."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from guests.kept import kept_folder
from history.store import HistoryStore
from host.facts import cache_folder
from kernels.cache import Kernel
from tests.integration.lab_process import records_of
from tests.values import spaced
from tests.workflow import CHECKOUT, WORKFLOWS, WorkflowStep, parsed, perform, steps_of

pytestmark = [pytest.mark.guest, pytest.mark.usefixtures("kept_runs")]
SMOKE = "guest=smoke blocks=1"
CASES = ("filemap-4k", "filemap-thp")


def test_the_steps_of_a_night_in_order(kernels: dict[str, Kernel], tmp_path: Path) -> None:
    jobs = parsed(WORKFLOWS / "nightly.yml")["jobs"]
    experiment = jobs["measure"]["strategy"]["matrix"]["experiment"][0]
    values = {
        "inputs.set": SMOKE,
        "matrix.experiment": experiment,
        "github.server_url": "https://github.com",
        "github.repository": "octo/lab",
        "github.run_id": "1",
    }
    work, cache = tmp_path / "work", tmp_path / "cache"
    work.mkdir()
    (work / "lab.py").symlink_to(CHECKOUT / "lab.py")
    # A cache of its own: one of the steps bounds it.
    of_kernels = [kernel.folder for kernel in kernels.values()]
    for folder in (*of_kernels, *kept_folder(cache_folder()).glob("[0-9a-f]*")):
        copy = cache / folder.parent.name / folder.name
        shutil.copytree(folder, copy, copy_function=os.link)
    files = {name: tmp_path / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    env = {
        "TWINBOOT_CACHE": str(cache),
        "TWINBOOT_KEPT": str(cache_folder() / "runs"),
        **{name: str(path) for name, path in files.items()},
    }
    steps = [step for job in ("measure", "record") for step in steps_of(job, jobs[job], values)]
    verbs = [verb for step in steps for verb in re.findall(r"lab\.py ([a-z-]+)", step.run)]
    assert verbs == [*spaced("doctor cache-key build measure report clean history gate pages")]
    for step in steps:
        done = perform(step, work, env)
        # One seed gives no verdict, and a night without verdicts does not pass.
        code = 5 if "lab.py gate" in step.run else 0
        assert done.returncode == code, f"{step.name}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    # Both cases, each from a stop point and once from cold.
    records = records_of(work / "sessions" / experiment)
    assert {record.failure for record in records.values()} == {None}
    runs = [f"{case}.b00.{arm}" for case in CASES for arm in ("base", "patched")]
    assert set(records) == {*runs, *(f"{case}.b00.patched.repeat" for case in CASES)}
    for case in CASES:
        restored, cold = (records[f"{case}.b00.patched{of}"] for of in ("", ".repeat"))
        assert restored.fingerprint == cold.fingerprint != ""
    assert len({record.fingerprint for record in records.values()}) == 4
    assert re.fullmatch(r"key=kernels-[0-9a-f]{32}\n", files["GITHUB_OUTPUT"].read_text())
    summary = files["GITHUB_STEP_SUMMARY"].read_text()
    assert summary.startswith("## mm/filemap")
    assert "**Not judged: 1 seed, 8 needed at 99 %.**" in summary
    (entry,) = HistoryStore(work / "history-data").read().entries
    assert (entry.experiment, entry.guest) == (experiment, "smoke")
    assert entry.night_key == "run-1"
    assert entry.link == "https://github.com/octo/lab/actions/runs/1"
    night = (work / "site" / "night" / f"{entry.id}.html").read_text()
    assert f'href="{entry.id}/report.html"' in night
    assert (work / "site" / "night" / entry.id / "report.html").stat().st_size > 10_000
    front = (work / "site" / "index.html").read_text()
    assert f"track/{experiment}.smoke.exact.html" in front
    judged = (work / "gate.txt").read_text()
    assert "gate: exit 5" in judged
    assert {line.split(": ")[1] for line in judged.splitlines() if line.startswith("error: ")} == {
        "too_few"
    }
    # The same night by its own word is there once, however often it is added.
    again = next(step for step in steps if "history add" in step.run)
    assert "there already" in perform(again, work, env).stdout


def test_the_cache_key_names_every_kernel_that_is_built(kernels: dict[str, Kernel]) -> None:
    jobs = parsed(WORKFLOWS / "nightly.yml")["jobs"]
    step = next(
        step
        for step in steps_of(
            "measure", jobs["measure"], {"inputs.set": "", "matrix.experiment": "filemap-v4"}
        )
        if "cache-key" in step.run
    )
    run = './lab.py cache-key "$EXPERIMENT" --no-twins --no-check --json'
    without_twins = WorkflowStep(step.job, step.name, run, {"EXPERIMENT": "filemap-v4"})
    printed = json.loads(perform(without_twins, CHECKOUT, {}).stdout)
    assert {each["key"] for each in printed["kernels"]} == {
        k.identity.key for k in kernels.values()
    }
