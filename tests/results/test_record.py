"""What may be written down at all."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from results.record import Failure, RunRecord, as_json
from tests.analysis.factory import ExactSession

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
    assert as_json(manifest)["seeds"] == list(manifest.seeds)
    assert (manifest.base, manifest.patched) == ("base", "patched")
