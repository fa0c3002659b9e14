"""What the ELF files of a build say, read by a helper process with an end to its memory and time.

A stranger's makefile may have written any of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from errors import LabError
from host import limited
from kernels import compiled, elf, origins, structures, symbols
from kernels.compiled import Touched
from kernels.origins import Origin
from kernels.products import ProductError, require_size
from kernels.series import Patch
from kernels.symbols import FunctionCode, Variables

VMLINUX, RELOCATABLE = "vmlinux", "vmlinux.o"


@dataclass(frozen=True)
class Parsed:
    """What a build's ELF files say; ``types`` by the name of their file."""

    functions: dict[str, FunctionCode]
    variables: Variables
    code_key: str
    build_id: str
    touched: tuple[Touched, ...]
    origins: dict[int, Origin]
    types: tuple[tuple[str, bytes], ...]


def parsed(
    objects: Path, source: Path, patches: Sequence[Patch], config: str, modules: Sequence[str]
) -> Parsed:
    """What the ELF files of a finished build say, its modules among them, read with limits.

    Raises:
        ProductError: one is not there or too large, is no ELF file, or takes too long to read.
    """
    for name in (VMLINUX, RELOCATABLE, *modules):
        if name != RELOCATABLE or os.path.lexists(objects / name):
            require_size(objects, name)
    try:
        return limited.call(_parse, objects, source, tuple(patches), config, tuple(modules))
    except LabError as error:
        raise ProductError(f"{error.where}: {error.what}") from error


def _parse(
    objects: Path, source: Path, patches: Sequence[Patch], config: str, modules: Sequence[str]
) -> Parsed:
    vmlinux = objects / VMLINUX
    linked = objects / RELOCATABLE if (objects / RELOCATABLE).exists() else vmlinux
    return Parsed(
        functions=symbols.functions(linked),
        variables=symbols.variables(linked),
        code_key=symbols.code_key(vmlinux, [objects / name for name in modules]),
        build_id=elf.build_id(vmlinux),
        touched=compiled.touched_files(patches, source, objects, config),
        origins=origins.collect(objects, source),
        types=tuple(structures.collected(objects)),
    )
