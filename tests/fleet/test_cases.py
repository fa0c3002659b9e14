"""What a parcel under way knows of itself."""

from __future__ import annotations

from typing import Any, cast

from fleet.cases import Flight


def test_stranded_is_what_lost_its_worker_while_nobody_served() -> None:
    flight = Flight(case=cast(Any, None), attempt=1, future=None, sent=0.0, alone=2)
    # Nobody has begun it: another rule sends it again.
    assert not flight.stranded({"b"}, 3)
    flight.worker = "a"
    assert not flight.stranded({"a", "b"}, 3)
    # Others served all the time: dask has given it to one of them.
    assert not flight.stranded({"b"}, 2)
    assert flight.stranded({"b"}, 3)
