"""Changes that people know of: expected, acknowledged or muted, each with reason and expiry.

    [[known]]
    kind = "acknowledged"            # or "expected", "muted"
    change = "0123456789ab"          # the id that `history show` prints; or patterns:
    experiment = "filemap-v4"        # experiment, guest, case, metric, arm: "*" by default
    metric = "4k.*"
    from = "2026-11-20"              # nights on which the change may begin
    until = "2026-12-20"             # required: from this night on the entry says nothing
    at_most = 0.03                   # a larger change is told all the same
    reason = "accounting of folios; accepted in the mail of 2026-11-19"

``expected`` is written before the change comes, ``acknowledged`` after; ``muted`` silences
what a course says whatever it is.  The difference is in the words: none of them fails a
gate, and all are shown.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from experiment.load import read_toml, validated
from experiment.spec import Frozen, SpecError
from history.change import Change
from history.entry import Hex12, Night


class KnownChange(Frozen):
    """One entry of the file; patterns are those of shells."""

    kind: Literal["expected", "acknowledged", "muted"]
    reason: Annotated[str, Field(min_length=1)]
    until: Night
    from_: Annotated[Night | None, Field(alias="from")] = None
    change: Hex12 | None = None
    experiment: str = "*"
    guest: str = "*"
    case: str = "*"
    metric: str = "*"
    arm: str = "*"
    direction: Literal["regression", "improvement", "any"] = "any"
    at_most: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _says_what(self) -> KnownChange:
        patterns = (self.experiment, self.guest, self.case, self.metric, self.arm)
        if self.change is None and all(pattern == "*" for pattern in patterns):
            raise ValueError("change: missing: name a change, or a pattern other than '*'")
        if self.from_ and self.from_ >= self.until:
            raise ValueError(f"until: {self.until} is not after from = {self.from_}")
        return self

    def meets(self, change: Change) -> bool:
        """Whether this entry speaks of a change."""
        if self.change is not None and self.change != change.id:
            return False
        if change.night >= self.until or (self.from_ and change.night < self.from_):
            return False
        if self.direction != "any" and self.direction != (change.verdict or ""):
            return False
        if self.at_most is not None and abs(change.estimate or 0.0) > self.at_most:
            return False
        course = change.course
        names = (course.experiment, course.guest, course.case, course.metric, course.arm)
        patterns = (self.experiment, self.guest, self.case, self.metric, self.arm)
        return all(map(fnmatchcase, names, patterns))


class Known(Frozen):
    """The whole file."""

    known: tuple[KnownChange, ...] = ()

    def mark(self, change: Change) -> Change:
        """The change with what the first entry that meets it says."""
        for one in self.known:
            if one.meets(change):
                return change.model_copy(update={"status": one.kind, "why": one.reason})
        return change

    def expired(self, night: str) -> tuple[KnownChange, ...]:
        """Entries that say nothing any more on this night: they can be taken out."""
        return tuple(one for one in self.known if one.until <= night)


def load_known(file: Path) -> Known:
    """Read the file; nothing is known where there is none.

    Raises:
        SpecError: a line for each mistake, with file, key, value found and values allowed.
    """
    if not file.exists():
        return Known()
    known, problems = validated(read_toml(file), Known)
    if known is None:
        raise SpecError([problem.line(str(file)) for problem in problems])
    return known
