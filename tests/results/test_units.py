"""Units as they are shown: virtual where exact mode counts time, and nowhere else."""

from __future__ import annotations

import pytest

from experiment.spec import Mode
from results.units import is_virtual, shown_unit, with_shown_units
from tests.analysis.factory import ExactSession
from tests.analysis.wall_factory import WallSession
from workloads.metrics import DEFINITIONS


@pytest.mark.parametrize(
    ("unit", "mode", "shown"),
    [
        ("MiB/s", "exact", "virtual MiB/s"),
        ("1/s", "exact", "virtual 1/s"),
        ("ns", "exact", "virtual ns"),
        ("s", "exact", "virtual s"),
        ("virtual ns", "exact", "virtual ns"),
        ("MiB", "exact", "MiB"),
        ("1", "exact", "1"),
        ("%", "exact", "%"),
        ("count", "exact", "count"),
        ("MiB/s", "wall", "MiB/s"),
        ("ns", "wall", "ns"),
    ],
)
def test_virtual_only_where_time_is_counted(unit: str, mode: Mode, shown: str) -> None:
    assert shown_unit(unit, mode) == shown


def test_every_metric_of_time_that_the_lab_measures_is_virtual() -> None:
    """A metric that is named for a duration or a rate has a unit that says so."""
    in_time = {
        definition.name: is_virtual(shown_unit(definition.unit, "exact"))
        for definition in DEFINITIONS
        if "_ns" in definition.name
        or definition.name == "runtime"
        or definition.name.endswith(("bw", "iops"))
    }
    assert len(in_time) > 8
    assert all(in_time.values()), in_time


def test_the_head_of_a_session_has_them_and_is_otherwise_as_it_was() -> None:
    exact, wall = ExactSession().manifest(), WallSession().manifest()
    units = {m.name: m.unit for m in with_shown_units(exact).cases[0].metrics}
    assert units["4k.bw"] == "virtual MiB/s"
    assert units["4k.ios"] == "count"
    assert with_shown_units(exact).arms == exact.arms
    assert with_shown_units(wall) == wall
