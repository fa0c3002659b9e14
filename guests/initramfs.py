"""The root of an exact guest: reproducible, the same bytes every time.

busybox, fio, mkfs and their libraries as the host has them
(``guests.programs``), or as Debian ships them for another architecture, and the agent as
``/init``.  Uncompressed: inflating it would cost a guest more than copying.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from experiment.architecture import X86_64, Architecture
from files import sha256_of, written_beside
from guests import programs
from guests.programs import ADD_ENTROPY, BUSYBOX, MARK, MKFS_XFS, PROGRAMS, STATIC_PROGRAM, build
from host.process import run

AGENT = Path(__file__).parent.parent / "workloads" / "agent.sh"
XFS_OPTIONS = AGENT.with_name("xfs.conf")
FOLDERS = ("bin", "sbin", "usr/bin", "usr/sbin", "etc", "proc", "sys", "dev", "tmp", "run", "mnt")
NATIVE = (ADD_ENTROPY, MARK)
# A line of a configuration of mkfs.xfs, as far as its usage text has the same.
OPTION = re.compile(r"^[a-z0-9]+=")
RECIPE = 4
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
    """Return the initramfs of an architecture's programs, built if it is not cached.

    Raises:
        InfraError: a program is missing or cannot be fetched, or the compiler failed.
    """
    ours = not architecture.root.debian
    files = programs.host_files(cache) if ours else _foreign_files(architecture, cache)
    helpers = {source: helper(source, cache, architecture) for source in NATIVE}
    folder = cache / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    image = folder / f"{_inputs_key(files, helpers, architecture)}.cpio"
    digest = image.with_suffix(".sha256")
    with FileLock(folder / "lock"):
        if not _whole(image, digest):
            _build(files, helpers, image, cache, architecture)
            digest.write_text(sha256_of(image))
        # The newest is kept in use; others are removed when the cache is cleaned.
        os.utime(image)
    return Initramfs(image, digest.read_text())


def given(path: Path) -> Initramfs:
    """The initramfs of another host, as an archive brought it: used in guests alone."""
    return Initramfs(path, sha256_of(path))


def helper(source: Path, cache: Path, architecture: Architecture) -> Path:
    """A program of the lab's own, built for the guests of an architecture.

    Raises:
        InfraError: as :func:`guests.programs.build`.
    """
    tools = architecture.build.tools if architecture.root.debian else ""
    return build(source, STATIC_PROGRAM, cache, tools=tools)


def _whole(image: Path, digest: Path) -> bool:
    """Whether both are there; a lab may have been killed while it wrote the digest."""
    return image.exists() and digest.exists() and len(digest.read_text()) == SHA256_DIGITS


def _foreign_files(architecture: Architecture, cache: Path) -> dict[str, Path]:
    """Path in the guest → file of a package for another architecture."""
    folder = programs.provide(architecture.root.debian, cache)
    return programs.with_libraries(folder, (BUSYBOX, *PROGRAMS))


def _init(architecture: Architecture) -> dict[str, Path]:
    """The scripts of the agent by their names in the root; the first is what is started."""
    if not architecture.root.agent:
        return {"init": AGENT}
    return {"init": AGENT.with_name(architecture.root.agent), "agent.sh": AGENT}


def _inputs_key(
    files: Mapping[str, Path], helpers: Mapping[Path, Path], architecture: Architecture
) -> str:
    total = hashlib.sha256(f"recipe {RECIPE}\n".encode())
    for path in (AGENT, XFS_OPTIONS, *helpers.values()):
        total.update(path.read_bytes())
    if architecture.root.agent:
        total.update(f"{architecture.name}\n".encode())
        total.update(AGENT.with_name(architecture.root.agent).read_bytes())
    for place, file in files.items():
        stat = file.resolve().stat()
        total.update(f"{place} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return total.hexdigest()[:32]


def _build(
    files: Mapping[str, Path],
    helpers: Mapping[Path, Path],
    image: Path,
    cache: Path,
    architecture: Architecture,
) -> None:
    root = image.with_suffix(".root")
    shutil.rmtree(root, ignore_errors=True)
    for name in FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    for path, file in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.resolve(), target)
        target.chmod(0o755)
    options = known_options(XFS_OPTIONS.read_text(), files[MKFS_XFS].read_bytes())
    (root / "etc" / XFS_OPTIONS.name).write_text(options)
    for applet in _applets(files[BUSYBOX], cache, architecture):
        link = root / "bin" / applet
        if not link.exists():
            link.symlink_to("busybox")
    for name, script in _init(architecture).items():
        shutil.copyfile(script, root / name)
        (root / name).chmod(0o755)
    for source, built in helpers.items():
        target = root / "bin" / source.stem
        shutil.copyfile(built, target)
        target.chmod(0o755)
    with written_beside(image) as beside:
        pack(root, beside)
    shutil.rmtree(root)


def known_options(text: str, program: bytes) -> str:
    """Those options of a configuration of mkfs.xfs that ``program`` knows, by its usage text.

    What is left out has to be what such a program never does: it refuses an option that is
    newer than itself, and a newer one has it on by default.
    """
    lines = text.splitlines(keepends=True)
    return "".join(
        line
        for line in lines
        if not (option := OPTION.match(line)) or option[0].encode() in program
    )


def _applets(busybox: Path, cache: Path, architecture: Architecture) -> tuple[str, ...]:
    # A program of another architecture.
    if architecture.root.debian:
        return programs.applets(busybox)
    return tuple(run([str(busybox), "--list"], timeout_s=TIMEOUT_S).stdout.split())


def pack(root: Path, archive: Path) -> None:
    """Write a folder as a cpio archive: the same bytes for the same names and contents.

    GNU cpio's own are not: 2.13 counts a folder's links as the file system does, 2.15 does not.
    """
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
