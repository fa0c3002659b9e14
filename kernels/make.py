"""Compilers and make: how a build is called, nothing left of it, and links in other orders."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from errors import InfraError
from experiment.architecture import X86_64, Architecture
from host.packages import install_line, package_of
from host.process import TimedOutError, paste, run, spawn, wait_for_end

QUERY_TIMEOUT_S = 60.0
# Of the headers of a tree, which take 2 s; on a busy host or a slow disk they may take long.
SEARCH_CPU_S, SEARCH_TIMEOUT_S = 60, 3600.0
BOX_HOME = "/tmp"  # noqa: S108
# Before ccache on PATH, where the compiler's list of headers is enough; commands stay the same.
WRAPPED = Path(__file__).resolve().parent / "wrapped"
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
# Kconfig writes their versions into .config, and nothing that is measured is made by them: with
# those of a caller's PATH, one source would have several configurations.
UNUSED = ("RUSTC=none", "PAHOLE=none")
# What every make is given, whatever it makes.
GIVEN = " ".join([*(f"{name}={value}" for name, value in FIXED.items()), *UNUSED])


@dataclass(frozen=True)
class Toolchain:
    """First lines of the tools' version texts, whether ccache is there, and what for."""

    compiler: str
    linker: str
    ccache: bool
    family: Family = "gcc"
    architecture: Architecture = X86_64

    @property
    def identity(self) -> str:
        """Compiler and linker in one line."""
        return f"{self.compiler}; {self.linker}"


def tools_of(family: Family, architecture: Architecture = X86_64) -> tuple[str, str]:
    """Names of compiler and linker; LLVM's build for every architecture."""
    compiler, linker = TOOLS[family]
    prefix = architecture.build.tools if family == "gcc" else ""
    return f"{prefix}{compiler}", f"{prefix}{linker}"


def identify(family: Family = "gcc", architecture: Architecture = X86_64) -> Toolchain:
    """Ask compiler and linker who they are; InfraError: one, or a tool of LLVM, is missing."""
    compiler, linker = tools_of(family, architecture)
    if family == "clang":
        missing = [tool for tool in (*TOOLS[family], *LLVM_TOOLS) if shutil.which(tool) is None]
        if missing:
            what = f"not installed: {', '.join(missing)}"
            step = install_line([LLVM_PACKAGES])
            raise InfraError(what, where='kernel.compiler = "clang"', next_step=step)
    if family == "gcc" and architecture.build.tools and shutil.which(compiler) is None:
        what = f"not installed: {compiler}"
        step = install_line([package_of(compiler)])
        raise InfraError(what, where=f'kernel.arch = "{architecture.name}"', next_step=step)
    versions = [
        run([tool, "--version"], timeout_s=QUERY_TIMEOUT_S, env={"LC_ALL": "C"})
        .stdout.partition("\n")[0]
        .strip()
        for tool in (compiler, linker)
    ]
    has_ccache = shutil.which("ccache") is not None
    return Toolchain(versions[0], versions[1], has_ccache, family, architecture)


def safe_headers(src: Path) -> bool:
    """Whether no header has an .incbin, so that listed headers are all a C file consists of."""
    bounded = ["prlimit", f"--cpu={SEARCH_CPU_S}", "--"]
    words = ["grep", "-rqw", "--include=*.h", "--exclude-dir=obj-*", "incbin", str(src)]
    return run([*bounded, *words], timeout_s=SEARCH_TIMEOUT_S, check=False).returncode == 1


def environment(
    ccache_folder: Path | str | None, *, listed_headers: bool = False
) -> dict[str, str]:
    """All variables make sees; nothing else of the caller's environment reaches it.

    Without a folder ccache hands everything to the compiler: make's commands stay the same.
    With ``listed_headers`` it asks the compiler what a C file includes and preprocesses none,
    which takes :func:`safe_headers`.
    """
    path = os.environ.get("PATH", os.defpath)
    if ccache_folder is None:
        # It wants a home even so; this one is the box's own.
        return {**FIXED, "PATH": path, "CCACHE_DISABLE": "1", "HOME": BOX_HOME}
    return {
        **FIXED,
        "PATH": f"{WRAPPED}:{path}" if listed_headers else path,
        "CCACHE_DIR": str(ccache_folder),
        # A miss preprocesses the file: only so does ccache see an .incbin, whose content it does
        # not know, and leaves the file to the compiler.  In depend mode for all files it gave a
        # kernel's image another one's code: piggy.S includes the compressed kernel, and names only
        # its size.  What was kept then is out of reach in a namespace of its own.
        "CCACHE_NAMESPACE": "preprocessed",
    }


def make_argv(
    toolchain: Toolchain,
    objects: str,
    targets: Sequence[str],
    *,
    ccache_folder: Path | str | None,
    listed_headers: bool = False,
) -> list[str]:
    """The make command for an object folder right inside the tree it runs in."""
    # MAKEFLAGS, KCFLAGS, ARCH or CROSS_COMPILE of the caller would go into the
    # kernel without going into its key.
    variables = environment(ccache_folder, listed_headers=listed_headers)
    isolated = [f"{name}={value}" for name, value in variables.items()]
    llvm = ["LLVM=1"] if toolchain.family == "clang" else []
    cc = f"ccache {tools_of(toolchain.family, toolchain.architecture)[0]}"
    host_cc = f"ccache {TOOLS[toolchain.family][0]}"
    compilers = [
        *toolchain.architecture.build.make,
        *llvm,
        *([f"CC={cc}", f"HOSTCC={host_cc}"] if toolchain.ccache else []),
    ]
    words = [f"O={objects}", *UNUSED, *compilers, *targets]
    return ["env", "-i", *isolated, "make", f"-j{len(os.sched_getaffinity(0))}", *words]


