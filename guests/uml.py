"""Boot a kernel that is a process of the host (ARCH=um), and read what its init timed.

Its executable is a fresh copy for each boot: a file's pages stay where they are in memory while
cached, and so does their luck with physically indexed caches, which no number of boots averages
out.
"""

from __future__ import annotations

import re
import shutil
import struct
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from guests import initramfs
from guests.channel import LARGEST, POLL_S, Clock, Ending, classify
from guests.programs import HERE, build
from host import sandbox
from host.packages import require
from host.process import ended, run, spawn, wait_for_end
from results import door
from results.native import CROSSING, NativePhase
from text import clean, words

PHASES = HERE / "phases.c"
FLAGS = ("-O2", "-static", "-s", "-Wall", "-Werror", "-Wl,--build-id=none")
MEMORY_MIB, DISK_MIB = 512, 128
# One that boots and measures takes a second or two; a busy host may take ten times that.
TIMEOUT_S = 180.0
# A process of the guest is one of the host; what their sockets hold is in no count.
LIMITS = sandbox.Limits(cpu_s=int(TIMEOUT_S), processes=64, open_files=128)
BLOCK = 4096
# blk-mq, whose requests are complete as soon as they are issued.
NULL_DEVICE = words("null_blk.nr_devices=1 null_blk.queue_mode=2 null_blk.irqmode=0 null_blk.gb=1")
SAME = "00000000-0000-4000-8000-000000000001"
MKFS: Mapping[str, Sequence[str]] = {
    # No journal: what is written is truncated before it gets to the device.
    "ext4": words(
        f"-q -F -b {BLOCK} -O ^has_journal -U {SAME} -E hash_seed={SAME},lazy_itable_init=1"
    ),
    # mkfs.xfs supports none below 300 MB.
    "xfs": words(f"-q -f --unsupported -b size={BLOCK} -m uuid={SAME}"),
}
# The phases that say something of a workload: loops in the kernel over the code that it spends its
# time in.  A workload that is not here cannot be measured so.
PHASES_OF: Mapping[str, tuple[str, ...]] = {
    "filemap-4k": ("readahead", "pread", "refault", "truncate"),
    "reclaim-overwrite": ("write", "refault"),
    "metadata": ("create", "truncate", "xfscreate"),
    "iomap-dirty": ("xfswrite", "xfsread"),
    "memory": ("shmem", "slab"),
    "pages": ("shmem", "pipe"),
    "messaging": ("slab",),
    "trees": ("xarray", "maple"),
    "direct": ("direct", "nullblk"),
    "block": ("direct", "nullblk"),
}
# What of some others User-Mode Linux does not have.
LACKS = {
    "filemap-thp": "huge pages",
    "thp-matrix": "huge pages",
    # Each mapping is a system call of the host, which is what would be timed.
    "vmalloc": "a page table of its own",
}
LINE = re.compile(r"^phase ([a-z0-9]+) (\d{1,6}) (\d{1,6})((?: \d{1,12}){1,4096})\r?$", re.M)
HERTZ = re.compile(r"^tsc_hz (\d{8,11})\r?$", re.M)
FAILED = re.compile(r"^failed (.*?)\r?$", re.M)
# What keeps such a kernel from running here, by its words, and what helps.
REFUSED = {
    re.compile(r"^(?:ptrace: .*|check_ptrace : .*)$", re.M): (
        "this host refuses ptrace, by which kernels before 7.x run their processes: allow it in "
        "the container (SYS_PTRACE) and by kernel.yama.ptrace_scope, or measure on 7.x"
    ),
    re.compile(r"ptrace set fp regs failed.*"): (
        "kernels before 7.x do not run on a CPU with AMX: measure on 7.x, or on another CPU"
    ),
}
DONE = re.compile(r"^done\r?$", re.M)


@dataclass(frozen=True)
class NativeResult:
    """What a boot found: phases by name, and ticks of the time-stamp counter in a second."""

    phases: Mapping[str, NativePhase]
    hertz: float


