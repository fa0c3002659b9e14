"""Newer releases of Debian than the host's: lists of the lab's own, in its cache.

apt reads them with the host's keys and writes nothing of the host's; what they have can be
named as the host's own packages can (``kernels.packages``).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from errors import InfraError, UsageError
from host.process import run
from text import clean

# Where kernels are newest; a suite that an archive lacks is left out.
SUITES = ("sid", "stable-backports", "testing")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# apt's own word for what its lists came from.
TARGETS = ("apt-get", "indextargets", "--format", "$(ORIGIN) $(RELEASE) $(REPO_URI)")
QUERY_TIMEOUT_S = 60.0
UPDATE_TIMEOUT_S = 600.0


def options(cache: Path) -> tuple[str, ...]:
    """What apt is told to read these lists and no others; nothing where there are none."""
    return _options(_folder(cache)) if _list(_folder(cache)).exists() else ()


def update(cache: Path, *, mirror: str = "", suites: Sequence[str] = (), keyring: str = "") -> str:
    """Fetch the lists of newer releases; return the mirror, the host's own unless one is named.

    Raises:
        UsageError: no mirror is named, and the host has none of Debian's.
        InfraError: no suite can be fetched.
    """
    mirror = mirror or _mirror_of_host()
    keys = Path(keyring) if keyring else KEYRING
    signed = f"Signed-By: {keys}\n" if keys.exists() or keyring else ""
    new = _folder(cache).with_name("apt.new")
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
        _list(new).write_text("".join([*there, entry]))
        argv = ["apt-get", "-q", *_options(new), "update", "--error-on=any"]
        result = run(argv, timeout_s=UPDATE_TIMEOUT_S, check=False, env={"LC_ALL": "C"})
        codename = _codename(new, suite)
        if result.returncode:
            failures.append(f"{suite}: {clean(result.tail())}")
        elif codename in waiting:
            there.append(entry)
        else:
            # A mirror may keep an older state under the other name.
            waiting.append(codename)
    if not there:
        shutil.rmtree(new)
        raise InfraError(
            f"apt-get can fetch no list of packages: {'; '.join(failures)}",
            where=mirror,
            next_step="name another --mirror, --suite or --keyring",
        )
    _list(new).write_text("".join(there))
    shutil.rmtree(_folder(cache), ignore_errors=True)
    new.rename(_folder(cache))
    return mirror


def _codename(folder: Path, suite: str) -> str:
    """What a release calls itself, as ``trixie-backports``; the suite where it does not tell."""
    for path in (folder / "lists").glob(f"*_dists_{suite}_*Release"):
        match = re.search(r"^Codename: (\S+)$", path.read_text(errors="replace"), re.M)
        if match:
            return match[1]
    return suite


def _folder(cache: Path) -> Path:
    return cache / "apt"


def _list(folder: Path) -> Path:
    return folder / "lab.sources"


def _options(folder: Path) -> tuple[str, ...]:
    places = {
        "Dir::Etc::SourceList": _list(folder),
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache::Archives": folder / "archives",
        "Dir::Cache::pkgcache": "",
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
    raise UsageError(
        "apt of this host knows no archive of Debian's",
        where="--mirror",
        next_step="name one: --mirror URL (and --keyring FILE, if it is signed with other keys)",
    )
