"""The shape of a guest, and what an arm or a twin changes of it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from errors import SpecError
from experiment.architecture import Arch
from experiment.frozen import Frozen, Name


class WallShape(Frozen):
    """What only a guest of wall mode has.

    ``huge_pages`` takes the guest's memory from the host's reserved 2 MiB pages;
    ``cpu`` is QEMU's model, empty for the host's own.
    """

    huge_pages: bool = False
    cpu: str = ""


class Guest(Frozen):
    """The shape of the VM: one file under ``configs/guests/``.

    vCPUs and memory are split evenly over ``numa_nodes``; in wall mode each is bound
    to a host node where the host has as many.  ``cpu`` and ``metronome_ns`` are of
    exact mode, ``wall`` of wall mode.  ``arch`` is the kernel's, which the lab fills in; one
    that has a CPU model for all its guests does not look at ``cpu``.
    """

    name: Name
    title: str
    vcpus: Annotated[int, Field(ge=1, le=64)]
    memory_mib: Annotated[int, Field(ge=128)]
    cpu: str
    scale: Annotated[int, Field(ge=1)]
    jobs: Annotated[int, Field(ge=1)]
    boot_timeout_s: Annotated[float, Field(gt=0)]
    silence_timeout_s: Annotated[float, Field(gt=0)]
    run_timeout_s: Annotated[float, Field(gt=0)]
    metronome_ns: Annotated[int, Field(ge=0)] = 0
    numa_nodes: Annotated[int, Field(ge=1, le=16)] = 1
    wall: WallShape = WallShape()
    arch: Arch = "x86_64"

    @model_validator(mode="before")
    @classmethod
    def _nodes_are_of_both_modes(cls, data: Any) -> Any:
        """Take ``wall.numa_nodes`` for ``numa_nodes``: sessions recorded it there."""
        wall = data.get("wall") if isinstance(data, dict) else None
        if not isinstance(wall, dict) or "numa_nodes" not in wall:
            return data
        if "numa_nodes" in data:
            raise ValueError("numa_nodes and wall.numa_nodes: the same; keep numa_nodes")
        rest = {key: value for key, value in wall.items() if key != "numa_nodes"}
        return {**data, "wall": rest, "numa_nodes": wall["numa_nodes"]}

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
    """What an arm or a twin changes of a guest; None keeps what is there.

    ``metronome_ns`` is the period of a virtual timer that ends the turn of a vCPU:
    only a guest of several vCPUs has turns.  ``more_memory_mib`` comes on top.
    """

    vcpus: Annotated[int, Field(ge=1, le=64)] | None = None
    jobs: Annotated[int, Field(ge=1)] | None = None
    cpu: str | None = None
    metronome_ns: Annotated[int, Field(ge=0)] | None = None
    numa_nodes: Annotated[int, Field(ge=1, le=16)] | None = None
    more_memory_mib: Annotated[int, Field(ge=0)] = 0

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
