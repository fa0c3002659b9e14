"""The Debian packages the lab needs, as ``host/packages.txt`` lists them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from host.errors import InfraError

LIST = Path(__file__).parent / "packages.txt"
# mkfs.xfs lives where the PATH of an ordinary user does not reach.
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")

Need = Literal["required", "useful", "special", "tests", "python"]
NEEDS: tuple[Need, ...] = get_args(Need)


@dataclass(frozen=True)
class Package:
    """One line of the list: what a package provides, and what for.

    ``provides`` holds names of programs and absolute paths of files, in which ``*`` stands
    for what differs between releases.
    """

    name: str
    need: Need
    provides: tuple[str, ...]
    why: str


def parse(text: str, *, where: str = LIST.name) -> tuple[Package, ...]:
    """Read the list: ``package | need | provides | what for``, comments after ``#``.

    Raises:
        InfraError: a line that is not of this form, or a need that is not known.
    """
    packages = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 4 or not all(fields):
            raise InfraError("expected four fields between bars", where=f"{where}:{number}")
        name, said, provides, why = fields
        need = next((known for known in NEEDS if known == said), None)
        if need is None:
            raise InfraError(
                f"unknown need {said!r}",
                where=f"{where}:{number}",
                next_step=f"write one of {', '.join(NEEDS)}",
            )
        packages.append(Package(name, need, tuple(provides.split()), why))
    return tuple(packages)


def packages() -> tuple[Package, ...]:
    """The lab's own list.

    Raises:
        InfraError: the list is missing or malformed.
    """
    try:
        return parse(LIST.read_text())
    except OSError as error:
        raise InfraError(
            f"cannot be read: {error.strerror}",
            where=str(LIST),
            next_step="run the lab from a whole checkout",
        ) from error


def search_path() -> str:
    """PATH, then the system folders that an ordinary user's PATH lacks."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), *SYSTEM_FOLDERS])


def locate(provided: str) -> Path | None:
    """Where a program or a file is; None when it is not there.  Of several files the last."""
    if provided.startswith("/"):
        return max(Path("/").glob(provided[1:]), default=None)
    found = shutil.which(provided, path=search_path())
    return Path(found) if found else None


def package_of(program: str) -> str:
    """The package a program comes from; empty when the list does not say.

    Raises:
        InfraError: the list is missing or malformed.
    """
    return next((each.name for each in packages() if program in each.provides), "")


def install_line(names: tuple[str, ...] | list[str]) -> str:
    """The command that installs packages, to be pasted by root."""
    return f"apt-get install --no-install-recommends {' '.join(names)}"
