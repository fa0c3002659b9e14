"""The root of an exact guest: reproducible, the same bytes every time.

busybox, fio, mkfs and their libraries as the host has them, and the agent as
``/init``.  Uncompressed: inflating it would cost a guest more than copying.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from guests.native import ADD_ENTROPY, MARK, STATIC_PROGRAM, build
from host.errors import InfraError
from host.process import run

AGENT = Path(__file__).parent.parent / "workloads" / "agent.sh"
BUSYBOX = "/bin/busybox"
PROGRAMS = ("/usr/bin/fio", "/sbin/mkfs.xfs", "/sbin/mkfs.ext4", "/usr/bin/chrt")
FOLDERS = ("bin", "sbin", "usr/bin", "usr/sbin", "etc", "proc", "sys", "dev", "tmp", "run", "mnt")
NATIVE = (ADD_ENTROPY, MARK)
RECIPE = 2
SHA256_DIGITS = 64
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


def provide(cache: Path) -> Initramfs:
    """Return the initramfs of this host's programs, built if it is not cached.

    Raises:
        InfraError: a program is missing, or cpio or the compiler failed.
    """
    files = _host_files()
    folder = cache / "initramfs"
    folder.mkdir(parents=True, exist_ok=True)
    image = folder / f"{_inputs_key(files)}.cpio"
    digest = image.with_suffix(".sha256")
    with FileLock(folder / "lock"):
        if not _whole(image, digest):
            _build(files, image, cache)
            with image.open("rb") as stream:
                digest.write_text(hashlib.file_digest(stream, "sha256").hexdigest())
        # The newest is kept in use; others are removed when the cache is cleaned.
        os.utime(image)
    return Initramfs(image, digest.read_text())


def _whole(image: Path, digest: Path) -> bool:
    """Whether both are there; a lab may have been killed while it wrote the digest."""
    return image.exists() and digest.exists() and len(digest.read_text()) == SHA256_DIGITS


def _host_files() -> tuple[Path, ...]:
    missing = [path for path in (BUSYBOX, *PROGRAMS) if not Path(path).exists()]
    if missing:
        raise InfraError(
            f"not installed: {', '.join(missing)}",
            where="initramfs",
            next_step="./lab.py doctor names the packages",
        )
    libraries: set[Path] = set()
    for program in PROGRAMS:
        said = run(["ldd", program], timeout_s=TIMEOUT_S).stdout
        libraries |= {Path(word) for word in said.split() if word.startswith("/")}
    return (Path(BUSYBOX), *map(Path, PROGRAMS), *sorted(libraries))


def _inputs_key(files: tuple[Path, ...]) -> str:
    total = hashlib.sha256(f"recipe {RECIPE}\n".encode())
    for path in (AGENT, *NATIVE):
        total.update(path.read_bytes())
    for path in files:
        stat = path.resolve().stat()
        total.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return total.hexdigest()[:32]


def _build(files: tuple[Path, ...], image: Path, cache: Path) -> None:
    root = image.with_suffix(".root")
    shutil.rmtree(root, ignore_errors=True)
    for name in FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    for path in files:
        target = root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path.resolve(), target)
        target.chmod(0o755)
    for applet in run([BUSYBOX, "--list"], timeout_s=TIMEOUT_S).stdout.split():
        link = root / "bin" / applet
        if not link.exists():
            link.symlink_to("busybox")
    shutil.copyfile(AGENT, root / "init")
    (root / "init").chmod(0o755)
    for source in NATIVE:
        target = root / "bin" / source.stem
        shutil.copyfile(build(source, STATIC_PROGRAM, cache), target)
        target.chmod(0o755)
    beside = image.with_suffix(".new")
    pack(root, beside)
    beside.replace(image)
    shutil.rmtree(root)


def pack(root: Path, archive: Path) -> None:
    """Write a folder as a cpio archive: the same bytes for the same names and contents.

    Raises:
        InfraError: cpio failed.
    """
    names = sorted([path.relative_to(root).as_posix() for path in root.rglob("*")], key=str.encode)
    for name in names:
        os.utime(root / name, (0, 0), follow_symlinks=False)
    run(
        ["cpio", "--create", "--format=newc", "--reproducible", "--owner=+0:+0", "--quiet",
         f"--file={archive}"],
        cwd=root, stdin_text="\n".join(names) + "\n", timeout_s=TIMEOUT_S,
    )  # fmt: skip
