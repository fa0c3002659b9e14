"""The programs that guests run: the host's own, or those of another host that were imported.

A number is of a kernel *and* of the fio, mkfs, shell and C library around it.  Two hosts with
other ones give other numbers, until one has the userland of the other.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from filelock import FileLock
from pydantic import Field, ValidationError, model_validator

from errors import InfraError
from files import sha256_of, write_atomically
from guests.native import ADD_ENTROPY, MARK, OUTB, STATIC_PROGRAM, build, digest
from host import facts
from host.packages import install_line, locate, package_of
from host.process import run
from results.record import Record
from workloads.spec import all_programs

MKFS_XFS = "/sbin/mkfs.xfs"
BUSYBOX = "/bin/busybox"
PROGRAMS = ("/usr/bin/fio", MKFS_XFS, "/sbin/mkfs.ext4", "/usr/bin/chrt")
# Built by the host's compiler against the host's C library.
HELPERS = (ADD_ENTROPY, MARK, OUTB, *all_programs())
# Those of ``host.facts`` that are in a guest.
TOOLS = ("fio", "busybox", "mkfs.xfs", "libc")
FOLDER = "userland"
HEAD = "userland.json"
IN_USE = "in-use"
FILES, NATIVE = "files", "native"
# Where programs and libraries of a system are; nothing that the lab itself puts into a root.
PLACE = re.compile(
    r"/(usr/)?(bin|sbin|lib|lib32|lib64|libexec|libx32)(/[A-Za-z0-9_+][A-Za-z0-9._+-]*)+"
)
TIMEOUT_S = 120.0
SHOWN = 12

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Line = Annotated[str, Field(pattern=r"^[ -~]{0,200}$")]
Name = Annotated[str, Field(pattern=r"^[a-z_]{1,40}$")]


class Helper(Record):
    """A program of the lab's own: digests of its C source, and of what was built of it."""

    source_sha256: Digest
    sha256: Digest


class UserlandRecord(Record):
    """The head of a userland: what it holds by content, and what its host called it.

    ``files`` maps the path in a guest to the digest of what is there.
    """

    schema_version: Literal[1] = 1
    distribution: Line
    tools: dict[Line, Line]
    files: dict[str, Digest]
    helpers: dict[Name, Helper]

    @model_validator(mode="after")
    def _whole(self) -> UserlandRecord:
        for path in self.files:
            if not PLACE.fullmatch(path):
                raise ValueError(f"{path!r} is no place of a program or library")
        missing = {BUSYBOX, *PROGRAMS} - self.files.keys()
        missing |= {source.stem for source in HELPERS} - self.helpers.keys()
        if missing:
            raise ValueError(f"lacks {', '.join(sorted(missing))}")
        if len(self.helpers) != len(HELPERS):
            raise ValueError("holds helpers that the lab has not")
        return self

    @property
    def key(self) -> str:
        """Names the contents: the digest of all paths and digests."""
        lines = [f"{path} {digest}\n" for path, digest in sorted(self.files.items())]
        lines += [f"{name} {helper.sha256}\n" for name, helper in sorted(self.helpers.items())]
        return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class Imported:
    """An imported userland that guests of this host get: where it is, and its head."""

    folder: Path
    record: UserlandRecord

    def files(self) -> dict[str, Path]:
        """Path in the guest → file.

        Raises:
            InfraError: a file is gone.
        """
        files = {path: self.folder / FILES / path[1:] for path in self.record.files}
        for file in files.values():
            if not file.is_file():
                raise InfraError("is gone", where=str(file), next_step=AGAIN)
        return files

    def helper(self, source: Path) -> Path:
        """The built program of one of :data:`HELPERS`.

        Raises:
            InfraError: it was built from another version of the source.
        """
        known = self.record.helpers[source.stem]
        if known.source_sha256 != digest(source):
            raise InfraError(
                f"the imported userland has {source.name} of another version of the lab",
                where=self.record.key[:SHOWN],
                next_step="export it anew from a checkout of this version, "
                "or ./lab.py userland forget",
            )
        return self.folder / NATIVE / source.stem


AGAIN = "./lab.py userland import FILE again, or ./lab.py userland forget"


