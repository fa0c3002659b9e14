"""Rows of a profile: as strict as every record, and small, as sessions have millions of them."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from pydantic import TypeAdapter, ValidationError

from results.profile import FunctionCount, LockSite, PhaseProfile

ROW = {
    "name": "xas_load",
    "file": "lib/xarray.c",
    "instructions": 20,
    "calls": 2,
    "kinds": [1, 2, 3, 4, 5, 6],
    "line": 7,
}
SITE = {"function": "xas_load", "file": "lib/xarray.c", "shared": False, "taken": 3, "held": 9}


@pytest.mark.parametrize(
    ("kind", "row"), [(FunctionCount, ROW), (LockSite, SITE)], ids=["function", "lock"]
)
@pytest.mark.parametrize("change", [{"unknown": 1}, {"file": None}, {"file": 3}])
def test_what_is_no_row_is_refused(
    kind: type, row: dict[str, object], change: dict[str, object]
) -> None:
    rows: TypeAdapter[object] = TypeAdapter(kind)
    rows.validate_json(json.dumps(row))
    with pytest.raises(ValidationError):
        rows.validate_json(json.dumps({**row, **change}))


def test_a_row_takes_little_memory() -> None:
    rows = TypeAdapter(list[FunctionCount])
    text = json.dumps([ROW] * 10_000)
    tracemalloc.start()
    try:
        read = rows.validate_json(text)
        each = tracemalloc.get_traced_memory()[0] / len(read)
    finally:
        tracemalloc.stop()
    # A model of pydantic takes 1,176 bytes.
    assert each < 350


def test_units_that_nothing_can_be_given_per_are_no_measurement() -> None:
    phase = {"phase": "4k", "instructions": 1, "kernel": [], "user": {}, "by_vcpu": [1]}
    for units in ({"io": 5e-324}, {"io": 1e31}):
        with pytest.raises(ValidationError):
            PhaseProfile.model_validate({**phase, "units": units})
