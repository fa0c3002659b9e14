"""One arm's kernel, from the cache or built: the door that the rest of the lab uses."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from errors import InfraError, LabError, SeriesError
from experiment.spec import KernelSpec
from files import digest, sha256_of, write_atomically
from host import folders, limited, sandbox
from host.facts import require_usable
from host.process import TimedOutError, run
from host.sandbox import Box
from kernels import (
    addresses,
    blame,
    btf,
    compiled,
    config,
    linetable,
    make,
    prebuilt,
    products,
    symbols,
)
from kernels import cache as store
from kernels.blame import Goal, Mistake, culprit, source_of
from kernels.cache import Kernel
from kernels.config import Configured, Reasons, load_reasons
from kernels.linetable import ObjectLines
from kernels.make import (
    GIVEN,
    LogError,
    MakeProgress,
    Toolchain,
    make_argv,
    run_make,
    safe_headers,
    wait_until_idle,
)
from kernels.make import identify as identify_toolchain
from kernels.series import Patch, read_patch
from kernels.source import Source, release_of
from kernels.source import identify as identify_source
from kernels.worktree import (
    COPY_TIMEOUT_S,
    WorkTree,
    changed_files,
    copy_objects,
    folders_of,
    prepare,
    switch,
)
from results.record import KernelIdentity
from text import clean, words

log = logging.getLogger(__name__)

# Part of every key: raise the number when the same inputs would give another kernel.
RECIPE = f"4 {GIVEN}"
# The same for what is kept beside a kernel: it is linked again, and no object is compiled.
TABLES = "2 tables"
REQUESTED = "asked.config"
VMLINUX = "vmlinux"
BUSY = "busy"
BUILD_TIMEOUT_S = 4 * 3600.0
TOOLCHAIN = "toolchain"
# What kernel builds run.
TOOLS = words(
    "make gcc g++ ld clang ld.lld llvm-ar ccache aarch64-linux-gnu-gcc flex bison bc perl python3 "
    "pahole lz4 xz openssl depmod awk"
)
# Copies of objects in which strangers' patches are built, within a tree's folder.
BOXED = "boxed"
# Where a source is configured without the series that the tree has.
SCRATCH = "obj-configuration"
# What compiler and linker print is read up to here a line: one of a stranger's may have megabytes.
LONGEST_LINE = 4096
# Logs of builds that failed, which are kept in a tree's folder.
MOST_LOGS = 32
# There until what the other configuration has more is removed, by the first build that ends well.
COPIED = "copied"
CULPRIT = "see which of its makefiles or programs does"

# What a build took last time is remembered in the cache: there is no way to ask make beforehand
# (``make -n`` of a kernel takes minutes and stops where headers are generated).
Kind = Literal["first", "copied", "extended", "next"]
Progress = Callable[[MakeProgress], None]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Expected:
    """Commands that make runs, 0 where that is not known, and seconds.

    Of the kind ``next`` those beside the objects that kbuild is known to compile again.
    """

    steps: int
    seconds: float

    def with_more(self, objects: int) -> Expected:
        """Together with so many objects, fewer below 0, each as long as every other command."""
        steps = max(self.steps + objects, 1)
        return Expected(steps, self.seconds * steps / self.steps if self.steps else self.seconds)


# Where the cache remembers nothing: the lean 6.12 configuration on two cores.
WHOLE, REST = Expected(0, 480.0), Expected(0, 90.0)
UNKNOWN: dict[Kind, Expected] = {"first": WHOLE, "copied": WHOLE, "extended": REST, "next": REST}


BUILDS = TypeAdapter(dict[Kind, Expected])


def expected(cache: Path, flavour: str, kind: Kind) -> Expected:
    """What the last build of this kind took: of the flavour, else of the largest other one."""
    own = _builds(cache / f"builds-{flavour}.json").get(kind)
    others = [_builds(path).get(kind) for path in sorted(cache.glob("builds-*.json"))]
    largest = max(filter(None, others), key=lambda other: other.steps, default=UNKNOWN[kind])
    return own or largest


def remember(cache: Path, flavour: str, kind: Kind, build_steps: Expected) -> None:
    """Keep what a build took."""
    path = cache / f"builds-{flavour}.json"
    builds = {**_builds(path), kind: build_steps}
    write_atomically(path, BUILDS.dump_json(builds).decode())


def _builds(path: Path) -> dict[Kind, Expected]:
    try:
        return BUILDS.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return {}


@dataclass(frozen=True)
class KernelRequest:
    """A kernel that is asked for; ``boxed``: built in a box, on a copy of the objects."""

    spec: KernelSpec
    patches: Sequence[Path]
    checkout: Path
    cache: Path
    boxed: bool = False


@dataclass(frozen=True)
class _Plan:
    """All that decides a kernel's bits, gathered before anything is built."""

    spec: KernelSpec
    cache: Path
    source: Source
    patches: tuple[Patch, ...]
    fragments: tuple[config.Fragment, ...]
    requested: str
    toolchain: Toolchain
    module_folders: tuple[Path, ...]
    reasons: Reasons

    @classmethod
    def of(cls, request: KernelRequest) -> _Plan:
        """Raise as :func:`key_of`."""
        spec, checkout, cache = request.spec, request.checkout, request.cache
        source = identify_source(spec.source, checkout=checkout, cache=cache)
        shipped = config.fragments(checkout, spec, release_of(spec.source, checkout))
        fragments = config.with_options(shipped, spec.config)
        return cls(
            spec,
            cache,
            source,
            tuple(read_patch(path) for path in request.patches),
            fragments,
            config.merge(fragments),
            identify_toolchain(spec.compiler, spec.architecture),
            config.module_folders(checkout, spec.additions),
            load_reasons(checkout),
        )

    @property
    def has_modules(self) -> bool:
        """Whether parts of it are to be modules."""
        return config.parse(self.requested).get("MODULES") == "y"

    @property
    def objects_key(self) -> str:
        """Names the object folder: everything except the patches."""
        return digest(RECIPE, self.requested, self.toolchain.identity)[:12]

    @property
    def key(self) -> str:
        """Names the finished kernel."""
        parts = [f"{patch.name} {sha256_of(patch.path)}" for patch in self.patches]
        parts += [f"{path.name} {prebuilt.source_digest(path)}" for path in self.module_folders]
        parts += [f"{make.ORDERS} orders"] if self.spec.mode == "native" else []
        return digest(self.source.identity, self.objects_key, TABLES, *parts)[:32]

    @property
    def tree(self) -> WorkTree:
        """Where the source is, with its objects."""
        return WorkTree(store.tree_folder(self.cache, self.source.key))

    @property
    def objects(self) -> Path:
        """The objects of this configuration as make sees them."""
        return self.tree.objects(self.objects_key)

    @property
    def tools(self) -> str:
        """What objects are made with: others of the same may be copied."""
        arch = "um" if self.spec.mode == "native" else self.spec.arch
        return f"{RECIPE} {arch} {self.toolchain.identity}\n"

    @property
    def base_config(self) -> Path:
        """Where the configuration of the source without a series is kept."""
        return self.tree.folder / f"{self.objects_key}.base.json"

    def without_patches_built(self) -> bool:
        """Whether the source alone is in the cache."""
        return store.load(self.cache, replace(self, patches=()).key) is not None

    def made(self, error: OSError) -> bool:
        """Whether what a call of the lab's failed at is made by the series: its paths, objects.

        It makes nothing elsewhere.  Nor does it fill a disk, or own what is another user's.
        """
        tree = self.tree
        named = {name for patch in self.patches for name in patch.files}
        paths = {above for name in named for above in (name, *folders_of(name))}
        for place in map(Path, filter(None, (error.filename, error.filename2))):
            there = next(each for each in (place, *place.parents) if os.path.lexists(each))
            if error.errno in products.OF_HOST or there.lstat().st_uid != os.getuid():
                return False
            for top in (self.objects, tree.folder / BOXED / self.objects.name):
                if top in place.parents:
                    return True
            for top in (tree.src, tree.patched):
                if top in place.parents and place.relative_to(top).as_posix() in paths:
                    return True
        return False

    def beginning(self, objects: Path) -> tuple[Kind, Path | None]:
        """What a build in a folder starts from, and the objects to be copied there, if any.

        kbuild compiles again what depends on an option that differs, and all of what was
        compiled by another command; so only objects of the same compiler are worth a copy.
        """
        tree = self.tree
        if objects.exists():
            if (objects / COPIED).exists():  # the other configuration's kernel is among them
                return "copied", None
            return ("next" if (objects / VMLINUX).exists() else "first"), None
        requested = set(self.requested.splitlines())
        others = [
            (len(requested ^ options), folder.name, folder, options)
            for folder in tree.src.glob("obj-*")
            if all((folder / name).exists() for name in (VMLINUX, addresses.ARCHIVE, TOOLCHAIN))
            and not (tree.folder / f"unfinished-{folder.name.removeprefix('obj-')}").exists()
            and (folder / TOOLCHAIN).read_text() == self.tools
            and (options := set((folder / REQUESTED).read_text().splitlines())) is not None
        ]
        if not others:
            return "first", None
        _, _, nearest, options = min(others)
        return ("extended" if options <= requested else "copied"), nearest