def in_use(cache: Path) -> Imported | None:
    """The imported userland that guests get; None where they get the host's own.

    Raises:
        InfraError: it cannot be read.
    """
    top = cache / FOLDER
    try:
        key = (top / IN_USE).read_text().strip()
    except FileNotFoundError:
        return None
    folder = top / key
    try:
        record = UserlandRecord.model_validate_json((folder / HEAD).read_text())
    except (OSError, ValidationError):
        raise InfraError("cannot be read", where=str(folder / HEAD), next_step=AGAIN) from None
    return Imported(folder, record)


def use(cache: Path, key: str) -> None:
    """Give guests the userland of this key from now on, the host's own for an empty one."""
    top = cache / FOLDER
    top.mkdir(parents=True, exist_ok=True)
    with FileLock(top / "lock"):
        if not key:
            (top / IN_USE).unlink(missing_ok=True)
            return
        write_atomically(top / IN_USE, f"{key}\n")


def files_of(cache: Path) -> dict[str, Path]:
    """Path in the guest → file, of whichever userland guests get.

    Raises:
        InfraError: a program is missing.
    """
    imported = in_use(cache)
    return imported.files() if imported else host_files()


def helper(source: Path, cache: Path) -> Path:
    """The built program of one of :data:`HELPERS`, of whichever userland guests get.

    Raises:
        InfraError: there is no compiler, or the imported one is of another version.
    """
    imported = in_use(cache)
    return imported.helper(source) if imported else build(source, STATIC_PROGRAM, cache)


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


def more_programs(names: Iterable[str], cache: Path) -> dict[str, Path]:
    """Path in the guest → file, of programs that a workload needs besides the lab's own.

    They are the host's: an imported userland has none of them.

    Raises:
        InfraError: programs are missing, all of them named, or guests get an imported userland.
    """
    files = {name: locate(name) for name in names}
    if files and in_use(cache):
        raise InfraError(
            f"an imported userland has no {', '.join(files)}; the host's own are not mixed with it",
            where="initramfs",
            next_step="./lab.py userland forget, or leave out the workload",
        )
    if missing := [name for name, file in files.items() if file is None]:
        packages = sorted({package_of(name) or name for name in missing})
        raise InfraError(
            f"not installed: {', '.join(missing)}",
            where="initramfs",
            next_step=f"{install_line(packages)}, or leave out the workload",
        )
    return {f"/usr/bin/{name}": file for name, file in files.items() if file}


def more_host_files(names: Iterable[str], cache: Path) -> dict[str, Path]:
    """The files of :func:`more_programs`, with the libraries that they need; raises as it does."""
    return _with_libraries(more_programs(names, cache))


def _with_libraries(programs: Mapping[str, Path]) -> dict[str, Path]:
    libraries: set[str] = set()
    for path, program in programs.items():
        # A static program, as busybox should be, has none and ldd's status says so.
        output = run(["ldd", str(program)], timeout_s=TIMEOUT_S, check=path != BUSYBOX).stdout
        libraries |= {word for word in output.split() if word.startswith("/")}
    return {**programs, **{path: Path(path) for path in sorted(libraries)}}


def record_of(files: Mapping[str, Path], helpers: Mapping[Path, Path]) -> UserlandRecord:
    """The head of a userland of these files and helpers, with this host's names for them."""
    tools = facts.tool_versions()
    return UserlandRecord(
        distribution=facts.host_facts()["distribution"],
        tools={name: tools[name] for name in TOOLS},
        files={path: sha256_of(file) for path, file in files.items()},
        helpers={
            source.stem: Helper(source_sha256=digest(source), sha256=sha256_of(built))
            for source, built in helpers.items()
        },
    )


def current(cache: Path) -> UserlandRecord:
    """The head of the userland that guests get now.

    Raises:
        InfraError: a program is missing or a helper cannot be built.
    """
    imported = in_use(cache)
    if imported:
        return imported.record
    return record_of(host_files(), {source: helper(source, cache) for source in HELPERS})


def versions(cache: Path) -> dict[str, str]:
    """Versions of an imported userland's programs by tool; empty where guests get the host's.

    Raises:
        InfraError: the imported one cannot be read.
    """
    imported = in_use(cache)
    return {name: imported.record.tools.get(name, "") for name in TOOLS} if imported else {}


def words(record: UserlandRecord) -> str:
    """One line for people."""
    tools = ", ".join(f"{name} {version}" for name, version in record.tools.items())
    return f"{record.key[:SHOWN]} of {record.distribution}: {tools}"


def head_text(record: UserlandRecord) -> str:
    """The head as it is kept and sent: the same text for the same userland."""
    return json.dumps(record.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"
