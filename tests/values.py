"""Values that tests are made of: models with other fields, and lists of words."""

from dataclasses import replace
from typing import Any, TypeVar, cast

from pydantic import BaseModel

Value = TypeVar("Value")


def but(value: Value, /, **fields: Any) -> Value:
    """The same model or dataclass but for these fields, which nothing validates."""
    model: Any = value
    if isinstance(value, BaseModel):
        return cast(Value, model.model_copy(update=fields))
    return cast(Value, replace(model, **fields))


def spaced(words: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(words.split())
