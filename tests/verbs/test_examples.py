"""Every help ends with two examples or more, and each of them is a command line of the lab."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup

import lab
from experiment.load import known_experiments
from results.store import SessionStore
from tests.analysis.factory import ExactSession
from tests.verbs.test_table import verbs
from verbs import options


def epilogs(group: Any, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Every word or words behind which --help may stand, with the examples at its end."""
    yield path, group.epilog.split("\n\n")[1:]
    for name, command in group.commands.items():
        below = f"{path} {name}".strip()
        loaded = command.load() if hasattr(command, "load") else command
        if hasattr(loaded, "commands"):
            yield from epilogs(loaded, below)
        else:
            yield below, loaded.epilog.split("\n\n")[1:]


EXAMPLES = dict(epilogs(lab.command_line()))


def test_every_help_has_two_examples() -> None:
    assert {path: lines for path, lines in EXAMPLES.items() if len(lines) < 2} == {}
    assert all("  # " in line for lines in EXAMPLES.values() for line in lines)


@pytest.mark.parametrize("path", sorted(EXAMPLES))
def test_the_help_shows_them(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab.main([*path.split(), "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    # The lab has a verb for that; typer's would be of a program named after the verb.
    assert "--install-completion" not in shown
    for line in EXAMPLES[path]:
        assert " ".join(line.split()) in shown


@pytest.mark.parametrize(
    "words",
    [
        shlex.split(line.partition("lab.py")[2].partition("  # ")[0])
        for lines in EXAMPLES.values()
        for line in lines
    ],
    ids=" ".join,
)
def test_each_example_is_parsed(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SessionStore(tmp_path / "one").create(ExactSession().manifest())
    monkeypatch.setattr(options, "SESSIONS", tmp_path)
    command: Any = lab.command_line()
    path = list(words)
    while True:
        name, *words = words
        command = command.commands[name]
        command = command.load() if hasattr(command, "load") else command
        if not isinstance(command, TyperGroup):
            break
    context = command.make_context(name, words)
    assert not context.args
    experiment = "" if "workload" in path else context.params.get("name")
    assert not experiment or ".." in experiment or experiment in known_experiments()


def test_a_broken_example_is_noticed() -> None:
    (plan,) = [verb for verb in verbs() if verb.name == "plan"]
    with pytest.raises(Exception, match="No such option"):
        plan.load().make_context("plan", ["noop", "--bogus"])
