"""The root of an exact guest: reproducible, the same bytes every time.

busybox, fio, mkfs and their libraries (``guests.programs``), and the agent as ``/init``;
uncompressed, since inflating costs a guest more than copying.  What some guests need besides
(modules of a kernel, a workload's programs) is a second archive behind the first, which stays what
it is; the kernel unpacks both, and later files win.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from errors import InfraError
from experiment.architecture import X86_64, Architecture
from experiment.spec import PREBUILT
from files import sha256_of, write_atomically, written_beside
from guests import programs
from guests.programs import BUSYBOX, MKFS_XFS, OUTB, PROGRAMS, STATIC_PROGRAM, build
from host.process import run
from kernels.cache import Kernel
from workloads.spec import Extras

AGENT = Path(__file__).parent.parent / "workloads" / "agent.sh"
XFS_OPTIONS = AGENT.with_name("xfs.conf")
FOLDERS = ("bin", "sbin", "usr/bin", "usr/sbin", "etc", "proc", "sys", "dev", "tmp", "run", "mnt")
NATIVE = (programs.ADD_ENTROPY, programs.MARK)
PREBUILT_AGENT = AGENT.with_name("prebuilt.sh")
# A line of a configuration of mkfs.xfs, as far as its usage text has the same.
OPTION = re.compile(r"^[a-z0-9]+=")
RECIPE, OVERLAY_RECIPE = 4, 2
NOTHING = Extras()
FOLDER = "initramfs"
SHA256_DIGITS = 64
# Of the format newc: members are aligned to 4 bytes, archives to blocks.
ALIGNED, BLOCK = 4, 512
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Initramfs:
    """A built initramfs: its file, its digest and its size."""

    path: Path
    sha256: str

    @property
    def mib(self) -> int:
        """Size in MiB, rounded up."""
        return -(-self.path.stat().st_size // (1 << 20))


def provide(cache: Path, architecture: Architecture = X86_64) -> Initramfs:
    """The initramfs of an architecture, built if need be; InfraError: a program is missing."""
    if debian := architecture.root.debian:
        folder = programs.provide(debian, cache)
        files = programs.with_libraries(folder, (BUSYBOX, *PROGRAMS))
    else:
        files = programs.host_files(cache)
    helpers = {source: helper(source, cache, architecture) for source in NATIVE}
    total = hashlib.sha256(f"recipe {RECIPE}\n".encode())
    for path in (AGENT, XFS_OPTIONS, *helpers.values()):
        total.update(path.read_bytes())
    if architecture.root.agent:
        total.update(f"{architecture.name}\n".encode())
        total.update(AGENT.with_name(architecture.root.agent).read_bytes())
    for place, file in files.items():
        stamp = file.resolve().stat()
        total.update(f"{place} {stamp.st_size} {stamp.st_mtime_ns}\n".encode())
    image = cache / FOLDER / f"{total.hexdigest()[:32]}.cpio"
    return _kept(image, lambda beside: _build(files, helpers, beside, architecture))


def _kept(image: Path, build_at: Callable[[Path], None]) -> Initramfs:
    """An image of the cache, built beside its place where it is not there as a whole."""
    image.parent.mkdir(parents=True, exist_ok=True)
    digest = image.with_suffix(".sha256")
    with FileLock(image.parent / "lock"):
        # A lab may have been killed while it wrote the digest.
        is_whole = digest.exists() and len(digest.read_text()) == SHA256_DIGITS
        if not (is_whole and image.exists()):
            with written_beside(image) as beside:
                build_at(beside)
            write_atomically(digest, sha256_of(image))
        # The newest is kept in use; others are removed when the cache is cleaned.
        os.utime(image)
    return Initramfs(image, digest.read_text())


def given(path: Path) -> Initramfs:
    """The initramfs of another host, as an archive brought it: used in guests alone."""
    return Initramfs(path, sha256_of(path))


def helper(source: Path, cache: Path, architecture: Architecture) -> Path:
    """A program of the lab's own for an architecture's guests; raises as ``programs.build``."""
    tools = architecture.build.tools if architecture.root.debian else ""
    return build(source, STATIC_PROGRAM, cache, tools=tools)


def _build(
    files: Mapping[str, Path],
    helpers: Mapping[Path, Path],
    image: Path,
    architecture: Architecture,
) -> None:
    agents = {"init": AGENT}
    if architecture.root.agent:
        agents = {"init": AGENT.with_name(architecture.root.agent), "agent.sh": AGENT}
    helping = {f"bin/{source.stem}": built for source, built in helpers.items()}
    root = _root(image.parent, {**files, **agents, **helping}, FOLDERS)
    options = known_options(XFS_OPTIONS.read_text(), files[MKFS_XFS].read_bytes())
    (root / "etc" / XFS_OPTIONS.name).write_text(options)
    busybox = files[BUSYBOX]
    if architecture.root.debian:
        # A program of another architecture.
        applets = programs.applets(busybox)
    else:
        listed = run([str(busybox), "--list"], timeout_s=TIMEOUT_S).stdout
        applets = tuple(listed.split())
    for applet in applets:
        link = root / "bin" / applet
        if not link.exists():
            link.symlink_to("busybox")
    pack(root, image)
    shutil.rmtree(root)


def _root(beside: Path, files: Mapping[str, Path], folders: Iterable[str]) -> Path:
    """A new folder in the locked one of images, with programs by their places in the guest."""
    root = beside / "root"
    shutil.rmtree(root, ignore_errors=True)
    for name in folders:
        (root / name).mkdir(parents=True, exist_ok=True)
    for place, file in files.items():
        target = root / place.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.resolve(), target)
        target.chmod(0o755)
    return root


def known_options(text: str, program: bytes) -> str:
    """Those options of mkfs.xfs that ``program``'s usage names; it refuses newer ones."""
    lines = text.splitlines(keepends=True)
    return "".join(
        line
        for line in lines
        if not (option := OPTION.match(line)) or option[0].encode() in program
    )


