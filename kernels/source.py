"""Where a kernel's source comes from: what it is (quickly), and how it is laid out.

The identity names the content, never the place, so that the same source found
elsewhere gives the same kernels.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from errors import InfraError, UsageError
from files import sha256_of, write_atomically
from host import folders
from host.packages import install_line, locate
from host.process import run
from kernels import packages
from kernels.git_range import require_files, run_git
from text import clean, words

DEBIAN_SOURCES = Path("/usr/src")
# Where a source package keeps its tarball there: Debian's, then Ubuntu's.
TARBALLS = ("{package}.tar.*", "{package}/{package}.tar.*")
SHA256_LETTERS = 64
UNPACK_TIMEOUT_S = 1800.0
QUERY_TIMEOUT_S = 60.0
# Of a tree in git, which may name itself for ever: ten times a kernel's files, twice its bytes.
MOST_NAMES, MOST_BYTES = 1_000_000, 4 << 30
LIMITS = ("prlimit", f"--data={2 << 30}", f"--fsize={MOST_BYTES}", "--")
# What every kernel's source has at its top.
TOP = ("Makefile", "Kconfig")


@dataclass(frozen=True)
class Source:
    """A source found: ``kind`` is deb, tarball, dir or git.

    ``origin`` is the tarball, folder or repository; ``tree_id`` the git tree. ``package`` is what
    apt has to fetch into the cache ``origin``, empty where the tarball is there.
    """

    kind: str
    identity: str
    origin: Path
    tree_id: str = ""
    package: str = ""

    @property
    def key(self) -> str:
        """16 hex digits that name the prepared tree."""
        return hashlib.sha256(self.identity.encode()).hexdigest()[:16]


OTHER = "name another with --source, --arm or kernel.source"


def identify(spec: str, *, checkout: Path, cache: Path) -> Source:
    """Find the source of a specification.

    Raises InfraError: a package is not installed; UsageError: there is no such package, path or
    ref.
    """
    kind, _, name = spec.partition(":")
    if kind == "deb":
        return _debian(name, cache)
    if kind == "tarball":
        path = existing(spec, checkout / Path(name).expanduser(), "file")
        digest = _digest(path, cache, stamp_of(path.stat()), sha256_of)
        return Source("tarball", f"tarball:{digest}", path)
    if kind == "dir":
        path = existing(spec, checkout / Path(name).expanduser(), "folder")
        sparse = ["git", "-C", str(path), "config", "--bool", "core.sparseCheckout"]
        if (path / ".git").exists() and _query(sparse).strip() == "true":
            what = "a sparse checkout, in which files of the kernel are missing"
            step = f"use git:{path}@HEAD, or git -C {path} sparse-checkout disable"
            raise UsageError(what, where=spec, next_step=step)
        require_source(spec, path)
        if (path / ".config").exists() or (path / "include/config").exists():
            what = "the folder has been built in, and kbuild refuses such a source"
            step = f"make -C {path} mrproper, or use git:{path}@HEAD"
            raise UsageError(what, where=spec, next_step=step)
        stamps = hashlib.sha256()
        for inside, entry in _entries(path):
            stamps.update(f"{inside}\0{stamp_of(entry.stat(follow_symlinks=False))}\n".encode())
        digest = _digest(path, cache, stamps.hexdigest(), _hash_folder)
        return Source("dir", f"dir:{digest}", path)
    if kind == "git":
        return _git(spec, name, checkout)
    step = "write deb:PACKAGE, tarball:PATH, dir:PATH or git:PATH@REF"
    raise UsageError("unknown kind of kernel source", where=spec, next_step=step)


def release_of(spec: str, checkout: Path) -> str:
    """``6.12`` of a source or a prebuilt kernel, by its Makefile or its name; empty: neither tells.

    Nothing is fetched, unpacked or hashed for it.
    """
    kind, _, name = spec.partition(":")
    if kind in ("git", "dir"):
        place, at, ref = name.rpartition("@") if kind == "git" else (name, "", "")
        folder = checkout / Path(place if at else name).expanduser()
        text = ""
        if kind == "git":
            makefile = f"{ref if at else 'HEAD'}:Makefile"
            text = run_git(folder, "show", makefile, check=False).stdout
        elif (folder / "Makefile").is_file():
            text = (folder / "Makefile").read_text()
        parts = [re.search(rf"^{part} = (\d+)$", text, re.M) for part in ("VERSION", "PATCHLEVEL")]
        return ".".join(part[1] for part in parts if part)
    match = re.search(r"linu[xz]-(?:source-|image-)?(\d+\.\d+)", Path(name).name)
    return match[1] if match else ""


def unpack(source: Source, into: Path) -> None:
    """Lay a source out in a new folder.

    Raises InfraError: it cannot be had, or changed meanwhile; UsageError: it is no Linux tree.
    """
    if source.kind != "dir":
        into.mkdir(parents=True)
    if source.kind == "dir":
        shutil.copytree(
            source.origin,
            into,
            symlinks=True,
            ignore=lambda top, names: (
                {".git"} & {*names} if Path(top) == source.origin else set[str]()
            ),
        )
        if f"dir:{_hash_folder(into)}" != source.identity:
            what = "the folder changed while it was copied"
            step = "run again when nothing writes there"
            raise InfraError(what, where=str(source.origin), next_step=step)
    elif source.package:
        with packages.unpacked(packages.find(source.package, source.origin), source.origin) as root:
            name = packages.parts(source.package)[0]
            tarball = _tarball(root / DEBIAN_SOURCES.relative_to("/"), name)
            if tarball is None:
                raise UsageError("no package of a kernel source", where=source.package)
            run(_untar(tarball, into), timeout_s=UNPACK_TIMEOUT_S)
    elif source.kind == "git":
        require_files(source.origin, source.tree_id, source.tree_id, str(source.origin))
        _require_bounds(source)
        archive, bare = into.with_name("source.tar"), into.with_name("source.git")
        # Settings and attributes of the repository can name programs: its objects are all we use.
        where = words("rev-parse --path-format=absolute --git-path objects")
        objects = run_git(source.origin, *where).stdout
        form = "sha256" if len(source.tree_id) == SHA256_LETTERS else "sha1"
        init = ["git", "init", "-q", "--bare", "--template=", f"--object-format={form}", str(bare)]
        try:
            run(init, timeout_s=QUERY_TIMEOUT_S)
            (bare / "objects/info/alternates").write_text(objects)
            argv = ["git", "--git-dir", str(bare), "archive", "-o", str(archive), source.tree_id]
            run([*LIMITS, *argv], timeout_s=UNPACK_TIMEOUT_S)
            run(["tar", "-C", str(into), "-xf", str(archive)], timeout_s=UNPACK_TIMEOUT_S)
        finally:
            shutil.rmtree(bare, ignore_errors=True)
            archive.unlink(missing_ok=True)
    else:
        run(_untar(source.origin, into), timeout_s=UNPACK_TIMEOUT_S)
    try:
        require_source(str(source.origin), into)
    except UsageError:
        # It may be anything of the user's, and is not left where builds of others may read it.
        shutil.rmtree(into, ignore_errors=True)
        raise


def _require_bounds(source: Source) -> None:
    """Refuse a tree with more in it than any kernel; UsageError: says of what there is too much."""

    def listed(how: str) -> str:
        argv = ("ls-tree", "-rtz", how, "--full-tree", source.tree_id)
        return run_git(source.origin, *argv).stdout

    names, size, deepest = listed("--name-only"), 0, 0
    count = names.count("\0")
    if count <= MOST_NAMES:
        deepest = 1 + max((name.count("/") for name in names.split("\0")), default=0)
        # Mode, kind and id, of files alone a size, and behind a tab the path.
        words_of = (line.partition("\t")[0].split() for line in listed("--long").split("\0"))
        size = sum(int(parts[3]) for parts in words_of if parts and parts[3].isdigit())
    for amount, most, what in (
        (count, MOST_NAMES, "files and folders"),
        (size, MOST_BYTES, "bytes"),
        (deepest, folders.MOST_PARTS, "folders in folders"),
    ):
        if amount > most:
            where = clean(f"git:{source.origin}@{source.tree_id}")
            raise UsageError(
                f"has {amount} {what}, and no kernel more than {most}", where=where, next_step=OTHER
            )


def _untar(tarball: Path, into: Path) -> list[str]:
    options = ["--strip-components=1", "--no-same-owner"]
    return ["tar", "-C", str(into), *options, "-xf", str(tarball)]


def _tarball(sources: Path, package: str) -> Path | None:
    """The tarball of an unpacked source package; None where there is none."""
    forms = (form.format(package=glob.escape(package)) for form in TARBALLS)
    return next((path for form in forms for path in sources.glob(form)), None)


def _debian(request: str, cache: Path) -> Source:
    package, _, version = request.partition("=")
    tarball = None if "/" in package else _tarball(DEBIAN_SOURCES, package)
    if tarball and locate("dpkg-query") is not None:
        argv = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", "--", package]
        status, _, installed = _query(argv).partition(" ")
        if status == "installed" and version in ("", installed):
            return Source("deb", f"deb:{package}={installed}", tarball)
    if version:
        packages.parts(request)
        return Source("deb", f"deb:{request}", cache, package=request)
    if fetched := packages.fetched(package, cache):
        return Source("deb", f"deb:{fetched}", cache, package=fetched)
    own = "name a tree of your own: kernel.source = git:PATH@REF, dir:PATH or tarball:PATH"
    if locate("dpkg-query") is None:
        raise InfraError(
            "this system has no packages of Debian's", where=f"deb:{package}", next_step=own
        )
    with contextlib.suppress(InfraError):  # what apt knows is fetched where its version is named
        own = f"write deb:{packages.find(package, cache).name_and_version}; or {own}"
    raise InfraError(
        "the source package is not installed",
        where=package,
        next_step=f"{install_line([package])}; where this release does not have it: "
        f"./lab.py fetch {package}, which looks in newer ones and installs nothing; or {own}",
    )


def _git(spec: str, name: str, checkout: Path) -> Source:
    place, at, ref = name.rpartition("@")
    if not at or not ref:
        raise UsageError("a git source needs a ref", where=spec, next_step="write git:PATH@REF")
    path = existing(spec, checkout / Path(place).expanduser(), "folder")
    arguments = ("rev-parse", "--verify", "--end-of-options", f"{ref}^{{tree}}")
    result = run_git(path, *arguments, check=False)
    if result.returncode != 0:
        step = f"git -C {path} fetch, or see git -C {path} branch -a"
        raise UsageError(f"git does not know this ref: {result.tail()}", where=spec, next_step=step)
    tree_id = result.stdout.strip()
    names = run_git(path, "ls-tree", "--name-only", tree_id, "--", *TOP).stdout.splitlines()
    for missing in sorted({*TOP} - {*names}):
        raise _no_source(spec, missing)
    return Source("git", f"git:{tree_id}", path, tree_id)


def existing(spec: str, path: Path, kind: str) -> Path:
    """The whole path of a ``kind``, file or folder; UsageError: there is none."""
    if not (path.is_file() if kind == "file" else path.is_dir()):
        raise UsageError(f"no such {kind}: {path}", where=spec, next_step=OTHER)
    return path.resolve()


def require_source(spec: str, top: Path) -> None:
    """Look at a folder before it is read or copied: anything else may be large, or private."""
    for name in TOP:
        if not (top / name).is_file():
            raise _no_source(spec, name)


def _no_source(spec: str, name: str) -> UsageError:
    what = f"no Linux source: there is no {name} at its top"
    return UsageError(what, where=clean(spec), next_step="name the top of a kernel's source")


def _query(argv: list[str]) -> str:
    return run(argv, timeout_s=QUERY_TIMEOUT_S, check=False).stdout


def _entries(top: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Files and links below ``top``, in a fixed order; UsageError: a pipe or device among them."""
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(top / folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
        for entry in entries:
            path = f"{folder}{entry.name}"
            if path == ".git":
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append(f"{path}/")
            elif entry.is_symlink() or entry.is_file():
                yield path, entry
            else:
                what = "is no file, and no kernel source has such"
                step = "name a folder with a kernel's source"
                raise UsageError(what, where=clean(str(top / path)), next_step=step)


def _hash_folder(top: Path) -> str:
    digest = hashlib.sha256()
    for path, entry in _entries(top):
        if entry.is_symlink():
            kind, content = "l", str(Path(entry.path).readlink()).encode()
        else:
            kind = "x" if entry.stat().st_mode & 0o100 else "f"
            content = Path(entry.path).read_bytes()
        digest.update(f"{kind} {path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def stamp_of(stat: os.stat_result) -> str:
    """What of a file's metadata differs after it was written to."""
    # ctime is there for what mtime can hide: it cannot be set back.
    return f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"


def _digest(path: Path, cache: Path, stamp: str, compute: Callable[[Path], str]) -> str:
    """The digest of a file or folder, computed again only where its stamp is another one."""
    name = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    memory = cache / "digests" / f"{name}.json"
    try:
        stored = json.loads(memory.read_text())
        if stored["stamp"] == stamp:
            return str(stored["digest"])
    except (OSError, ValueError, LookupError, TypeError):
        pass
    digest = compute(path)
    write_atomically(memory, json.dumps({"stamp": stamp, "digest": digest}))
    return digest
