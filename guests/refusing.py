"""Libraries of storage beyond a network, which fio is linked with and no guest can reach.

Debian's fio needs those of Ceph, Gluster, NBD and RDMA, and they need eighty more: 80 MB in which
no guest executes anything but what loads them.  In their place guests have libraries with the same
functions under the same versions, each of which ends the program at once: who asks for an engine
of theirs sees fio killed by SIGILL, and never a number.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection
from filelock import FileLock

from errors import InfraError
from host.process import run

# What their names begin with.
NETWORKS = (
    "librados.",
    "librbd.",
    "libgfapi.",
    "libnbd.",
    "libiscsi.",
    "libibverbs.",
    "librdmacm.",
)
FLAGS = ("-shared", "-fPIC", "-O1", "-s", "-nostdlib", "-Wl,--build-id=none")
TIMEOUT_S = 120.0


def provide(program: Path, libraries: Mapping[str, str], cache: Path) -> Path | None:
    """A folder of the libraries that refuse, by the names a program needs them by.

    ``libraries`` are all that it needs, by name.  None where it needs none of these, or more of
    them than functions: then it has the real ones.

    Raises:
        InfraError: there is no compiler.
    """
    with program.open("rb") as stream:
        elf = ELFFile(stream)
        names = _names(elf)
        needed = [name for name in _needed(elf) if name.startswith(NETWORKS)]
    of_library = {
        name: _exported(Path(libraries[name]), names) for name in needed if name in libraries
    }
    if not of_library or any(exported is None for exported in of_library.values()):
        return None
    texts = {name: _sources(exported or {}) for name, exported in of_library.items()}
    key = hashlib.sha256(repr((FLAGS, sorted(texts.items()))).encode()).hexdigest()[:16]
    folder = cache / "native" / f"refusing-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / "lock"):
        if not folder.exists():
            beside = folder.with_suffix(".new")
            beside.mkdir(exist_ok=True)
            for name, (source, versions) in texts.items():
                code, script = beside / f"{name}.c", beside / f"{name}.map"
                code.write_text(source)
                script.write_text(versions)
                of_versions = [f"-Wl,--version-script={script}"] if versions else []
                out = ["-o", str(beside / name), f"-Wl,-soname,{name}", str(code)]
                run(["gcc", *FLAGS, *of_versions, *out], timeout_s=TIMEOUT_S)
            # Whoever tells files apart by their times does so by what they were made of.
            stamp = int(key, 16) >> 32
            for path in beside.iterdir():
                os.utime(path, (stamp, stamp))
            beside.rename(folder)
        os.utime(folder)
    return folder


def _sources(exported: Mapping[str, str]) -> tuple[str, str]:
    """The C source of functions that refuse, and a linker's script of their versions."""
    code = "".join(f"void {name}(void) {{ __builtin_trap(); }}\n" for name in sorted(exported))
    script = ""
    for version in sorted({version for version in exported.values() if version}):
        names = " ".join(f"{name};" for name, of in sorted(exported.items()) if of == version)
        script += f"{version} {{ {names} }};\n"
    return code, script


def _needed(elf: ELFFile) -> Iterator[str]:
    dynamic = elf.get_section_by_name(".dynamic")
    for tag in dynamic.iter_tags("DT_NEEDED") if isinstance(dynamic, DynamicSection) else ():
        yield str(vars(tag)["needed"])


def _names(elf: ELFFile) -> frozenset[str]:
    """Of all dynamic symbols: what is read of a library's data is the program's own copy."""
    table = elf.get_section_by_name(".dynsym")
    symbols = table.iter_symbols() if isinstance(table, SymbolTableSection) else ()
    return frozenset(each.name for each in symbols if each.name)


def _exported(library: Path, names: frozenset[str]) -> dict[str, str] | None:
    """Those of the ``names`` functions that a library has, with their versions; None: more."""
    exported: dict[str, str] = {}
    try:
        with library.open("rb") as stream:
            elf = ELFFile(stream)
            table = elf.get_section_by_name(".dynsym")
            numbers = elf.get_section_by_name(".gnu.version")
            defined = elf.get_section_by_name(".gnu.version_d")
            versions = {}
            if isinstance(defined, GNUVerDefSection):
                versions = {
                    int(entry["vd_ndx"]): next(aux).name for entry, aux in defined.iter_versions()
                }
            for number, symbol in enumerate(
                table.iter_symbols() if isinstance(table, SymbolTableSection) else ()
            ):
                if symbol["st_shndx"] == "SHN_UNDEF" or symbol.name not in names:
                    continue
                if symbol["st_info"]["type"] != "STT_FUNC":
                    return None
                at = 0
                if isinstance(numbers, GNUVerSymSection):
                    at = numbers.get_symbol(number)["ndx"]
                # 0 and 1 are words: local, and global without a version.
                hidden = isinstance(at, int) and at & 0x8000
                if not hidden:
                    exported[symbol.name] = versions.get(at, "") if isinstance(at, int) else ""
    except (OSError, ValueError) as error:
        raise InfraError(f"cannot be read as ELF: {error}", where=str(library)) from None
    return exported