def key_of(request: KernelRequest) -> str:
    """The content key (32 hex digits) of a kernel.

    Raises UsageError: source, flavour or patch is not there; InfraError: a tool is missing.
    """
    if request.spec.is_prebuilt:
        return prebuilt.key_of(request.spec, checkout=request.checkout, cache=request.cache)
    return _Plan.of(request).key


def seconds_to_build(request: KernelRequest, before: Sequence[Path] | None = None) -> float:
    """About how long a build takes, after one of its source and flavour with the patches ``before``
    if there is to be one; raises as :func:`key_of`.
    """
    if request.spec.is_prebuilt:
        return 0.0
    plan = _Plan.of(request)
    kind = plan.beginning(plan.objects)[0] if before is None else "next"
    known = expected(request.cache, request.spec.configuration, kind)
    if kind != "next":
        return known.seconds
    patches = {*request.patches} ^ {*(before or ())}
    files = {name for path in patches for name in read_patch(path).files}
    files.update(changed_files(plan.tree) if before is None else ())
    return known.with_more(compiled.dependent(plan.objects, (), files)).seconds


def provide(request: KernelRequest, progress: Progress | None = None) -> Kernel:
    """Return the kernel that is asked for, building it if the cache has none.

    Another lab process that builds the same kernel, or uses the same tree, is waited for.
    Raises UsageError: source, flavour or patch does not exist; SeriesError: a patch does not apply,
    or the patched tree does not build; InfraError: the tree without patches does not build, an
    option did not survive, or the host failed (memory, disk, tools); it can make no box, or nothing
    can be built in a folder of the cache's name.
    """
    cache = request.cache
    require_usable(cache, request.checkout)
    if request.spec.is_prebuilt:
        return prebuilt.provide(request.spec, checkout=request.checkout, cache=cache)
    plan = _Plan.of(request)
    if ready := store.load(cache, plan.key, used=True):
        return ready
    with store.locked(cache, f"kernel-{plan.key}"):
        if ready := store.load(cache, plan.key, used=True):
            return ready
        with store.locked(cache, f"tree-{plan.source.key}"):
            return _contained(plan, lambda site: site.build(progress), boxed=request.boxed)


