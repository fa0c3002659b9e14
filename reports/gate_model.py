"""What the gate found of one arm, as every form shows it."""

from __future__ import annotations

from results.checks import ArmStanding, Check, CheckProblem
from results.record import Record


class ArmGate(Record):
    """One arm's correctness.

    ``problems`` are those of this arm alone, ``inherited`` those that the base arm of the
    session has, too; each with the run id of its check.  ``checks`` are all its guests.
    """

    arm: str
    standing: ArmStanding
    problems: tuple[tuple[str, CheckProblem], ...] = ()
    inherited: tuple[tuple[str, CheckProblem], ...] = ()
    checks: tuple[Check, ...] = ()
    reason: str = ""

    @property
    def withholds(self) -> bool:
        """Whether this arm has no speed that could be judged."""
        return self.standing in ("red", "not run")
