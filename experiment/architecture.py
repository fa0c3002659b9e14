"""What kernels are built for and guests are made of, by architecture: data alone.

Everything that names an architecture reads it here, so that another one is an entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

Arch = Literal["x86_64", "arm64"]


@dataclass(frozen=True)
class Build:
    """How a kernel is built.

    ``make`` is what make is told besides; ``tools`` is the prefix of the GNU tools'
    names; ``target`` is what make builds and what the image is called in the cache,
    ``image`` where make leaves it.  ``fragments`` is a folder of ``configs/kconfig`` with
    ``arch.config`` and a ``pages-Nk.config`` for each of ``page_kib``, or empty.
    """

    make: tuple[str, ...]
    tools: str
    target: str
    image: str
    fragments: str
    page_kib: tuple[int, ...]


@dataclass(frozen=True)
class Board:
    """The machine that QEMU makes.

    ``package`` is Debian's for ``qemu``.  ``cpu`` is the model of every guest, empty where
    guests name theirs.  ``devices`` stop and end the machine; ``result`` is the serial port
    that results go to.  ``done_status`` is QEMU's exit status when the agent ended it; where
    it is 0, which anything else that switches off gives too, the agent's last word on the
    console is asked for besides.  ``probe`` is what the probe is compiled with.
    """

    qemu: str
    package: str
    machine: str
    cpu: str
    devices: tuple[str, ...]
    result: tuple[str, ...]
    done_status: int
    probe: tuple[str, ...]


@dataclass(frozen=True)
class Words:
    """Words of the kernel's command line: its console, clock and timer, and how not to idle."""

    console: str
    clock: tuple[str, ...]
    timer: tuple[str, ...]
    never_idle: str


@dataclass(frozen=True)
class Root:
    """Where a guest's programs come from.

    ``debian`` is Debian's name for an architecture whose packages are fetched, empty for
    the host's own programs.  ``agent`` takes the place of ``workloads/agent.sh``, which it
    reads; ``program_at`` is where the kernel puts a position-independent program, and
    ``modules_at`` the [start, end) of where it puts modules, both without randomization.
    """

    debian: str
    agent: str
    program_at: int
    modules_at: tuple[int, int]


@dataclass(frozen=True)
class Architecture:
    """One architecture."""

    name: Arch
    title: str
    build: Build
    board: Board
    words: Words
    root: Root

    @property
    def programs(self) -> Mapping[str, str]:
        """The tools that have a say in a number and are called otherwise than x86-64's."""
        if not self.build.tools:
            return {}
        return {"qemu": self.board.qemu, **{n: f"{self.build.tools}{n}" for n in ("gcc", "ld")}}


# isa-debug-exit ends QEMU with (value << 1) | 1; the agent writes 16, so that no
# error status of QEMU's own can be taken for it.
EXIT_PORT = 0x501
PANIC_PORT = 0x505

X86_64 = Architecture(
    name="x86_64",
    title="x86-64",
    build=Build(
        make=(),
        tools="",
        target="bzImage",
        image="arch/x86/boot/bzImage",
        fragments="",
        page_kib=(4,),
    ),
    board=Board(
        qemu="qemu-system-x86_64",
        package="qemu-system-x86",
        machine="pc",
        cpu="",
        devices=(f"pvpanic,ioport={PANIC_PORT}", f"isa-debug-exit,iobase={EXIT_PORT:#x},iosize=1"),
        result=("-serial", "chardev:result"),
        done_status=33,
        probe=(),
    ),
    words=Words(
        console="ttyS0",
        clock=("tsc=reliable",),
        # QEMU's LAPIC timer fails the kernel's verification under icount, after
        # 0.43 virtual seconds of PAUSE; the HPET serves as well.
        timer=("nolapic_timer",),
        never_idle="idle=poll",
    ),
    # ELF_ET_DYN_BASE: two thirds of the address space.  MODULES_VADDR and MODULES_END.
    root=Root(
        debian="",
        agent="",
        program_at=0x555555554000,
        modules_at=(0xFFFFFFFFA0000000, 0xFFFFFFFFFF000000),
    ),
)

ARM64 = Architecture(
    name="arm64",
    title="arm64",
    build=Build(
        make=("ARCH=arm64", "CROSS_COMPILE=aarch64-linux-gnu-"),
        tools="aarch64-linux-gnu-",
        target="Image",
        image="arch/arm64/boot/Image",
        fragments="arm64",
        page_kib=(4, 16, 64),
    ),
    board=Board(
        qemu="qemu-system-aarch64",
        package="qemu-system-arm",
        # A version, since what `virt` alone means changes with QEMU; no seeds in the
        # device tree, which would credit the random pool with what the host chose.
        machine="virt-7.2,gic-version=3,its=off,dtb-randomness=off",
        # All three page sizes and LSE atomics, and neither pointer authentication, which
        # costs QEMU more than all else, nor an instruction for random numbers.  The
        # counter goes by the nanosecond, so that it counts instructions.
        cpu="neoverse-n1,pmu=off,cntfrq=1000000000",
        devices=("pvpanic-pci,addr=01.0",),
        # There is one pl011 in a machine without secure mode.
        result=("-device", "pci-serial,chardev=result,addr=02.0"),
        done_status=0,
        probe=("-DPROBE_ARM64",),
    ),
    words=Words(console="ttyAMA0", clock=("mitigations=off",), timer=(), never_idle="nohlt"),
    # Two thirds of the address space, down to 64 KiB, which programs are aligned to.
    root=Root(
        debian="arm64",
        agent="arm64.sh",
        program_at=0xAAAAAAAA0000,
        modules_at=(0xFFFF800000000000, 0xFFFF800080000000),
    ),
)

# The kernel as a process of the host, for its CPU: no machine is made, and no QEMU boots it.
UML = replace(
    X86_64,
    title="User-Mode Linux on x86-64",
    build=replace(X86_64.build, make=("ARCH=um",), target="linux", image="vmlinux"),
)

ARCHITECTURES: Mapping[Arch, Architecture] = MappingProxyType({"x86_64": X86_64, "arm64": ARM64})