@dataclass(frozen=True)
class Sources:
    """Files of a source as built: texts, objects' lines, and why some have none."""

    texts: Mapping[str, str]
    objects: Mapping[str, ObjectLines]
    without: Mapping[str, str]


def sources_of(request: KernelRequest, kernel: Kernel, files: Collection[str]) -> Sources:
    """Texts and lines of ``files`` in a kernel that is built; LabError: as :func:`provide`."""
    plan, names = _Plan.of(request), sorted(files)
    with store.locked(request.cache, f"tree-{plan.source.key}"):
        return _contained(plan, lambda site: site.sources(kernel, names), boxed=request.boxed)


def require_applies(request: KernelRequest) -> None:
    """Unpack a source of which more is asked, and try patches; SeriesError: one does not apply."""
    if request.spec.is_prebuilt or not (request.patches or request.spec.config):
        return
    plan = _Plan.of(request)
    unpacked = plan.source.kind in ("dir", "git") or plan.tree.src.is_dir()
    if unpacked or store.load(plan.cache, plan.key):
        return
    with store.locked(plan.cache, f"tree-{plan.source.key}"):
        # Nothing is built in it yet: the files of the series may be anew for the base's build.
        switch(prepare(plan.source, plan.tree.folder), plan.patches, boxed=request.boxed)


