"""What the gate found of one arm in one guest; none of it is a data point."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from results.record import Record

CheckStatus = Literal["green", "red", "not run"]
ArmStanding = Literal["green", "red", "red before the series", "not run", "pending"]


class CheckProblem(Record):
    """Something that a correct kernel does not do.

    ``kind`` is that of the splat (``locks``, ``sleeping``, ``crash`` and so on), or
    ``selftest``, ``data``, ``step``, ``leak`` or ``taint``; ``title`` is what was said,
    ``where`` a function of the kernel or empty, ``says`` the kind in words.
    """

    kind: str
    title: str
    says: str
    where: str = ""
    evidence: tuple[str, ...] = ()

    @property
    def cause(self) -> str:
        """What two problems of one cause have in common: not their numbers and addresses."""
        title = re.sub(r"0x[0-9a-f]+|\b[0-9a-f]{16}\b|\d+", "#", self.title)
        return f"{self.kind} {title} {self.where}".strip()


class Check(Record):
    """One guest of the gate.

    ``of`` counts the guests of this arm.  ``checked`` has a line for each thing that was
    looked at and is well; ``reason`` says why a check was not run, and is empty else.
    ``console`` is the log, relative to the session's folder.
    """

    run_id: str
    arm: str
    of: int
    flavour: str
    vcpus: int
    cases: tuple[str, ...]
    kernel_key: str
    status: CheckStatus
    problems: tuple[CheckProblem, ...] = ()
    checked: tuple[str, ...] = ()
    reason: str = ""
    console: str = ""


@dataclass(frozen=True)
class ArmChecks:
    """How one arm stands after its checks.

    ``problems`` are its own, ``inherited`` those that the base arm has, too, each with the
    run id of its check; ``reason`` says why it was not checked, or what of it is not made
    yet, and is empty else.
    """

    arm: ArmStanding
    problems: tuple[tuple[str, CheckProblem], ...] = ()
    inherited: tuple[tuple[str, CheckProblem], ...] = ()
    reason: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether its speed is worth anything: green, or red as the base arm is."""
        return self.arm in ("green", "red before the series")


def standing(own: Sequence[Check], of_base: Sequence[Check]) -> ArmChecks:
    """What the checks of one arm say beside those of the session's first arm.

    What is red there is red before the series.  An arm some of whose guests were lost was
    not checked; one some of whose guests were not made yet waits for them.
    """
    causes = {problem.cause for check in of_base for problem in check.problems}
    problems = [(check.run_id, problem) for check in own for problem in check.problems]
    new = tuple(each for each in problems if each[1].cause not in causes)
    old = tuple(each for each in problems if each[1].cause in causes)
    if new:
        return ArmChecks("red", new, old)
    lost = [check for check in own if check.status == "not run"]
    if not own or len(own) < own[0].of:
        progress = f"{len(own)} of {own[0].of} checks made" if own else "no check made yet"
        return ArmChecks("pending", (), old, progress)
    if lost:
        return ArmChecks("not run", (), old, lost[0].reason)
    return ArmChecks("red before the series" if old else "green", (), old)
