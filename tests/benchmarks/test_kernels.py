"""Which releases were tried: a row can say that something went wrong, and then the job fails."""

import csv
import sys
from pathlib import Path

import pytest

from benchmarks import kernels
from results.record import RunRecord
from tests.analysis.factory import ExactSession, all_equal, fails, stored
from tests.values import but

CASE = "filemap-4k"


def row_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, records: list[RunRecord]
) -> tuple[int, dict[str, str]]:
    stored(folder / "session", ExactSession(), records)
    table = folder / "tried.csv"
    monkeypatch.setattr(sys, "argv", ["kernels", str(folder / "session"), "--table", str(table)])
    code = kernels.main()
    with table.open(newline="") as file:
        return code, next(row for row in csv.DictReader(file) if row["case"] == CASE)


def good() -> list[RunRecord]:
    """A kernel against itself, one run of each case repeated."""
    runs = all_equal([run for run in ExactSession().records() if not run.repeat])
    firsts = {run.case: run for run in reversed(runs)}
    again = [but(run, run_id=f"{run.run_id}.repeat", repeat=True) for run in firsts.values()]
    return [*runs, *again]


def test_a_kernel_that_is_measured_as_it_has_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, row = row_of(tmp_path, monkeypatch, good())
    assert (code, row["repeat"], row["seeds"]) == (0, "same bits", "8")
    assert row["equal"] == row["numbers"] != "0"


def test_a_repeat_of_other_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [but(run, fingerprint="other") if run.repeat else run for run in good()]
    code, row = row_of(tmp_path, monkeypatch, records)
    assert (code, row["repeat"], row["failed"]) == (3, "differs", "")


def test_arms_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [run for run in ExactSession().records() if not run.repeat]
    code, row = row_of(tmp_path, monkeypatch, records)
    assert (code, row["repeat"]) == (3, "not made")
    assert row["equal"] != row["numbers"]


def test_a_run_that_failed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = fails(good(), f"{CASE}-003-base")
    code, row = row_of(tmp_path, monkeypatch, records)
    assert (code, bool(row["failed"])) == (3, True)
