"""What may be written down at all: records, units, profiles, checks."""

import json
import tracemalloc
from functools import partial

import pytest
from pydantic import TypeAdapter, ValidationError

from experiment.spec import Mode
from results.profile import FunctionCount, LockSite, PhaseProfile
from results.record import (
    ArmGate,
    ArmStanding,
    Check,
    Failure,
    RunRecord,
    gate_of,
)
from results.units import is_virtual, shown_unit, with_shown_units
from tests.analysis.factory import ExactSession
from tests.analysis.test_gate import SLEEPS, WARNS, checked
from tests.analysis.wall_factory import WallSession
from tests.values import but, data
from workloads.metrics import TABLE

FAILURE = Failure(kind="panic", blame="series", message="m")


def make(**changes: object) -> RunRecord:
    fields = {"run_id": "r", "case": "c", "arm": "base", "block": 0, "seed": 1, "kernel_key": "k"}
    return RunRecord.model_validate({**fields, **changes})


def test_samples_or_a_failure_never_both_and_never_neither() -> None:
    assert make(samples={"4k.bw": 1.0}).failure is None
    assert make(failure=FAILURE).samples is None
    for both in ({"samples": {"4k.bw": 1.0}, "failure": FAILURE}, {}):
        with pytest.raises(ValidationError, match="never both"):
            make(**both)


def test_records_are_frozen_and_refuse_unknown_keys() -> None:
    record = make(samples={})
    with pytest.raises(ValidationError, match="frozen"):
        record.arm = "patched"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        make(samples={}, elapsed_s=1.0)
    with pytest.raises(ValidationError, match="blame"):
        Failure.model_validate({"kind": "k", "blame": "weather", "message": "m"})


def test_a_manifest_survives_the_way_through_json() -> None:
    manifest = ExactSession(overrides=("blocks=8",)).manifest()
    assert type(manifest).model_validate_json(manifest.model_dump_json()) == manifest
    assert (manifest.base, manifest.patched) == ("base", "patched")


@pytest.mark.parametrize(
    ("unit", "mode", "shown"), data(__file__, "virtual_only_where_time_is_counted")
)
def test_virtual_only_where_time_is_counted(unit: str, mode: Mode, shown: str) -> None:
    assert shown_unit(unit, mode) == shown


def test_every_metric_of_time_that_the_lab_measures_is_virtual() -> None:
    """A metric that is named for a duration or a rate has a unit that says so."""
    in_time = {
        name: is_virtual(shown_unit(unit, "exact"))
        for name, (_, unit, _) in TABLE.items()
        if "_ns" in name or name == "runtime" or name.endswith(("bw", "iops"))
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


ROW = data(__file__, "row")
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


AGAIN = but(WARNS, title="WARNING: CPU: 3 PID: 11 at mm/page.c:7")
check = partial(checked, "patched")


def gate(own: list[Check], of_base: list[Check]) -> ArmGate:
    return gate_of("patched", "base", [*own, *(but(each, arm="base") for each in of_base)])


@pytest.mark.parametrize(
    ("own", "of_base", "expected"),
    [
        ([check()], [check()], "green"),
        ([check(SLEEPS)], [check()], "red"),
        ([check(AGAIN)], [check(WARNS)], "red before the series"),
        ([check(AGAIN, SLEEPS)], [check(WARNS)], "red"),
        ([check(SLEEPS, of=2), check(status="not run", of=2)], [], "red"),
        ([], [check()], "pending"),
        ([check(of=3)], [check()], "pending"),
        ([check(SLEEPS, of=3)], [check()], "red"),
        ([check(status="not run")], [check()], "not run"),
        ([check(AGAIN, of=2), check(status="not run", of=2)], [check(WARNS)], "not run"),
    ],
)
def test_an_arm_stands_as_its_checks_and_those_of_the_base_say(
    own: list[Check], of_base: list[Check], expected: ArmStanding
) -> None:
    result = gate(own, of_base)
    assert (result.standing, result.checks) == (expected, tuple(own))
    assert result.withholds == (expected in ("red", "not run"))
    assert bool(result.reason) == (expected in ("not run", "pending"))


def test_what_is_inherited_is_apart_from_what_is_new() -> None:
    result = gate([check(AGAIN, SLEEPS)], [check(WARNS)])
    assert [problem for _, problem in result.problems] == [SLEEPS]
    assert [problem for _, problem in result.inherited] == [AGAIN]


def test_why_an_arm_was_not_checked_is_named() -> None:
    assert gate([], []).reason == "no check made yet"
    assert gate([check(of=3)], []).reason == "1 of 3 checks made"
    lost = check(status="not run")
    assert gate([lost], []).reason == lost.reason != ""
