"""Packages of Debian: found, fetched, unpacked, and archives with newer kernels."""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from errors import InfraError, UsageError
from experiment.frozen import likely
from files import sha256_of
from host.packages import locate
from host.process import run
from kernels import cache as store
from text import clean

# Of the lab's own, in the cache: the folder, and what apt fetches them from.
LISTS, SOURCES = "apt", "lab.sources"
# Where kernels are newest; a suite that an archive lacks is left out.
SUITES = ("sid", "stable-backports", "testing")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
NO_SUITE = "does not have a Release file"
CODENAME = re.compile(r"^Codename: (\S+)$", re.M)
# apt's own word for what its lists came from.
TARGETS = ("apt-get", "indextargets", "--format", "$(ORIGIN) $(RELEASE) $(REPO_URI)")
UPDATE_TIMEOUT_S = 600.0


def options(cache: Path) -> tuple[str, ...]:
    """What apt is told to read these lists and no others; nothing where there are none."""
    lists = cache / LISTS
    return _options(lists) if (lists / SOURCES).exists() else ()


def update(cache: Path, *, mirror: str = "", suites: Sequence[str] = (), keyring: str = "") -> str:
    """Fetch lists of newer releases; return the mirror.

    Raises UsageError: there is no mirror, or no such suite; InfraError: none can be fetched.
    """
    mirror = mirror or _mirror_of_host()
    keys = Path(keyring) if keyring else KEYRING
    signed = f"Signed-By: {keys}\n" if keys.exists() or keyring else ""
    new = cache / f"{LISTS}.new"
    shutil.rmtree(new, ignore_errors=True)
    failures: list[str] = []
    there: list[str] = []
    waiting = [*(suites or SUITES)]
    for suite in waiting:
        # One after the other: a suite that an archive lacks fails all of an update.
        for folder in ("lists/partial", "archives/partial"):
            (new / folder).mkdir(parents=True, exist_ok=True)
        # A suite that ends so is a folder of packages, and has no components.
        components = "" if suite.endswith("/") else "Components: main\n"
        entry = f"Types: deb\nURIs: {mirror}\nSuites: {suite}\n{components}{signed}\n"
        (new / SOURCES).write_text("".join([*there, entry]))
        argv = ["apt-get", "-q", *_options(new), "update", "--error-on=any"]
        result = run(argv, timeout_s=UPDATE_TIMEOUT_S, check=False, env={"LC_ALL": "C"})
        # What the release calls itself, as ``trixie-backports``, where it tells.
        releases = [*(new / "lists").glob(f"*_dists_{suite}_*Release")]
        texts = (path.read_text(errors="replace") for path in releases)
        names = [match[1] for text in texts if (match := CODENAME.search(text))]
        codename = names[0] if names else suite
        if result.returncode:
            failures.append(f"{suite}: {clean(result.tail())}")
        elif codename in waiting:
            there.append(entry)
        else:
            # A mirror may keep an older state under the other name.
            waiting.append(codename)
    if not there:
        shutil.rmtree(new)
        what = f"apt-get can fetch no list of packages: {'; '.join(failures)}"
        step = "name another --mirror, --suite or --keyring"
        # A suite that a user names and an archive that answers has not.
        unknown = suites and all(NO_SUITE in failure for failure in failures)
        raise (UsageError if unknown else InfraError)(what, where=mirror, next_step=step)
    (new / SOURCES).write_text("".join(there))
    shutil.rmtree(cache / LISTS, ignore_errors=True)
    new.rename(cache / LISTS)
    return mirror


