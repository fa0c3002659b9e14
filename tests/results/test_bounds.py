"""Every number of a record has a bound: a stranger's may have any digits."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter

import experiment
import results
from experiment.frozen import Frozen
from experiment.spec import Experiment, Guest
from results.record import MOST, Record


def _kinds(base: type) -> Iterator[type[Any]]:
    kinds: list[type[Any]] = base.__subclasses__()
    for kind in kinds:
        yield kind
        yield from _kinds(kind)


for package in (results, experiment):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def _unbounded(schema: Any, place: str) -> Iterator[str]:
    if isinstance(schema, dict):
        bounds = ({"maximum", "exclusiveMaximum"}, {"minimum", "exclusiveMinimum"})
        number = schema.get("type") in ("integer", "number")
        if number and not all(bound & schema.keys() for bound in bounds):
            yield place
        for key, value in schema.items():
            yield from _unbounded(value, f"{place}.{key}")
    elif isinstance(schema, list):
        for value in schema:
            yield from _unbounded(value, place)


STORED = [kind for kind in _kinds(Record) if kind.__module__.startswith("results.")]


@pytest.mark.parametrize("kind", [*STORED, Experiment, Guest], ids=lambda kind: kind.__name__)
def test_every_number_has_a_bound(kind: type[Any]) -> None:
    assert list(_unbounded(TypeAdapter(kind).json_schema(), kind.__name__)) == []


def test_what_is_calculated_with_such_numbers_is_a_number() -> None:
    most = MOST["float"]
    assert math.isfinite(most**4 * 1e6)
    assert math.isfinite(float(MOST["int"]) ** 4)
    assert issubclass(Experiment, Frozen)
