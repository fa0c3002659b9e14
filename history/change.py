"""A change that the history shows: on which night, of what, by how much, and whose it is."""

from __future__ import annotations

from typing import Literal, NamedTuple

from experiment.spec import Direction, Mode
from files import digest
from reports.verdict import Verdict
from results.record import Record

# ``step`` and ``drift`` are the kernel's, ``lab`` the lab's; ``mixed`` is a step on a
# night on which the lab moved too and no pinned arm tells them apart; ``unexplained``
# is the same code in the same setting with other numbers, which must not be.
# ``suspected`` is a change of a wall course whose interval still contains zero;
# ``incomparable`` is a stretch of nights that have too few seeds in common with those before.
Kind = Literal["step", "drift", "lab", "mixed", "unexplained", "suspected", "incomparable"]
Status = Literal["open", "fixed", "small", "expected", "acknowledged", "muted"]


class Course(NamedTuple):
    """What is followed: one metric of one arm in one case of a track."""

    experiment: str
    guest: str
    mode: Mode
    case: str
    metric: str
    arm: str

    def __str__(self) -> str:
        return f"{self.experiment} {self.guest} {self.mode}: {self.case} {self.metric} ({self.arm})"


class Moved(Record):
    """One function per unit of work on both nights; None where it was too small to be kept.

    ``within_scatter``: the seeds scatter too much to tell the difference from zero.
    """

    name: str
    file: str
    before: float | None
    after: float | None
    difference: float
    calls_before: float | None
    calls_after: float | None
    within_scatter: bool = False


class NightlyChange(Record):
    """One change of one metric, told once.

    ``night`` and ``entry`` are the first that show it, ``before_night`` and ``before``
    the last without it, ``detected`` and ``detected_entry`` those by which it was known.  ``night``
    is the likeliest date and may move as nights are added: ``earliest`` to ``latest`` has it
    with 95 % confidence where noise leaves a doubt, and ``noticed_entry`` is the entry that
    first made it suspected; both are empty in exact mode.
    ``estimate``, ``low`` and ``high`` are fractions, None where nothing was judged.
    ``kernels`` names both nights' kernels, ``commits`` the range between where both are
    known by commit.
    ``lab`` has a line for each thing of the setting that moved that night.
    """

    kind: Kind
    course: Course
    unit: str
    direction: Direction
    night: str
    entry: str
    before_night: str
    before: str
    detected: str
    detected_entry: str
    earliest: str = ""
    latest: str = ""
    noticed_entry: str = ""
    verdict: Verdict | None = None
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    kernels: tuple[str, str] = ("", "")
    commits: str = ""
    lab: tuple[str, ...] = ()
    functions: tuple[Moved, ...] = ()
    unit_of_work: str = ""
    status: Status = "open"
    why: str = ""

    @property
    def id(self) -> str:
        """12 hex digits by which the change is acknowledged; the same every night after.

        Of the entry that noticed it, for the date of a change in noise may move.
        """
        whose = "lab" if self.kind == "lab" else "kernel"
        text = "\0".join((whose, *self.course, self.noticed_entry or self.entry))
        return digest(text)[:12]
