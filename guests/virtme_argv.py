"""The virtme-ng command line of a wall guest: pure, so that golden tests can hold it.

virtme-ng chooses by what it finds on the host; everything that changes a
measurement is therefore given: machine type, accelerator without fall-back, CPU
model, the root's file system.  QEMU merges repeated ``-machine`` options and takes
the last ``-cpu``, so that ours win over virtme-ng's.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiment.plan import Size
from experiment.spec import Guest
from guests.argv import REFUSED_CALLS, joined
from host.accelerator import Accelerator, machine_options
from host.topology import Placement

VNG = "vng"
SHARE_IN_GUEST = "/run/twinboot-share"
ENTER_NAME = "enter.sh"
PORT_NAME = "twinboot.result"
CPU_MODELS: dict[Accelerator, str] = {
    "kvm": "host",
    "kvm,arch-capabilities=off": "host,arch-capabilities=off",
    "tcg": "max",
}
# QEMU's stdout and stderr must be a pipe: virtme-ng has several chardevs open them by
# name, and each would truncate a file.  A lab that is killed outright takes the shell
# with it by SIGTERM, and the shell its group: virtme-ng's own children do not follow
# it.  Its status says too little to be used (255 for a panic, an abort, a signal),
# but belongs to the evidence.
SHELL_LINE = (
    'trap "kill -KILL 0" TERM; '
    '{ "$@" 2>&1; echo "twinboot-host: vng ended with status $?"; } | cat & wait $!'
)


@dataclass(frozen=True)
class WallFiles:
    """Host files of one boot, all in one folder of its own with a plain name.

    ``share`` is offered to the guest read-only; ``result`` and ``monitor`` are made
    by QEMU.
    """

    folder: Path

    @property
    def kernel(self) -> Path:
        """The kernel image, or a link to it."""
        return self.folder / "bzImage"

    @property
    def share(self) -> Path:
        """Agent and texts."""
        return self.folder / "share"

    @property
    def result(self) -> Path:
        """What comes through the result port."""
        return self.folder / "result"

    @property
    def monitor(self) -> Path:
        """QEMU's monitor socket."""
        return self.folder / "monitor"

    @property
    def home(self) -> Path:
        """An empty home: virtme-ng's configuration file overrides its flags."""
        return self.folder / "home"

    @property
    def temporary(self) -> Path:
        """virtme-ng's own temporary files."""
        return self.folder / "tmp"


def environment(files: WallFiles) -> dict[str, str]:
    """What virtme-ng's environment holds beside the lab's own."""
    home = str(files.home)
    return {"HOME": home, "XDG_CONFIG_HOME": home, "TMPDIR": str(files.temporary)}


def kernel_command_line(size: Size, more: Sequence[str] = ()) -> str:
    """What is added to virtme-ng's kernel command line."""
    words = [
        "panic=-1",
        f"brd.rd_nr={int(size.brd_mib > 0)}",
        f"brd.rd_size={size.brd_mib * 1024}",
        *more,
    ]
    return " ".join(words)


def qemu_options(
    guest: Guest,
    files: WallFiles,
    accelerator: Accelerator,
    placement: Placement | None,
) -> list[str]:
    """QEMU options of ours, behind those of virtme-ng.

    QEMU starts stopped, so that its vCPU threads are pinned before they run.
    """
    return [
        *machine_options(accelerator),
        "-cpu", guest.wall.cpu or CPU_MODELS[accelerator],
        *_memory_options(guest, placement),
        "-chardev", joined("file", "id=twinboot-result", f"path={files.result}"),
        "-device", f"virtserialport,name={PORT_NAME},chardev=twinboot-result",
        "-chardev",
        joined("socket", "id=twinboot-monitor", f"path={files.monitor}", "server=on", "wait=off"),
        "-mon", "chardev=twinboot-monitor,mode=control",
        "-sandbox", REFUSED_CALLS,
        "-S",
    ]  # fmt: skip


def vng_argv(
    guest: Guest,
    size: Size,
    files: WallFiles,
    accelerator: Accelerator,
    placement: Placement | None = None,
    cmdline: Sequence[str] = (),
) -> list[str]:
    """The whole virtme-ng command line of one run."""
    argv = [
        VNG,
        "--run", str(files.kernel),
        "--verbose",
        "--user", "root",
        "--disable-microvm",
        "--force-9p",
        "--cpus", str(guest.vcpus),
        "--memory", f"{guest.memory_mib}M",
        "--rodir", f"{SHARE_IN_GUEST}={files.share}",
        "--append", kernel_command_line(size, cmdline),
    ]  # fmt: skip
    if accelerator == "tcg":
        argv.append("--disable-kvm")
    options = shlex.join(qemu_options(guest, files, accelerator, placement))
    return [*argv, f"--qemu-opts={options}", "--exec", f"sh {SHARE_IN_GUEST}/{ENTER_NAME}"]


def wrapped(argv: Sequence[str]) -> list[str]:
    """``argv`` behind a shell that makes the pipe and ends the group with the lab."""
    return ["setpriv", "--pdeathsig", "TERM", "--", "sh", "-c", SHELL_LINE, "twinboot", *argv]


def _memory_options(guest: Guest, placement: Placement | None) -> list[str]:
    """Guest memory and NUMA nodes; nothing where virtme-ng's plain memory serves."""
    nodes, wall = guest.numa_nodes, guest.wall
    bound = placement.nodes if placement else ()
    if nodes == 1 and not wall.huge_pages and not bound:
        return []
    options: list[str] = []
    for node in range(nodes):
        backend = f"memory-backend-memfd,id=ram{node},size={guest.memory_mib // nodes}M,share=off"
        if wall.huge_pages:
            backend += ",hugetlb=on,hugetlbsize=2M,prealloc=on"
        if bound:
            backend += f",host-nodes={bound[node]},policy=bind"
        options += ["-object", backend]
    if nodes == 1:
        return [*options, "-machine", "memory-backend=ram0"]
    share = guest.vcpus // nodes
    for node in range(nodes):
        first, last = node * share, (node + 1) * share - 1
        options += ["-numa", f"node,nodeid={node},memdev=ram{node},cpus={first}-{last}"]
    return options
