"""Kernels that somebody else built: a Debian package, or a boot image with its modules.

What a build would leave is taken out of the image itself: its symbols are those behind
/proc/kallsyms, its build id is in its notes, its compiler in its banner.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from errors import InfraError, UsageError
from experiment.spec import PREBUILT, KernelSpec
from files import digest
from host.process import paste
from kernels import cache as store
from kernels import elf, kallsyms, modules, needed, packages, symbols, vmlinux
from kernels.cache import Kernel
from kernels.kallsyms import KallsymsError, Symbol
from results.record import KernelIdentity
from text import clean

log = logging.getLogger(__name__)

# Part of every key: raise it when the same inputs would be kept in another way.
RECIPE = 1
TEXT = re.compile(r"[tTwW]")
# Where a build leaves its image, below its configuration.
BOOT_FOLDER = ("arch", "x86", "boot")


@dataclass(frozen=True)
class _PrebuiltFiles:
    """A prebuilt kernel's files: image, configuration (None if unknown), modules in order."""

    image: Path
    config: Path | None = None
    modules: tuple[Path, ...] = ()


def key_of(spec: KernelSpec, *, checkout: Path, cache: Path) -> str:
    """The content key (32 hex digits): of the package's digest, or of image and modules.

    Raises:
        UsageError: no kernel is named so.
        InfraError: apt does not know the package.
    """
    kind, _, name = spec.source.partition(":")
    if kind == "deb":
        cached = _cached(spec, cache)
        return cached.identity.key if cached else _package_key(packages.find(name, cache))
    return _image_key(_provided(spec, checkout))


def provide(spec: KernelSpec, *, checkout: Path, cache: Path) -> Kernel:
    """The kernel, from the cache or fetched and unpacked.

    Raises:
        UsageError: no kernel is named so, it is none for x86-64, or it lacks a module.
        InfraError: it cannot be fetched or unpacked.
    """
    kind, _, name = spec.source.partition(":")
    if kind == "image":
        provided = _provided(spec, checkout)
        key = _image_key(provided)
        source = f"image:{digest(provided.image.read_bytes())}"
        with store.locked(cache, f"kernel-{key}"):
            return store.load(cache, key, used=True) or _keep(key, source, provided, cache)
    cached = _cached(spec, cache)
    if cached:
        return store.load(cache, cached.identity.key, used=True) or cached
    package = packages.find(name, cache)
    key = _package_key(package)
    with store.locked(cache, f"kernel-{key}"):
        ready = store.load(cache, key, used=True)
        if ready:
            return ready
        with packages.unpacked(package, cache) as root:
            return _keep(key, f"deb:{package.name_and_version}", _shipped(package, root), cache)


def settle(spec: KernelSpec, *, checkout: Path, cache: Path) -> KernelSpec:
    """The same kernel named so that it stays the same: with a version, by a whole path.

    Raises:
        UsageError, InfraError: as ``key_of``.
    """
    kind, _, name = spec.source.partition(":")
    if kind == "image":
        image, folder = _image_parts(name, checkout)
        source = f"image:{image}{f'@{folder}' if folder else ''}"
    elif packages.parts(name)[1]:
        source = spec.source
    else:
        source = f"deb:{packages.find(name, cache).name_and_version}"
    return spec.model_copy(update={"source": source})


def commands(spec: KernelSpec, *, checkout: Path, cache: Path) -> list[str]:
    """Lines for a shell that fetch and unpack the same kernel, for ``--dry-run``."""
    kind, _, name = spec.source.partition(":")
    if kind == "image":
        provided = _provided(spec, checkout)
        return [f"# {name} is there already, with {len(provided.modules)} modules to load"]
    lines = ["work=$(mktemp -d)", 'cd "$work"', "mkdir root"]
    lines += [paste(argv) for argv in packages.fetch_argvs(name, cache)]
    unpack = 'for deb in ./*.deb; do dpkg-deb -x "$deb" root; done'
    return [*lines, unpack, "ls root/boot root/lib/modules"]


def _cached(spec: KernelSpec, cache: Path) -> Kernel | None:
    """A package of a named version that is in the cache: the archive may have dropped it."""
    name = spec.source.partition(":")[2]
    if not packages.parts(name)[1]:
        return None
    every = store.cached_kernels(cache)
    return next((kernel for kernel in every if kernel.identity.source == spec.source), None)


def _package_key(package: packages.DebianPackage) -> str:
    digests = " ".join(each.sha256 for each in (package, *package.rest))
    return digest(f"prebuilt {RECIPE} deb {digests}".encode())[:32]


def _image_key(provided: _PrebuiltFiles) -> str:
    each = [digest(path.read_bytes()) for path in (provided.image, *provided.modules)]
    config = digest(provided.config.read_bytes()) if provided.config else ""
    return digest(" ".join([f"prebuilt {RECIPE} image", config, *each]).encode())[:32]


def _image_parts(name: str, checkout: Path) -> tuple[Path, Path | None]:
    image, at, folder = name.partition("@")
    where = checkout / Path(image).expanduser()
    if not where.is_file():
        raise UsageError(
            f"no such file: {clean(str(where))}",
            where=clean(f"image:{name}"),
            next_step="write image:PATH, or image:PATH@MODULES_FOLDER",
        )
    modules_at = (checkout / Path(folder).expanduser()).resolve() if at else None
    if modules_at is not None and not modules_at.is_dir():
        raise UsageError(f"no such folder: {clean(str(modules_at))}", where=clean(f"image:{name}"))
    return where.resolve(), modules_at


