"""The packages the lab needs, as ``host/packages.txt`` lists them for Debian.

``host/systems.txt`` has their names on other distributions, and the command that installs.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from errors import InfraError

LIST = Path(__file__).parent / "packages.txt"
SYSTEMS = LIST.with_name("systems.txt")
OS_RELEASE = Path("/etc/os-release")
# mkfs.xfs lives where the PATH of an ordinary user does not reach.
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")

Need = Literal["required", "useful", "special", "tests", "python"]
NEEDS: tuple[Need, ...] = get_args(Need)


@dataclass(frozen=True)
class SystemPackage:
    """One line of the list: what a package provides, and what for.

    ``name`` is what the system at hand calls it, several names where it is several packages.
    ``provides`` holds names of programs and absolute paths of files, in which ``*`` stands
    for what differs between releases; a comma separates places of which one is enough.
    """

    name: str
    need: Need
    provides: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class System:
    """A distribution: its id, what installs, and names by Debian's, empty where it has none."""

    id: str
    install: str
    names: Mapping[str, str]


# A distribution that the list does not have: a person reads what to install.
UNKNOWN = System("", "install what Debian calls", {})


def table(text: str, *, where: str, fields: int = 0) -> Iterator[tuple[str, list[str]]]:
    """Each line of a table with its place, of fields between bars; InfraError: other fields."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            row = [field.strip() for field in line.split("|")]
            fields = fields or len(row)
            if not all(row) or len(row) != fields:
                raise InfraError(
                    f"expected {fields} fields between bars", where=f"{where}:{number}"
                )
            yield f"{where}:{number}", row


def parse(text: str, *, where: str = LIST.name) -> tuple[SystemPackage, ...]:
    """Read ``package | need | provides | what for``; InfraError: malformed."""
    packages = []
    for place, (name, need_name, provides, why) in table(text, where=where, fields=4):
        need = next((known for known in NEEDS if known == need_name), None)
        if need is None:
            next_step = f"write one of {', '.join(NEEDS)}"
            raise InfraError(f"unknown need {need_name!r}", where=place, next_step=next_step)
        packages.append(SystemPackage(name, need, tuple(provides.split()), why))
    return tuple(packages)


def parse_systems(text: str, *, where: str = SYSTEMS.name) -> tuple[System, ...]:
    """Read the other list: lines of ids, of commands, then of packages; InfraError: malformed."""
    rows = [
        [row[0] if field == "=" else field for field in row] for _, row in table(text, where=where)
    ]
    if len(rows) < 2:
        raise InfraError("expected a line of systems and one of commands", where=where)
    ids, commands, *names = rows
    return tuple(
        System(ids[at], commands[at], {row[0]: "" if row[at] == "-" else row[at] for row in names})
        for at in range(len(ids))
    )


def system_of(os_release: str, systems: Iterable[System]) -> System:
    """The system that the text of /etc/os-release is of, or is like; else :data:`UNKNOWN`."""
    fields = dict(re.findall(r'^(ID|ID_LIKE)="?([^"\n]*)"?$', os_release, re.M))
    known = {system.id: system for system in systems}
    ids = [fields.get("ID", ""), *fields.get("ID_LIKE", "").split()]
    return next((known[each] for each in ids if each in known), UNKNOWN)


def this_system() -> System:
    """The distribution of this machine.  Raises InfraError: the list is missing or malformed."""
    try:
        os_release = OS_RELEASE.read_text(errors="replace")
    except OSError:
        os_release = ""
    return system_of(os_release, parse_systems(_shipped(SYSTEMS)))


def packages(system: System | None = None) -> tuple[SystemPackage, ...]:
    """The lab's list in the names of a system, or of this machine's; InfraError: malformed."""
    names = (system or this_system()).names
    every = parse(_shipped(LIST))
    here = (replace(each, name=names.get(each.name, each.name)) for each in every)
    return tuple(each for each in here if each.name)


def _shipped(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        step = "run the lab from a whole checkout"
        raise InfraError(what, where=str(path), next_step=step) from error


def search_path() -> str:
    """PATH, then the system folders that an ordinary user's PATH lacks."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), *SYSTEM_FOLDERS])


def locate(provided: str) -> Path | None:
    """Where a program or file is, the last of several, the first of names with commas; or None."""
    if "," in provided:
        return next((at for each in provided.split(",") if (at := locate(each))), None)
    if provided.startswith("/"):
        return max(Path("/").glob(provided[1:]), default=None)
    path = shutil.which(provided, path=search_path())
    return Path(path) if path else None


def require(program: str) -> Path:
    """Where a program is.  Raises InfraError: it is not installed."""
    if (path := locate(program)) is None:
        step = "./lab.py doctor names its package"
        raise InfraError("program not found", where=program, next_step=step)
    return path


def package_of(program: str) -> str:
    """The package a program comes from here, if known; InfraError: the list is malformed."""
    return next((each.name for each in packages() if program in each.provides), "")


def install_line(names: Iterable[str]) -> str:
    """The command for root that installs packages here; InfraError: the list is malformed."""
    return " ".join([this_system().install, *names])
