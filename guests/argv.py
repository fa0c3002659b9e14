"""The QEMU command line of an exact guest: pure, so that golden tests can hold it.

What each part is for, and what breaks exactness without it, is in
docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiment.architecture import ARCHITECTURES
from experiment.plan import Size
from experiment.spec import Guest
from text import words

# Read by guests/preload.c.
METRONOME = "TWINBOOT_METRONOME_NS"
# System calls that a QEMU never needs here, and whoever took it over would.
REFUSED_CALLS = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"

# Puts the root into a ramfs in place of a tmpfs.  Pages of a tmpfs are dirty for ever; those that
# nobody maps when caches are dropped get PG_reclaim, which is PG_readahead to the function that
# maps pages around a fault, and it passes them over.  So how the host's programs fault would depend
# on what boot had mapped, as that of no program on a disk does.  Others keep their tmpfs: pages of
# a ramfs cannot be moved, which compaction feels (docs/notebook/evidence.md).
ROOT_IN_RAMFS = ("rootfstype=ramfs",)


@dataclass(frozen=True)
class ExactFiles:
    """Host files of one boot; ``memory_shared`` is False for a restored guest.

    ``memory`` is the guest's memory; of several nodes each has a file of its own,
    named after it (:func:`memory_files`).
    """

    kernel: Path
    initramfs: Path
    memory: Path
    memory_shared: bool
    console: Path
    result: Path
    prepare: Path
    job: Path


def environment(preload: Path, guest: Guest) -> dict[str, str]:
    """What QEMU's environment holds beside the lab's own."""
    held = {"LD_PRELOAD": str(preload)}
    if guest.metronome_ns:
        held[METRONOME] = str(guest.metronome_ns)
    return held


def memory_files(memory: Path, guest: Guest) -> tuple[Path, ...]:
    """The file of each node's memory, in the order of the nodes."""
    if guest.numa_nodes == 1:
        return (memory,)
    return tuple(memory.with_name(f"{memory.name}-{node}") for node in range(guest.numa_nodes))


def kernel_command_line(guest: Guest, size: Size, more: Sequence[str] = ()) -> str:
    """The kernel command line of an exact guest; the words of ``more`` come last."""
    known = ARCHITECTURES[guest.arch].words
    line = [f"console={known.console}", *words("panic=-1 quiet nokaslr norandmaps"), *known.clock]
    line += ["no_hash_pointers", f"brd.rd_nr={int(size.brd_mib > 0)}"]
    line += [f"brd.rd_size={size.brd_mib * 1024}", "rdinit=/init", *known.timer]
    if guest.vcpus == 1:
        # Afterwards the agent's spinner leaves nothing to poll for.  With several
        # vCPUs the idle ones halt: a spinner would take half of the turns.
        line.append(known.never_idle)
    return " ".join([*line, *more])


def machine_argv(guest: Guest, *, stops: bool = True) -> list[str]:
    """What names no file; with ``stops`` the agent's write to pvpanic pauses the machine."""
    board = ARCHITECTURES[guest.arch].board
    return [
        *(board.qemu, "-accel", "tcg", "-cpu", board.cpu or guest.cpu, "-smp", str(guest.vcpus)),
        *words("-icount shift=0,sleep=off -rtc clock=vm,base=2026-01-01T00:00:00 -seed 1"),
        *words("-nodefaults -no-user-config -display none -no-reboot -action"),
        "panic=pause" if stops else "panic=none",
        *(word for device in board.devices for word in ("-device", device)),
    ]


def qemu_argv(
    guest: Guest,
    size: Size,
    files: ExactFiles,
    *,
    monitor_fd: int | None = None,
    incoming: bool = False,
    plugin: str = "",
    cmdline: Sequence[str] = (),
) -> list[str]:
    """The whole QEMU command line; with ``plugin`` (``Probe.argument``) the probe counts along.

    With ``monitor_fd`` QEMU starts stopped and listens for QMP on that socket;
    without, the line can be pasted and runs by itself to the agent's end.
    """
    board, nodes = ARCHITECTURES[guest.arch].board, guest.numa_nodes
    share, each = "on" if files.memory_shared else "off", guest.vcpus // nodes
    # One memory for the machine, or one for each node, with its share of the vCPUs.
    names = ["ram"] if nodes == 1 else [f"ram{node}" for node in range(nodes)]
    memory = ["-machine", f"{board.machine},memory-backend=ram" if nodes == 1 else board.machine]
    for name, path in zip(names, memory_files(files.memory, guest), strict=True):
        size_mib = f"size={guest.memory_mib // nodes}M"
        place = (f"mem-path={path}", f"share={share}")
        memory += ["-object", joined("memory-backend-file", f"id={name}", size_mib, *place)]
    memory += ["-m", f"{guest.memory_mib}M"]
    for node, name in enumerate(names if nodes > 1 else []):
        cpus = f"{node * each}-{(node + 1) * each - 1}"
        memory += ["-numa", f"node,nodeid={node},cpus={cpus},memdev={name}"]
    argv = [*machine_argv(guest, stops=monitor_fd is not None), "-sandbox", REFUSED_CALLS, *memory]
    argv += ["-chardev", joined("file", "id=console", f"path={files.console}")]
    argv += ["-serial", "chardev:console"]
    argv += ["-chardev", joined("file", "id=result", f"path={files.result}"), *board.result]
    argv += ["-fw_cfg", joined("name=opt/twinboot/prepare", f"file={files.prepare}")]
    argv += ["-fw_cfg", joined("name=opt/twinboot/job", f"file={files.job}")]
    argv += ["-kernel", str(files.kernel), "-initrd", str(files.initramfs)]
    argv += ["-append", kernel_command_line(guest, size, cmdline)]
    if plugin:
        argv += ["-plugin", plugin]
    if monitor_fd is not None:
        argv += ["-chardev", f"socket,id=monitor,fd={monitor_fd}"]
        argv += ["-mon", "chardev=monitor,mode=control"]
        argv += ["-incoming", "defer"] if incoming else ["-S"]
    return argv


def joined(*words: str) -> str:
    """The argument of a QEMU option, which reads a comma as the end of a value, and two as one."""
    return ",".join(word.replace(",", ",,") for word in words)
