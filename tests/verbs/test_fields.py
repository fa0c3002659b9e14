"""Options declared once: every verb that takes an experiment has them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any

import pytest
import typer
from typer.core import TyperCommand
from typer.main import get_command

from runs.request import Request
from tests.verbs.test_table import verbs
from verbs import bisect, queue, session
from verbs.cli import Without, flattened
from verbs.options import Booting, ExecutorOptions, Measuring

# Fields that a verb has in its own way, and why is said where they are.
LEFT_OUT = {
    "tree": session.OF_TREE, "bisect": bisect.OF_SEARCH, "watch": queue.OF_MAILS,
    "add": queue.OF_ENTRY,
}  # fmt: skip
WITH_REQUEST = {
    "build", "cache-key", "measure", "plan", "run", "tree", "bisect", "watch", "add",
}  # fmt: skip
WHERE: dict[str, type[ExecutorOptions]] = {
    "build": ExecutorOptions, "measure": Measuring, "run": Measuring, "tree": Measuring,
    "bisect": Booting, "repro": Booting,
}  # fmt: skip


def parameters(name: str) -> dict[str, Any]:
    (verb,) = [each for each in verbs() if each.path in (name, f"queue {name}")][:1]
    return {each.name: each for each in verb.load().params}


@pytest.mark.parametrize("name", sorted(WITH_REQUEST))
def test_every_verb_that_takes_an_experiment_has_the_same_options(name: str) -> None:
    left_out = LEFT_OUT[name].names if name in LEFT_OUT else ()
    expected = {each.name for each in fields(Request)} - set(left_out)
    ours, runs = parameters(name), parameters("run")
    assert expected <= set(ours)
    for field in expected:
        mine, its = ours[field], runs[field]
        assert (mine.opts, mine.secondary_opts, mine.default) == (
            its.opts, its.secondary_opts, its.default,
        )  # fmt: skip
        assert getattr(mine, "help", "") == getattr(its, "help", "")


@pytest.mark.parametrize("name", sorted(WHERE))
def test_what_builds_or_boots_says_where(name: str) -> None:
    assert {each.name for each in fields(WHERE[name])} <= set(parameters(name))


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A small request."""

    name: Annotated[str, typer.Argument()] = ""
    words: Annotated[tuple[str, ...], typer.Option("--word", rich_help_panel="P")] = ()
    quick: Annotated[bool | None, typer.Option("--quick/--slow")] = None


def command(verb: Any) -> TyperCommand:
    app = typer.Typer(add_completion=False)
    app.command("x")(flattened(verb))
    made = get_command(app)
    assert isinstance(made, TyperCommand)
    return made


def test_fields_come_back_as_one_value() -> None:
    calls: list[Any] = []

    def verb(wish: Wish, count: Annotated[int, typer.Option()] = 1) -> None:
        """Do."""
        calls.append((wish, count))

    made = command(verb)
    made.main(["n", "--word", "a", "--word", "b", "--slow"], standalone_mode=False)
    made.main(["--count", "2"], standalone_mode=False)
    assert calls == [
        (Wish(name="n", words=("a", "b"), quick=False), 1), (Wish(), 2),
    ]  # fmt: skip
    panels = {each.name: getattr(each, "rich_help_panel", None) for each in made.params}
    assert panels["words"] == "P"


def test_a_verb_leaves_out_what_it_has_itself() -> None:
    def verb(
        wish: Annotated[Wish, Without("words", "name")],
        words: Annotated[str, typer.Option()] = "",
    ) -> None:
        """Do."""

    assert [each.name for each in command(verb).params] == ["quick", "words"]


def test_one_name_is_declared_once() -> None:
    def verb(wish: Wish, quick: Annotated[bool, typer.Option()] = False) -> None:
        """Do."""

    with pytest.raises(TypeError, match="declared twice: quick"):
        flattened(verb)
