"""What kernels are built for and guests are made of, by architecture: data alone.

Everything that names an architecture reads it here, so that another one is an entry of
``architectures.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

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


FILE = Path(__file__).with_name("architectures.toml")
ARCHITECTURES: Mapping[Arch, Architecture] = TypeAdapter(dict[Arch, Architecture]).validate_python(
    tomllib.loads(FILE.read_text(encoding="utf-8"))
)
X86_64, ARM64 = ARCHITECTURES["x86_64"], ARCHITECTURES["arm64"]
# The kernel as a process of the host, for its CPU: no machine is made, and no QEMU boots it.
UML = replace(
    X86_64,
    title="User-Mode Linux on x86-64",
    build=replace(X86_64.build, make=("ARCH=um",), target="linux", image="vmlinux"),
)
