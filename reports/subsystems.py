"""The part of the kernel a function belongs to, from a data file of prefixes."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

from results.record import Record

FILE = Path(__file__).parent / "subsystems.toml"
OTHER = "other kernel code"


class Subsystem(Record):
    """Prefixes of source files, and of function names for functions of no known file."""

    title: str
    files: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


@functools.cache
def catalogue() -> tuple[Subsystem, ...]:
    """All subsystems in the order of the data file."""
    with FILE.open("rb") as source:
        rows = tomllib.load(source)["subsystems"]
    return tuple(Subsystem.model_validate(row) for row in rows)


@functools.cache
def programs() -> dict[str, str]:
    """What user files are, by name; only those that need a word."""
    with FILE.open("rb") as source:
        return {str(k): str(v) for k, v in tomllib.load(source)["programs"].items()}


@functools.cache
def subsystem(function: str, file: str) -> str:
    """Title of the subsystem; :data:`OTHER` where no prefix fits."""
    best, title = 0, OTHER
    for entry in catalogue():
        for prefix in entry.files if file else entry.functions:
            if (file or function).startswith(prefix) and len(prefix) > best:
                best, title = len(prefix), entry.title
    return title
