"""Completion as a shell asks for it: the real program, and the real bash."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.values import data
from tests.waiting import completed

CHECKOUT = Path(__file__).resolve().parents[2]
BASH = data(__file__, "bash")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A PATH on which the program is ``twinboot``, as ``make link`` puts it there."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "twinboot").symlink_to(CHECKOUT / "lab.py")
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def output(*argv: str, env: dict[str, str], **more: str) -> str:
    done = completed(argv, check=False, env={**env, **more})
    assert done.stderr == ""
    return done.stdout


WORDS = [
    (("rep",), {"report", "repro"}, set()),
    (("queue", "r"), {"run", "remove", "retry"}, set()),
    (("plan", "filemap-v"), {"filemap-v1", "filemap-v4"}, set()),
    (("run", "--s"), {"--set", "--series", "--source", "--session", "--strict"}, {"--mode"}),
    (("run", "noop", "--mode", ""), {"exact", "native", "wall"}, {"noop"}),
    (("run", "--guest", "lap"), {"laptop", "laptop-numa"}, {"smoke"}),
    (("run", "--workloads", "filemap-4k,th"), {"filemap-4k,thp-matrix"}, set()),
    (("completion", ""), {"bash", "zsh", "fish", "man"}, set()),
]


@pytest.fixture(scope="module")
def script(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("script") / "twinboot.bash"
    path.write_text(output("twinboot", "completion", "bash", env=environment))
    return path


@pytest.mark.parametrize(("words", "offered", "not_offered"), WORDS)
def test_bash_completes(
    environment: dict[str, str],
    script: Path,
    words: tuple[str, ...],
    offered: set[str],
    not_offered: set[str],
) -> None:
    argv = ("bash", "--norc", "-c", BASH, "bash", str(script), "twinboot", *words)
    completions = set(output(*argv, env=environment).split())
    assert offered <= completions
    assert not not_offered & completions
    assert all(word.startswith(words[-1]) for word in completions)


def completion_of(
    environment: dict[str, str], line: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """What a shell starts; zsh and fish ask the same way."""
    return completed(
        ["twinboot"], check=False, env={**environment, "_TYPER_COMPLETE_ARGS": line, **more}
    )


def test_zsh_and_fish_are_answered_in_their_form(environment: dict[str, str]) -> None:
    zsh = completion_of(environment, "twinboot que", _TWINBOOT_COMPLETE="complete_zsh")
    assert re.fullmatch(r"_arguments '\*: :\(\(\"queue\":\"[^\"]+\"\)\)'", zsh.stdout.strip())
    none = completion_of(environment, "twinboot report ./x", _TWINBOOT_COMPLETE="complete_zsh")
    assert none.stdout.strip() == "_files"
    fish = {"_TWINBOOT_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    lines = completion_of(environment, "twinboot run --mode ", **fish).stdout.split()
    assert lines == ["exact", "wall", "native"]
    fish["_TYPER_COMPLETE_FISH_ACTION"] = "is-args"
    # Whether fish offers these, or files.
    assert completion_of(environment, "twinboot run --mode ", **fish).returncode == 0
    assert completion_of(environment, "twinboot report ./x", **fish).returncode == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_reads_its_script(
    environment: dict[str, str], tmp_path: Path, shell: str
) -> None:
    script = tmp_path / "script"
    script.write_text(output("twinboot", "completion", shell, env=environment))
    assert "_TWINBOOT_COMPLETE" in script.read_text()
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = completed([shell, "-n", str(script)], check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_press_of_the_tabulator_waits_for_no_statistics(environment: dict[str, str]) -> None:
    """With statistics and charts imported it took four seconds of CPU time."""
    shell = {"_TWINBOOT_COMPLETE": "complete_zsh", "PYTHONPROFILEIMPORTTIME": "1"}
    imported = completion_of(environment, "twinboot run --s", **shell).stderr
    assert re.search(r"\| +typer$", imported, re.M)
    assert not re.search(r"\| +(numpy|scipy|pandas|matplotlib)$", imported, re.M)


def test_the_manual_has_every_verb_and_option(environment: dict[str, str]) -> None:
    page = output("twinboot", "completion", "man", env=environment)
    verbs = re.findall(r"^\.SS (.*)$", page, re.M)
    assert {"run", "history add", "queue run", "answer", "completion"} <= set(verbs)
    assert "\n.TP\n--seeds N\n" in page
    # Each line that begins with a dot is a request that man(7) has.
    requests = set(re.findall(r"^\.(\w+|.)", page, re.M))
    assert requests == {"TH", "SH", "SS", "TP", "PP"}
