"""Completion as a shell asks for it, in this process; and the real program in the real bash."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Terminal
from tests.values import data
from tests.waiting import completed

CHECKOUT = Path(__file__).resolve().parents[2]
BASH = data(__file__, "bash")


@pytest.fixture
def answered(main: Terminal, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """The status and the answer to a shell that asks by these variables."""

    def answer(**variables: str) -> tuple[int, str]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main()
        assert main.err == ""
        return int(ended.value.code or 0), main.out.strip()

    return answer


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


@pytest.mark.parametrize(("words", "offered", "not_offered"), WORDS)
def test_what_may_come_next_is_offered(
    answered: Callable[..., tuple[int, str]],
    words: tuple[str, ...],
    offered: set[str],
    not_offered: set[str],
) -> None:
    line = " ".join(("twinboot", *words))
    _, text = answered(
        _TWINBOOT_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words))
    )
    completions = set(text.split())
    assert offered <= completions
    assert not not_offered & completions
    assert all(word.startswith(words[-1]) for word in completions)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A PATH on which the program is ``twinboot``, as ``make link`` puts it there."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "twinboot").symlink_to(CHECKOUT / "lab.py")
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def test_bash_completes(environment: dict[str, str], tmp_path: Path) -> None:
    script = completed(["twinboot", "completion", "bash"], env=environment)
    (tmp_path / "twinboot.bash").write_text(script.stdout)
    argv = ["bash", "--norc", "-c", BASH, "bash", str(tmp_path / "twinboot.bash"), "twinboot"]
    modes = completed([*argv, "run", "noop", "--mode", ""], env=environment)
    assert (modes.stdout.split(), modes.stderr) == (["exact", "wall", "native"], "")
    workloads = completed([*argv, "run", "--workloads", "filemap-4k,th"], env=environment)
    assert (workloads.stdout.split(), workloads.stderr) == (["filemap-4k,thp-matrix"], "")


def test_zsh_and_fish_are_answered_in_their_form(answered: Callable[..., tuple[int, str]]) -> None:
    zsh = {"_TWINBOOT_COMPLETE": "complete_zsh"}
    _, verbs = answered(_TYPER_COMPLETE_ARGS="twinboot que", **zsh)
    assert re.fullmatch(r"_arguments '\*: :\(\(\"queue\":\"[^\"]+\"\)\)'", verbs)
    assert answered(_TYPER_COMPLETE_ARGS="twinboot report ./x", **zsh)[1] == "_files"
    fish = {"_TWINBOOT_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    _, modes = answered(_TYPER_COMPLETE_ARGS="twinboot run --mode ", **fish)
    assert modes.split() == ["exact", "wall", "native"]
    fish["_TYPER_COMPLETE_FISH_ACTION"] = "is-args"
    # Whether fish offers these, or files.
    assert answered(_TYPER_COMPLETE_ARGS="twinboot run --mode ", **fish)[0] == 0
    assert answered(_TYPER_COMPLETE_ARGS="twinboot report ./x", **fish)[0] == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_reads_its_script(main: Terminal, tmp_path: Path, shell: str) -> None:
    assert main("completion", shell) == 0
    script = tmp_path / "script"
    script.write_text(main.out)
    assert "_TWINBOOT_COMPLETE" in main.out
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = completed([shell, "-n", str(script)], check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_press_of_the_tabulator_waits_for_no_statistics(environment: dict[str, str]) -> None:
    """With statistics and charts imported it took four seconds of CPU time."""
    shell = {"_TWINBOOT_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "twinboot run --s"}
    env = {**environment, **shell, "PYTHONPROFILEIMPORTTIME": "1"}
    imported = completed(["twinboot"], env=env).stderr
    assert re.search(r"\| +typer$", imported, re.M)
    assert not re.search(r"\| +(numpy|scipy|pandas|matplotlib)$", imported, re.M)


def test_the_manual_has_every_verb_and_option(main: Terminal) -> None:
    assert main("completion", "man") == 0
    page = main.out
    verbs = re.findall(r"^\.SS (.*)$", page, re.M)
    assert {"run", "history add", "queue run", "answer", "completion"} <= set(verbs)
    assert "\n.TP\n--seeds N\n" in page
    # Each line that begins with a dot is a request that man(7) has.
    requests = set(re.findall(r"^\.(\w+|.)", page, re.M))
    assert requests == {"TH", "SH", "SS", "TP", "PP"}
