"""Values that tests are made of: models with other fields, kernels, and lists of words."""

import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path
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


def there(value: Value | None) -> Value:
    """The value, which is there."""
    assert value is not None
    return value


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


def script(path: Path, text: str) -> Path:
    """A program of the shell's, written to ``path``."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def silent(*_: object) -> None:
    """Nobody watches."""


def data(file: str, name: str) -> Any:
    """What ``tables.toml`` beside a file of tests has for it: a table, a text, names."""

    def frozen(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: frozen(each) for name, each in value.items()}
        return tuple(map(frozen, value)) if isinstance(value, list) else value

    path = Path(file)
    return frozen(tables(path.with_name("tables.toml"))[path.stem][name])


@cache
def tables(path: Path) -> Any:
    """A file of tables, which many files of tests read as they are collected."""
    return tomllib.loads(path.read_text("utf-8"))
