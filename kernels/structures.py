"""The types that a kernel's objects are of: some of its files compiled once more, for their BTF.

Debug information of a whole kernel would make its build longer by a fifth and its objects several
times as large.  What the lab asks of types, what a byte of memory is a member of, is known to a
handful of files, whose compilation is repeated with ``-gbtf`` beside the kernel's own objects.
The kernel itself is not touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from errors import InfraError
from kernels import btf, elf
from kernels.cache import Kernel

# Between them they know what slab caches hold: pages, slabs and tasks; inodes of XFS; nodes of
# trees; buffers; requests; and what iomap keeps of a folio.
FILES = (
    "mm/slub", "fs/xfs/xfs_super", "lib/xarray", "lib/maple_tree", "fs/buffer",
    "fs/iomap/buffered-io", "block/blk-mq",
)  # fmt: skip
SECTION = ".BTF"
PREFIX = "twinboot-types-"
# kbuild's record of how it made an object, "cmd_" before 6.3.
COMMAND = re.compile(r"^(?:saved)?cmd_\S+ := (?P<command>[^;\n]*) -o \S+(?P<rest>[^;\n]*)", re.M)
# It has no part in what is compiled, and would be written anew.
DEPENDENCIES = re.compile(r" -Wp,-MMD,\S+")


def script(objects: Path, folder: str) -> str:
    """Shell commands that compile the files again, in ``folder``; those that were built.

    They run beside each other, and none ends the others: a compiler that writes no BTF (clang,
    gcc before 12) leaves a kernel without types.
    """
    # What another kernel of the same folder was built from is not this one's.
    lines = [f"cd {folder}", f"rm -f {PREFIX}*.o"]
    for file in FILES:
        name = Path(file).name
        record = (objects / file).with_name(f".{name}.o.cmd")
        try:
            match = COMMAND.search(record.read_text(errors="replace"))
        except OSError:
            continue
        if match:
            command = DEPENDENCIES.sub("", match["command"])
            lines.append(f"{command} -gbtf -o {PREFIX}{name}.o{match['rest']} &")
    return "\n".join([*lines, "wait"])


def collected(objects: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of types that ``script`` has made."""
    for path in sorted(objects.glob(f"{PREFIX}*.o")):
        try:
            sections = elf.read(path).sections
            data = next((each.data for each in sections if each.name == SECTION), b"")
            btf.Types([data])
        except (InfraError, ValueError):
            continue
        yield f"{path.stem.removeprefix(PREFIX)}.btf", data


def of(kernel: Kernel) -> btf.Types:
    """The types of a kernel; none of one that was kept without.

    Raises:
        InfraError: a file of them is damaged.
    """
    return btf.load(kernel.structures)
