"""Out of the folder and back; thinning; trends."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from history import exchange, pruning
from history.changes import changes_of
from history.entry import PINNED, Entry, NightFunctions
from history.store import HistoryStore
from history.trend import trends
from results.door import StoreError
from tests.history.factory import Nights, costs

HOSTILE = 'a,b"\n=HYPERLINK(1)\x00<b>\u2028\u202e'


def made(count: int = 6, **more: object) -> list[Entry]:
    levels = (0.0,) * (count // 2) + (-0.01,) * (count - count // 2)
    return Nights(levels, **more).entries()  # type: ignore[arg-type]


@pytest.mark.parametrize("form", exchange.FORMS)
def test_what_goes_out_comes_back(tmp_path: Path, form: str) -> None:
    entries = made(cases=("a", "b"))
    case = entries[1].cases[0]
    hole = case.arms[0].metrics["4k.bw"]
    hole = hole.model_copy(update={"values": (None, *hole.values[1:])})
    arm = case.arms[0].model_copy(update={"metrics": {**case.arms[0].metrics, "4k.bw": hole}})
    case = case.model_copy(update={"arms": (arm, *case.arms[1:]), "title": HOSTILE})
    entries[1] = entries[1].model_copy(
        update={"cases": (case, *entries[1].cases[1:]), "session": HOSTILE, "link": HOSTILE}
    )
    entries[2] = pruning.thin(entries[2])
    file = tmp_path / f"out{form}"
    assert exchange.export(entries, lambda _: None, file) == 6
    back, problems = exchange.read(file)
    assert problems == []
    assert [entry for entry, _ in back] == entries


def test_lines_hold_functions_too(tmp_path: Path) -> None:
    entries = made(functions=True)
    kept: dict[str, NightFunctions | None] = {
        entry.id: costs(a=float(at + 1)) for at, entry in enumerate(entries)
    }
    file = tmp_path / "out.jsonl"
    exchange.export(entries, lambda entry: kept[entry.id], file)
    back, _ = exchange.read(file)
    assert {entry.id: functions for entry, functions in back} == kept


def test_a_torn_last_line_is_named_and_the_others_come(tmp_path: Path) -> None:
    entries = made()
    file = tmp_path / "out.jsonl"
    exchange.export(entries, lambda _: None, file)
    file.write_bytes(file.read_bytes()[:-40])
    back, problems = exchange.read(file)
    assert [entry for entry, _ in back] == entries[:-1]
    assert "torn last line" in str(problems[0])
    lines = file.read_text().split("\n")
    file.write_text("\n".join([lines[0], "null", "{", *lines[1:3], ""]))
    back, problems = exchange.read(file)
    assert len(back) == 3
    assert [str(p).partition(": ")[2][:6] for p in problems] == ["line 2", "line 3"]


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(StoreError, match="not a table exported by the lab"):
        exchange.read(file)
    (tmp_path / "x.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(StoreError, match="cannot be read as parquet"):
        exchange.read(tmp_path / "x.parquet")
    with pytest.raises(StoreError, match=r"\.jsonl, \.parquet, \.csv"):
        exchange.export([], lambda _: None, tmp_path / "x.xls")


def test_a_row_that_was_changed_by_hand_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    exchange.export(made(2), lambda _: None, file)
    text = file.read_text()
    file.write_text(text.replace("2026-01-01T02:00:00Z", "2026-01-01T03:00:00Z"))
    back, problems = exchange.read(file)
    assert len(back) == 1
    assert len(problems) == 1


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300), form=st.sampled_from(exchange.FORMS))
def test_any_file_is_read_or_refused(tmp_path: Path, data: bytes, form: str) -> None:
    file = tmp_path / f"fuzz{form}"
    file.write_bytes(data)
    try:
        back, _ = exchange.read(file)
    except StoreError:
        return
    assert back == []


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    line=st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
            st.sampled_from(["entry", "functions", "cases", "night"]), inner, max_size=3
        ),
        max_leaves=8,
    )
)  # fmt: skip
def test_any_json_is_read_or_named(tmp_path: Path, line: object) -> None:
    file = tmp_path / "fuzz.jsonl"
    file.write_text(json.dumps(line) + "\n")
    back, problems = exchange.read(file)
    assert back == []
    assert len(problems) == 1


def test_thinning_keeps_changes_and_charts(tmp_path: Path) -> None:
    entries = Nights((0.0,) * 20 + (-0.01,) * 30, lab={35: 0.03}, functions=True).entries()
    store = HistoryStore(tmp_path / "history")
    for entry in entries:
        store.add(entry, costs(a=100.0))
    before = changes_of(entries)
    whole = trends(entries, before)
    decided = pruning.decide(entries, before, keep_nights=5)
    named = {before[0].entry, before[0].before}
    assert named.isdisjoint({entry.id for entry in decided.thinned})
    assert len(decided.thinned) == 50 - 5 - len({*named, before[1].entry, before[1].before})
    pruning.apply(store, decided)
    read = store.read()
    assert [entry.id for entry in read.entries] == [entry.id for entry in entries]
    assert changes_of(read.entries) == before
    assert trends(read.entries, before) == whole
    assert store.functions(read.entries[2]) is None
    assert store.functions(next(e for e in read.entries if e.id in named)) is not None
    again = pruning.decide(read.entries, before, keep_nights=5)
    assert again.thinned == ()
    assert not store.add(entries[0])


def test_taking_out_forgets_no_open_regression(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path / "history")
    entries = Nights((0.0,) * 30 + (-0.003,) * 90).entries()
    for entry in entries:
        store.add(entry)
    (before,) = changes_of(entries)
    pruning.apply(store, pruning.decide(entries, [before], keep_nights=5, before="2026-04-20"))
    kept = store.read().entries
    assert len(kept) < 40
    (after,) = changes_of(kept)
    assert (after.id, after.status) == (before.id, "open")


def test_taking_out_spares_the_nights_of_changes(tmp_path: Path) -> None:
    entries = Nights((0.0,) * 20 + (-0.01,) * 30).entries()
    changes = changes_of(entries)
    decided = pruning.decide(entries, changes, keep_nights=5, before="2026-02-01")
    assert {changes[0].entry, changes[0].before}.isdisjoint({e.id for e in decided.removed})
    # It is open: the eight nights by which it was found stay, too.
    assert len(decided.removed) == 31 - 9
    store = HistoryStore(tmp_path / "history")
    for entry in entries:
        store.add(entry)
    pruning.apply(store, decided)
    assert len(store.read().entries) == 28


def test_a_trend_has_its_level_band_and_marks() -> None:
    entries = Nights((0.0,) * 20 + (-0.01,) * 10, lab={10: 0.03}).entries()
    changes = changes_of(entries)
    by_arm = {t.course.arm: t for t in trends(entries, changes, primary_only=True)}
    assert set(by_arm) == {PINNED, "tonight"}
    trend = by_arm["tonight"]
    assert trend.unit == "virtual MiB/s"
    marked = [point for point in trend.points if point.changes]
    assert [point.night for point in marked] == ["2026-01-21"]
    assert trend.points[10].lab == ("qemu: 7.2.17 -> 8.10",)
    levels = [point.level for point in trend.points]
    assert levels[19] is not None
    assert levels[20] is not None
    assert levels[20] / levels[19] == pytest.approx(0.99, abs=0.003)
    assert len(set(levels)) == 3
    # Of all nights until the next change, not of the first of them.
    values = [point.value or 0.0 for point in trend.points]
    assert levels[20] == pytest.approx(sum(values[20:]) / 10)
    assert all(p.low < p.value < p.high for p in trend.points if p.low and p.value and p.high)


def test_a_wall_trend_is_a_ratio_to_the_pinned_kernel() -> None:
    nights = Nights((0.0,) * 30 + (-0.02,) * 20, mode="wall", seeds=12, noise=0.008, host=0.02)
    entries = nights.entries()
    trend = next(t for t in trends(entries, changes_of(entries)) if t.course.arm == "tonight")
    assert trend.unit == f"ratio to {PINNED}"
    values = [point.value for point in trend.points]
    assert values[-1] == pytest.approx(0.98, abs=0.01)
    assert values[0] == pytest.approx(1.0, abs=0.01)
    assert trend.points[-1].level == pytest.approx(np.mean([v for v in values[30:] if v]))
    assert sum(p.low < p.value < p.high for p in trend.points if p.low and p.value and p.high) >= 47
    thinned = [pruning.thin(entry) for entry in entries]
    secondary = next(
        t for t in trends(thinned) if t.course.arm == "tonight" and not t.primary
    )  # fmt: skip
    assert secondary.points[-1].value == pytest.approx(0.98, abs=0.01)
