"""What is generated below docs/ is what the models say now, and fits the shipped files."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import Field
from typer.core import TyperGroup

import lab
from experiment.frozen import WRITTEN_BY_LAB, Frozen, Name
from experiment.load import EXPERIMENTS
from experiment.machine import names_in
from tests.conftest import Terminal
from tests.verbs.test_table import verbs
from verbs import options, reference
from verbs.reference import DOCS, generated, markdown, meanings, schema_of, tables_of, write

CHECKOUT = Path(__file__).resolve().parents[2]
WITH_SCHEMA = [
    *sorted((CHECKOUT / "configs" / "experiments").glob("*.toml")),
    *sorted((CHECKOUT / "configs" / "guests").glob("*.toml")),
    CHECKOUT / "configs" / "gate.toml",
]


@cache
def texts() -> dict[str, str]:
    """What is generated, once: it takes seconds."""
    return generated()


def test_nothing_generated_is_stale() -> None:
    # The names alone: a difference of thousands of lines says less than what to do.
    stale = [
        name
        for name, text in texts().items()
        if (CHECKOUT / "docs" / name).read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run: make schema"


def test_every_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (DOCS / "experiment-file.md").is_file()
    monkeypatch.setattr(reference, "generated", texts)
    write(tmp_path)
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    assert written == set(texts())


def schema_beside(file: Path) -> dict[str, object]:
    """The schema that the first line of a file names."""
    named = re.match(r"#:schema (\S+)\n", file.read_text(encoding="utf-8"))
    assert named, f"{file}: no schema named in its first line"
    schema = (file.parent / named[1]).resolve()
    text = texts()[schema.relative_to(CHECKOUT / "docs").as_posix()]
    content: dict[str, object] = json.loads(text)
    return content


@pytest.mark.parametrize("file", WITH_SCHEMA, ids=lambda file: file.stem)
def test_shipped_files_fit_the_schema_that_they_name(file: Path) -> None:
    validator = jsonschema.Draft7Validator(schema_beside(file))
    assert [error.message for error in validator.iter_errors(tomllib.loads(file.read_text()))] == []


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("blok = 3", []),
        ('guest = "Lap top"', ["guest"]),
        ("seed = 0", ["seed"]),
        ('kernel = { source = "deb:x", mode = "wall" }', ["kernel"]),
        ('kernel = { source = "http:x" }', ["kernel", "source"]),
        ("thresholds = { change = 25 }", ["thresholds", "change"]),
    ],
)
def test_an_editor_marks_mistakes(line: str, at: list[str]) -> None:
    file = CHECKOUT / "configs" / "experiments" / "noop.toml"
    data = tomllib.loads(file.read_text()) | tomllib.loads(line)
    mistakes = list(jsonschema.Draft7Validator(schema_beside(file)).iter_errors(data))
    assert [list(error.absolute_path) for error in mistakes] == [at]


class Inner(Frozen):
    """A table."""

    size: Annotated[int, Field(ge=1, le=9)]
    """How much;
    in two lines."""


class Whole(Frozen):
    """A file."""

    name: Name
    """Its name."""
    kind: Literal["a", "b"] = "a"
    """Which | of two."""
    kept: Annotated[str, WRITTEN_BY_LAB] = ""
    """By the lab alone."""
    inner: Inner | None = None
    """At most one."""
    rows: tuple[Inner, ...] = ()
    """Any number."""
    by_name: dict[str, dict[str, Inner]] = Field(default_factory=dict)
    """By two names."""
    limits: dict[str, float] = Field(default_factory=dict)
    """Numbers by name."""


class Unexplained(Frozen):
    """One key has no meaning."""

    number: int = 0
    """Something."""
    silent: int = 0


def test_a_meaning_is_the_string_below_its_field() -> None:
    assert meanings(Inner) == {"size": "How much; in two lines."}


def test_a_key_without_a_meaning_is_named() -> None:
    with pytest.raises(ValueError, match="Unexplained: no meaning below silent"):
        meanings(Unexplained)
    with pytest.raises(ValueError, match="Unexplained"):
        schema_of(Unexplained, "file")


def test_a_schema_has_what_a_file_may_have_and_nothing_else() -> None:
    schema = schema_of(Whole, "file")
    assert "kept" not in schema["properties"]
    assert schema["required"] == ["name"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["kind"] == {
        "description": "Which | of two.",
        "default": "a",
        "enum": ["a", "b"],
        "type": "string",
    }
    # TOML has no null, and Taplo reads nothing beside a reference.
    assert schema["properties"]["inner"] == {
        "description": "At most one.",
        "allOf": [{"$ref": "#/definitions/Inner"}],
    }
    assert "$defs" not in str(schema)


def test_tables_are_named_by_their_places() -> None:
    places = [place for _, place in tables_of(schema_of(Whole, "file"))]
    assert places == [(), ("[inner]", "[[rows]]", "[by_name.NAME.NAME]")]


def test_a_page_has_a_row_for_each_key() -> None:
    rows = markdown(schema_of(Whole, "file")).splitlines()
    assert "| `name` | name | required | Its name. |" in rows
    assert '| `kind` | `a`, `b` | `"a"` | Which \\| of two. |' in rows
    assert "| `size` | integer ≥ 1 ≤ 9 | required | How much; in two lines. |" in rows
    assert "| `limits` | table of number by name |  | Numbers by name. |" in rows


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


@pytest.fixture(scope="module")
def examples() -> dict[str, list[str]]:
    """Those of every help; verbs are imported for it, which is not for those who only collect."""
    return dict(epilogs(lab.command_line()))


def test_every_help_has_two_examples(examples: dict[str, list[str]]) -> None:
    assert {path: lines for path, lines in examples.items() if len(lines) < 2} == {}
    assert all("  # " in line for lines in examples.values() for line in lines)


def test_the_help_shows_them(main: Terminal, examples: dict[str, list[str]]) -> None:
    for path, lines in examples.items():
        assert main(*path.split(), "--help") == 0
        shown = " ".join(main.out.split())
        # The lab has a verb for that; typer's would be of a program named after the verb.
        assert "--install-completion" not in shown, path
        for line in lines:
            assert " ".join(line.split()) in shown, path


def test_each_example_is_parsed(
    examples: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sessions of examples are nowhere.
    monkeypatch.setattr(options, "session_folder", lambda name: name)
    program = lab.command_line()
    for line in (line for lines in examples.values() for line in lines):
        words = shlex.split(line.partition("lab.py")[2].partition("  # ")[0])
        command: Any = program
        path = list(words)
        while isinstance(command, TyperGroup):
            name, *words = words
            command = command.commands[name]
            command = command.load() if hasattr(command, "load") else command
        context = command.make_context(name, words)
        assert not context.args, line
        experiment = "" if "workload" in path else context.params.get("name")
        assert not experiment or ".." in experiment or experiment in names_in(EXPERIMENTS), line


def test_a_broken_example_is_noticed() -> None:
    (plan,) = [verb for verb in verbs() if verb.name == "plan"]
    with pytest.raises(Exception, match="No such option"):
        plan.load().make_context("plan", ["noop", "--bogus"])