def pack(root: Path, archive: Path) -> None:
    """Write a folder as a cpio archive, always the same bytes, as no version of GNU cpio does."""
    names = sorted([path.relative_to(root).as_posix() for path in root.rglob("*")], key=str.encode)
    with archive.open("wb") as stream:
        for number, name in enumerate(names):
            path = root / name
            mode = path.lstat().st_mode
            links, data = 1, b""
            if stat.S_ISLNK(mode):
                data = os.fsencode(path.readlink())
            elif stat.S_ISDIR(mode):
                # Itself, its entry above, and that of each folder in it.
                links = 2 + sum(each.is_dir() and not each.is_symlink() for each in path.iterdir())
            else:
                data = path.read_bytes()
            stream.write(_member(name, number, mode, links, data))
        stream.write(_member("TRAILER!!!", 0, 0, 1, b""))
        stream.write(bytes(-stream.tell() % BLOCK))


def _member(name: str, number: int, mode: int, links: int, data: bytes) -> bytes:
    """A member in the format newc, owned by root, of no time and no device.

    Layout: ``Documentation/driver-api/early-userspace/buffer-format.rst`` of Linux.
    """
    encoded = name.encode() + b"\0"
    fields = (number, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
    head = b"070701" + "".join(f"{field:08X}" for field in fields).encode() + encoded
    return head + bytes(-len(head) % ALIGNED) + data + bytes(-len(data) % ALIGNED)


class Lacks(NamedTuple):
    """What the lab's root lacks: the key of a kernel whose modules are wanted, and a workload's."""

    kernel: str
    extras: Extras


def lacks(kernel: Kernel, extras: Extras) -> Lacks:
    """What a guest of this kernel lacks for a workload; of a kernel of ours modules if named."""
    own = kernel.identity.flavour == PREBUILT or extras.modules
    return Lacks(kernel.identity.key if own else "", extras)


def overlays(
    base: Initramfs,
    kernels: Iterable[Kernel],
    extras: Iterable[Extras],
    cache: Path,
    architecture: Architecture = X86_64,
) -> dict[Lacks, Initramfs]:
    """The initramfs of each kernel and workload that need one; a place where none can be made.

    Raises InfraError as :func:`overlay`.
    """
    sets = [*dict.fromkeys(extras)] or [NOTHING]
    roots: dict[Lacks, Initramfs] = {}
    for kernel in kernels:
        for each in sets:
            key = lacks(kernel, each)
            if not (key.kernel or any(each)) or key in roots:
                continue
            roots[key] = (
                overlay(base, kernel, cache, each, architecture)
                if not key.kernel or (kernel.is_built and not kernel.lacks(each.modules))
                else Initramfs(path_of(base, key, cache), "")
            )
    return roots


def overlay(
    base: Initramfs,
    kernel: Kernel,
    cache: Path,
    extras: Extras = NOTHING,
    architecture: Architecture = X86_64,
) -> Initramfs:
    """The initramfs of a kernel and a workload's extras; InfraError: something is missing."""
    image = path_of(base, lacks(kernel, extras), cache)

    def built(beside: Path) -> None:
        files = {
            f"bin/{source.stem}": helper(source, cache, architecture) for source in extras.programs
        }
        files |= {f"modules/{name}.ko": kernel.folder / f"{name}.ko" for name in extras.modules}
        if missing := [n for n in extras.modules if not files[f"modules/{n}.ko"].exists()]:
            what = f"has no module {missing[0]}"
            step = "remove the folder: the kernel is then built again, with its modules"
            raise InfraError(what, where=str(kernel.folder), next_step=step)
        folders, modules = ["bin"], tuple[Path, ...]()
        if kernel.identity.flavour == PREBUILT:
            outb = helper(OUTB, cache, architecture)
            files |= {"init": PREBUILT_AGENT, "agent.sh": AGENT, "bin/outb": outb}
            folders, modules = ["bin", "modules"], kernel.modules
        files |= programs.more_host_files(extras.host_programs)
        root = _root(image.parent, files, folders)
        for module in modules:
            shutil.copyfile(module, root / "modules" / module.name)
        more = image.with_suffix(".more")
        pack(root, more)
        with beside.open("wb") as both:
            for path in (base.path, more):
                with path.open("rb") as stream:
                    shutil.copyfileobj(stream, both)
        more.unlink()
        shutil.rmtree(root)

    return _kept(image, built)


def path_of(base: Initramfs, key: Lacks, cache: Path) -> Path:
    """Where the initramfs of what the lab's root lacks is, or will be."""
    total = hashlib.sha256(f"overlay {OVERLAY_RECIPE} {base.sha256} {key.kernel}\n".encode())
    # The base holds the agent and has a digest of its own.
    for path in (AGENT, PREBUILT_AGENT, OUTB) if key.kernel else ():
        total.update(hashlib.sha256(path.read_bytes()).digest())
    for program in key.extras.programs:
        total.update(f"program {program.stem} {programs.digest(program)}\n".encode())
    for module in key.extras.modules:
        total.update(f"module {module}\n".encode())
    for place, file in programs.more_host_files(key.extras.host_programs).items():
        total.update(f"{place} {sha256_of(file)}\n".encode())
    return cache / FOLDER / f"{total.hexdigest()[:32]}.cpio"
