"""The simulated year: its scores are what a reader takes them for."""

from __future__ import annotations

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