def _contained(plan: _Plan, work: Callable[[_Site], Made], *, boxed: bool) -> Made:
    """Build, with ``boxed`` a series in a box; what stops that is its failure where it made it."""
    try:
        tree = prepare(plan.source, plan.tree.folder)
        build_log = tree.folder / f"{plan.key}.log"
        if not (boxed and plan.patches):
            return work(_Site(plan, plan.objects, build_log))
        top = tree.folder / BOXED
        folders.remove(top)  # of a lab that was killed
        place = top / plan.objects.name
        readable = (tree.src, *sandbox.programs(*TOOLS))
        box = sandbox.box((place, plan.objects), readable=readable)
        top.mkdir()
        try:
            site = _Site(plan, place, build_log, box)
            site.lay_out()
            return work(site)
        finally:
            folders.remove(top)
            with contextlib.suppress(OSError):
                plan.objects.rmdir()  # where the copy was seen, if the source has no objects
    except Exception as error:
        if not plan.patches:
            raise
        if isinstance(error, TimedOutError) and plan.without_patches_built():
            hours = f"{BUILD_TIMEOUT_S / 3600:.0f} hours"
            what = f"does not build in {hours}, and its base did"
            raise plan.patches[-1].error(what, error.next_step) from error
        if isinstance(
            error,
            (folders.StrangeFolderError, products.ProductError, limited.LimitError, LogError),
        ):
            what = f"its build makes what no build makes: {error.what}"
            raise plan.patches[-1].error(what, CULPRIT) from error
        # A reader failed of what a build wrote, and not this process's own code.
        was_read = isinstance(error.__cause__, limited.ReadingError)
        of_series = plan.made(error) if isinstance(error, OSError) else was_read
        if isinstance(error, LabError | MemoryError) or not of_series:
            raise
        what = f"cannot be built: {type(error).__name__}: {clean(str(error))}"
        raise plan.patches[-1].error(what, "see what it changes beside text in files") from error


