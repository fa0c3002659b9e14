"""What every specification is made of: frozen values and names."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Direction = Literal["higher", "lower"]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
# Of a key that the lab writes into a record, and nobody into a file.
WRITTEN_BY_LAB = Field(json_schema_extra={"readOnly": True})


class Frozen(BaseModel):
    """Base of every specification: immutable, strict about types and keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
