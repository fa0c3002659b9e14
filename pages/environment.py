"""Templates of pages: every string they print is cleaned and escaped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports import wording


def environment_of(folder: Path, filter_text: Callable[[str], str]) -> Environment:
    """The templates of a folder; every string they print passes ``printed``, and is escaped.

    Markup stays as it is.
    """

    def finalize(value: object) -> object:
        plain = isinstance(value, str) and not isinstance(value, Markup)
        return filter_text(str(value)) if plain else value

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    environment.filters["percent"] = wording.percent
    return environment
