"""The probe's plugin, built for the QEMU that is there."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from errors import InfraError
from experiment.architecture import X86_64, Architecture
from guests.argv import joined
from guests.programs import SHARED_LIBRARY, build
from host.process import run
from text import words

HERE = Path(__file__).parent
SOURCE = HERE / "probe.c"
FILES = words("memory.c lines.c groups.c kinds.c discontinuities.c stacks.c plugin.h")
BESIDE = tuple(HERE / name for name in FILES)
TIMEOUT_S = 20.0
# The first QEMU of each form of the plugin interface, newest first; plugin.h says
# how they differ.
FORMS: tuple[tuple[tuple[int, int], int], ...] = (
    ((11, 1), 7),
    ((9, 1), 3),
    ((9, 0), 2),
    ((7, 2), 1),
)
OLDEST = ".".join(map(str, FORMS[-1][0]))


@dataclass(frozen=True)
class Probe:
    """A built plugin: its file and digest, the interface's version, QEMU's version.

    ``window`` cuts phases into so many instructions each; 0 does not cut.  ``spans`` are
    [start, end) of code in which vCPUs wait, ``locks`` the functions that take locks or let
    go of them, each with its kind (``guests.probe.models``).  ``model`` describes caches and TLBs
    to be modelled (``guests.probe.models``), of a guest whose memory is one file.  ``functions``
    is the kernel's System.map, by which call stacks are followed, and ``stacks`` are those with a
    meaning (``guests.probe.counts``).
    """

    path: Path
    sha256: str
    api: int
    qemu: str
    window: int = 0
    spans: tuple[tuple[int, int], ...] = ()
    locks: tuple[tuple[str, int, int], ...] = ()
    model: tuple[str, ...] = ()
    functions: Path | None = None
    stacks: tuple[str, ...] = ()

    def argument(self, counts: Path, memory: str) -> str:
        """QEMU's ``-plugin``; ``memory`` is how /proc/PID/maps calls the guest's memory."""
        words = [f"file={self.path.absolute()}", f"out={counts}"]
        words += [f"window={self.window}"] if self.window else []
        words += [f"span={start:x}-{end:x}" for start, end in self.spans]
        words += [f"{kind}={start:x}-{end:x}" for kind, start, end in self.locks]
        words += [*self.model, f"ram={memory}"] if self.model else []
        if self.functions:
            words += [f"functions={self.functions.absolute()}", *self.stacks]
        return joined(*words)


def provide(cache: Path, architecture: Architecture = X86_64) -> Probe:
    """The plugin, built for this QEMU; InfraError: one too old or without plugins, no compiler."""
    program, package = architecture.board.qemu, architecture.board.package
    qemu = version_of(run([program, "--version"], timeout_s=TIMEOUT_S).stdout, program)
    api = api_of(qemu, program)
    if not has_plugins(run([program, "-help"], timeout_s=TIMEOUT_S).stdout):
        what = f"QEMU {qemu} was built without plugins, so it cannot count instructions"
        step = f"install Debian's {package}, or build QEMU with --enable-plugins"
        raise InfraError(what, where=program, next_step=step)
    defined = (f"-DPROBE_API={api}", *architecture.board.probe)
    flags = (*SHARED_LIBRARY, "-fvisibility=hidden", *defined)
    path = build(SOURCE, flags, cache, beside=BESIDE)
    return Probe(path, hashlib.sha256(path.read_bytes()).hexdigest(), api, qemu)


def version_of(output: str, program: str = X86_64.board.qemu) -> str:
    """The dotted version in what ``qemu --version`` says.  Raises InfraError: there is none."""
    match = re.search(r"version (\d+\.\d+(?:\.\d+)*)", output)
    if not match:
        what = f"no version in what it says of itself: {output.strip()[:80]!r}"
        raise InfraError(what, where=program, next_step="./lab.py doctor")
    return match[1]


def api_of(version: str, program: str = X86_64.board.qemu) -> int:
    """The plugin interface's version of a QEMU version; InfraError: too old."""
    major, minor = (int(part) for part in version.split(".")[:2])
    for first, api in FORMS:
        if (major, minor) >= first:
            return api
    what = f"QEMU {version}: the probe needs {OLDEST} or later"
    raise InfraError(what, where=program, next_step="./lab.py doctor names the package")


def has_plugins(helptext: str) -> bool:
    """Whether QEMU's ``-help`` offers ``-plugin``, which only a build with plugins does."""
    return re.search(r"^-plugin ", helptext, re.MULTILINE) is not None