def parse(console: str) -> NativeResult:
    """What the init of a guest said; raises ValueError with what is wrong with it."""
    if failed := FAILED.search(console):
        raise ValueError(clean(failed[1]))
    hertz = HERTZ.search(console)
    for pattern, why in REFUSED.items():
        if match := pattern.search(console):
            raise ValueError(f"{why} ({clean(match[0])})")
    if not DONE.search(console) or hertz is None:
        raise ValueError("the guest did not get to its end")
    phases: dict[str, NativePhase] = {}
    for name, folios, calls, ticks in LINE.findall(console):
        of = {"folios": folios, "calls": calls, "ticks": ticks.split()}
        try:
            phases[name] = NativePhase.model_validate(of)
        except ValidationError:
            raise ValueError(f"no time passed in {name}") from None
    if CROSSING not in phases or len(phases) < 2:
        raise ValueError(f"phases found: {', '.join(phases) or 'none'}")
    return NativeResult(phases, float(hertz[1]))


def root(folder: Path, cache: Path, modules: Sequence[Path]) -> Path:
    """The guest's initramfs: init, modules, empty file systems; InfraError: no compiler or mkfs."""
    top = folder / "root"
    top.mkdir()
    shutil.copyfile(build(PHASES, FLAGS, cache), top / "init")
    (top / "init").chmod(0o755)
    for module in modules:
        shutil.copyfile(module, top / module.name)
    for kind, options in MKFS.items():
        disk = folder / kind
        with disk.open("wb") as stream:
            stream.truncate(DISK_MIB << 20)
        run([str(require(f"mkfs.{kind}")), *options, str(disk)], timeout_s=TIMEOUT_S)
        with disk.open("rb") as stream, (top / f"{kind}.blocks").open("wb") as blocks:
            for number, block in enumerate(iter(lambda: stream.read(BLOCK), b"")):
                # any() takes a second and a half for the blocks of both.
                if block != bytes(BLOCK):
                    blocks.write(struct.pack("=I", number) + block)
        disk.unlink()
    archive = folder / "root.cpio"
    initramfs.pack(top, archive)
    return archive


def boot(
    executable: Path,
    archive: Path,
    folder: Path,
    phases: Collection[str],
    cpu: int | None,
    watch: Callable[[], None] = lambda: None,
    more: Sequence[str] = (),
) -> tuple[NativeResult | None, Ending, str]:
    """Boot one guest for these phases: what it found (None: no end), how it ended, its console.

    ``more`` are words of the kernel's command line.
    Raises InfraError: there is no box, or nothing can be started in it; and what ``watch`` raises,
    which is called meanwhile.
    """
    folder.mkdir()
    program, console = folder / "linux", folder.with_name(f"{folder.name}.console")
    shutil.copyfile(executable, program)
    program.chmod(0o755)
    box = sandbox.box((folder, folder), readable=(archive,), limits=LIMITS)
    # With seccomp=on the kernel talks through one with each process of the guest.
    box = replace(box, allowed=("socketpair",))
    line = [str(program), f"mem={MEMORY_MIB}M", f"initrd={archive}"]
    line += words("con=null con0=fd:0,fd:1 quiet panic=-1 seccomp=on")
    line += [f"brd.rd_size={DISK_MIB << 10}", *NULL_DEVICE]
    line += [f"phases=,{','.join((CROSSING, *phases))},", *more]
    pinned = [] if cpu is None else ["taskset", "-c", str(cpu)]
    clock: Clock = ""
    began = time.monotonic()
    # Its memory is a file without a name in the box's own /tmp.
    argv = box.argv(line, folder, {"TMPDIR": "/tmp", "HOME": "/tmp"})  # noqa: S108
    try:
        with box.owned(), spawn([*pinned, *argv], log=console) as process:
            while not ended(process) and not clock:
                wait_for_end(process, POLL_S)
                watch()
                if console.stat().st_size > LARGEST:
                    clock = "flood"
                elif time.monotonic() - began > TIMEOUT_S:
                    clock = "run"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if clock == "flood":
        console.write_text("")
    text = door.read(console.parent, console.name, 2 * LARGEST).decode(errors="replace")
    try:
        return parse(text), Ending("done", "measured"), text
    except ValueError as error:
        ending = classify(text, agent_done=False, deadline=clock)
        if ending.kind in ("lost", "failed"):
            ending = replace(ending, kind="failed", message=str(error))
        return None, ending, text
