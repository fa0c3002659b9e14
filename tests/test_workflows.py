"""The workflows by their text: who may do what, and where an input may go."""

import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from experiment.load import EXPERIMENTS
from experiment.machine import names_in
from tests.values import script
from tests.waiting import completed
from tests.workflow import CHECKOUT, EXPRESSION, WORKFLOWS, parsed

ACTION = CHECKOUT / ".github" / "actions" / "twinboot" / "action.yml"
FILES = [*sorted(WORKFLOWS.glob("*.yml")), ACTION]
# What a job may do besides reading, and nothing else.
MAY = {
    ("nightly.yml", "keep"): {"contents": "write"},
    ("nightly.yml", "publish"): {"pages": "write", "id-token": "write"},
    ("nightly.yml", "tell"): {"issues": "write"},
    ("gallery.yml", "publish"): {"pages": "write", "id-token": "write"},
    ("compare.yml", "comment"): {"pull-requests": "write"},
}


def steps(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    content = parsed(path)
    if "runs" in content:
        yield from (("", step) for step in content["runs"]["steps"])
    for name, job in content.get("jobs", {}).items():
        yield from ((name, step) for step in job["steps"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_expression_is_pasted_into_a_shell(path: Path) -> None:
    for _, step in steps(path):
        assert not EXPRESSION.search(step.get("run", "")), step["run"]


@pytest.mark.parametrize("path", FILES[:-1], ids=lambda path: path.name)
def test_each_job_may_do_what_it_needs_and_no_more(path: Path) -> None:
    content = parsed(path)
    assert content["permissions"] == {"contents": "read"}
    for name, job in content["jobs"].items():
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


@pytest.mark.parametrize("name", ["nightly.yml", "gallery.yml"])
def test_known_experiments_are_measured_each_in_one_job(name: str) -> None:
    job = parsed(WORKFLOWS / name)["jobs"]["measure"]
    matrix = job["strategy"]["matrix"]
    assert set(matrix) == {"experiment"}
    assert set(matrix["experiment"]) <= set(names_in(EXPERIMENTS))


def test_the_gallery_is_what_make_gallery_makes() -> None:
    (local,) = re.findall(r"^GALLERY \?= (.*)$", (CHECKOUT / "Makefile").read_text(), re.M)
    matrix = parsed(WORKFLOWS / "gallery.yml")["jobs"]["measure"]["strategy"]["matrix"]
    assert matrix == {"experiment": local.split()}


CONTAINERFILE = (CHECKOUT / "Containerfile").read_text()


def images_of(path: Path) -> list[str]:
    containers = [job.get("container") for job in parsed(path)["jobs"].values()]
    return [each if isinstance(each, str) else each["image"] for each in containers if each]


def test_workflows_run_in_the_system_that_the_image_is_made_of() -> None:
    pinned = r"^FROM docker\.io/library/(\S+@sha256:[0-9a-f]{64})$"
    (base,) = re.findall(pinned, CONTAINERFILE, re.M)
    for name in ("nightly.yml", "compare.yml", "gallery.yml"):
        assert set(images_of(WORKFLOWS / name)) == {base}
    assert f'"container: {base.partition("@")[0]}"' in ACTION.read_text()


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yml")), ids=lambda path: path.name)
def test_images_are_pinned_by_digest(path: Path) -> None:
    for image in images_of(path):
        assert re.fullmatch(r"[a-z]+:[\w.-]+@sha256:[0-9a-f]{64}", image)


def test_the_image_is_built_and_doctor_runs_in_it_without_root() -> None:
    runs = [step["run"] for _, step in steps(WORKFLOWS / "container.yml") if "run" in step]
    assert runs[:2] == [
        "docker build --file Containerfile --tag twinboot .",
        "docker run --rm twinboot doctor",
    ]
    users = re.findall(r"^(USER|ENTRYPOINT) (.*)$", CONTAINERFILE, re.M)
    assert users == [("USER", "lab"), ("ENTRYPOINT", '["./lab.py"]')]


def test_what_git_ignores_stays_out_of_the_image() -> None:
    lines = (CHECKOUT / ".dockerignore").read_text().splitlines()
    left_out = [line.removeprefix("**/") for line in lines if not line.startswith("#")]
    for line in (CHECKOUT / ".gitignore").read_text().split():
        name = line.strip("/")
        # Compiled files are in folders that are left out.
        assert name == "*.pyc" or any(fnmatch(name, each) for each in left_out), name
    # Sessions record the checkout's commit.
    assert ".git" not in left_out


LINE = "apt-get update && apt-get install --yes fio"


@pytest.mark.parametrize(
    ("user", "missing", "expected"),
    [
        (1000, True, [f"sudo DEBIAN_FRONTEND=noninteractive sh -ec {LINE}", "make setup"]),
        (1000, False, ["make setup"]),
        (0, True, ["make setup"]),
    ],
)
def test_the_action_has_root_install_packages_and_nothing_else(
    tmp_path: Path, user: int, missing: bool, expected: list[str]
) -> None:
    step = next(step for _, step in steps(ACTION) if step["name"] == "Set up")
    calls = tmp_path / "calls"
    (tmp_path / "setup").mkdir()
    prepare = f"echo 'setup: as root, run:' >&2; echo '{LINE}' >&2; exit 3" if missing else "exit 0"
    (tmp_path / "setup/prepare.sh").write_text(f"{prepare}\n")
    (tmp_path / ".github/actions/twinboot").mkdir(parents=True)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (
        ("id", f"echo {user}"),
        ("sudo", f'echo "sudo $*" >>{calls}'),
        ("make", f'echo "make $*" >>{calls}'),
    ):
        script(programs / name, text)
    completed(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=tmp_path,
        env={
            "PATH": f"{programs}:/usr/bin:/bin",
            "GITHUB_ACTION_PATH": str(tmp_path / ".github/actions/twinboot"),
        },
    )
    assert calls.read_text().splitlines() == expected


def test_jobs_of_a_night_share_the_id_of_their_run() -> None:
    job = parsed(WORKFLOWS / "nightly.yml")["jobs"]["record"]
    # The number of the attempt is another when jobs are run again: it is the same night.
    assert job["env"]["NIGHT"] == "run-${{ github.run_id }}"
    named = [step["run"] for step in job["steps"] if '--night "$NIGHT"' in step.get("run", "")]
    assert [re.findall(r"lab\.py ([a-z]+)", run)[0] for run in named] == ["history", "gate"]


def test_what_the_job_that_may_push_copies_is_json_by_name(tmp_path: Path) -> None:
    steps_of_keep = parsed(WORKFLOWS / "nightly.yml")["jobs"]["keep"]["steps"]
    run = next(step["run"] for step in steps_of_keep if step.get("name") == "Push the night")
    came, branch = tmp_path / "night/history-data", tmp_path / "branch"
    made = {
        "history.json": "{}",
        "nights/2026/2026-11-21.x.json": "{}",
        "nights/2026/torn.json": "{",
        "nights/2026/x.sh": "{}",
        "nights/2026/../y.json": "{}",
        ".git/hooks/pre-commit": "#!/bin/sh\ntouch ran\n",
        ".git/config": "[core]\n",
        ".gitattributes": "* filter=x\n",
        "nights/.git/config": "{}",
        "Makefile": "all:\n",
    }
    for name, text in made.items():
        path = came / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    (came / "nights/2026/link.json").symlink_to("/etc/hostname")
    (came / "nights/2027").symlink_to("/etc")
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "init", "-q", str(branch)], check=True)
    subprocess.run(
        ["git", "-C", str(branch), *identity, "commit", "-q", "--allow-empty", "-m", "one"],
        check=True,
    )
    config = (branch / ".git/config").read_bytes()
    script(tmp_path / "gh", "")
    remote = tmp_path / "remote"
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    text = run.replace(" push origin ", f" push {remote} ")
    completed(
        ["bash", "-eo", "pipefail", "-c", text],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    listed = completed(
        ["git", "-C", str(remote), "ls-tree", "-r", "nightly-history"]
    ).stdout.splitlines()
    assert {line.split("\t")[1] for line in listed} == {
        "history.json",
        "nights/2026/2026-11-21.x.json",
    }
    assert {line.split()[0] for line in listed} == {"100644"}
    assert (branch / ".git/config").read_bytes() == config
    assert not (branch / "ran").exists()


def test_what_is_built_beside_a_strangers_series_is_in_no_cache() -> None:
    for path in (ACTION, WORKFLOWS / "ci.yml"):
        used = {step["uses"].partition("@")[0]: step for _, step in steps(path) if "uses" in step}
        assert "actions/cache" not in used
        condition = used["actions/cache/save"]["if"]
        assert "github.event_name != 'pull_request'" in condition
        assert path != ACTION or "inputs.series == ''" in condition


def test_a_comment_is_what_a_fresh_checkout_says() -> None:
    jobs = parsed(WORKFLOWS / "compare.yml")["jobs"]
    assert jobs["comment"]["needs"] == "render"
    assert not any("uses" in step for step in jobs["comment"]["steps"])
    # Files of the job that built the series are read, by a lab that it had no hand in.
    assert "permissions" not in jobs["render"]
    checkout, came = (step["with"] for step in jobs["render"]["steps"] if "uses" in step)
    assert checkout["ref"] == "${{ inputs.lab-ref }}"
    assert came["path"] == "session"
    scripts = "".join(step.get("run", "") for step in jobs["render"]["steps"])
    assert "lab/lab.py" in scripts
    assert "session/" not in scripts
