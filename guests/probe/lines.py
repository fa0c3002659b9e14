"""Private caches of CPUs, in the words of the plugin; ``lines.c`` says what these mean."""

from __future__ import annotations

from experiment.architecture import X86_64
from experiment.machine import MachineSpec
from guests.probe.memory import kernel_variables
from kernels.cache import Kernel

# Where the variables of a CPU end, numbered from 0.
END_OF_CPU = "__per_cpu_end"


def words(machine: MachineSpec, kernel: Kernel) -> tuple[str, ...]:
    """The private cache of a CPU, and where this kernel keeps the variables of each.

    The second level is what a CPU has for itself.  Without the variables they have no names.
    Empty for a kernel of another architecture.

    Raises:
        InfraError: System.map cannot be read.
    """
    if kernel.identity.arch != X86_64.name:
        return ()
    return (
        f"private={machine.l2.sets}:{machine.l2.ways}",
        *kernel_variables(kernel, {END_OF_CPU: "of_cpu"}),
    )
