"""The root of a guest whose kernel was built elsewhere: the lab's, and what it lacks.

A second archive behind the first: the kernel's modules, an agent that loads them, and a
program that writes to ports.  The kernel unpacks both, and later files win.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from filelock import FileLock

from experiment.spec import PREBUILT
from guests import userland
from guests.initramfs import AGENT, Initramfs, pack
from guests.native import OUTB
from host.digest import sha256_of
from kernels.cache import Kernel

PREBUILT_AGENT = AGENT.with_name("prebuilt.sh")
RECIPE = 2


def provide_all(base: Initramfs, kernels: Iterable[Kernel], cache: Path) -> dict[str, Initramfs]:
    """The initramfs of each prebuilt one of ``kernels``, by the kernel's key.

    Of a kernel that is only planned nothing is made, and the file's place is named.

    Raises:
        InfraError: as ``provide``.
    """
    return {
        kernel.identity.key: provide(base, kernel, cache)
        if kernel.is_built
        else Initramfs(path_of(base, kernel.identity.key, cache), "")
        for kernel in kernels
        if kernel.identity.flavour == PREBUILT
    }


def provide(base: Initramfs, kernel: Kernel, cache: Path) -> Initramfs:
    """The initramfs of a prebuilt kernel, built if it is not cached.

    Raises:
        InfraError: the compiler failed.
    """
    image = path_of(base, kernel.identity.key, cache)
    digest = image.with_suffix(".sha256")
    with FileLock(image.parent / "lock"):
        if not (image.exists() and digest.exists()):
            _build(base, kernel, image, cache)
            beside = digest.with_suffix(".new")
            beside.write_text(sha256_of(image))
            beside.replace(digest)
        os.utime(image)
    return Initramfs(image, digest.read_text())


def path_of(base: Initramfs, kernel_key: str, cache: Path) -> Path:
    """Where the initramfs of a kernel is, or will be."""
    total = hashlib.sha256(f"overlay {RECIPE} {base.sha256} {kernel_key}\n".encode())
    for path in (AGENT, PREBUILT_AGENT, OUTB):
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return cache / "initramfs" / f"{total.hexdigest()[:32]}.cpio"


def _build(base: Initramfs, kernel: Kernel, image: Path, cache: Path) -> None:
    root = image.with_suffix(".root")
    shutil.rmtree(root, ignore_errors=True)
    (root / "modules").mkdir(parents=True)
    (root / "bin").mkdir()
    for module in kernel.modules:
        shutil.copyfile(module, root / "modules" / module.name)
    files = {
        "init": PREBUILT_AGENT,
        "agent.sh": AGENT,
        "bin/outb": userland.helper(OUTB, cache),
    }
    for name, source in files.items():
        shutil.copyfile(source, root / name)
        (root / name).chmod(0o755)
    more = image.with_suffix(".more")
    pack(root, more)
    beside = image.with_suffix(".new")
    with beside.open("wb") as both:
        for path in (base.path, more):
            with path.open("rb") as stream:
                shutil.copyfileobj(stream, both)
    beside.replace(image)
    more.unlink()
    shutil.rmtree(root)
