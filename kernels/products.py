"""What is taken out of a build that strangers may have written: plain files with a bound.

A makefile writes what it likes under the names of a kernel's files: a link, a pipe, a terabyte of
nothing.  So each is opened by ``results.door`` and has a bound.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from errors import InfraError, LabError
from results import door
from results.door import MIB
from text import clean

Kind = Literal["release", "configuration", "list", "log", "module", "map", "image", "program"]
# Of a large kernel's: a release of 64 characters (the kernel's own bound), a configuration of 300
# KiB, a System.map of 10 MiB, an image of 40 MiB, and a vmlinux of 800 MiB with debug information.
MOST_BYTES: Mapping[Kind, int] = {
    "release": 128,
    "configuration": 4 * MIB,
    "list": 4 * MIB,
    "log": 16 * MIB,
    "module": 64 * MIB,
    "map": 64 * MIB,
    "image": 256 * MIB,
    "program": 1024 * MIB,
}
RELEASE = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~_-]*")


class ProductError(InfraError):
    """A file that no build of a kernel makes, or none where each makes one; says which."""


def read(objects: Path, name: str, kind: Kind) -> bytes:
    """A file below an object folder; ProductError: not there, no plain file, too large."""
    try:
        return door.read(objects, name, MOST_BYTES[kind])
    except (LabError, OSError) as error:
        reason = error.what if isinstance(error, LabError) else error.strerror
        raise ProductError(f"{clean(name)} ({kind}): {reason}") from None


def text(objects: Path, name: str, kind: Kind) -> str:
    """The same as text; what is no UTF-8 shows as such."""
    return read(objects, name, kind).decode(errors="replace")


def release(objects: Path) -> str:
    """The release that a kernel was built as; raises as :func:`read`."""
    name = "include/config/kernel.release"
    written = text(objects, name, "release").strip()
    if not RELEASE.fullmatch(written):
        raise ProductError(f"{name}: {clean(written)!r} is no release of a kernel")
    return written


def modules(objects: Path, names: Sequence[str], folder: Path) -> None:
    """Copy modules into a folder; raises as :func:`read`, and where they are too large together."""
    total = 0
    for name in dict.fromkeys(names):
        content = read(objects, name, "module")
        total += len(content)
        if total > MOST_BYTES["program"]:
            raise ProductError(f"its modules have more than {MOST_BYTES['program'] / MIB:g} MiB")
        (folder / Path(name).name).write_bytes(content)


def require_size(objects: Path, name: str) -> None:
    """Raise as :func:`read`, without reading, where an ELF file is not one that a build makes."""
    try:
        with door.opened(objects, name, MOST_BYTES["program"]):
            pass
    except (LabError, OSError) as error:
        raise ProductError(f"{name}: {error}") from None
