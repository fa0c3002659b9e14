"""Out of the folder and back as JSON lines; what a chart shows of a course."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from history.changes import changes_of
from history.entry import PINNED, Entry
from history.store import HistoryStore, export_lines, read_lines
from history.trend import trends
from results.door import StoreError
from tests.history.factory import Nights, costs

HOSTILE = 'a,b"\n=HYPERLINK(1)\x00<b>\u2028\u202e'
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["entry", "functions", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)


def made(count: int = 6, **more: object) -> list[Entry]:
    levels = (0.0,) * (count // 2) + (-0.01,) * (count - count // 2)
    return Nights(levels, **more).entries()  # type: ignore[arg-type]


def test_what_goes_out_comes_back(tmp_path: Path) -> None:
    entries = made(cases=("a", "b"), functions=True)
    case = entries[1].cases[0]
    hole = case.arms[0].metrics["4k.bw"]
    hole = hole.model_copy(update={"values": (None, *hole.values[1:])})
    arm = case.arms[0].model_copy(update={"metrics": {**case.arms[0].metrics, "4k.bw": hole}})
    case = case.model_copy(update={"arms": (arm, *case.arms[1:]), "title": HOSTILE})
    entries[1] = entries[1].model_copy(
        update={"cases": (case, *entries[1].cases[1:]), "session": HOSTILE, "link": HOSTILE}
    )
    store, file = HistoryStore(tmp_path / "history"), tmp_path / "out.jsonl"
    kept = {entry.id: costs(a=float(at + 1)) for at, entry in enumerate(entries)}
    for entry in entries:
        store.add(entry, kept[entry.id])
    assert export_lines(store, file).entries == tuple(entries)
    back, problems = read_lines(file)
    assert problems == []
    assert [entry for entry, _ in back] == entries
    assert {entry.id: functions for entry, functions in back} == kept


def test_a_torn_last_line_is_named_and_the_others_come(tmp_path: Path) -> None:
    store, file = HistoryStore(tmp_path / "history"), tmp_path / "out.jsonl"
    for entry in made():
        store.add(entry)
    export_lines(store, file)
    file.write_bytes(b"[]\n" + file.read_bytes()[:-9])
    back, (first, torn) = read_lines(file)
    assert len(back) == 5
    assert "line 1" in first.words
    assert torn.words == "torn last line; left out"


def test_another_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"ends in \.jsonl"):
        read_lines(tmp_path / "x.parquet")


@settings(max_examples=60)
@given(line=JSON)
def test_any_json_is_read_or_named(tmp_path_factory: pytest.TempPathFactory, line: object) -> None:
    file = tmp_path_factory.mktemp("lines") / "x.jsonl"
    file.write_text(f"{json.dumps(line)}\n")
    back, problems = read_lines(file)
    assert len(back) + len(problems) == 1


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
