"""Simulated years and steps: scored as a reader takes them, dated as docs/history.md has it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.dating import best_date, row, tally, track
from benchmarks.nights import Score, Truth, Year, night_number, score
from history.changes import changes_of
from tests.history.factory import Nights


def test_a_step_is_detected_and_a_change_that_was_none_is_false() -> None:
    entries = Nights((0.0,) * 20 + (-0.02,) * 20).entries()
    changes = changes_of(entries)
    result = Score()
    score(Year([], [Truth(20, -0.02, 20)]), changes, result)
    assert (result.detected, result.changes, result.false, result.delays) == (1, 1, 0, [0])
    assert result.misplaced == [0]
    # The other way round, another night, or nothing at all: a false alarm each.
    for truth in ([Truth(20, 0.02, 20)], [Truth(21, -0.02, 21)], []):
        wrong = Score()
        score(Year([], truth), changes, wrong)
        assert (wrong.detected, wrong.false) == (0, 1)


def test_a_lab_move_is_counted_apart() -> None:
    entries = Nights((0.0,) * 20, lab={10: 0.03}).entries()
    result = Score()
    score(Year([], lab={10: 0.03}), changes_of(entries), result)
    assert (result.lab_detected, result.lab_moves, result.lab_false, result.false) == (1, 1, 0, 0)
    result = Score()
    score(Year([]), changes_of(entries), result)
    assert result.lab_false == 1


def test_nights_are_numbered_from_the_first() -> None:
    assert night_number("2026-01-01") == 0
    assert night_number("2026-03-01") == 59


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
