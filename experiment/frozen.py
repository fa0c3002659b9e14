"""What every specification is made of: frozen values and names."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Direction = Literal["higher", "lower"]
NAME = r"^[a-z0-9][a-z0-9_-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME)]
LONGEST_NAME = 40
# Of a key that the lab writes into a record, and nobody into a file.
READ_ONLY = {"readOnly": True}
WRITTEN_BY_LAB = Field(json_schema_extra=dict[str, JsonValue](READ_ONLY))


class Frozen(BaseModel):
    """Base of every specification: immutable, strict about types and keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def plain_name(text: str) -> str:
    """The text as a name: small letters, digits and dashes; empty where it has none."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:LONGEST_NAME].strip("-")


def as_name(text: str) -> str:
    """The text itself where it is a name, else as one."""
    return text if re.fullmatch(NAME, text) else plain_name(text)
