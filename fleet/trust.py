"""What is done with an answer: told, checked by another worker, or kept back.  Decides only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fleet.cases import BootCase
from fleet.votes import sampled

Decision = Literal["deliver", "check", "wait", "verified", "undecided"]
MOST_VOTES = 5


@dataclass
class Trust:
    """Workers that others confirmed, and those whose first answer is being checked.

    ``one_in`` is the share that is checked whoever answered; 0 trusts everybody.
    ``trials`` maps a worker to the name of the case that tries it.
    """

    one_in: int
    proven: set[str] = field(default_factory=set)
    trials: dict[str, str] = field(default_factory=dict)

    def decide(
        self, case: BootCase, cases: Mapping[str, BootCase], others: Sequence[str]
    ) -> Decision:
        """What to do with a case, if ``others`` are the workers that were not asked yet.

        ``verified``: two workers or more agree.  ``undecided``: answers differ, and nobody
        is left to decide between them.
        """
        result = case.standing
        if result.state == "verified":
            return "verified"
        if result.state != "unverified":
            return "check" if others and len(case.votes) < MOST_VOTES else "undecided"
        if not others:
            return "deliver"
        if case.checking:
            return "wait"
        (only,) = case.votes
        if self._wants_check(case, only, cases):
            return "check"
        return "deliver" if only in self.proven or not self.one_in else "wait"

    def _wants_check(self, case: BootCase, only: str, cases: Mapping[str, BootCase]) -> bool:
        if sampled(case.parcel.question, self.one_in) or case.suspicious:
            return True
        return self.tries(case, cases)

    def tries(self, case: BootCase, cases: Mapping[str, BootCase]) -> bool:
        """Whether this answer is the one by which its worker is tried; the others wait for it."""
        (only,) = case.votes or ("",)
        if not only or not self.one_in or only in self.proven:
            return False
        trial = cases.get(self.trials.get(only, ""))
        if trial is None or not trial.checking or only not in trial.votes:
            self.trials[only] = case.boot.name
            return True
        return False
