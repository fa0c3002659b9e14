"""A session folder survives being killed at any byte."""

import gzip
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from reports.forms import SAMPLE_COLUMNS, as_files, tidy
from results.door import StoreError
from results.profile import FunctionCount, Locks, PhaseLocks, PhaseProfile, Profile, calls_of
from results.record import RunCost
from results.session import open_session
from results.store import CALLS, COSTS, MANIFEST, RUNS, SessionStore
from tests.analysis.factory import ExactSession, fails, stored
from tests.values import but, data


def test_what_is_written_is_read(tmp_path: Path) -> None:
    session = ExactSession()
    store = SessionStore(tmp_path / "s")
    store.create(session.manifest())
    for record in session.records():
        store.append(record, RunCost(run_id=record.run_id, elapsed_s=9.5, guest_cpu_s=9.1))
    again = SessionStore(tmp_path / "s")
    assert again.manifest() == session.manifest()
    assert again.records() == sorted(session.records(), key=lambda record: record.run_id)
    assert len(again.costs()) == 33
    assert again.raw.is_dir()


def test_who_calls_whom_is_read_again_and_damage_is_named(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    store.create(ExactSession().manifest())
    assert open_session(tmp_path).calls is None
    calls = calls_of({"fault": {"add", "walk"}, "add": {"walk"}}, pointed=["fault"], boot=["setup"])
    store.keep(calls)
    written = (tmp_path / CALLS).read_bytes()
    assert open_session(tmp_path).calls == open_session(tmp_path, counted=False).calls == calls
    store.keep(calls)
    assert (tmp_path / CALLS).read_bytes() == written
    for damaged in (written[:-9], b"", gzip.compress(b"{}")):
        (tmp_path / CALLS).write_bytes(damaged)
        with pytest.raises(StoreError, match=f"{CALLS}: not Calls"):
            open_session(tmp_path)


def test_profiles_and_locks_are_there_before_the_record_they_belong_to(tmp_path: Path) -> None:
    record = ExactSession().records()[0]
    store = SessionStore(tmp_path)
    assert store.profiles() == []
    assert store.locks() == []
    phase = PhaseProfile(
        phase="4k",
        instructions=30,
        user={"fio": 10},
        by_vcpu=(30,),
        units={"io": 2.0},
        kernel=(FunctionCount(name="xas_load", file="lib/xarray.c", instructions=20, calls=2),),
    )
    first = Profile(run_id=record.run_id, phases=())
    profile = Profile(run_id=record.run_id, phases=(phase,))
    locks = Locks(run_id=record.run_id, twin="held", phases=(PhaseLocks(phase="4k", virtual_ns=9),))
    store.append(record, first)
    store.append(record, profile, locks)
    again = SessionStore(tmp_path)
    # Of a run made twice the last one counts.
    assert again.profiles() == [profile]
    assert again.locks() == [locks]
    # Killed before the record: what belongs to it is there, and the run is made again.
    (tmp_path / RUNS).unlink()
    assert SessionStore(tmp_path).records() == []


def test_killed_at_every_byte_of_an_append_loses_at_most_that_run(tmp_path: Path) -> None:
    session = ExactSession()
    # Short records keep the number of bytes, each of which is tried, small.
    first, second, third = (but(record, samples={"4k.bw": 1.0}) for record in session.records()[:3])
    store = SessionStore(tmp_path)
    for record in (first, second):
        store.append(record)
    whole = (tmp_path / RUNS).read_bytes()
    line = len(whole) // 2
    for cut in range(line + 5, len(whole) + 1, 7):
        (tmp_path / RUNS).write_bytes(whole[:cut])
        records = SessionStore(tmp_path).records()
        assert first in records
        assert len(records) == (2 if cut == len(whole) else 1)
        store.append(third)
        assert third in SessionStore(tmp_path).records()


def test_reading_changes_no_byte_of_what_another_process_is_writing(tmp_path: Path) -> None:
    session = ExactSession()
    stored(tmp_path, session, session.records()[:3])
    with (tmp_path / RUNS).open("ab") as half:
        half.write(b'{"run_id": "half a reco')
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    read = open_session(tmp_path)
    assert len(read.records) == 3
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_retried_failure_is_replaced(tmp_path: Path) -> None:
    record = ExactSession().records()[0]
    store = SessionStore(tmp_path)
    store.append(fails([record], record.run_id, kind="lost", blame="host")[0])
    store.append(record)
    assert store.records() == [record]


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    records = ExactSession().records()
    store = SessionStore(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store.append, records))
    assert {r.run_id for r in store.records()} == {r.run_id for r in records}


