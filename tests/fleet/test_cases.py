"""What is told of a boot that no worker answered."""

from __future__ import annotations

from fleet.cases import lost_answer


def test_what_kills_workers_is_never_a_series_doing() -> None:
    """Whether or not the base arm's run came first: no guest can end a worker."""
    outcome = lost_answer("tcp://here", "2 workers died").outcome
    assert outcome is not None
    assert outcome.ending.killed
