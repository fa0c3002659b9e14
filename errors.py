"""Failures have someone to blame: each class of error is one exit code.

Every error that the lab raises for a reader is a kind of :class:`LabError`, whichever folder it
is raised in; so nobody who answers for the lab as a whole (``lab.py``, the queue, a worker)
needs a list of them.
"""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """Exit codes of ``lab.py``."""

    NO_REGRESSION = 0
    REGRESSION = 1
    USAGE = 2
    INFRASTRUCTURE = 3
    SERIES = 4
    INCONCLUSIVE = 5


class LabError(Exception):
    """What went wrong, where, and what to do next.

    ``what`` is one sentence without a full stop; ``where`` a file, key, patch or
    run; ``next_step`` an imperative, often a command that can be pasted.
    """

    exit_code: Exit = Exit.INFRASTRUCTURE
    blame: str = "lab"

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.next_step = next_step

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.next_step:
            lines.append(f"next: {self.next_step}")
        return "\n".join(lines)

    @property
    def for_terminal(self) -> str:
        """What is printed of it; each mistake begins with ``error: ``."""
        return f"error: {self}"

    @property
    def in_one_line(self) -> str:
        """The same for a list or a page: the next step in parentheses."""
        return str(self).replace("\nnext: ", " (") + (")" if self.next_step else "")


class UsageError(LabError):
    """The user's mistake: arguments, experiment files, unknown names."""

    exit_code = Exit.USAGE
    blame = "user"


class SpecError(UsageError):
    """What is asked makes no sense; ``problems`` has one line for each mistake."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems

    @property
    def for_terminal(self) -> str:
        """As of every error, with a line for each mistake."""
        return "\n".join(f"error: {problem}" for problem in self.problems)

    @property
    def in_one_line(self) -> str:
        """All mistakes in one line."""
        return "; ".join(self.problems)


class RecordError(LabError):
    """What is on record cannot be read or compared; the folder is named by the user.

    Where the lab itself chose the folder, as for a queue, nobody but the lab is to blame.
    """

    exit_code = Exit.USAGE


class SeriesError(LabError):
    """The series does not apply, build or boot."""

    exit_code = Exit.SERIES
    blame = "series"


class WorkloadError(LabError):
    """The run did not measure what it says it measured."""

    exit_code = Exit.INFRASTRUCTURE
    blame = "workload"


class InfraError(LabError):
    """The host or the lab itself: a missing tool, a full disk, a lost QEMU."""

    exit_code = Exit.INFRASTRUCTURE
    blame = "host"
