"""The shape of a guest, and what an arm or a twin changes of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from errors import SpecError
from experiment.architecture import Arch
from experiment.frozen import WRITTEN_BY_LAB, Frozen, Name

# More than any machine has, and little enough to calculate with: files come from anywhere.
MOST_MIB, MOST_JOBS, MOST_S = 1 << 24, 1024, 7 * 86400


class WallShape(Frozen):
    """What only a guest of wall mode has."""

    huge_pages: bool = False
    """Memory is taken from the host's reserved 2 MiB pages."""
    cpu: str = ""
    """QEMU's CPU model; empty: the host's own."""


class Guest(Frozen):
    """The shape of the VM: one file under ``configs/guests/``."""

    name: Name
    """Name of the guest, and of its file."""
    title: str
    """What it is, in one line."""
    vcpus: Annotated[int, Field(ge=1, le=64)]
    """Virtual CPUs, split evenly over ``numa_nodes``."""
    memory_mib: Annotated[int, Field(ge=128, le=MOST_MIB)]
    """Memory, MiB, split evenly over ``numa_nodes``."""
    cpu: str
    """QEMU's CPU model in exact mode; arm64 has one for all guests and ignores it."""
    scale: Annotated[int, Field(ge=1, le=MOST_MIB)]
    """Every size of an experiment's ``dataset`` is divided by this."""
    jobs: Annotated[int, Field(ge=1, le=MOST_JOBS)]
    """Number of fio jobs."""
    boot_timeout_s: Annotated[float, Field(gt=0, le=MOST_S)]
    """Most seconds for boot, mkfs and file layout: in exact mode of QEMU's CPU time, else of the
    host's clock."""
    silence_timeout_s: Annotated[float, Field(gt=0, le=MOST_S)]
    """Most seconds, counted alike, without a word on the console."""
    run_timeout_s: Annotated[float, Field(gt=0, le=MOST_S)]
    """Most seconds, counted alike, for all phases and their results."""
    metronome_ns: Annotated[int, Field(ge=0, le=10**9)] = 0
    """Exact mode with several vCPUs: period of a virtual timer that ends the turn of a vCPU; 0:
    none.
    """
    numa_nodes: Annotated[int, Field(ge=1, le=16)] = 1
    """NUMA nodes; in wall mode each is bound to a host node where the host has as many."""
    wall: WallShape = WallShape()
    """What only a guest of wall mode has."""
    arch: Annotated[Arch, WRITTEN_BY_LAB] = "x86_64"
    """From the kernel's."""

    @model_validator(mode="after")
    def _nodes_are_equal(self) -> Guest:
        problem = self.unequal_nodes
        if problem:
            raise ValueError(problem)
        return self

    @property
    def unequal_nodes(self) -> str:
        """Why the nodes cannot be alike; empty where they are."""
        for key, value in (("vcpus", self.vcpus), ("memory_mib", self.memory_mib)):
            if value % self.numa_nodes:
                return f"numa_nodes: {self.numa_nodes} nodes cannot share {key} = {value}"
        return ""


class ShapeSpec(Frozen):
    """What an arm or a diagnostic run changes of a guest; what is not given stays."""

    vcpus: Annotated[int, Field(ge=1, le=64)] | None = None
    """Virtual CPUs."""
    jobs: Annotated[int, Field(ge=1, le=MOST_JOBS)] | None = None
    """Number of fio jobs."""
    cpu: str | None = None
    """QEMU's CPU model."""
    metronome_ns: Annotated[int, Field(ge=0, le=10**9)] | None = None
    """Period of a virtual timer that ends the turn of a vCPU, where there are several."""
    numa_nodes: Annotated[int, Field(ge=1, le=16)] | None = None
    """NUMA nodes."""
    more_memory_mib: Annotated[int, Field(ge=0, le=MOST_MIB)] = 0
    """Memory on top of the guest's, MiB."""

    def of(self, guest: Guest) -> Guest:
        """The guest with these changes.

        Raises:
            SpecError: vCPUs or memory cannot be shared by that many nodes.
        """
        changed = {
            key: value
            for key in ("vcpus", "jobs", "cpu", "metronome_ns", "numa_nodes")
            if (value := getattr(self, key)) is not None
        }
        memory_mib = guest.memory_mib + self.more_memory_mib
        shaped = guest.model_copy(update={**changed, "memory_mib": memory_mib})
        if shaped.unequal_nodes:
            raise SpecError([f"guest {guest.name}, changed in shape: {shaped.unequal_nodes}"])
        return shaped
