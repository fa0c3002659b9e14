"""Simulated steps of wall courses: dated on their night, as the table of docs/history.md has it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.dating import best_date, row, tally, track


@pytest.mark.parametrize(("size", "share"), [(0.04, 1.0), (0.02, 0.15)])
def test_steps_are_dated_on_their_night(size: float, share: float) -> None:
    result = tally(size, share, 8)
    assert result["offset"] == [0] * 8
    total = {name: sum(values) for name, values in result.items()}
    assert [total[k] for k in ("verdict", "best", "in range", "size inside")] == [8] * 4
    assert (total["zero inside"], total["unexplained"]) == (0, 0)
    assert f"| {100 * size:g} % | {100 * share:g} % | 8 of 8 | 8 | 8 | – |" in row(
        size, share, result
    )


def test_small_steps_are_in_the_range_of_dates_and_no_method_dates_them_all() -> None:
    result = tally(0.01, 1.0, 8)
    assert sum(result["best"]) < 8
    assert (sum(result["verdict"]), sum(result["in range"])) == (8, 8)
    assert sum(result["zero inside"]) == 0
    assert np.mean(result["width"]) > 2


def test_who_knows_the_levels_dates_by_the_nearer_one() -> None:
    levels = np.array([0.0, 0.0, 0.0, -0.04, -0.04])
    assert best_date(levels, 0.04, np.ones(5)) == 3
    # A night without a new kernel is no date.
    assert best_date(levels, 0.04, np.array([0.0, 1.0, 1.0, 0.0, 1.0])) != 3


def test_a_track_has_its_step_on_a_night_with_new_code() -> None:
    entries, night = track(0.04, 0.15, 3)
    codes = [entry.subject.kernel.code_key for entry in entries]
    assert codes[night] != codes[night - 1]
    assert len(set(codes)) < len(codes) / 2
