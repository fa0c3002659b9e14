"""The shape of a guest, and what an arm or a twin changes of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from experiment.frozen import Frozen, Name


class WallShape(Frozen):
    """What only a guest of wall mode has.

    vCPUs and memory are split evenly over ``numa_nodes``, each bound to a host node
    where the host has as many.  ``huge_pages`` takes the guest's memory from the
    host's reserved 2 MiB pages; ``cpu`` is QEMU's model, empty for the host's own.
    """

    numa_nodes: Annotated[int, Field(ge=1, le=16)] = 1
    huge_pages: bool = False
    cpu: str = ""


class Guest(Frozen):
    """The shape of the VM: one file under ``configs/guests/``.

    ``cpu`` and ``metronome_ns`` are of exact mode, ``wall`` of wall mode.
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
    wall: WallShape = WallShape()

    @model_validator(mode="after")
    def _nodes_are_equal(self) -> Guest:
        nodes = self.wall.numa_nodes
        for key, value in (("vcpus", self.vcpus), ("memory_mib", self.memory_mib)):
            if value % nodes:
                raise ValueError(f"wall.numa_nodes: {nodes} nodes cannot share {key} = {value}")
        return self


class ShapeSpec(Frozen):
    """What an arm or a twin changes of a guest; None keeps what is there.

    ``metronome_ns`` is the period of a virtual timer that ends the turn of a vCPU:
    only a guest of several vCPUs has turns.  ``more_memory_mib`` comes on top.
    """

    vcpus: Annotated[int, Field(ge=1, le=64)] | None = None
    jobs: Annotated[int, Field(ge=1)] | None = None
    cpu: str | None = None
    metronome_ns: Annotated[int, Field(ge=0)] | None = None
    more_memory_mib: Annotated[int, Field(ge=0)] = 0

    def of(self, guest: Guest) -> Guest:
        """The guest with these changes."""
        changed = {
            key: value
            for key in ("vcpus", "jobs", "cpu", "metronome_ns")
            if (value := getattr(self, key)) is not None
        }
        memory_mib = guest.memory_mib + self.more_memory_mib
        return guest.model_copy(update={**changed, "memory_mib": memory_mib})