def test_damage_that_no_kill_explains_is_named(tmp_path: Path) -> None:
    (tmp_path / RUNS).write_text('{"run_id": 1}\n')
    with pytest.raises(StoreError, match=rf"{RUNS}:1: not a RunRecord"):
        SessionStore(tmp_path).records()


@pytest.mark.parametrize(
    ("text", "complaint"), data(__file__, "a_manifest_that_cannot_be_read_is_named")
)
def test_a_manifest_that_cannot_be_read_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(StoreError, match=complaint):
        SessionStore(tmp_path).manifest()


def test_no_manifest(tmp_path: Path) -> None:
    for read in (open_session, lambda folder: SessionStore(folder).manifest()):
        with pytest.raises(StoreError, match=r"manifest\.json: no such file"):
            read(tmp_path)
    assert SessionStore(tmp_path).records() == []
    assert SessionStore(tmp_path).costs() == []
    assert not (tmp_path / COSTS).exists()


def test_one_row_a_sample_and_none_for_repeats_or_failures() -> None:
    session = ExactSession()
    records = fails(session.records(), "filemap-4k-002-patched")
    frame = tidy(session.manifest(), records)
    assert tuple(frame.columns) == SAMPLE_COLUMNS
    assert len(frame) == 15 * 7 + 16 * 14
    assert not frame.duplicated(["case", "metric", "arm", "block"]).any()
    lost = frame[(frame.case == "filemap-4k") & (frame.block == 2)]
    assert set(lost.arm) == {"base"}
    assert set(frame[frame.primary].metric) == {"4k.bw", "thp.bw", "switch.bw"}


def read_back(frame: Any) -> tuple[Any, Any]:
    """The table of the Parquet file, and that of the CSV file."""
    import pandas as pd  # takes half a second, and every worker collects this file

    parquet, csv = map(io.BytesIO, as_files(frame).values())
    return pd.read_parquet(parquet), pd.read_csv(csv)


def test_units_are_those_that_are_shown() -> None:
    session = ExactSession()
    _, read = read_back(tidy(session.manifest(), session.records()))
    units = dict(zip(read.metric, read.unit, strict=True))
    assert units["4k.bw"] == "virtual MiB/s"
    assert units["4k.iops"] == "virtual 1/s"
    assert units["4k.ios"] == "count"


def test_no_sample_of_a_twin_stands_beside_those_measured() -> None:
    session = ExactSession()
    twins = [but(r, twin="held") for r in session.records() if not r.repeat]
    alone = tidy(session.manifest(), session.records())
    assert alone.equals(tidy(session.manifest(), [*session.records(), *twins]))
    assert tidy(session.manifest(), twins).empty


def test_equal_sessions_give_equal_tables_in_whatever_order_runs_ended() -> None:
    session = ExactSession()
    records = session.records()
    forward, backward = (tidy(session.manifest(), order) for order in (records, records[::-1]))
    assert forward.equals(backward)
    first = forward.iloc[:2]
    assert list(first.arm) == ["base", "patched"]


def test_values_are_those_recorded_to_the_last_digit() -> None:
    session = ExactSession()
    records = session.records()
    for read in read_back(tidy(session.manifest(), records)):
        rows = read[(read.metric == "4k.bw") & (read.arm == "base") & (read.block == 0)]
        assert records[0].samples is not None
        assert list(rows.value) == [records[0].samples["4k.bw"]]


def test_a_session_without_samples_is_an_empty_table_with_columns() -> None:
    frame = tidy(ExactSession(same_code=True).manifest(), [])
    assert tuple(frame.columns) == SAMPLE_COLUMNS
    assert frame.empty
    assert [len(read) for read in read_back(frame)] == [0, 0]
    assert as_files(frame)["samples.csv"].decode().strip() == ",".join(SAMPLE_COLUMNS)
