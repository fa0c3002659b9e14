"""Kernels that somebody else built: what they have to have, their modules, and how they boot."""

from __future__ import annotations

import hashlib
import itertools
import logging
import re
import shutil
import tomllib
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from errors import InfraError, UsageError
from experiment.load import CONFIGS
from experiment.spec import PREBUILT, KernelSpec
from files import digest, sha256_of
from kernels import cache as store
from kernels import config, packages, products, symbols, vmlinux
from kernels.cache import Kernel
from kernels.config import load_reasons
from kernels.products import MOST_BYTES
from kernels.vmlinux import KallsymsError, Symbol
from results.record import KernelIdentity
from text import clean

# Around the packed configuration in an image (kernel/configs.c).
IKCONFIG = re.compile(rb"IKCFG_ST(.*?)IKCFG_ED", re.S)
MOST_CONFIG_BYTES = 4 << 20


@dataclass(frozen=True)
class Want:
    """An option that is wanted, and what for; ``module`` is loaded where it is not built in.

    ``of`` is what wants it: a RAM disk (``brd``), a program that makes a file system, or any guest.
    """

    option: str
    why: str
    module: str = ""
    of: str = ""


TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
WANTS = tuple(Want(**each) for each in TABLE["wants"])
# What is loaded where it is not built in, and why a kernel without it is refused.
MODULES: Mapping[str, str] = TABLE["modules"]


def in_image(vmlinux: bytes) -> str:
    """The configuration that a kernel has in itself (IKCONFIG); empty where it has none."""
    match = IKCONFIG.search(vmlinux)
    if match is None:
        return ""
    try:
        unpacked = zlib.decompressobj(wbits=31).decompress(match[1], MOST_CONFIG_BYTES)
    except zlib.error:
        return ""
    return unpacked.decode(errors="replace")


def require_options(
    text: str, modules: Collection[str], wants: Iterable[Want], *, where: str
) -> None:
    """Refuse a kernel whose configuration (none known if empty) lacks what guests want.

    Raises UsageError: names every option that lacks, and what it is wanted for.
    """
    options = config.parse(text)
    other_names = {each.option: each.now for each in load_reasons(CONFIGS.parent).renamed}
    missing: dict[str, list[str]] = {}
    for want in wants if options else ():
        value = options.get(want.option, options.get(other_names.get(want.option, ""), "n"))
        if value == "n" or (value == "m" and want.module not in modules):
            note = " (a module, and no folder of modules has it)" if value == "m" else ""
            missing.setdefault(want.why, []).append(f"CONFIG_{want.option}{note}")
    if missing:
        parts = [f"{', '.join(names)}: {why}" for why, names in missing.items()]
        raise UsageError(
            f"this kernel lacks what its guests need: {'; '.join(parts)}",
            where=where,
            next_step="build it with these options, or name the folder of its modules: "
            "image:PATH@/lib/modules/RELEASE",
        )


BUILTIN = "modules.builtin"
# Written by kbuild: the object of every module, a line each.
ORDER = "modules.order"
# Where, within a build's objects, modules of the lab's own are built.
ADDED = "added"


def plain(name: str) -> str:
    """A module's name as the kernel has it, of a file's name or a list's entry."""
    return name.rpartition("/")[2].partition(".ko")[0].replace("-", "_")


def built(order: str) -> tuple[str, ...]:
    """The modules of a build, relative to its object folder, by the text of :data:`ORDER`."""
    return tuple(f"{line.removesuffix('.o')}.ko" for line in order.splitlines())


def source_digest(folder: Path) -> str:
    """SHA-256 over the sources of modules of the lab's own, names and contents."""
    total = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        total.update(f"{path.name} {sha256_of(path)}\n".encode())
    return total.hexdigest()


def lay_out(folders: Sequence[Path], objects: Path) -> None:
    """Copy sources of modules to where they are built; nothing is left there of other ones."""
    for folder in folders:
        place = objects / ADDED / folder.name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder, place)


