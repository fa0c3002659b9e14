"""The host's programs that guests run, with their libraries.

A number is of a kernel *and* of the fio, mkfs, shell and C library around it.  Two hosts with
other ones give other numbers; an archive of ``repro`` carries the root that was booted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from errors import InfraError
from host.packages import install_line, locate, package_of
from host.process import run

MKFS_XFS = "/sbin/mkfs.xfs"
BUSYBOX = "/bin/busybox"
PROGRAMS = ("/usr/bin/fio", MKFS_XFS, "/sbin/mkfs.ext4", "/usr/bin/chrt")
TIMEOUT_S = 120.0


def host_files() -> dict[str, Path]:
    """Path in the guest → file of the host; systems keep some programs elsewhere.

    Raises:
        InfraError: a program is missing.
    """
    places = {
        path: Path(path) if Path(path).exists() else locate(Path(path).name)
        for path in (BUSYBOX, *PROGRAMS)
    }
    missing = [path for path, file in places.items() if file is None]
    if missing:
        raise InfraError(
            f"not installed: {', '.join(missing)}",
            where="initramfs",
            next_step="./lab.py doctor names the packages",
        )
    return _with_libraries({path: file for path, file in places.items() if file is not None})


def more_programs(names: Iterable[str]) -> dict[str, Path]:
    """Path in the guest → file, of programs that a workload needs besides the lab's own.

    Raises:
        InfraError: programs are missing, all of them named.
    """
    files = {name: locate(name) for name in names}
    if missing := [name for name, file in files.items() if file is None]:
        packages = sorted({package_of(name) or name for name in missing})
        raise InfraError(
            f"not installed: {', '.join(missing)}",
            where="initramfs",
            next_step=f"{install_line(packages)}, or leave out the workload",
        )
    return {f"/usr/bin/{name}": file for name, file in files.items() if file}


def more_host_files(names: Iterable[str]) -> dict[str, Path]:
    """The files of :func:`more_programs`, with the libraries that they need; raises as it does."""
    return _with_libraries(more_programs(names))


def _with_libraries(programs: Mapping[str, Path]) -> dict[str, Path]:
    libraries: set[str] = set()
    for path, program in programs.items():
        # A static program, as busybox should be, has none and ldd's status says so.
        output = run(["ldd", str(program)], timeout_s=TIMEOUT_S, check=path != BUSYBOX).stdout
        libraries |= {word for word in output.split() if word.startswith("/")}
    return {**programs, **{path: Path(path) for path in sorted(libraries)}}
