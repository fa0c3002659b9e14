"""A workflow of GitHub Actions as a person would run it: its steps, parsed from the file."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.waiting import completed

CHECKOUT = Path(__file__).resolve().parent.parent
WORKFLOWS = CHECKOUT / ".github" / "workflows"
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


@dataclass(frozen=True)
class WorkflowStep:
    """One ``run`` step, with the environment that its job and itself give it."""

    job: str
    name: str
    run: str
    env: Mapping[str, str]


def parsed(path: Path) -> dict[str, Any]:
    """The file; PyYAML takes the key ``on`` for true."""
    content = yaml.safe_load(path.read_text())
    assert isinstance(content, dict)
    return content


def steps_of(job: str, of: Mapping[str, Any], values: Mapping[str, str]) -> Iterator[WorkflowStep]:
    """The steps of a job that call the lab, expressions replaced by ``values``.

    Raises:
        KeyError: an expression that ``values`` does not have.
    """

    def filled(text: object) -> str:
        return EXPRESSION.sub(lambda match: values[match[1]], str(text))

    for step in of["steps"]:
        if "lab.py" in step.get("run", ""):
            env = {**of.get("env", {}), **step.get("env", {})}
            yield WorkflowStep(
                job, step["name"], filled(step["run"]), {k: filled(v) for k, v in env.items()}
            )


def perform(
    step: WorkflowStep, folder: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a step in ``folder`` as the runner does with ``shell: bash``."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return completed(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step.run],
        check=False,
        cwd=folder,
        env={**os.environ, **step.env, **env, "PATH": path},
        stdin=subprocess.DEVNULL,
        timeout=1800,
    )