def added(folders: Sequence[Path], objects: Path) -> tuple[str, ...]:
    """The modules that were built of these sources, relative to the object folder."""
    places = (objects / ADDED / folder.name for folder in folders)
    modules = (path for place in places for path in sorted(place.glob("*.ko")))
    return tuple(str(path.relative_to(objects)) for path in modules)


def chosen(folder: Path) -> tuple[Path, ...]:
    """The files to load, each after those it depends on; built-in ones are left out.

    ``folder`` is that of one release: ``modules.builtin``, and modules below ``kernel``.
    Raises UsageError: a module that is required is neither built in nor there; InfraError: a module
    depends on one that is not there.
    """
    next_step = "name the folder of this kernel's modules: /lib/modules/RELEASE"
    try:
        builtin = {plain(line) for line in (folder / BUILTIN).read_text().splitlines()}
    except OSError:
        what = f"no folder of modules: it has no {BUILTIN}"
        raise UsageError(what, where=str(folder), next_step=next_step) from None
    files = {plain(path.name): path for path in sorted(folder.rglob("*.ko*")) if path.is_file()}
    order: dict[str, Path] = {}
    visited = set[str]()
    for module, why in MODULES.items():
        if why and module not in files and module not in builtin:
            what = f"has no module {module}: {why}"
            raise UsageError(what, where=str(folder), next_step=next_step)
        # Each with whether what it depends on is in the order already.
        pending = [(module, False)] if module in files else []
        while pending:
            name, is_next = pending.pop()
            if is_next:
                order[name] = files[name]
            elif name not in visited:
                visited.add(name)
                pending.append((name, True))
                for dependency in reversed(_depends(files[name])):
                    if plain(dependency) in files:
                        pending.append((plain(dependency), False))
                    elif plain(dependency) not in builtin:
                        what = f"depends on {dependency}, which is not there"
                        raise InfraError(what, where=str(files[name]))
    return tuple(order.values())


def unpacked_module(file: Path) -> bytes:
    """A module as it is loaded; UsageError: damaged, or larger than any."""
    try:
        data = products.plain(raw := file.read_bytes(), MOST_BYTES["module"])
        if file.suffix != ".ko" and not products.is_packed(raw):
            raise ValueError(f"is not packed as {file.suffix} says")
    except products.DAMAGED as error:
        raise UsageError(f"the module is damaged: {error}", where=str(file)) from None
    if len(data) > MOST_BYTES["module"]:
        raise UsageError("the module is larger than any", where=str(file))
    return data


def _depends(file: Path) -> list[str]:
    try:
        section = ELFFile(BytesIO(unpacked_module(file))).get_section_by_name(".modinfo")
        lines = section.data().split(b"\0") if section else []
    except ELFError as error:
        raise UsageError(f"no module: {error}", where=str(file)) from None
    modules = [line.partition(b"=")[2].decode() for line in lines if line.startswith(b"depends=")]
    return [name.strip() for names in modules for name in names.split(",") if name.strip()]


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

    @property
    def config_text(self) -> str:
        """The configuration beside the image; empty without one."""
        return self.config.read_text(errors="replace") if self.config else ""


def key_of(spec: KernelSpec, *, checkout: Path, cache: Path) -> str:
    """The content key (32 hex digits); UsageError: no such kernel; InfraError: apt knows none."""
    kind, _, name = spec.source.partition(":")
    if kind == "deb":
        cached = _cached(spec, cache)
        return cached.identity.key if cached else _package_key(packages.find(name, cache))
    return _image_key(_provided(spec, checkout))


