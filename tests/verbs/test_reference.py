"""What is generated below docs/ is what the models say now, and fits the shipped files."""

import json
import re
import tomllib
from functools import cache
from pathlib import Path

import jsonschema
import pytest

from verbs.reference import DOCS, generated, write

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


def test_every_file_is_written(tmp_path: Path) -> None:
    assert (DOCS / "kernels-table.md").is_file()
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