@dataclass(frozen=True)
class _Site:
    """Where a kernel is built: make sees ``objects`` at ``plan.objects``, in a box or not."""

    plan: _Plan
    objects: Path
    log: Path
    box: Box | None = None

    @property
    def tree(self) -> WorkTree:
        """The source and its objects."""
        return self.plan.tree

    @property
    def ccache(self) -> Path | None:
        """The compiler's cache, which a box has not."""
        return None if self.box else store.ccache_folder(self.plan.cache)

    @property
    def unfinished(self) -> Path:
        """A file that is there while a make runs, and after one that was killed."""
        return self.tree.folder / f"unfinished-{self.plan.objects_key}"

    def lay_out(self) -> None:
        """The objects of a box as they are before anything ran in it: those of the source."""
        where = self.plan.objects
        folders.remove(self.objects)
        if (where / VMLINUX).exists():
            argv = ["cp", "-a", "--reflink=auto", str(where), str(self.objects)]
            run(argv, timeout_s=COPY_TIMEOUT_S)
            if self.unfinished.exists():  # of the source itself, with half an object
                self.distrust()
        else:
            self.objects.mkdir()
            where.mkdir(exist_ok=True)  # where the copy is seen
        (self.objects / REQUESTED).write_text(self.plan.requested)

    def distrust(self) -> None:
        """Remove what a killed make wrote: half an object looks newer than its source."""
        wait_until_idle(self.tree.folder / BUSY)
        since_ns = self.unfinished.stat().st_mtime_ns
        for _, entry in folders.entries(self.objects):
            with contextlib.suppress(FileNotFoundError):
                if (
                    not entry.is_dir(follow_symlinks=False)
                    and entry.stat(follow_symlinks=False).st_mtime_ns >= since_ns
                ):
                    Path(entry.path).unlink()

    def begin(self) -> bool:
        """Make the folder of objects ready for a make; whether it is the rest of a build."""
        self.objects.mkdir(exist_ok=True)
        goes_on = self.box is None and self.unfinished.exists()
        if goes_on:
            log.info("an earlier build was killed; what it wrote is removed")
            self.distrust()
        (self.objects / TOOLCHAIN).write_text(self.plan.tools)
        (self.objects / REQUESTED).write_text(self.plan.requested)
        self.log.write_text("")
        return goes_on

    def build(self, progress: Progress | None) -> Kernel:
        """Switch the tree, configure, make, and keep what comes out."""
        plan, tree, objects = self.plan, self.tree, self.objects
        (tree.folder / "used").touch()
        changed = switch(tree, plan.patches, boxed=self.box is not None)
        log.info("tree switched, files changed: %s", ", ".join(changed) or "none")
        kind, nearest = plan.beginning(objects)
        if nearest:
            log.info("starting from the objects of %s", nearest.name)
            copy_objects(tree, nearest, objects, COPIED)
        goes_on = self.begin()
        logs = sorted(tree.folder.glob("*.log"), key=lambda each: each.stat().st_mtime)
        for path in logs[:-MOST_LOGS]:
            path.unlink()
        known, again = expected(plan.cache, plan.spec.configuration, kind), 0
        started = time.monotonic()
        before = objects / ".config"
        old = config.parse(before.read_text()) if before.exists() else {}
        configured = self.configure()
        final = configured.text
        if kind != "first":
            options = config.differing(old, config.parse(final))
            # In a box each build begins with the objects of the source, not with those of the last.
            files = {*changed, *(changed_files(tree) if self.box else ())}
            again = compiled.dependent(objects, options, files)
        # What options have compiled again is remembered with the other kinds.
        more = again if kind == "next" else 0
        whole = make_argv(
            plan.toolchain,
            objects.name,
            [plan.spec.architecture.build.target, *["modules"] * plan.has_modules],
            ccache_folder=self.ccache,
            listed_headers=not self.box and plan.toolchain.ccache and safe_headers(tree.src),
        )
        total = max(known.steps + more, again)
        status, steps = self.run(whole, steps_expected=total, progress=progress)
        if status:
            raise self.failure(self.argv("olddefconfig"), whole, text=final)
        if not goes_on:  # else it was the rest of a build
            measured = Expected(steps, time.monotonic() - started).with_more(-more)
            remember(plan.cache, plan.spec.configuration, kind, measured)
        if (objects / COPIED).exists():
            left = compiled.forget_left_out(tree.src, objects, final)
            log.info("objects of the other configuration that are not in this one: %d", len(left))
            (objects / COPIED).unlink()
        failed_modules = self.make_modules()
        # Types are for what is counted, orders for what is timed.
        in_native = plan.spec.mode == "native"
        script = make.order_script(self.argv(), objects.name) if in_native else ""
        self.run(["sh", "-c", script or btf.script(objects, objects.name)])
        kernel = self.keep(configured, failed_modules)
        self.log.unlink()
        return kernel

    def sources(self, kernel: Kernel, files: Sequence[str]) -> Sources:
        """Have some files of a kernel that was built compiled once more, for their lines."""
        plan, objects, src = self.plan, self.objects, self.tree.src
        switch(self.tree, plan.patches, boxed=self.box is not None)
        self.begin()
        config_file, text = objects / ".config", kernel.config.read_text()
        if not config_file.exists() or config_file.read_text() != text:
            config_file.write_text(text)
            self.makes(("olddefconfig",))
        linked = {origin.file for origin in addresses.load(kernel.origins).values()}
        own = [file for file in files if file in linked]
        stems = [file.rpartition(".")[0] for file in own]
        targets = [f"{stem}.o" for stem in stems]
        made = make_argv(plan.toolchain, objects.name, targets, ccache_folder=self.ccache)
        if own and self.run(made)[0]:
            raise InfraError("make does not make its objects again", next_step=f"see {self.log}")
        self.run(["sh", "-c", linetable.script(objects, objects.name, own)])
        lines, without = {}, {}
        for file, stem in zip(own, stems, strict=True):
            again, built = objects / linetable.name_of(file), objects / f"{stem}.o"
            try:
                lines[file] = limited.call(linetable.read, again, built, tuple(files))
            except LabError as error:
                without[file] = error.what
        self.log.unlink()
        texts = {
            file: (src / file).read_text(errors="replace")
            for file in files
            if (src / file).is_file() and not (src / file).is_symlink()
        }
        return Sources(texts, lines, without)

    def argv(self, *targets: str) -> list[str]:
        """A make of these targets, without the compiler's cache."""
        return make_argv(self.plan.toolchain, self.objects.name, targets, ccache_folder=None)

    def makes(self, targets: Sequence[str]) -> bool:
        """Run such a make; whether it ended well."""
        return self.run(self.argv(*targets))[0] == 0

    def run(
        self,
        argv: Sequence[str],
        build_log: Path | None = None,
        steps_expected: int = 0,
        progress: Progress | None = None,
    ) -> tuple[int, int]:
        """Run one make; return its status and number of steps.

        Raises InfraError: the deadline passed; SeriesError: in a box: a link that leads out, a
        device, a pipe or a socket; StrangeFolderError: in a box: folders too deep, too many, or
        that may not be read.
        """
        if self.box is None:
            self.unfinished.touch()
        with self.box.owned() if self.box else contextlib.nullcontext():
            status, steps = run_make(
                self.box.argv(argv, self.tree.src) if self.box else argv,
                cwd=self.tree.src,
                log=build_log or self.log,
                most_log_bytes=products.MOST_BYTES["log"],
                busy=self.tree.folder / BUSY,
                timeout_s=BUILD_TIMEOUT_S,
                expected=steps_expected,
                progress=progress,
            )
        if self.box is None:
            self.unfinished.unlink()  # a make that ends by itself removes half-written targets
            return status, steps
        # Refuse what no build makes, and what would lead whoever reads the objects out of them.
        # Nothing of the box lives any more, and nobody else knows the folder.
        (self.objects / "source").unlink(missing_ok=True)  # kbuild's own link to the tree
        for inside, entry in folders.entries(self.objects):
            if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
                continue
            target = Path(entry.path).readlink() if entry.is_symlink() else Path("/")
            if leads_out(inside, target):
                what = f"its build makes what no build makes: {clean(inside)}"
                raise self.plan.patches[-1].error(what, CULPRIT)
        return status, steps

    def configure(self) -> Configured:
        """Configure the tree, the source alone first; raises as ``config.verify``."""
        plan, base = self.plan, None
        try:
            if config.changes_kconfig(plan.patches):
                base = Configured.load(plan.base_config) or self.configure_source()
                configured = config.from_base(
                    base,
                    plan.fragments,
                    plan.patches,
                    plan.spec.config,
                    self.objects,
                    self.makes,
                )
            else:
                configured = self.configure_from_nothing()
        except config.MakeFailedError as error:
            raise self.failure(self.argv(*error.targets), text=base.text if base else "") from None
        try:
            config.verify(plan.fragments, configured, self.tree.src, plan.reasons, base)
        except SeriesError as error:
            raise self.lost_options(base or configured, error) from None
        if not plan.patches:  # what a series' makefiles made of it is nobody else's
            configured.save(plan.base_config)
        return configured

    def configure_from_nothing(self) -> Configured:
        """Raise as ``config.from_nothing``."""
        parts, reasons = self.plan.fragments, self.plan.reasons
        return config.from_nothing(parts, reasons, self.objects, REQUESTED, self.makes)

    def configure_source(self) -> Configured:
        """Configure the source alone, apart; MakeFailedError: Kconfig fails."""
        alone = replace(self.plan, patches=())
        place = replace(self, plan=alone, objects=self.tree.src / SCRATCH, box=None)
        switch(self.tree, ())
        try:
            place.objects.mkdir(exist_ok=True)
            (place.objects / REQUESTED).write_text(self.plan.requested)
            configured = place.configure_from_nothing()
        finally:
            folders.remove(place.objects)
            switch(self.tree, self.plan.patches, boxed=self.box is not None)
        configured.save(self.plan.base_config)
        return configured

    def make_modules(self) -> str:
        """Build the lab's own modules; return why some are not built.

        That is no failure of the kernel.  Raises InfraError: the host failed.
        """
        plan, where = self.plan, self.plan.objects
        prebuilt.lay_out(plan.module_folders, self.objects)
        failed = []
        for folder in plan.module_folders:
            # Named in full: releases differ in what a relative path is relative to.
            targets = (f"M={where / prebuilt.ADDED / folder.name}", "modules")
            argv = make_argv(plan.toolchain, where.name, targets, ccache_folder=self.ccache)
            if self.run(argv)[0]:
                trouble = limited.call(blame.host_trouble, _text(self.log))
                if trouble and not plan.patches:
                    raise self.nobodys_fault(trouble, self.log)
                failed.append(f"{folder.name}: {'; '.join(map(str, _errors(self.log)))}")
        return "; ".join(failed)

    def failure(self, *makes: list[str], text: str = "") -> SeriesError | InfraError:
        """Who is to blame for the last of ``makes``; the first configures, from ``text``."""
        plan, errors = self.plan, _errors(self.log)
        # A series can have the compiler say that the disk is full: what counts is whether the
        # source builds without it, here and now.
        trouble = limited.call(blame.host_trouble, _text(self.log))
        if not plan.patches:
            return self.nobodys_fault(trouble, self.log)
        trial_log = self.tree.folder / f"{plan.key}.trial.log"

        def make(argv: Sequence[str]) -> bool:
            trial_log.write_text("")
            if argv == makes[0]:
                self.begin_trial(text)
            return self.run(argv, trial_log)[0] == 0

        goals = [Goal("the kernel", makes)]
        target = limited.call(blame.failed_object, _text(self.log), errors[0])
        if source := source_of(self.tree, target):
            *configuring, whole = makes
            goals.insert(0, Goal(target, (*configuring, [*whole[:-1], target]), source))
        number, goal = culprit(
            self.tree,
            plan.patches,
            goals,
            make,
            source_builds=not trouble and plan.without_patches_built(),
            boxed=self.box is not None,
        )
        if not number:
            return self.nobodys_fault(trouble, trial_log)
        trial_log.unlink(missing_ok=True)
        before = f"with the {number - 1} before it" if number > 1 else "without the series"
        listed = "; ".join(map(str, errors))
        what = f"does not build: {listed} ({goal.title} builds {before})"
        return plan.patches[number - 1].error(what, f"see {self.log}")

    def begin_trial(self, text: str) -> None:
        """Lay out anew where a box ran and may have left anything, from this .config if given."""
        if self.box is not None:
            self.lay_out()
        if text:
            (self.objects / ".config").write_text(text)

    def nobodys_fault(self, trouble: str, build_log: Path) -> InfraError:
        """The host's failure, or that of the source without patches, whose log this is."""
        if trouble:
            what = f"the host failed while make ran: {trouble}"
            return InfraError(what, next_step=f"see {self.log}")
        errors = "; ".join(map(str, _errors(build_log)))
        what = f"the source without patches does not build: {errors}"
        return InfraError(what, where=self.plan.spec.source, next_step=f"see {build_log}")

    def lost_options(self, base: Configured, lost: SeriesError) -> SeriesError:
        """The same error with the patch that takes the options away."""
        plan = self.plan

        def keeps_options(argv: Sequence[str]) -> bool:
            self.begin_trial(base.text)
            if self.run(argv)[0]:
                return False
            final = replace(base, text=products.text(self.objects, ".config", "configuration"))
            try:
                config.verify(plan.fragments, final, self.tree.src, plan.reasons, base)
            except LabError:
                return False
            return True

        goals = [Goal("the configuration", (self.argv("olddefconfig"),))]
        boxed = self.box is not None
        number, _ = culprit(
            self.tree, plan.patches, goals, keeps_options, source_builds=True, boxed=boxed
        )
        # A line an option, with what needs it at its end.
        what = "\n".join(clean(line, 400) for line in lost.what.splitlines())
        return plan.patches[number - 1].error(what, lost.next_step)

    def keep(self, configured: Configured, failed_modules: str) -> Kernel:
        """Take what was built into the cache."""
        plan, objects, final = self.plan, self.objects, configured.text
        order = products.text(objects, prebuilt.ORDER, "list") if plan.has_modules else ""
        own = prebuilt.built(order)
        parsed = compiled.parsed(objects, self.tree.src, plan.patches, final, own)
        identity = KernelIdentity(
            key=plan.key,
            arch=plan.spec.arch,
            page_kib=plan.spec.page_kib,
            release=products.release(objects),
            source=plan.source.identity,
            patches=tuple(patch.name for patch in plan.patches),
            flavour=plan.spec.configuration,
            compiler=plan.toolchain.identity,
            config_sha256=digest(final),
            code_key=parsed.code_key,
            build_id=parsed.build_id,
            build_log="build.log",
            options=configured.notes,
        )
        built = plan.spec.architecture.build
        with store.staged(plan.cache, plan.key) as folder:
            (folder / built.target).write_bytes(products.read(objects, built.image, "image"))
            for name in make.order_names() if plan.spec.mode == "native" else ():
                (folder / name).write_bytes(products.read(objects, name, "image"))
            (folder / "System.map").write_bytes(products.read(objects, "System.map", "map"))
            shutil.copyfile(self.log, folder / "build.log")
            added = prebuilt.added(plan.module_folders, objects)
            products.modules(objects, (*own, *added), folder)
            if failed_modules:
                (folder / store.FAILED_MODULES).write_text(failed_modules)
            (folder / "config").write_text(final)
            symbols.save(parsed.functions, folder / "symbols.json.gz", parsed.variables)
            compiled.save(parsed.touched, folder / "touched.json")
            addresses.save(parsed.origins, folder / "origins.json.gz")
            for name, content in parsed.types:
                (folder / Path(name).name).write_bytes(content)
            (folder / store.IDENTITY).write_text(identity.model_dump_json(indent=1))
        return Kernel(store.kernels_folder(plan.cache) / plan.key, identity)


def leads_out(inside: str, target: Path) -> bool:
    """Whether a link, at a path below some top, may lead to what is not below that top."""
    up = len(list(itertools.takewhile(lambda part: part == "..", target.parts)))
    return target.is_absolute() or up > inside.count("/") or ".." in target.parts[up:]


def _errors(build_log: Path) -> tuple[Mistake, ...]:
    errors = limited.call(blame.mistakes, _text(build_log))
    return errors or (Mistake("make ended with an error"),)


def _text(path: Path) -> str:
    with path.open("rb") as stream:
        lines = stream.read(products.MOST_BYTES["log"]).decode(errors="replace").split("\n")
    return "\n".join(line[:LONGEST_LINE] for line in lines)
