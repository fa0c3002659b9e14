"""What guests run: the host's programs, the lab's own, and another architecture's.

Debian's fio is linked with storage beyond a network (Ceph, Gluster, NBD, RDMA) and its eighty
libraries: 80 MB of which no guest executes more than loading.  In their place are libraries of the
same functions that end the program at once: such an engine is killed by SIGILL, and never a number.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection
from filelock import FileLock

from errors import InfraError
from files import written_beside
from host.packages import install_line, locate, package_of
from host.process import run
from kernels.packages import unpack_argv

HERE = Path(__file__).parent
ADD_ENTROPY = HERE / "add_entropy.c"
PRELOAD = HERE / "preload.c"
MARK = HERE / "mark.c"
OUTB = HERE / "outb.c"
STATIC_PROGRAM = ("-Os", "-static", "-s", "-Wl,--build-id=none")
SHARED_LIBRARY = ("-O2", "-shared", "-fPIC", "-s")
TIMEOUT_S = 120.0
# A header beside the source.
INCLUDED = re.compile(rb'^#include "([a-z_]+\.h)"$', re.MULTILINE)


def build(
    source: Path,
    flags: Sequence[str],
    cache: Path,
    *,
    tools: str = "",
    beside: Sequence[Path] = (),
) -> Path:
    """The built file of ``source``, with headers and sources ``beside``; InfraError: it failed."""
    compiler = f"{tools}gcc"
    built_by = [*([compiler] if tools else []), *flags]
    text = b"".join(_text(file) for file in (source, *beside))
    key = hashlib.sha256(text + " ".join(built_by).encode()).hexdigest()[:16]
    folder = cache / "native"
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / f"{source.stem}-{key}"
    with FileLock(folder / "lock"):
        if not built.exists():
            sources = [str(file) for file in (source, *beside) if file.suffix == ".c"]
            with written_beside(built) as new:
                run([compiler, *flags, "-o", str(new), *sources], timeout_s=TIMEOUT_S)
        # The newest is kept in use; others are removed when the cache is cleaned.
        os.utime(built)
    return built


def digest(source: Path) -> str:
    """SHA-256 of a source with the headers beside it that it includes."""
    return hashlib.sha256(_text(source)).hexdigest()


def _text(source: Path) -> bytes:
    text = source.read_bytes()
    headers = [source.parent / name.decode() for name in INCLUDED.findall(text)]
    return b"".join([text, *(header.read_bytes() for header in headers)])


MKFS_XFS = "/sbin/mkfs.xfs"
BUSYBOX = "/bin/busybox"
FIO = "/usr/bin/fio"
PROGRAMS = (FIO, MKFS_XFS, "/sbin/mkfs.ext4", "/usr/bin/chrt")


def host_files(cache: Path) -> dict[str, Path]:
    """Path in the guest → file of the host, of fio :func:`refusing` ones; InfraError: missing."""
    places = {
        path: Path(path) if Path(path).exists() else locate(Path(path).name)
        for path in (BUSYBOX, *PROGRAMS)
    }
    missing = [path for path, file in places.items() if file is None]
    if missing:
        what = f"not installed: {', '.join(missing)}"
        raise InfraError(what, where="initramfs", next_step="./lab.py doctor names the packages")
    programs = {path: file for path, file in places.items() if file is not None}
    fio = programs.pop(FIO)
    real = {Path(place).name: place for place in _libraries(fio)}
    refuse = refusing(fio, real, cache)
    loaded = [Path(place) for place in (_libraries(fio, refuse) if refuse else real.values())]
    of_fio = {real[path.name] if path.parent == refuse else str(path): path for path in loaded}
    return {**_with_libraries(programs), FIO: fio, **of_fio}


def more_programs(names: Iterable[str]) -> dict[str, Path]:
    """Path in the guest → a workload's program; InfraError: names all that are missing."""
    files = {name: locate(name) for name in names}
    if missing := [name for name, file in files.items() if file is None]:
        packages = sorted({package_of(name) or name for name in missing})
        step = f"{install_line(packages)}, or leave out the workload"
        raise InfraError(f"not installed: {', '.join(missing)}", where="initramfs", next_step=step)
    return {f"/usr/bin/{name}": file for name, file in files.items() if file}


def more_host_files(names: Iterable[str]) -> dict[str, Path]:
    """The files of :func:`more_programs`, with the libraries that they need; raises as it does."""
    return _with_libraries(more_programs(names))


def _with_libraries(programs: Mapping[str, Path]) -> dict[str, Path]:
    libraries: set[str] = set()
    for path, program in programs.items():
        libraries |= set(_libraries(program, check=path != BUSYBOX))
    return {**programs, **{path: Path(path) for path in sorted(libraries)}}


def _libraries(program: Path, first: Path | None = None, *, check: bool = True) -> list[str]:
    """What a program is loaded with, looked for in the folder ``first`` before all others."""
    env = {"LD_LIBRARY_PATH": str(first)} if first else {}
    # A static program, as busybox should be, has none and ldd's status says so.
    output = run(["ldd", str(program)], timeout_s=TIMEOUT_S, check=check, env=env).stdout
    return sorted({word for word in output.split() if word.startswith("/")})


