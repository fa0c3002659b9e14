"""Programs of another architecture, as Debian ships them: fetched by apt and unpacked.

Nothing is installed, and the host's own packages are not touched: apt works in folders of
its own, as if nothing were installed, and checks what it fetches against its signed lists.
What was fetched once is used until the cache is cleaned.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from filelock import FileLock

from errors import InfraError
from host.process import run
from kernels.packages import unpack_argv

log = logging.getLogger(__name__)

PACKAGES = ("busybox-static", "fio", "xfsprogs", "e2fsprogs", "util-linux")
LIST = "packages"
# As host.facts names tools, and the packages they are in.
TOOLS = {"fio": "fio", "busybox": "busybox-static", "mkfs.xfs": "xfsprogs"}
FETCH_TIMEOUT_S = 900.0
UNPACK_TIMEOUT_S = 300.0
# A static busybox holds the names of its applets, sorted, each ended by a zero byte.  What
# stands before the first one need not end so.
FIRST_APPLETS = b"[\0[[\0a"


def provide(debian: str, cache: Path) -> Path:
    """The folder with :data:`PACKAGES` and all they depend on, fetched if it is not there.

    ``debian`` is Debian's name of the architecture.  The folder's file ``packages`` has the
    name and SHA-256 of every package in it.

    Raises:
        InfraError: apt cannot fetch them, or one is damaged.
    """
    top = cache / "foreign"
    top.mkdir(parents=True, exist_ok=True)
    folder = top / debian
    with FileLock(top / "lock"):
        if not folder.exists():
            log.info("fetching programs for %s", debian)
            beside = top / f".new-{debian}"
            shutil.rmtree(beside, ignore_errors=True)
            try:
                _fill(beside, debian, apt=top / f".apt-{debian}")
                beside.rename(folder)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
                shutil.rmtree(top / f".apt-{debian}", ignore_errors=True)
        os.utime(folder)
    return folder


def versions(debian: str, cache: Path) -> dict[str, str]:
    """Versions of the packages that guests' programs are from, by the tool's name."""
    try:
        listed = (cache / "foreign" / debian / LIST).read_text().splitlines()
    except OSError:
        return {}
    files = (line.partition(" ")[0].split("_") for line in listed)
    known = {fields[0]: unquote(fields[1]) for fields in files if len(fields) == 3}
    return {tool: known[name] for tool, name in TOOLS.items() if name in known}


def apt_argv(debian: str, apt: Path, *words: str) -> list[str]:
    """An apt-get command that knows one architecture and works below the folder ``apt``."""
    options = {
        "APT::Architecture": debian,
        "APT::Architectures": debian,
        # As root apt fetches as a user that may not write there.
        "APT::Sandbox::User": "root",
        "Dir::State": apt / "state",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
    }
    given = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    return ["apt-get", "-q", "-y", *given, *words]


def _fill(folder: Path, debian: str, *, apt: Path) -> None:
    shutil.rmtree(apt, ignore_errors=True)
    archives = apt / "cache" / "archives"
    for needed in (archives / "partial", apt / "state" / "lists" / "partial", folder):
        needed.mkdir(parents=True)
    (apt / "status").touch()
    for words in (
        ("update",),
        ("--no-install-recommends", "--download-only", "install", *PACKAGES),
    ):
        argv = apt_argv(debian, apt, *words)
        done = run(argv, timeout_s=FETCH_TIMEOUT_S, check=False, env={"LC_ALL": "C"})
        if done.returncode:
            raise InfraError(
                f"apt-get cannot fetch programs for {debian}: {done.tail()}",
                where=f"{words[0]} {' '.join(PACKAGES)}",
                next_step="see whether the archive can be reached and has this architecture",
            )
    listed = []
    for package in sorted(archives.glob("*.deb")):
        run(unpack_argv(package, folder), timeout_s=UNPACK_TIMEOUT_S)
        listed.append(f"{package.name} {hashlib.sha256(package.read_bytes()).hexdigest()}\n")
    (folder / LIST).write_text("".join(listed))


def with_libraries(folder: Path, programs: Iterable[str]) -> dict[str, Path]:
    """Path in the guest → file below ``folder``, of programs and the libraries they need.

    Raises:
        InfraError: a program or library is not there.
    """
    files: dict[str, Path] = {}
    loaders: set[str] = set()
    waiting = [(program, _at(folder, program)) for program in programs]
    while waiting:
        path, file = waiting.pop()
        if path in files:
            continue
        files[path] = file
        loader, places, names = _needs(file)
        places = (*places, *_library_folders(folder))
        if loader:
            loaders.add(loader)
            waiting.append((loader, _at(folder, loader)))
        for name in names:
            # The loader is a library, too, and is not looked for.
            if any(known.endswith(f"/{name}") for known in loaders):
                continue
            place = next((at for at in places if (folder / at[1:] / name).exists()), None)
            if place is None:
                raise InfraError(f"{path} needs {name}, which is not there", where=str(folder))
            waiting.append((f"{place}/{name}", _at(folder, f"{place}/{name}")))
    return dict(sorted(files.items()))


def applets(busybox: Path) -> tuple[str, ...]:
    """The applets of a busybox that cannot be run here, as its ``--list`` has them.

    Raises:
        InfraError: no busybox.
    """
    data = busybox.read_bytes()
    at = data.find(FIRST_APPLETS)
    if at < 0:
        raise InfraError("no list of applets in it", where=str(busybox))
    names = data[at:].partition(b"\0\0")[0].split(b"\0")
    return tuple(name.decode() for name in names)


def _at(folder: Path, path: str) -> Path:
    file = folder / path.lstrip("/")
    if not file.resolve().is_relative_to(folder.resolve()) or not file.exists():
        raise InfraError(f"{path} is not there", where=str(folder))
    return file


def _library_folders(folder: Path) -> Iterator[str]:
    for top in ("/lib", "/usr/lib"):
        for inner in sorted((folder / top[1:]).glob("*-linux-gnu*")):
            yield f"{top}/{inner.name}"


def _needs(file: Path) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Loader, folders to look into first, and names of needed libraries.

    Raises:
        InfraError: no ELF file.
    """
    places: list[str] = []
    names: list[str] = []
    try:
        with file.open("rb") as stream:
            elf = ELFFile(stream)
            interpreter = elf.get_section_by_name(".interp")
            loader = interpreter.data().rstrip(b"\0").decode() if interpreter else ""
            for section in elf.iter_sections():
                for tag in section.iter_tags() if isinstance(section, DynamicSection) else ():
                    # Each kind of tag has its text in an attribute named after it; one that
                    # pyelftools does not know is a number.
                    kind = str(tag.entry.d_tag).removeprefix("DT_").lower()
                    if kind == "needed":
                        names.append(str(getattr(tag, kind)))
                    elif kind in ("runpath", "rpath"):
                        places += str(getattr(tag, kind)).split(":")
    except ELFError as error:
        raise InfraError(f"cannot be read as ELF: {error}", where=str(file)) from None
    return loader, tuple(place for place in places if place.startswith("/")), tuple(names)
