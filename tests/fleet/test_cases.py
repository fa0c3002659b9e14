"""What a parcel under way knows of itself."""

from __future__ import annotations

from typing import Any, cast

from fleet.cases import Flight, lost_answer


def test_stranded_is_what_lost_its_worker_while_nobody_served() -> None:
    flight = Flight(case=cast(Any, None), attempt=1, future=None, sent=0.0, alone=2)
    # Nobody has begun it: another rule sends it again.
    assert not flight.stranded({"b"}, 3)
    flight.worker = "a"
    assert not flight.stranded({"a", "b"}, 3)
    # Others served all the time: dask has given it to one of them.
    assert not flight.stranded({"b"}, 2)
    assert flight.stranded({"b"}, 3)


def test_what_kills_workers_is_never_a_series_doing() -> None:
    """Whether or not the base arm's run came first: no guest can end a worker."""
    outcome = lost_answer("tcp://here", "2 workers died").outcome
    assert outcome is not None
    assert outcome.ending.killed
