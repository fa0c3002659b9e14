"""What a gate makes of what is found, as data: ``configs/gate.toml``.

    [[rules]]
    experiment = "filemap-*"    # also guest, mode, case, metric: patterns, "*" by default
    regression = "fail"         # fail, warn or pass; also improvement, inconclusive,
    at_least = 0.005            # failed, broken, mixed, lab, unexplained, stale
    inconclusive = "pass"

The first rule whose patterns fit decides; what fits none is judged by the defaults.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from experiment.load import read_toml, validated
from experiment.spec import Frozen, SpecError

Action = Literal["fail", "warn", "pass"]
Finding = Literal[
    "regression", "improvement", "inconclusive", "failed", "broken", "mixed", "lab",
    "unexplained", "stale",
]  # fmt: skip


class Place(NamedTuple):
    """What a finding is of; ``case`` and ``metric`` are empty where it is of a whole night."""

    experiment: str
    guest: str
    mode: str
    case: str = ""
    metric: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in self if part)


class Rule(Frozen):
    """What is made of each finding where the patterns fit.

    ``regression`` and ``improvement`` are of a judged metric, smaller ones than
    ``at_least`` (a fraction) never fail; ``failed`` is a verdict that was lost, ``broken``
    a kernel that does not run, ``mixed`` a change on a night on which the lab moved too,
    ``lab`` a move of the lab, ``unexplained`` the same code with other numbers, and
    ``stale`` a track that has no entry of the newest night.
    """

    experiment: str = "*"
    guest: str = "*"
    mode: str = "*"
    case: str = "*"
    metric: str = "*"
    at_least: Annotated[float, Field(ge=0, lt=1)] = 0.0
    regression: Action = "fail"
    improvement: Action = "pass"
    inconclusive: Action = "warn"
    failed: Action = "fail"
    broken: Action = "fail"
    mixed: Action = "warn"
    lab: Action = "pass"
    unexplained: Action = "fail"
    stale: Action = "warn"

    def fits(self, place: Place) -> bool:
        """Whether all patterns fit; a finding of a whole night fits any case and metric."""
        patterns = (self.experiment, self.guest, self.mode, self.case, self.metric)
        return all(
            not name or fnmatchcase(name, pattern)
            for name, pattern in zip(place, patterns, strict=True)
        )

    def action(self, finding: Finding, size: float | None = None) -> Action:
        """What is made of a finding; ``size`` is the change as a fraction."""
        action: Action = getattr(self, finding)
        small = size is not None and abs(size) < self.at_least
        return "warn" if action == "fail" and small else action


class Policy(Frozen):
    """The whole file."""

    rules: tuple[Rule, ...] = ()

    def rule(self, place: Place) -> Rule:
        """The rule that decides for a place."""
        return next((rule for rule in self.rules if rule.fits(place)), Rule())


def load_policy(file: Path) -> Policy:
    """Read a policy.

    Raises:
        SpecError: a line for each mistake, with file, key, value found and values allowed.
    """
    policy, problems = validated(read_toml(file), Policy)
    if policy is None:
        raise SpecError([problem.line(str(file)) for problem in problems])
    return policy
