"""The part of the kernel that each workload is about: ``configs/subsystems.toml``."""

from __future__ import annotations

from pathlib import Path

from errors import SpecError
from experiment.load import CONFIGS, read_toml, validated
from experiment.spec import Frozen

FILE = CONFIGS / "subsystems.toml"
OTHERS = "others"


class SubsystemWorkloads(Frozen):
    """One part, by its title, with its workloads."""

    title: str
    workloads: tuple[str, ...]


class Subsystems(Frozen):
    """All parts in their order."""

    subsystem: tuple[SubsystemWorkloads, ...] = ()

    def of_case(self, case: str) -> str:
        """The title for a case by its name, :data:`OTHERS` where no part has its workload."""
        workload = case.partition("+")[0]
        parts = (part.title for part in self.subsystem if workload in part.workloads)
        return next(parts, OTHERS)

    def position(self, title: str) -> int:
        """Where a title comes; behind all others that are not in the file."""
        return [*(part.title for part in self.subsystem), title].index(title)


NONE = Subsystems()


def load_subsystems(file: Path = FILE) -> Subsystems:
    """Read the file.

    Raises:
        SpecError: it is wrong; one line for each mistake.
    """
    read, problems = validated(read_toml(file), Subsystems)
    if read is None or problems:
        raise SpecError([problem.line(str(file)) for problem in problems])
    return read
