"""Schemas and tables of keys, from models made for it and from those of the shipped files."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from experiment.frozen import WRITTEN_BY_LAB, Frozen, Name
from experiment.reference import markdown, meanings, schema_of, tables_of


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
        "description": "Which | of two.", "default": "a", "enum": ["a", "b"], "type": "string",
    }  # fmt: skip
    # TOML has no null, and Taplo reads nothing beside a reference.
    assert schema["properties"]["inner"] == {
        "description": "At most one.", "allOf": [{"$ref": "#/definitions/Inner"}],
    }  # fmt: skip
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