def _provided(spec: KernelSpec, checkout: Path) -> _PrebuiltFiles:
    """What ``image:PATH[@MODULES_FOLDER]`` names; the configuration if it lies beside it."""
    image, folder = _image_parts(spec.source.partition(":")[2], checkout)
    release = vmlinux.read(image).release
    beside = [image.with_name(f"config-{release}"), image.with_name("config")]
    if image.parent.parts[-3:] == BOOT_FOLDER:
        beside.append(image.parents[len(BOOT_FOLDER)] / ".config")
    config = next((path for path in beside if path.is_file()), None)
    return _PrebuiltFiles(image, config, modules.chosen(folder) if folder else ())


def require_image(spec: KernelSpec, wants: Iterable[needed.Want], *, checkout: Path) -> None:
    """Refuse a kernel of files that lacks what guests need, before anything is made of it.

    Raises:
        UsageError: as ``provide`` and ``needed.require``.
    """
    provided = _provided(spec, checkout)
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / "vmlinux"
        vmlinux.extract(vmlinux.read(provided.image), unpacked)
        text = needed.in_image(unpacked.read_bytes()) or _beside(provided)
    names = [modules.plain(path.name) for path in provided.modules]
    needed.require(text, names, wants, where=spec.source)


def require(kernel: Kernel, wants: Iterable[needed.Want]) -> None:
    """The same of a kernel that is in the cache.

    Raises:
        UsageError: as ``needed.require``.
    """
    text = kernel.config.read_text(errors="replace") if kernel.config.exists() else ""
    names = [modules.plain(path.name.partition("-")[2]) for path in kernel.modules]
    needed.require(text, names, wants, where=kernel.identity.source)


def _beside(provided: _PrebuiltFiles) -> str:
    return provided.config.read_text(errors="replace") if provided.config else ""


def _shipped(package: packages.DebianPackage, root: Path) -> _PrebuiltFiles:
    """What an unpacked package holds."""
    # Since 7.2 beside its modules.
    within = sorted(root.glob("usr/lib/modules/*/vmlinuz"))
    images = [*sorted(root.glob("boot/vmlinuz-*")), *within]
    if len(images) != 1:
        raise UsageError(
            f"holds {len(images)} kernels, one is wanted",
            where=f"deb:{package.name_and_version}",
            next_step="apt-cache search --names-only '^linux-image-.*cloud-amd64$'",
        )
    (image,) = images
    release = image.parent.name if within else image.name.removeprefix("vmlinuz-")
    config = image.with_name("config" if within else f"config-{release}")
    folders = [root / "lib/modules" / release, root / "usr/lib/modules" / release]
    folder = next((each for each in folders if each.is_dir()), folders[0])
    return _PrebuiltFiles(image, config if config.is_file() else None, modules.chosen(folder))


def _keep(key: str, source: str, provided: _PrebuiltFiles, cache: Path) -> Kernel:
    image = vmlinux.read(provided.image)
    loaded = [(path, modules.unpacked(path)) for path in provided.modules]
    code = hashlib.sha256(provided.image.read_bytes())
    for _, data in loaded:
        code.update(hashlib.sha256(data).digest())
    with store.staged(cache, key) as folder:
        unpacked = folder / "vmlinux"
        vmlinux.extract(image, unpacked)
        data = unpacked.read_bytes()
        shutil.copyfile(provided.image, folder / "bzImage")
        # What is in the image is its own, whatever lies beside it.
        text = needed.in_image(data) or _beside(provided)
        if text:
            (folder / "config").write_text(text)
        for number, (path, content) in enumerate(loaded):
            (folder / f"{number:02}-{modules.plain(path.name)}.ko").write_bytes(content)
        _name_code(data, folder, source)
        identity = KernelIdentity(
            key=key,
            release=image.release,
            source=source,
            patches=(),
            flavour=PREBUILT,
            compiler=vmlinux.compiler(data),
            config_sha256=digest(text.encode()) if text else "",
            code_key=code.hexdigest(),
            build_id=elf.build_id(unpacked),
        )
        unpacked.unlink()
        (folder / store.IDENTITY).write_text(identity.model_dump_json(indent=1))
    kernel = store.load(cache, key, used=True)
    if kernel is None:
        raise InfraError("the kernel just unpacked is not in the cache", where=str(cache))
    return kernel


def _name_code(data: bytes, folder: Path, source: str) -> None:
    """Write System.map and the table of functions, as far as the kernel names its code."""
    try:
        listed = kallsyms.symbols(data)
    except KallsymsError as error:
        log.info("%s: its functions stay without names: %s", source, error)
        return
    (folder / "System.map").write_text(kallsyms.system_map(listed))
    symbols.save(_sizes(listed), folder / "symbols.json.gz")


def _sizes(listed: Sequence[Symbol]) -> dict[str, symbols.FunctionCode]:
    """Functions by the distance to what follows; their code is not compared.

    A linked kernel that was stripped does not say which of its bytes are addresses.
    """
    code = sorted({(each.address, each.name) for each in listed if TEXT.fullmatch(each.kind)})
    starts = sorted({address for address, _ in code})
    following = dict(itertools.pairwise(starts))
    table: dict[str, symbols.FunctionCode] = {}
    uses: dict[str, int] = {}
    for address, name in code:
        if address not in following or name.startswith("__pfx_"):
            continue
        uses[name] = uses.get(name, 0) + 1
        label = name if uses[name] == 1 else f"{name}#{uses[name]}"
        table[label] = symbols.FunctionCode(following[address] - address, "", "")
    return table
