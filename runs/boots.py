"""The seam between judging runs and booting guests: what is asked for, and what comes back.

Everything that judges a run stays with the session (``runs.recording``, ``runs.exactness``);
an executor only says how each guest ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from experiment.spec import KernelSpec
from guests.channel import LARGEST
from guests.exact import Machine, Outcome
from guests.probe.plugin import Probe
from host.accelerator import AcceleratorTest
from host.doctor import DoctorCheck
from host.topology import Placement
from kernels.cache import Kernel
from kernels.make import MakeProgress
from runs.progress import Reporter

# Host trouble may pass; anything else is a function of the inputs and would only
# be the same again.
ATTEMPTS = 2
MIB = 1 << 20


@dataclass(frozen=True)
class Boot:
    """One guest to boot once.

    ``name`` is that of its folder of raw logs, ``group`` names what boots alike for people.
    A ``cold`` one is booted on its own; others may be restored from a snapshot of their
    machine.  A guest whose console grows beyond ``console_bytes`` is ended.  ``repeats`` is the
    name of the boot whose bytes this one must have, empty for none.
    """

    name: str
    group: str
    machine: Machine
    job_text: str
    cold: bool
    probe: Probe | None = None
    console_bytes: int = LARGEST
    repeats: str = ""


@dataclass(frozen=True)
class Place:
    """Where boots leave what they say: the session's ``raw`` folder, and who is told.

    ``slots`` are guests at once, as :meth:`Executor.slots` said.
    """

    cache: Path
    raw: Path
    reporter: Reporter
    slots: int


class Judge(Protocol):
    """Who is told how each boot ended.  Both may be called from several threads."""

    def first(self, boot: Boot, outcome: Outcome) -> str:
        """Name of the boot that must have been told before this one; empty for none."""

    def receive(self, boot: Boot, outcome: Outcome, *, last: bool) -> bool:
        """How a boot ended, its raw files in place; True asks for another attempt.

        After the ``last`` attempt the answer is False.
        """


@dataclass(frozen=True)
class WallHost:
    """What runs wall guests here, where each shape goes, and how fit the host is.

    ``placements`` are by the names of bench and arm; None where a guest is not pinned.
    """

    accelerator: AcceleratorTest
    placements: Mapping[tuple[str, str], Placement | None]
    checks: tuple[DoctorCheck, ...]


class Executor(Protocol):
    """Where kernels are built and guests run."""

    @property
    def name(self) -> str:
        """As the command line has it, for people."""

    def slots(self, memory_mib: int, limit: int | None) -> int:
        """Guests of this memory (MiB) that run at once."""

    def boot(self, batches: Sequence[Sequence[Boot]], judge: Judge, place: Place) -> float:
        """Boot everything and tell the judge; return the CPU seconds the guests used.

        What a batch keeps for itself is gone before the next one begins.

        Raises:
            InfraError: the disk is too small, or nothing can be booted.
        """

    def keeping(self) -> AbstractContextManager[Executor]:
        """The executor, with what it keeps of a machine kept from call to call of :meth:`boot`.

        For the looks of one session, which boot the same machines again.
        """

    def accelerator(self, cache: Path, image: Path) -> AcceleratorTest:
        """What runs wall guests: found out by booting ``image``, or kept in the cache."""

    def expect_kernels(
        self,
        kernels: Sequence[tuple[KernelSpec, Sequence[Path]]],
        *,
        checkout: Path,
        cache: Path,
        boxed: bool = False,
    ) -> None:
        """These kernels, each with its patches, will be asked for, in this order."""

    def provide_kernel(
        self,
        spec: KernelSpec,
        patches: Sequence[Path],
        *,
        checkout: Path,
        cache: Path,
        progress: Callable[[MakeProgress], None] | None = None,
        boxed: bool = False,
    ) -> Kernel:
        """The kernel, in this host's cache; as ``kernels.build.provide``."""
