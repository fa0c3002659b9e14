"""What the gate found of one arm in one guest; none of it is a data point."""

from __future__ import annotations

import re
from typing import Literal

from results.record import Record

CheckStatus = Literal["green", "red", "not run"]


class Problem(Record):
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
    problems: tuple[Problem, ...] = ()
    checked: tuple[str, ...] = ()
    reason: str = ""
    console: str = ""
