"""How a fleet is used: which shares and patiences, all with defaults that need no thought."""

from __future__ import annotations

from pydantic import Field

from experiment.frozen import Frozen


class Settings(Frozen):
    """Shares and patiences of a session on a fleet.

    ``check_one_in``: of so many runs one is made on two workers (0: none), beside the first
    of each worker.  ``straggler`` times the median of all runs, and at least
    ``straggler_s`` seconds, is what a run may take before it is also begun elsewhere.
    ``losses`` are the workers that may die under one parcel.  ``grace_s`` is how long a
    scheduler may be away, ``patience_s`` how long a session waits for a first worker.
    """

    check_one_in: int = Field(default=16, ge=0)
    straggler: float = Field(default=3.0, gt=1)
    straggler_s: float = Field(default=60.0, ge=0)
    losses: int = Field(default=10, ge=1)
    grace_s: float = Field(default=20.0, ge=0)
    patience_s: float = Field(default=60.0, ge=0)
