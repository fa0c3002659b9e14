"""A session in a line."""

from __future__ import annotations

from analysis.many import compare_session
from analysis.two_sessions import compare_two
from reports import brief
from tests.analysis.factory import ExactSession
from tests.analysis.measured import measured
from tests.analysis.test_two_sessions import FIRST, SLOWER, other_series, session
from tests.reports.test_headline import unfinished


def test_the_result_that_changed_most_and_its_change_since_the_last_save() -> None:
    now = other_series(SLOWER)
    assert brief.line(compare_session(now), compare_two(session(FIRST), now)) == (
        "1 regression, 1 unchanged (within 0.25 %), 1 inconclusive: filemap-4k 4k.bw -1.43 % "
        "[-1.65, -1.30]; since the last save -2.57 % [-2.57, -2.57]; 8 seeds"
    )
    same = compare_two(session(FIRST), session(FIRST))
    first = compare_session(session(FIRST))
    assert "; since the last save the same machine code; 8 seeds" in brief.line(first, same)


def test_what_has_no_verdict_says_why() -> None:
    assert brief.line(unfinished()).startswith("Not finished: 7 of ")


def test_a_verdict_that_more_seeds_may_decide_is_open() -> None:
    assert brief.is_decided(compare_session(session(FIRST)))
    few = ExactSession(seeds=(1, 2, 3))
    early = compare_session(measured(few.manifest(), few.records()))
    assert not brief.is_decided(early)
    assert "4k.bw +1.17 % ([+0.84, +1.46] seed by seed)" in brief.line(early)