# What the names of the libraries of networks begin with.
NETWORKS = tuple(
    f"lib{name}." for name in ("rados", "rbd", "gfapi", "nbd", "iscsi", "ibverbs", "rdmacm")
)
REFUSING = ("-shared", "-fPIC", "-O1", "-s", "-nostdlib", "-Wl,--build-id=none")


def refusing(program: Path, libraries: Mapping[str, str], cache: Path) -> Path | None:
    """A folder of the libraries that refuse, by the names a program needs them by.

    ``libraries`` are all that it needs, by name.  None where it needs none of these, or more of
    them than functions: then it has the real ones.
    Raises InfraError: there is no compiler.
    """
    with program.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".dynsym")
        symbols = table.iter_symbols() if isinstance(table, SymbolTableSection) else ()
        # Of all dynamic symbols: what is read of a library's data is the program's own copy.
        names = frozenset(each.name for each in symbols if each.name)
    needed = [name for name in _needs(program)[2] if name.startswith(NETWORKS)]
    texts: dict[str, tuple[str, str]] = {}
    for name in needed:
        if name not in libraries:
            continue
        if (exported := _exported(Path(libraries[name]), names)) is None:
            return None
        code = "".join(f"void {each}(void) {{ __builtin_trap(); }}\n" for each in sorted(exported))
        script = ""
        for version in sorted(filter(None, set(exported.values()))):
            those = " ".join(f"{each};" for each, of in sorted(exported.items()) if of == version)
            script += f"{version} {{ {those} }};\n"
        texts[name] = code, script
    if not texts:
        return None
    key = hashlib.sha256(repr((REFUSING, sorted(texts.items()))).encode()).hexdigest()[:16]
    folder = cache / "native" / f"refusing-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / "lock"):
        if not folder.exists():
            beside = folder.with_suffix(".new")
            beside.mkdir(exist_ok=True)
            for name, (code, script) in texts.items():
                source, versions = beside / f"{name}.c", beside / f"{name}.map"
                source.write_text(code)
                versions.write_text(script)
                of_versions = [f"-Wl,--version-script={versions}"] if script else []
                out = ["-o", str(beside / name), f"-Wl,-soname,{name}", str(source)]
                run(["gcc", *REFUSING, *of_versions, *out], timeout_s=TIMEOUT_S)
            # Whoever tells files apart by their times does so by what they were made of.
            stamp = int(key, 16) >> 32
            for path in beside.iterdir():
                os.utime(path, (stamp, stamp))
            beside.rename(folder)
        os.utime(folder)
    return folder


def _exported(library: Path, names: frozenset[str]) -> dict[str, str] | None:
    """Those of the ``names`` functions that a library has, with their versions; None: more."""
    exported: dict[str, str] = {}
    try:
        with library.open("rb") as stream:
            elf = ELFFile(stream)
            table = elf.get_section_by_name(".dynsym")
            numbers = elf.get_section_by_name(".gnu.version")
            defined = elf.get_section_by_name(".gnu.version_d")
            versions = {}
            if isinstance(defined, GNUVerDefSection):
                versions = {
                    int(entry["vd_ndx"]): next(aux).name for entry, aux in defined.iter_versions()
                }
            for number, symbol in enumerate(
                table.iter_symbols() if isinstance(table, SymbolTableSection) else ()
            ):
                if symbol["st_shndx"] == "SHN_UNDEF" or symbol.name not in names:
                    continue
                if symbol["st_info"]["type"] != "STT_FUNC":
                    return None
                at = 0
                if isinstance(numbers, GNUVerSymSection):
                    at = numbers.get_symbol(number)["ndx"]
                # 0 and 1 are words: local, and global without a version.
                hidden = isinstance(at, int) and at & 0x8000
                if not hidden:
                    exported[symbol.name] = versions.get(at, "") if isinstance(at, int) else ""
    except (OSError, ValueError) as error:
        raise InfraError(f"cannot be read as ELF: {error}", where=str(library)) from None
    return exported


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
    Raises InfraError: apt cannot fetch them, or one is damaged.
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
            what = f"apt-get cannot fetch programs for {debian}: {done.tail()}"
            step = "see whether the archive can be reached and has this architecture"
            raise InfraError(what, where=f"{words[0]} {' '.join(PACKAGES)}", next_step=step)
    listed = []
    for package in sorted(archives.glob("*.deb")):
        run(unpack_argv(package, folder), timeout_s=UNPACK_TIMEOUT_S)
        listed.append(f"{package.name} {hashlib.sha256(package.read_bytes()).hexdigest()}\n")
    (folder / LIST).write_text("".join(listed))


def with_libraries(folder: Path, programs: Iterable[str]) -> dict[str, Path]:
    """Path in the guest → file below ``folder``, with libraries; InfraError: one is missing."""
    files: dict[str, Path] = {}
    loaders: set[str] = set()
    waiting = [(program, _at(folder, program)) for program in programs]
    while waiting:
        path, file = waiting.pop()
        if path in files:
            continue
        files[path] = file
        loader, places, names = _needs(file)
        for top in ("lib", "usr/lib"):
            of_host = sorted((folder / top).glob("*-linux-gnu*"))
            places = (*places, *(f"/{top}/{inner.name}" for inner in of_host))
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
    """The applets of a busybox that cannot be run here; InfraError: no busybox."""
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


def _needs(file: Path) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Loader, folders to look into first, names of needed libraries; InfraError: no ELF file."""
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
