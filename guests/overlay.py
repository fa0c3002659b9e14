"""The root of a guest that needs more than the lab's: modules, or programs of a workload.

A second archive behind the first, so that the first stays what it is: of a kernel that was
built elsewhere its modules, an agent that loads them, and a program that writes to ports; of
a workload its programs.  The kernel unpacks both, and later files win.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from experiment.architecture import X86_64, Architecture
from experiment.spec import PREBUILT
from guests import initramfs, native
from guests.initramfs import AGENT, Initramfs, pack
from guests.native import OUTB
from host.digest import sha256_of
from kernels.cache import Kernel

PREBUILT_AGENT = AGENT.with_name("prebuilt.sh")
RECIPE = 2


class Lacks(NamedTuple):
    """What the lab's root lacks: the key of a prebuilt kernel, empty for ours, and programs."""

    kernel: str
    programs: tuple[Path, ...]


def lacks(kernel: Kernel, programs: tuple[Path, ...]) -> Lacks:
    """What a guest of this kernel and these programs lacks."""
    prebuilt = kernel.identity.flavour == PREBUILT
    return Lacks(kernel.identity.key if prebuilt else "", programs)


def provide_all(
    base: Initramfs,
    kernels: Iterable[Kernel],
    programs: Iterable[tuple[Path, ...]],
    cache: Path,
    architecture: Architecture = X86_64,
) -> dict[Lacks, Initramfs]:
    """The initramfs of each kernel with each set of programs, where they need one.

    Of a prebuilt kernel that is only planned nothing is made, and the file's place is named.

    Raises:
        InfraError: as ``provide``.
    """
    sets = [*dict.fromkeys(programs)] or [()]
    roots: dict[Lacks, Initramfs] = {}
    for kernel in kernels:
        for each in sets:
            key = lacks(kernel, each)
            if not any(key) or key in roots:
                continue
            roots[key] = (
                provide(base, kernel, cache, each, architecture)
                if kernel.is_built or not key.kernel
                else Initramfs(path_of(base, key, cache), "")
            )
    return roots


def provide(
    base: Initramfs,
    kernel: Kernel,
    cache: Path,
    programs: tuple[Path, ...] = (),
    architecture: Architecture = X86_64,
) -> Initramfs:
    """The initramfs of a kernel and programs, built if it is not cached.

    Raises:
        InfraError: the compiler failed.
    """
    image = path_of(base, lacks(kernel, programs), cache)
    digest = image.with_suffix(".sha256")
    with FileLock(image.parent / "lock"):
        if not (image.exists() and digest.exists()):
            _build(base, kernel, programs, image, cache, architecture)
            beside = digest.with_suffix(".new")
            beside.write_text(sha256_of(image))
            beside.replace(digest)
        os.utime(image)
    return Initramfs(image, digest.read_text())


def path_of(base: Initramfs, key: Lacks, cache: Path) -> Path:
    """Where the initramfs of what the lab's root lacks is, or will be."""
    total = hashlib.sha256(f"overlay {RECIPE} {base.sha256} {key.kernel}\n".encode())
    # The base holds the agent and has a digest of its own.
    for path in (AGENT, PREBUILT_AGENT, OUTB) if key.kernel else ():
        total.update(hashlib.sha256(path.read_bytes()).digest())
    for program in key.programs:
        total.update(native.digest(program).encode())
    return cache / "initramfs" / f"{total.hexdigest()[:32]}.cpio"


def _build(
    base: Initramfs,
    kernel: Kernel,
    programs: tuple[Path, ...],
    image: Path,
    cache: Path,
    architecture: Architecture,
) -> None:
    root = image.with_suffix(".root")
    shutil.rmtree(root, ignore_errors=True)
    (root / "bin").mkdir(parents=True)
    files = {
        f"bin/{source.stem}": initramfs.helper(source, cache, architecture) for source in programs
    }
    if kernel.identity.flavour == PREBUILT:
        (root / "modules").mkdir()
        for module in kernel.modules:
            shutil.copyfile(module, root / "modules" / module.name)
        outb = initramfs.helper(OUTB, cache, architecture)
        files |= {"init": PREBUILT_AGENT, "agent.sh": AGENT, "bin/outb": outb}
    for name, source in files.items():
        shutil.copyfile(source, root / name)
        (root / name).chmod(0o755)
    more = image.with_suffix(".more")
    pack(root, more)
    beside = image.with_suffix(".new")
    image.parent.mkdir(parents=True, exist_ok=True)
    with beside.open("wb") as both:
        for path in (base.path, more):
            with path.open("rb") as stream:
                shutil.copyfileobj(stream, both)
    beside.replace(image)
    more.unlink()
    shutil.rmtree(root)
