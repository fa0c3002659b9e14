"""Modules: those of a build of ours, and those that a prebuilt kernel needs to be a guest."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from errors import InfraError, UsageError
from files import sha256_of
from host.process import run

TIMEOUT_S = 60.0
BUILTIN = "modules.builtin"
# Written by kbuild: the object of every module, a line each.
ORDER = "modules.order"
# Where, within a build's objects, modules of the lab's own are built.
ADDED = "added"


@dataclass(frozen=True)
class Need:
    """A module that is loaded where it is not built in; ``required``, or only if it is there.

    ``why`` names what the lab does with it.
    """

    name: str
    why: str
    required: bool = True


# crc32c is asked for by its algorithm's name, so no dependency of a module names it.
NEEDS = (
    Need("qemu_fw_cfg", "the guest reads its job through it"),
    Need("brd", "the workload's file system is on a RAM disk"),
    Need("crc32c_generic", "file systems sum with it", required=False),
    Need("xfs", "the workload's file system", required=False),
    Need("ext4", "the workload's file system", required=False),
)


def plain(name: str) -> str:
    """A module's name as the kernel has it, of a file's name or a list's entry."""
    return name.rpartition("/")[2].partition(".ko")[0].replace("-", "_")


def built(order: str) -> tuple[str, ...]:
    """The modules of a build, relative to its object folder, by the text of :data:`ORDER`."""
    return tuple(f"{line.removesuffix('.o')}.ko" for line in order.splitlines())


def source_digest(folder: Path) -> str:
    """SHA-256 over the sources of modules of the lab's own, names and contents."""
    total = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        total.update(f"{path.name} {sha256_of(path)}\n".encode())
    return total.hexdigest()


def lay_out(folders: Sequence[Path], objects: Path) -> None:
    """Copy sources of modules to where they are built; nothing is left there of other ones."""
    for folder in folders:
        place = objects / ADDED / folder.name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder, place)


def added(folders: Sequence[Path], objects: Path) -> tuple[str, ...]:
    """The modules that were built of these sources, relative to the object folder."""
    places = (objects / ADDED / folder.name for folder in folders)
    modules = (path for place in places for path in sorted(place.glob("*.ko")))
    return tuple(str(path.relative_to(objects)) for path in modules)


def chosen(folder: Path) -> tuple[Path, ...]:
    """The files to load, each after those it depends on; built-in ones are left out.

    ``folder`` is that of one release: ``modules.builtin``, and modules below ``kernel``.

    Raises:
        UsageError: a module that is required is neither built in nor there.
        InfraError: a module depends on one that is not there.
    """
    builtin = _builtin(folder)
    files = {plain(path.name): path for path in sorted(folder.rglob("*.ko*")) if path.is_file()}
    order: dict[str, Path] = {}
    for need in NEEDS:
        if need.name in files:
            _add(need.name, files, builtin, order)
        elif need.required and need.name not in builtin:
            raise UsageError(
                f"has no module {need.name}: {need.why}",
                where=str(folder),
                next_step="name the folder of this kernel's modules: /lib/modules/RELEASE",
            )
    return tuple(order.values())


def unpacked(file: Path) -> bytes:
    """A module as it is loaded; packed by xz, gzip, zstd or not at all.

    Raises:
        UsageError: it is damaged.
        InfraError: zstd is not installed.
    """
    try:
        if file.suffix == ".xz":
            return lzma.decompress(file.read_bytes())
        if file.suffix == ".gz":
            return gzip.decompress(file.read_bytes())
    except (lzma.LZMAError, OSError, EOFError) as error:
        raise UsageError(f"the module is damaged: {error}", where=str(file)) from None
    if file.suffix == ".zst":
        target = file.with_suffix(".unpacked")
        run(["zstd", "-d", "-f", "-q", str(file), "-o", str(target)], timeout_s=TIMEOUT_S)
        data = target.read_bytes()
        target.unlink()
        return data
    return file.read_bytes()


def _add(
    name: str, files: Mapping[str, Path], builtin: frozenset[str], order: dict[str, Path]
) -> None:
    for dependency in _depends(files[name]):
        other = plain(dependency)
        if other in files and other not in order:
            _add(other, files, builtin, order)
        elif other not in files and other not in builtin:
            raise InfraError(f"depends on {dependency}, which is not there", where=str(files[name]))
    order.setdefault(name, files[name])


def _depends(file: Path) -> list[str]:
    try:
        section = ELFFile(BytesIO(unpacked(file))).get_section_by_name(".modinfo")
        lines = section.data().split(b"\0") if section else []
    except ELFError as error:
        raise UsageError(f"no module: {error}", where=str(file)) from None
    modules = [line.partition(b"=")[2].decode() for line in lines if line.startswith(b"depends=")]
    return [name.strip() for names in modules for name in names.split(",") if name.strip()]


def _builtin(folder: Path) -> frozenset[str]:
    try:
        text = (folder / BUILTIN).read_text()
    except OSError:
        raise UsageError(
            f"no folder of modules: it has no {BUILTIN}",
            where=str(folder),
            next_step="name the folder of one release: /lib/modules/RELEASE",
        ) from None
    return frozenset(plain(line) for line in text.splitlines())
