"""What the probe is told to model: caches, TLBs, and lines that move between CPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from errors import InfraError
from experiment.architecture import X86_64
from experiment.machine import MachineSpec
from kernels import btf
from kernels.addresses import text_of
from kernels.btf import Types
from kernels.cache import Kernel

LEVELS = {"data": "d1", "code": "i1", "second": "s2", "second_data": "d2", "second_code": "i2"}
SIZES = {"4K": 1, "2M": 2, "1G": 4}
# The plugin's memory_words for the addresses of the kernel's variables.
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


def memory_words(machine: MachineSpec, kernel: Kernel) -> tuple[str, ...]:
    """The machine, and where this kernel's page tables are.
    Empty for a kernel whose page tables the plugin cannot walk: of another architecture, or
    without one of the variables.
    Raises InfraError: System.map cannot be read.
    """
    if kernel.identity.arch != X86_64.name:
        return ()
    variables = kernel_variables(kernel)
    return (*machine_words(machine), CODE, *variables) if len(variables) == len(VARIABLES) else ()


def kernel_variables(
    kernel: Kernel, more: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, ...]:
    """Where a kernel's page tables are, and ``more`` of its symbols, each by the plugin's word.
    Raises InfraError: System.map cannot be read.
    """
    at = _addresses(kernel.system_map)
    return tuple(f"{word}={at[name]}" for name, word in {**VARIABLES, **more}.items() if name in at)


@lru_cache(maxsize=4)
def _addresses(system_map: Path) -> dict[str, str]:
    names = {*VARIABLES, END_OF_CPU, SLAB_CACHES, SECTIONS}
    try:
        symbols = SYMBOL.findall(text_of(system_map))
        return {name: address for address, name in symbols if name in names}
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        step = "./lab.py build makes a kernel that was removed from the cache again"
        raise InfraError(what, where=str(system_map), next_step=step) from None


# Where the variables of a CPU end, numbered from 0.
END_OF_CPU = "__per_cpu_end"
SLAB_CACHES, SECTIONS = "slab_caches", "mem_section"
WORDS = {SLAB_CACHES: "slabs", SECTIONS: "sections"}
VIRTUAL_MAP = "CONFIG_SPARSEMEM_VMEMMAP=y"
# What the plugin has to know of the kernel's structures to find an object's slab cache.
SLAB_MEMBERS = (
    ("kmem_cache", "list"),
    ("kmem_cache", "name"),
    ("kmem_cache", "size"),
    ("kmem_cache", "refcount"),
    ("slab", "slab_cache"),
    ("page", "compound_head"),
)
# What a slab cache holds, where it is not called after it.
HOLDS = {
    "radix_tree_node": "xa_node",
    "inode_cache": "inode",
    "filp": "file",
    "files_cache": "files_struct",
    "fs_cache": "fs_struct",
    "signal_cache": "signal_struct",
    "sighand_cache": "sighand_struct",
    "cred_jar": "cred",
    "mnt_cache": "mount",
    "shmem_inode_cache": "shmem_inode_info",
    "proc_inode_cache": "proc_inode",
    "ext4_inode_cache": "ext4_inode_info",
    "sock_inode_cache": "socket_alloc",
}


def line_words(machine: MachineSpec, kernel: Kernel) -> tuple[str, ...]:
    """The private cache of a CPU, and where this kernel keeps the variables of each.
    The second level is what a CPU has for itself.  Without the variables they have no names, and
    without the kernel's types objects of slab caches have none.
    Empty for a kernel of another architecture.
    Raises InfraError: System.map or the types cannot be read.
    """
    if kernel.identity.arch != X86_64.name:
        return ()
    return (
        f"private={machine.l2.sets}:{machine.l2.ways}",
        CODE,
        *kernel_variables(kernel, {END_OF_CPU: "of_cpu"}),
        *slab_words(kernel),
    )


def lock_words(kernel: Kernel) -> tuple[str, ...]:
    """What says which objects locks are in, empty if nothing; raises as :func:`slab_words`."""
    slabs = slab_words(kernel) if kernel.identity.arch == X86_64.name else ()
    return (*kernel_variables(kernel), *slabs) if slabs else ()


def slab_words(kernel: Kernel) -> tuple[str, ...]:
    """Where the kernel's slab caches are, and its page structures where they are in sections.
    Raises InfraError: System.map or the types cannot be read.
    """
    types = btf.of(kernel)
    if types.size("page") is None:
        return ()
    numbers = {
        SLAB_CACHES: (*(types.offset(*member) for member in SLAB_MEMBERS), types.size("page")),
    }
    if VIRTUAL_MAP not in kernel.config.read_text().splitlines():
        numbers[SECTIONS] = (types.offset(SECTIONS, "section_mem_map"), types.size(SECTIONS))
    at = dict(
        word.split("=") for word in kernel_variables(kernel, {name: name for name in numbers})
    )
    if any(name not in at or None in those for name, those in numbers.items()):
        return ()
    return tuple(
        f"{WORDS[name]}={':'.join((at[name], *map(str, those)))}" for name, those in numbers.items()
    )


def member_of_slab(types: Types, cache: str, offset: int) -> str:
    """What is at a byte of a slab cache's objects: ``xfs_inode.i_vnode.i_lock``.
    The cache's name alone where its objects' type is not known.
    """
    holds = HOLDS.get(cache, cache)
    member = types.member_at(holds, offset)
    return f"{holds}.{member}" if member else cache
