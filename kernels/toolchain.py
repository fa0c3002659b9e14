"""Compiler, linker, and the environment make runs in: the same bytes on every machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from host.errors import InfraError
from host.process import run

QUERY_TIMEOUT_S = 60.0
Family = Literal["gcc", "clang"]
# Compiler and linker; kbuild's LLVM=1 takes the other tools from the same packages.
TOOLS: dict[Family, tuple[str, str]] = {"gcc": ("gcc", "ld"), "clang": ("clang", "ld.lld")}
LLVM_TOOLS = ("llvm-ar", "llvm-nm", "llvm-objcopy", "llvm-objdump", "llvm-readelf", "llvm-strip")
LLVM_PACKAGES = "clang lld llvm"
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
    family: Family = "gcc"

    @property
    def identity(self) -> str:
        """Compiler and linker in one line."""
        return f"{self.compiler}; {self.linker}"


def identify(family: Family = "gcc") -> Toolchain:
    """Ask the compiler and the linker who they are.

    Raises:
        InfraError: one of them, or another tool of LLVM, is not installed.
    """
    if family == "clang":
        missing = [tool for tool in (*TOOLS[family], *LLVM_TOOLS) if shutil.which(tool) is None]
        if missing:
            raise InfraError(
                f"not installed: {', '.join(missing)}",
                where='kernel.compiler = "clang"',
                next_step=f"apt-get install {LLVM_PACKAGES}",
            )
    versions = [
        run([tool, "--version"], timeout_s=QUERY_TIMEOUT_S, env={"LC_ALL": "C"})
        .stdout.partition("\n")[0]
        .strip()
        for tool in TOOLS[family]
    ]
    return Toolchain(versions[0], versions[1], shutil.which("ccache") is not None, family)


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
    llvm = ["LLVM=1"] if toolchain.family == "clang" else []
    cc = f"ccache {TOOLS[toolchain.family][0]}"
    compilers = [*llvm, *([f"CC={cc}", f"HOSTCC={cc}"] if toolchain.ccache else [])]
    jobs = len(os.sched_getaffinity(0))
    return ["env", "-i", *isolated, "make", f"-j{jobs}", f"O={objects}", *compilers, *targets]
