"""A machine to be modelled, and where a kernel's page tables are, in the words of the plugin.

What these words mean is in ``memory.c``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from errors import InfraError
from experiment.architecture import X86_64
from experiment.machine import MachineSpec
from kernels.addresses import text_of
from kernels.cache import Kernel

LEVELS = {"data": "d1", "code": "i1", "second": "s2", "second_data": "d2", "second_code": "i2"}
SIZES = {"4K": 1, "2M": 2, "1G": 4}
# The plugin's words for the addresses of the kernel's variables.
VARIABLES = {
    "init_top_pgt": "swapper",
    "init_mm": "init_mm",
    "__per_cpu_offset": "percpu",
    "cpu_tlbstate": "tlbstate",
}
# No guest executes code of 32 bits once its kernel is up.
CODE = "bits=64"
SYMBOL = re.compile(r"^([0-9a-f]+) [A-Za-z] (\w+)$", re.MULTILINE)


def machine_words(machine: MachineSpec) -> tuple[str, ...]:
    """Caches, TLBs and streams of a machine."""
    caches = {"l1d": machine.l1d, "l1i": machine.l1i, "l2": machine.l2, "llc": machine.llc}
    return (
        *(f"cache={name}:{cache.sets}:{cache.ways}" for name, cache in caches.items()),
        *(
            f"tlb={LEVELS[tlb.level]}:{sum(SIZES[size] for size in tlb.pages)}"
            f":{tlb.sets}:{tlb.ways}"
            for tlb in machine.tlbs
        ),
        f"prefetch={machine.prefetch_lines}",
    )


def words(machine: MachineSpec, kernel: Kernel) -> tuple[str, ...]:
    """The machine, and where this kernel's page tables are.

    Empty for a kernel whose page tables the plugin cannot walk: of another architecture, or
    without one of the variables.

    Raises:
        InfraError: System.map cannot be read.
    """
    if kernel.identity.arch != X86_64.name:
        return ()
    variables = kernel_variables(kernel)
    return (*machine_words(machine), CODE, *variables) if len(variables) == len(VARIABLES) else ()


def kernel_variables(
    kernel: Kernel, more: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, ...]:
    """Where a kernel's page tables are, and ``more`` of its symbols, each by the plugin's word.

    Raises:
        InfraError: System.map cannot be read.
    """
    return _variables(kernel.system_map, tuple({**VARIABLES, **more}.items()))


@lru_cache(maxsize=8)
def _variables(system_map: Path, symbols: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    try:
        text = text_of(system_map)
    except OSError as error:
        raise InfraError(
            f"cannot be read: {error.strerror}",
            where=str(system_map),
            next_step="./lab.py build makes a kernel that was removed from the cache again",
        ) from None
    addresses = {name: address for address, name in SYMBOL.findall(text)}
    return tuple(f"{word}={addresses[name]}" for name, word in symbols if name in addresses)