def provide(spec: KernelSpec, *, checkout: Path, cache: Path) -> Kernel:
    """The kernel, from the cache or fetched.

    Raises UsageError: none for x86-64, or it lacks a module; InfraError: it cannot be had.
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
    """The same kernel by a version or a whole path, so that it stays; raises as ``key_of``."""
    kind, _, name = spec.source.partition(":")
    if kind == "image":
        image, folder = _image_parts(name, checkout)
        source = f"image:{image}{f'@{folder}' if folder else ''}"
    elif packages.parts(name)[1]:
        source = spec.source
    else:
        source = f"deb:{packages.find(name, cache).name_and_version}"
    return spec.model_copy(update={"source": source})


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
        what = f"no such file: {clean(str(where))}"
        step = "write image:PATH, or image:PATH@MODULES_FOLDER"
        raise UsageError(what, where=clean(f"image:{name}"), next_step=step)
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
    return _PrebuiltFiles(image, config, chosen(folder) if folder else ())


def require(kernel: Kernel, wants: Iterable[Want], *, where: str = "") -> None:
    """Refuse a kernel in the cache that lacks what guests need; raises as ``require_options``."""
    text = kernel.config.read_text(errors="replace") if kernel.config.exists() else ""
    names = [plain(path.name.partition("-")[2]) for path in kernel.modules]
    require_options(text, names, wants, where=where or kernel.identity.source)


def _shipped(package: packages.DebianPackage, root: Path) -> _PrebuiltFiles:
    """What an unpacked package holds."""
    # Since 7.2 beside its modules.
    within = sorted(root.glob("usr/lib/modules/*/vmlinuz"))
    images = [*sorted(root.glob("boot/vmlinuz-*")), *within]
    if len(images) != 1:
        what = f"holds {len(images)} kernels, one is wanted"
        step = "apt-cache search --names-only '^linux-image-.*cloud-amd64$'"
        raise UsageError(what, where=f"deb:{package.name_and_version}", next_step=step)
    (image,) = images
    release = image.parent.name if within else image.name.removeprefix("vmlinuz-")
    config = image.with_name("config" if within else f"config-{release}")
    folders = [root / "lib/modules" / release, root / "usr/lib/modules" / release]
    folder = next((each for each in folders if each.is_dir()), folders[0])
    return _PrebuiltFiles(image, config if config.is_file() else None, chosen(folder))


def _keep(key: str, source: str, provided: _PrebuiltFiles, cache: Path) -> Kernel:
    image = vmlinux.read(provided.image)
    loaded = [(path, unpacked_module(path)) for path in provided.modules]
    code = hashlib.sha256(provided.image.read_bytes())
    for _, data in loaded:
        code.update(hashlib.sha256(data).digest())
    with store.staged(cache, key) as folder:
        unpacked = folder / "vmlinux"
        vmlinux.extract(image, unpacked)
        data = unpacked.read_bytes()
        shutil.copyfile(provided.image, folder / "bzImage")
        # What is in the image is its own, whatever lies beside it.
        text = in_image(data) or provided.config_text
        if text:
            (folder / "config").write_text(text)
        for number, (path, content) in enumerate(loaded):
            (folder / f"{number:02}-{plain(path.name)}.ko").write_bytes(content)
        try:
            listed = vmlinux.symbols(data)
        except KallsymsError as error:
            log.info("%s: its functions stay without names: %s", source, error)
        else:
            (folder / "System.map").write_text(vmlinux.system_map(listed))
            symbols.save(_sizes(listed), folder / "symbols.json.gz")
        identity = KernelIdentity(
            key=key,
            release=image.release,
            source=source,
            patches=(),
            flavour=PREBUILT,
            compiler=vmlinux.compiler(data),
            config_sha256=digest(text.encode()) if text else "",
            code_key=code.hexdigest(),
            build_id=symbols.build_id(unpacked),
        )
        unpacked.unlink()
        (folder / store.IDENTITY).write_text(identity.model_dump_json(indent=1))
    return Kernel(store.kernels_folder(cache) / key, identity)


def _sizes(listed: Sequence[Symbol]) -> dict[str, symbols.FunctionCode]:
    """Functions by the distance to what follows: stripped code does not say what is an address."""
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
