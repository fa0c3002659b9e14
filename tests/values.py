"""Values that tests are made of: models with other fields, kernels, and lists of words."""

from dataclasses import replace
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from results.record import KernelIdentity

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


def identity(key: str = "k", **fields: Any) -> KernelIdentity:
    """Who a kernel is of which nothing matters but its key and these fields."""
    plain = KernelIdentity(
        key=key,
        release="6.12",
        source="s",
        patches=(),
        flavour="perf",
        compiler="gcc",
        config_sha256="0",
        code_key=key,
    )
    return but(plain, **fields)