POLL_S = 0.2
DYING_TIMEOUT_S = 600.0
# One line for each command kbuild runs: "  CC      mm/filemap.o".
STEP = re.compile(rb"^  [A-Z][A-Z0-9_]* +\S", re.M)

# When the lab is killed, the kernel kills the one process that the lab started.
# That must not be make: its sub-makes would go on and write objects of this arm
# while the next lab process builds another.  So it is a shell whose child, told
# of its death, kills the whole group.
OUTER = 'inner=$1; shift; setpriv --pdeathsig TERM -- sh -c "$inner" sh "$$" "$@"; exit $?'
INNER = 'trap "kill -KILL 0" TERM; test "$PPID" = "$1" || exit 1; shift; "$@" & wait $!'


class LogError(InfraError):
    """A make that prints more than any build of a kernel."""


@dataclass(frozen=True)
class MakeProgress:
    """Commands run so far, those of the last build like it (0: none known), and seconds."""

    done: int
    total: int
    seconds: float


def wait_until_idle(busy: Path) -> None:
    """Wait for the last process of an earlier ``run_make``; InfraError: for ten minutes."""
    run(["flock", str(busy), "true"], timeout_s=DYING_TIMEOUT_S)


def run_make(
    argv: Sequence[str],
    *,
    cwd: Path,
    log: Path,
    most_log_bytes: int,
    busy: Path,
    timeout_s: float,
    expected: int = 0,
    progress: Callable[[MakeProgress], None] | None = None,
) -> tuple[int, int]:
    """Run one make, its output appended to ``log``; return its status and number of steps.

    ``busy`` is locked while any process of it lives, so that a make waits for
    the last ones of a predecessor that is being killed.
    Raises TimedOutError: the deadline passed; LogError: it prints more than ``most_log_bytes``, to
    which the log is cut.
    """
    with log.open("ab") as sink:
        sink.write(f"$ cd {cwd} && {paste(argv)}\n".encode())
        # Before it starts: what it prints at once is a step, too.
        begin = sink.tell()
    started = time.monotonic()
    steps = 0
    guarded = ["sh", "-c", OUTER, "sh", INNER, "flock", "-F", str(busy), *argv]
    try:
        with log.open("rb") as output, spawn(guarded, log=log, cwd=cwd) as process:
            output.seek(begin)
            rest = b""
            ended = False
            while not ended:
                ended = process.poll() is not None
                if log.stat().st_size > most_log_bytes:
                    raise LogError(f"prints more than {most_log_bytes >> 20} MiB", where=log.name)
                lines, newline, rest = (rest + output.read(most_log_bytes)).rpartition(b"\n")
                steps += len(STEP.findall(lines + newline))
                seconds = time.monotonic() - started
                if progress is not None:
                    progress(MakeProgress(steps, expected, seconds))
                if seconds > timeout_s:
                    what = f"timed out after {timeout_s:.0f} s"
                    raise TimedOutError(what, where=paste(argv), next_step=f"see {log}")
                if not ended:
                    wait_for_end(process, POLL_S)
            return process.wait(), steps
    except LogError:
        os.truncate(log, most_log_bytes)
        raise


# Where code is moves real time by tenths of a percent and up to some percent, which belongs to a
# binary and not to its source.  A build of User-Mode Linux is linked again with the text of its
# objects in drawn orders, so that a change is seen in many layouts.  An object has the same place
# in the order of a number whatever else is linked, so that two arms differ in their sources alone.
# Files of that name and a number, in the object folder and in the cache.
ORDER = "order-"
# Each is linked in half a second; a session has two rounds of each.
ORDERS = 24
ORDER_LOG = "orders.log"
# Of the linker's script: where the text of all objects is put.
ORDER_TEXT = r"\*(\.text\.hot"


def order_names(count: int = ORDERS) -> tuple[str, ...]:
    """The images' names, relative to the object folder."""
    return tuple(f"{ORDER}{number:02}" for number in range(1, count + 1))


def order_script(make: Sequence[str], folder: str, count: int = ORDERS) -> str:
    """Shell commands that link the kernel that is built in ``folder`` once more in each order.

    ``make`` is the command that builds it, without its targets.  Made once more with all that it
    runs on record, it says how the release links; each order is that link with a script of its
    own.  What fails leaves an image out, which whoever keeps the images refuses.
    """
    lines = [
        f"rm -f {folder}/{ORDER}* {folder}/vmlinux {folder}/vmlinux.unstripped",
        f"{shlex.join(make)} V=1 linux > {folder}/{ORDER_LOG} 2>&1 || exit",
        f"cd {folder}",
        # The last of the links; its words have no blanks in them.  Without ccache, which keeps no
        # links, and in a box has no home and ends without one.
        "link=$(sed -n 's/^+ \\(ccache \\)*\\(.*--script=.*--whole-archive.*\\)/\\2/p' "
        f"{ORDER_LOG} | tail -n 1)",
        "ar t vmlinux.a > orders.list",
    ]
    for number, name in enumerate(order_names(count), 1):
        lines += [
            # As many bytes as a hash is salted with.
            f"printf '%-64d' {number} > orders.salt",
            "text=$(sort -R --random-source=orders.salt orders.list | sed 's/.*/*&(.text)/' | "
            "tr '\\n' ' ')",
            f'sed "s#{ORDER_TEXT}#$text&#" arch/um/kernel/vmlinux.lds > {name}.lds',
            f'grep -q "(.text) {ORDER_TEXT}" {name}.lds || exit',
            f'$(echo "$link" | sed "s#--script=[^ ]*#--script={name}.lds -Wl,-s#; '
            f's# -o [^ ]*# -o {name}#")',
        ]
    return "\n".join(lines)
