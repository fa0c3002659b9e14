"""The tidy table: one row a sample."""

from __future__ import annotations

import io

import pandas as pd

from results.table import COLUMNS, as_files, tidy
from tests.analysis.factory import ExactSession, fails


def test_one_row_a_sample_and_none_for_repeats_or_failures() -> None:
    session = ExactSession()
    records = fails(session.records(), "filemap-4k-002-patched")
    frame = tidy(session.manifest(), records)
    assert tuple(frame.columns) == COLUMNS
    assert len(frame) == 15 * 7 + 16 * 14
    assert not frame.duplicated(["case", "metric", "arm", "block"]).any()
    lost = frame[(frame.case == "filemap-4k") & (frame.block == 2)]
    assert set(lost.arm) == {"base"}
    assert set(frame[frame.primary].metric) == {"4k.bw", "thp.bw", "switch.bw"}


def test_units_are_those_that_are_shown() -> None:
    session = ExactSession()
    files = as_files(tidy(session.manifest(), session.records()))
    read = pd.read_csv(io.BytesIO(files["samples.csv"]))
    units = dict(zip(read.metric, read.unit, strict=True))
    assert units["4k.bw"] == "virtual MiB/s"
    assert units["4k.iops"] == "virtual 1/s"
    assert units["4k.ios"] == "count"


def test_no_sample_of_a_twin_stands_beside_those_measured() -> None:
    session = ExactSession()
    twins = [r.model_copy(update={"twin": "held"}) for r in session.records() if not r.repeat]
    pd.testing.assert_frame_equal(
        tidy(session.manifest(), [*session.records(), *twins]),
        tidy(session.manifest(), session.records()),
    )
    assert tidy(session.manifest(), twins).empty


def test_equal_sessions_give_equal_tables_in_whatever_order_runs_ended() -> None:
    session = ExactSession()
    records = session.records()
    forward, backward = (tidy(session.manifest(), order) for order in (records, records[::-1]))
    pd.testing.assert_frame_equal(forward, backward)
    first = forward.iloc[:2]
    assert list(first.arm) == ["base", "patched"]


def test_values_are_those_recorded_to_the_last_digit() -> None:
    session = ExactSession()
    records = session.records()
    frame = tidy(session.manifest(), records)
    parquet, csv = map(io.BytesIO, as_files(frame).values())
    for read in (pd.read_parquet(parquet), pd.read_csv(csv)):
        rows = read[(read.metric == "4k.bw") & (read.arm == "base") & (read.block == 0)]
        assert records[0].samples is not None
        assert list(rows.value) == [records[0].samples["4k.bw"]]


def test_a_session_without_samples_is_an_empty_table_with_columns() -> None:
    frame = tidy(ExactSession(same_code=True).manifest(), [])
    assert tuple(frame.columns) == COLUMNS
    assert frame.empty
    parquet, csv = as_files(frame).values()
    assert len(pd.read_parquet(io.BytesIO(parquet))) == 0
    assert csv.decode().strip() == ",".join(COLUMNS)