def _options(folder: Path) -> tuple[str, ...]:
    places = {
        "Dir::Etc::SourceList": folder / SOURCES,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache::Archives": folder / "archives",
        "Dir::Cache::pkgcache": folder / "packages.bin",
        "Dir::Cache::srcpkgcache": "",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    return tuple(word for key, value in places.items() for word in ("-o", f"{key}={value}"))


def _mirror_of_host() -> str:
    result = run([*TARGETS, "Identifier: Packages"], timeout_s=QUERY_TIMEOUT_S, check=False)
    for line in result.stdout.splitlines():
        origin, _, rest = line.partition(" ")
        release, _, address = rest.partition(" ")
        if origin == "Debian" and not release.endswith("-security"):
            return address.rstrip("/")
    what = "apt of this host knows no archive of Debian's"
    step = "name one: --mirror URL (and --keyring FILE, if it is signed with other keys)"
    raise UsageError(what, where="--mirror", next_step=step)


log = logging.getLogger(__name__)

# As the Debian policy has them; neither can be an option or a path.
NAME = re.compile(r"linux-(?:image|source)-[a-z0-9.+~-]+")
VERSION = re.compile(r"[A-Za-z0-9.+:~-]+")
STANDS_FOR = re.compile(rf"(?P<name>{NAME.pattern}) \(= (?P<version>{VERSION.pattern})\)$")
# Since 7.2 a kernel, its configuration and its modules are packages of their own, which its image
# depends on.
HOLDS = re.compile(rf"(linux-(?:base|binary|modules)-[a-z0-9.+~-]+) \(= ({VERSION.pattern})\)")
# What stands for the newest source there is.
NEWEST = "linux-source"
# Reading all of Debian takes seconds of CPU time, of which a loaded host gives a twentieth.
QUERY_TIMEOUT_S = 300.0
FETCH_TIMEOUT_S = 900.0
UNPACK_TIMEOUT_S = 600.0
MIB = 1 << 20


@dataclass(frozen=True)
class DebianPackage:
    """A package of the archive: SHA-256 and size in bytes as apt's lists have them.

    ``options`` are what apt is told to find it: nothing for one of the host's own lists.  ``rest``
    are packages of the same version that hold the kernel and its modules, where it is empty itself.
    """

    name: str
    version: str
    sha256: str
    size: int
    options: tuple[str, ...] = ()
    rest: tuple[DebianPackage, ...] = ()

    @property
    def name_and_version(self) -> str:
        """What apt calls it."""
        return f"{self.name}={self.version}"


def parts(request: str) -> tuple[str, str]:
    """Name and version (or "") of ``PACKAGE[=VERSION]``; UsageError: no kernel package's name."""
    name, equals, version = request.partition("=")
    if not NAME.fullmatch(name) or (equals and not VERSION.fullmatch(version)):
        step = "write linux-image-RELEASE or linux-source-RELEASE; =VERSION may follow"
        raise UsageError("not the name of a kernel package", where=clean(request), next_step=step)
    return name, version


def find(request: str, cache: Path) -> DebianPackage:
    """Look a package up in apt's lists, the host's and then the lab's own.

    The newest version if none is named. A package that only depends on a kernel's stands for that
    one, as ``linux-image-cloud-amd64`` does.
    Raises UsageError: it is no kernel package's name, or of none that apt knows; InfraError: apt
    knows no kernels, or cannot fetch this one.
    """
    name, version = parts(request)
    own = options(cache)
    package = _find(request, ()) or (_find(request, own) if own else None)
    if package is None:
        like, known = name[: name.index("-", len("linux-")) + 1], set[str]()
        for lists in {(), own}:
            argv = ["apt-cache", *lists, "pkgnames", like]
            known |= {*run(argv, timeout_s=QUERY_TIMEOUT_S, check=False).stdout.split()}
        of_user = known and (version or name not in known)
        step = (
            "no release of Debian that was looked in has it: name a tree of your own, "
            "git:PATH@REF, dir:PATH or tarball:PATH, or look in others with ./lab.py fetch --suite"
            if own
            else f"./lab.py fetch {name}, which looks in newer releases of Debian, or "
            f"apt-get update, then apt-cache policy {name}"
        )
        what = "apt knows no such package that can be fetched"
        if of_user:
            step = f"apt knows {likely(name, sorted(known))}; {step}"
            raise UsageError(what, where=request, next_step=step)
        raise InfraError(what, where=request, next_step=step)
    return package


def _find(request: str, options: tuple[str, ...]) -> DebianPackage | None:
    argv = ["apt-cache", *options, "show", "--no-all-versions", request]
    result = run(argv, timeout_s=QUERY_TIMEOUT_S, check=False, env={"LC_ALL": "C"})
    first = result.stdout.partition("\n\n")[0]
    fields = dict(line.partition(": ")[::2] for line in first.splitlines())
    stands_for = STANDS_FOR.match(fields.get("Depends", ""))
    if stands_for:
        return _find(f"{stands_for['name']}={stands_for['version']}", options)
    holding = HOLDS.findall(fields.get("Depends", "")) if request.startswith("linux-image-") else []
    each = [_find(f"{name}={version}", options) for name, version in holding]
    rest = tuple(package for package in each if package)
    if len(rest) < len(each):
        return None
    try:
        size = int(fields["Size"])
        return DebianPackage(
            fields["Package"], fields["Version"], fields["SHA256"], size, options, rest
        )
    except (KeyError, ValueError):
        return None


def folder(cache: Path) -> Path:
    """Where fetched packages are kept."""
    return cache / "packages"


def fetch(package: DebianPackage, cache: Path) -> Path:
    """The package's file, from cache or apt; InfraError: not to be had, or another digest."""
    path = folder(cache) / f"{package.sha256}.deb"
    if path.exists() and sha256_of(path) == package.sha256:
        os.utime(path)
        return path
    log.info("fetching %s, %d MiB", package.name_and_version, -(-package.size // MIB))
    place = folder(cache) / f".new-{package.sha256}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        argv = ["apt-get", "-q", *package.options, "download", package.name_and_version]
        result = run(argv, cwd=place, timeout_s=FETCH_TIMEOUT_S, check=False, env={"LC_ALL": "C"})
        files = list(place.glob("*.deb"))
        if result.returncode or len(files) != 1:
            what = f"apt-get cannot fetch it: {clean(result.tail())}"
            step = "apt-get update, and see whether the archive can be reached"
            raise InfraError(what, where=package.name_and_version, next_step=step)
        if sha256_of(files[0]) != package.sha256:
            what = "what was fetched has another digest than apt's lists say"
            raise InfraError(what, where=package.name_and_version, next_step="apt-get update")
        files[0].replace(path)
        return path
    finally:
        shutil.rmtree(place, ignore_errors=True)


def fetched(name: str, cache: Path) -> str:
    """``PACKAGE=VERSION`` of a package in the lab's own lists, or of the host's and in the cache.

    Empty where there is none.
    """
    if not NAME.fullmatch(name) or locate("apt-cache") is None:
        return ""
    for lists in dict.fromkeys((options(cache), ())):
        package = _find(name, lists)
        if package and (lists or (folder(cache) / f"{package.sha256}.deb").exists()):
            return package.name_and_version
    return ""


def newest_source(cache: Path) -> str:
    """The newest kernel source in the lab's own lists; InfraError: they have none."""
    argv = ["apt-cache", *options(cache), "pkgnames", f"{NEWEST}-"]
    names = run(argv, timeout_s=QUERY_TIMEOUT_S).stdout.split()
    versions = [
        (tuple(map(int, match.groups())), match[0])
        for name in names
        if (match := re.fullmatch(rf"{NEWEST}-(\d+)\.(\d+)", name))
    ]
    if not versions:
        raise InfraError("no source of a kernel is in these releases", where=NEWEST)
    return max(versions)[1]


def unpack_argv(file: Path | str, into: Path | str) -> list[str]:
    """The command that unpacks a package's files, and runs none of its scripts."""
    return ["dpkg-deb", "-x", str(file), str(into)]


def unpack(file: Path, into: Path) -> None:
    """Unpack a package's files into a folder, made if need be; InfraError: damaged."""
    into.mkdir(parents=True, exist_ok=True)
    run(unpack_argv(file, into), timeout_s=UNPACK_TIMEOUT_S)


@contextmanager
def unpacked(package: DebianPackage, cache: Path) -> Iterator[Path]:
    """A package's files, fetched if need be, for a while; raises as ``fetch`` and ``unpack``."""
    with store.locked(cache, store.PACKAGES_LOCK):
        files = [fetch(each, cache) for each in (package, *package.rest)]
        place = Path(tempfile.mkdtemp(prefix=".unpack-", dir=folder(cache)))
        try:
            for file in files:
                unpack(file, place / "root")
            yield place / "root"
        finally:
            shutil.rmtree(place, ignore_errors=True)
