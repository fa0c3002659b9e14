"""Reports from a folder: all files, the same bytes every time."""

import hashlib
from pathlib import Path

import pytest

from analysis.explain.locks import WAITS as LOCKS
from reports.forms import read_comparison, write_all
from results.door import StoreError
from results.profile import Locks, Profile
from results.record import RunCost
from results.store import SessionStore
from tests.analysis import counts_factory
from tests.analysis.factory import ExactSession
from tests.analysis.measured import render
from tests.reports.drawn import draw_anew

WRITTEN = ("report.html", "report.md", "report.txt", "samples.csv", "samples.parquet")


def store(folder: Path, *, backwards: bool = False) -> None:
    session = ExactSession()
    target = SessionStore(folder)
    target.create(session.manifest())
    records = session.records()
    for number, record in enumerate(reversed(records) if backwards else records):
        target.append(
            record, RunCost(run_id=record.run_id, elapsed_s=number * 1.5, guest_cpu_s=number)
        )


def digests(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in WRITTEN}


def rows_of(file: Path) -> int:
    import pandas as pd  # takes half a second, and every worker collects this file

    return len(pd.read_parquet(file))


def test_byte_for_byte_whenever_and_in_whatever_order_the_runs_ended(tmp_path: Path) -> None:
    store(tmp_path / "a")
    store(tmp_path / "b", backwards=True)
    first = write_all(tmp_path / "a")
    before = digests(tmp_path / "a")
    draw_anew()
    assert write_all(tmp_path / "a") == first == write_all(tmp_path / "b")
    assert digests(tmp_path / "a") == before == digests(tmp_path / "b")
    assert not (tmp_path / "a" / "functions.csv").exists()
    assert rows_of(tmp_path / "a" / "samples.parquet") == 8 * 2 * (7 + 14)


def test_counts_come_from_the_folder_and_stay_byte_for_byte(tmp_path: Path) -> None:
    session = ExactSession()
    manifest = counts_factory.with_twins(counts_factory.counted(session.manifest()))
    twins, profiles, locks = counts_factory.twin_runs(manifest)
    profiles += counts_factory.profiles(session)
    runs = session.records() + twins
    beside: dict[str, list[Profile | Locks]] = {}
    for profile in profiles:
        beside.setdefault(profile.run_id, []).append(profile)
    for of_run in locks:
        beside.setdefault(of_run.run_id, []).append(of_run)
    for name, records in (("a", runs), ("b", runs[::-1])):
        target = SessionStore(tmp_path / name)
        target.create(manifest)
        for record in records:
            target.append(record, *beside.get(record.run_id, []))
    first = write_all(tmp_path / "a")
    assert first == write_all(tmp_path / "b") == read_comparison(tmp_path / "a")
    assert len(first.comparisons[0].attributions) == 9
    assert len(LOCKS.of(first.comparisons[0])) == 1
    for name in (*WRITTEN, "functions.csv"):
        both = [(tmp_path / folder / name).read_bytes() for folder in ("a", "b")]
        assert both[0] == both[1], name


def test_the_text_in_the_folder_is_that_of_a_terminal_of_eighty_columns(tmp_path: Path) -> None:
    store(tmp_path)
    rendered = render(write_all(tmp_path), "text", width=80)
    assert (tmp_path / "report.txt").read_text(encoding="utf-8") == rendered


def test_reading_writes_nothing(tmp_path: Path) -> None:
    store(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    assert len(read_comparison(tmp_path).primary) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_folder_that_is_no_session(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such file"):
        write_all(tmp_path)
