"""What only a wall session shows: its noise, its host and its course, as frozen values.

Changes are fractions of the base value, as everywhere in a comparison.
"""

from __future__ import annotations

from results.record import Record


class Again(Record):
    """A/A of one metric: the base against itself, in the blocks that are judged.

    ``estimate`` is the Hodges-Lehmann change with its interval, None where there is no
    ratio; ``floor`` is half the interval's width, the change that chance alone shows.
    ``needed`` blocks would see ``change``, None where that is not known (fewer than
    eight blocks) or where ``beyond`` is true: more than anybody measures.
    """

    pairs: int
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    level: float
    floor: float | None = None
    sd: float | None = None
    differs: bool = False
    change: float
    needed: int | None = None
    beyond: bool = False


class DriftPoint(Record):
    """One run's value of a primary metric, ``at_s`` seconds after the session began."""

    case: str
    metric: str
    arm: str
    block: int
    at_s: float
    value: float
    used: bool


class DroppedBlock(Record):
    """A block of a case that is left out whole, or would be (``kept``), and why.

    ``failed`` is true where one of its runs failed: that is not the host's doing.
    """

    case: str
    block: int
    reason: str
    failed: bool = False
    kept: bool = False


class HostCheck(Record):
    """A check of the host that was not ok before the session."""

    name: str
    status: str
    found: str


class WallFacts(Record):
    """Host and course of a wall session.

    ``blocks`` of ``planned`` were recorded whole; ``look_share`` is the share of the error
    rates that this look has, None where the session may be judged at its end only.
    ``early`` is true where it ended at a look, ``unfinished`` where it is between looks.
    ``images`` is of how many kernel images all arms are: of each there is one build, whose layout
    no interval has in it.
    """

    accelerator: str
    real_time: bool
    checks: tuple[HostCheck, ...] = ()
    blocks: int
    planned: int
    look_share: float | None = None
    early: bool = False
    unfinished: bool = False
    images: int = 1
    dropped: tuple[DroppedBlock, ...] = ()
    drift: tuple[DriftPoint, ...] = ()
