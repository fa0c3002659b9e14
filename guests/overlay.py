"""The root of a guest that needs more than the lab's: modules, or programs of a workload.

A second archive behind the first, so that the first stays what it is: of a kernel that was
built elsewhere its modules, an agent that loads them, and a program that writes to ports; of
a workload its programs, those of the host that it needs, and modules of a kernel of ours.  The
kernel unpacks both, and later files win.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from errors import InfraError
from experiment.architecture import X86_64, Architecture
from experiment.spec import PREBUILT
from files import sha256_of, write_atomically, written_beside
from guests import initramfs, programs
from guests.initramfs import AGENT, Initramfs, pack
from guests.programs import OUTB
from kernels.cache import Kernel
from workloads.spec import Extras

PREBUILT_AGENT = AGENT.with_name("prebuilt.sh")
RECIPE = 2
NOTHING = Extras()


class Lacks(NamedTuple):
    """What the lab's root lacks: the key of a kernel whose modules are wanted, and a workload's."""

    kernel: str
    extras: Extras


def lacks(kernel: Kernel, extras: Extras) -> Lacks:
    """What a guest of this kernel lacks for a workload; of a kernel of ours modules if named."""
    own = kernel.identity.flavour == PREBUILT or extras.modules
    return Lacks(kernel.identity.key if own else "", extras)


def provide_all(
    base: Initramfs,
    kernels: Iterable[Kernel],
    extras: Iterable[Extras],
    cache: Path,
    architecture: Architecture = X86_64,
) -> dict[Lacks, Initramfs]:
    """The initramfs of each kernel with each workload's extras, where they need one.

    Of modules of a kernel that is only planned, or that some do not build with, nothing is made,
    and the file's place is named.

    Raises:
        InfraError: as ``provide``.
    """
    sets = [*dict.fromkeys(extras)] or [NOTHING]
    # All that is not installed is named at once.
    programs.more_programs(name for each in sets for name in each.host_programs)
    roots: dict[Lacks, Initramfs] = {}
    for kernel in kernels:
        for each in sets:
            key = lacks(kernel, each)
            if not (key.kernel or any(each)) or key in roots:
                continue
            roots[key] = (
                provide(base, kernel, cache, each, architecture)
                if not key.kernel or (kernel.is_built and not kernel.lacks(each.modules))
                else Initramfs(path_of(base, key, cache), "")
            )
    return roots


def provide(
    base: Initramfs,
    kernel: Kernel,
    cache: Path,
    extras: Extras = NOTHING,
    architecture: Architecture = X86_64,
) -> Initramfs:
    """The initramfs of a kernel and a workload's extras, built if it is not cached.

    Raises:
        InfraError: the compiler failed, a program of the host is missing, or the kernel was built
            without a module.
    """
    image = path_of(base, lacks(kernel, extras), cache)
    digest = image.with_suffix(".sha256")
    with FileLock(image.parent / "lock"):
        if not (image.exists() and digest.exists()):
            _build(base, kernel, extras, image, cache, architecture)
            write_atomically(digest, sha256_of(image))
        os.utime(image)
    return Initramfs(image, digest.read_text())


def path_of(base: Initramfs, key: Lacks, cache: Path) -> Path:
    """Where the initramfs of what the lab's root lacks is, or will be."""
    total = hashlib.sha256(f"overlay {RECIPE} {base.sha256} {key.kernel}\n".encode())
    # The base holds the agent and has a digest of its own.
    for path in (AGENT, PREBUILT_AGENT, OUTB) if key.kernel else ():
        total.update(hashlib.sha256(path.read_bytes()).digest())
    for program in key.extras.programs:
        total.update(f"program {program.stem} {programs.digest(program)}\n".encode())
    for module in key.extras.modules:
        total.update(f"module {module}\n".encode())
    for place, file in programs.more_host_files(key.extras.host_programs).items():
        total.update(f"{place} {sha256_of(file)}\n".encode())
    return cache / "initramfs" / f"{total.hexdigest()[:32]}.cpio"


def _build(
    base: Initramfs,
    kernel: Kernel,
    extras: Extras,
    image: Path,
    cache: Path,
    architecture: Architecture,
) -> None:
    root = image.with_suffix(".root")
    shutil.rmtree(root, ignore_errors=True)
    (root / "bin").mkdir(parents=True)
    files = {
        f"bin/{source.stem}": initramfs.helper(source, cache, architecture)
        for source in extras.programs
    }
    if extras.modules:
        (root / "modules").mkdir()
        files |= {f"modules/{name}.ko": _module(kernel, name) for name in extras.modules}
    if kernel.identity.flavour == PREBUILT:
        (root / "modules").mkdir(exist_ok=True)
        for module in kernel.modules:
            shutil.copyfile(module, root / "modules" / module.name)
        outb = initramfs.helper(OUTB, cache, architecture)
        files |= {"init": PREBUILT_AGENT, "agent.sh": AGENT, "bin/outb": outb}
    host_files = programs.more_host_files(extras.host_programs)
    files |= {place.lstrip("/"): file.resolve() for place, file in host_files.items()}
    for name, source in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, root / name)
        (root / name).chmod(0o755)
    more = image.with_suffix(".more")
    pack(root, more)
    with written_beside(image) as beside, beside.open("wb") as both:
        for path in (base.path, more):
            with path.open("rb") as stream:
                shutil.copyfileobj(stream, both)
    more.unlink()
    shutil.rmtree(root)


def _module(kernel: Kernel, name: str) -> Path:
    """The file of a module that was built with the kernel."""
    file = kernel.folder / f"{name}.ko"
    if not file.exists():
        raise InfraError(
            f"has no module {name}",
            where=str(kernel.folder),
            next_step="remove the folder: the kernel is then built again, with its modules",
        )
    return file
