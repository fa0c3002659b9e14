"""Compiler, linker, and the environment make runs in: the same bytes on every machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from host.process import run

QUERY_TIMEOUT_S = 60.0
# What kbuild would otherwise take from the clock, the user and the host name.
FIXED = {
    "KBUILD_BUILD_TIMESTAMP": "2026-01-01 00:00:00 UTC",
    "KBUILD_BUILD_USER": "twinboot",
    "KBUILD_BUILD_HOST": "twinboot",
    "KBUILD_BUILD_VERSION": "1",
    "LC_ALL": "C",
    "TZ": "UTC",
}


@dataclass(frozen=True)
class Toolchain:
    """First lines of the tools' version texts, and whether ccache is there."""

    compiler: str
    linker: str
    ccache: bool

    @property
    def identity(self) -> str:
        """Compiler and linker in one line."""
        return f"{self.compiler}; {self.linker}"


def identify() -> Toolchain:
    """Ask the compiler and the linker who they are.

    Raises:
        InfraError: one of them is not installed.
    """
    versions = [
        run([tool, "--version"], timeout_s=QUERY_TIMEOUT_S, env={"LC_ALL": "C"})
        .stdout.partition("\n")[0]
        .strip()
        for tool in ("gcc", "ld")
    ]
    return Toolchain(versions[0], versions[1], shutil.which("ccache") is not None)


def environment(ccache_folder: Path | str) -> dict[str, str]:
    """All variables make sees; nothing else of the caller's environment reaches it."""
    return {
        **FIXED,
        "PATH": os.environ.get("PATH", os.defpath),
        "CCACHE_DIR": str(ccache_folder),
    }


def make_argv(
    toolchain: Toolchain, objects: str, targets: Sequence[str], *, ccache_folder: Path | str
) -> list[str]:
    """The make command for an object folder right inside the tree it runs in."""
    # MAKEFLAGS, KCFLAGS, ARCH or CROSS_COMPILE of the caller would go into the
    # kernel without going into its key.
    isolated = [f"{name}={value}" for name, value in environment(ccache_folder).items()]
    compilers = ["CC=ccache gcc", "HOSTCC=ccache gcc"] if toolchain.ccache else []
    jobs = len(os.sched_getaffinity(0))
    return ["env", "-i", *isolated, "make", f"-j{jobs}", f"O={objects}", *compilers, *targets]
