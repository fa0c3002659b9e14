"""What a kernel that somebody else configured must have to be a guest of the lab, by its options.

The lab's own configurations are looked at when they are made (``kernels.configure.verify``); of a
prebuilt kernel a missing one would show as whatever fails first in the guest.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from errors import UsageError
from experiment.load import CONFIGS
from kernels import config
from kernels.options import load_reasons

# Around the packed configuration in an image (kernel/configs.c).
IKCONFIG = re.compile(rb"IKCFG_ST(.*?)IKCFG_ED", re.S)
MOST_CONFIG_BYTES = 4 << 20


@dataclass(frozen=True)
class Want:
    """An option that is wanted, and what for; ``module`` is loaded where it is not built in."""

    option: str
    why: str
    module: str = ""


GUEST = (
    Want("BLK_DEV_INITRD", "a guest's root is an initramfs"),
    Want("BINFMT_ELF", "programs run"),
    Want("BINFMT_SCRIPT", "the agent is a script"),
    Want("SERIAL_8250_CONSOLE", "the console and the results are serial ports"),
    Want("PROC_FS", "counters are read there"),
    Want("PROC_SYSCTL", "caches are dropped there"),
    Want("SYSFS", "settings are written there"),
    Want("TMPFS", "results are kept there until they are sent"),
    Want("FW_CFG_SYSFS", "the guest reads its job through it", "qemu_fw_cfg"),
    Want("MEMCG", "workloads run in a memory cgroup"),
    Want("BLK_CGROUP", "what a device moved is counted by cgroup"),
    Want("CGROUP_SCHED", "CPU time is counted by cgroup"),
    Want("PSI", "stalls are read from it"),
    Want("VM_EVENT_COUNTERS", "/proc/vmstat has them"),
    Want("TRANSPARENT_HUGEPAGE", "each phase sets it"),
)
BRD = Want("BLK_DEV_RAM", "the workload's file system is on a RAM disk", "brd")
FILE_SYSTEMS = {
    "mkfs.xfs": Want("XFS_FS", "the workload's file system", "xfs"),
    "mkfs.ext4": Want("EXT4_FS", "the workload's file system", "ext4"),
}


def in_image(vmlinux: bytes) -> str:
    """The configuration that a kernel has in itself (IKCONFIG); empty where it has none."""
    match = IKCONFIG.search(vmlinux)
    if match is None:
        return ""
    try:
        unpacked = zlib.decompressobj(wbits=31).decompress(match[1], MOST_CONFIG_BYTES)
    except zlib.error:
        return ""
    return unpacked.decode(errors="replace")


def require(text: str, modules: Collection[str], wants: Iterable[Want], *, where: str) -> None:
    """Refuse a kernel whose configuration lacks something; nothing is known of an empty one.

    ``modules`` are the names of those that its guests load.

    Raises:
        UsageError: names every option that lacks, and what it is wanted for.
    """
    options = config.parse(text)
    other_names = {each.option: each.now for each in load_reasons(CONFIGS.parent).renamed}
    missing: dict[str, list[str]] = {}
    for want in wants if options else ():
        value = options.get(want.option, options.get(other_names.get(want.option, ""), "n"))
        if value == "n" or (value == "m" and want.module not in modules):
            note = " (a module, and no folder of modules has it)" if value == "m" else ""
            missing.setdefault(want.why, []).append(f"CONFIG_{want.option}{note}")
    if missing:
        parts = [f"{', '.join(names)}: {why}" for why, names in missing.items()]
        raise UsageError(
            f"this kernel lacks what its guests need: {'; '.join(parts)}",
            where=where,
            next_step="build it with these options, or name the folder of its modules: "
            "image:PATH@/lib/modules/RELEASE",
        )
