"""What the probe counted in one run: instructions and calls by function.

Kept apart from the run's record: a profile explains a number and is never one
that is judged.
"""

from __future__ import annotations

from results.record import Record

# Kernel code that no symbol covers, in a profile's ``kernel``.
UNKNOWN = "[unknown]"


class FunctionCount(Record):
    """One kernel function: instructions executed in it, and times it was entered.

    ``file`` is the source file it was built from, relative to the source; empty
    where that is not known or where several files have a function of this name.
    A module's code is one entry, ``[module]``.
    """

    name: str
    file: str
    instructions: int
    calls: int


class PhaseProfile(Record):
    """One phase: all instructions, by kernel function, by user file, and by vCPU.

    ``kernel`` is in the order of names, ``user`` maps files of the guest to
    instructions.  Their sum, and the sum of ``by_vcpu``, is ``instructions``.
    ``units`` maps units of work to how many were done.
    """

    phase: str
    instructions: int
    kernel: tuple[FunctionCount, ...]
    user: dict[str, int]
    by_vcpu: tuple[int, ...]
    units: dict[str, float]


class Profile(Record):
    """What the probe counted in one run; phases in their order."""

    run_id: str
    phases: tuple[PhaseProfile, ...]
