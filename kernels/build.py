"""One arm's kernel, from the cache or built: the door that the rest of the lab uses."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import logging
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from errors import InfraError, LabError, SeriesError
from experiment.spec import KernelSpec
from files import digest, sha256_of
from host import folders, limited, sandbox
from host.facts import require_usable
from host.process import TimedOutError, paste, run
from host.sandbox import Box
from kernels import (
    addresses,
    blame,
    btf,
    compiled,
    config,
    configure,
    prebuilt,
    products,
    symbols,
)
from kernels import cache as store
from kernels.blame import Goal, culprit, source_of
from kernels.cache import Kernel
from kernels.compiled import parsed as parse_build
from kernels.configure import Configured
from kernels.expected import Expected, Kind, expected, remember
from kernels.make import (
    LogError,
    MakeProgress,
    Toolchain,
    make_argv,
    run_make,
    rust,
    safe_headers,
    wait_until_idle,
)
from kernels.make import identify as identify_toolchain
from kernels.options import Reasons, load_reasons
from kernels.series import Patch, apply_argv, read_patch
from kernels.source import Source, unpack_argvs
from kernels.source import identify as identify_source
from kernels.worktree import COPY_TIMEOUT_S, WorkTree, copy_objects, prepare, switch
from results.record import KernelIdentity
from text import clean

log = logging.getLogger(__name__)

# Part of every key: raise it when the same inputs would give another kernel.
RECIPE = 4
REQUESTED = "asked.config"
VMLINUX = "vmlinux"
BUSY = "busy"
BUILD_TIMEOUT_S = 4 * 3600.0
TOOLCHAIN = "toolchain"
# What kernel builds run.
TOOLS = (
    "make", "gcc", "g++", "ld", "clang", "ld.lld", "llvm-ar", "ccache", "aarch64-linux-gnu-gcc",
    "flex", "bison", "bc", "perl", "python3", "pahole", "lz4", "xz", "openssl", "depmod", "awk",
)  # fmt: skip
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
# What a full or failing disk, or memory, says to the lab itself.
HOST_ERRNOS = (
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE,
)  # fmt: skip


@dataclass(frozen=True)
class _Plan:
    """All that decides a kernel's bits, gathered before anything is built."""

    spec: KernelSpec
    source: Source
    patches: tuple[Patch, ...]
    fragments: tuple[config.Fragment, ...]
    requested: str
    toolchain: Toolchain
    module_folders: tuple[Path, ...]
    reasons: Reasons

    @property
    def has_modules(self) -> bool:
        """Whether parts of it are to be modules."""
        return config.parse(self.requested).get("MODULES") == "y"

    @property
    def objects_key(self) -> str:
        """Names the object folder: everything except the patches."""
        return digest(str(RECIPE), self.requested, self.toolchain.identity)[:12]

    @property
    def key(self) -> str:
        """Names the finished kernel."""
        parts = [f"{patch.name} {sha256_of(patch.path)}" for patch in self.patches]
        parts += [f"{path.name} {prebuilt.source_digest(path)}" for path in self.module_folders]
        return digest(self.source.identity, self.objects_key, *parts)[:32]


def key_of(spec: KernelSpec, patches: Sequence[Path], *, checkout: Path, cache: Path) -> str:
    """The content key (32 hex digits) of source, patches, configuration and compiler.

    Raises:
        UsageError: source, flavour or patch does not exist.
        InfraError: a package or tool is missing.
    """
    if spec.is_prebuilt:
        return prebuilt.key_of(spec, checkout=checkout, cache=cache)
    return _plan(spec, patches, checkout, cache).key


def objects_of(spec: KernelSpec, patches: Sequence[Path], *, checkout: Path, cache: Path) -> str:
    """Where, within a cache, the objects are that a build of this kernel starts from.

    Raises:
        UsageError, InfraError: as :func:`key_of`.
    """
    plan = _plan(spec, patches, checkout, cache)
    tree = WorkTree(store.tree_folder(Path(), plan.source.key))
    return tree.objects(plan.objects_key).as_posix()


def seconds_to_build(
    spec: KernelSpec, patches: Sequence[Path], others: int, *, checkout: Path, cache: Path
) -> float:
    """About how long a kernel takes that the cache lacks; 0 for one that somebody else built.

    ``others`` of the same source and flavour are built before it, whose objects it starts from.

    Raises:
        UsageError, InfraError: as :func:`key_of`.
    """
    if spec.is_prebuilt:
        return 0.0
    where = cache / objects_of(spec, patches, checkout=checkout, cache=cache)
    kind: Kind = "next" if others else _kind_of_objects(where)
    if not others and not where.exists():
        plan = _plan(spec, patches, checkout, cache)
        nearest = _nearest(plan, WorkTree(store.tree_folder(cache, plan.source.key)))
        kind = _kind_of_copy(plan, nearest) if nearest else kind
    return expected(cache, spec.configuration, kind).seconds


def provide(
    spec: KernelSpec,
    patches: Sequence[Path],
    *,
    checkout: Path,
    cache: Path,
    progress: Callable[[MakeProgress], None] | None = None,
    boxed: bool = False,
) -> Kernel:
    """Return the kernel of ``spec`` plus ``patches``, building it if the cache has none.

    Another lab process that builds the same kernel, or uses the same tree, is
    waited for.  With ``boxed`` the patches are a stranger's: they are applied and built in a box
    (``host.sandbox``), on a copy of the objects of the source that is thrown away.

    Raises:
        UsageError: source, flavour or patch does not exist.
        SeriesError: a patch does not apply, or the patched tree does not build.
        InfraError: the tree without patches does not build, an option did not
            survive, or the host failed (memory, disk, tools); it can make no box, or nothing can
            be built in a folder of the cache's name.
    """
    require_usable(cache, checkout)
    if spec.is_prebuilt:
        return prebuilt.provide(spec, checkout=checkout, cache=cache)
    plan = _plan(spec, patches, checkout, cache)
    ready = store.load(cache, plan.key, used=True)
    if ready is not None:
        return ready
    with store.locked(cache, f"kernel-{plan.key}"):
        ready = store.load(cache, plan.key, used=True)
        if ready is not None:
            return ready
        with store.locked(cache, f"tree-{plan.source.key}"):
            return _contained(plan, cache, progress, boxed=boxed and bool(patches))


def commands(
    spec: KernelSpec, patches: Sequence[Path], *, checkout: Path, cache: Path
) -> list[str]:
    """Lines for a shell that build the same kernel in a new folder, for ``--dry-run``.

    They use the lab's compiler cache, and leave its trees alone.
    """
    if spec.is_prebuilt:
        return prebuilt.commands(spec, checkout=checkout, cache=cache)
    plan = _plan(spec, patches, checkout, cache)
    names = [fragment.name for fragment in plan.fragments]
    texts = (config.VIRTME, config.OWN)
    files = [str(checkout.resolve() / name) for name in names if name not in texts]
    lines = ["work=$(mktemp -d)", 'mkdir "$work/src" "$work/src/obj"', 'cd "$work/src"']
    lines += [paste(argv) for argv in unpack_argvs(plan.source, ".")]
    lines += [
        f'GIT_CEILING_DIRECTORIES="$work" {paste(apply_argv(patch.path.resolve()))}'
        for patch in plan.patches
    ]
    virtme = f"HOME=/dev/null {paste(config.virtme_argv(spec.architecture))}; "
    first = virtme if config.VIRTME in names else ""
    own = [f"{name}={value}" for name, value in sorted(spec.config.items())]
    last = f"; printf '%s\\n' {shlex.join(own)}" if own else ""
    lines += [f"{{ {first}cat {shlex.join(files)}{last}; }} > obj/{REQUESTED}"]
    lines += [f"# {note}" for note in _notes(plan, cache)]
    lines += [paste(argv) for argv in _make_argvs(plan, "obj", cache)]
    added = f"obj/{prebuilt.ADDED}"
    if plan.module_folders:
        lines += [f"mkdir {added}"]
    for folder in plan.module_folders:
        lines += [f"cp -r {shlex.quote(str(folder.resolve()))} {added}"]
        ccache = store.ccache_folder(cache)
        argv = make_argv(plan.toolchain, "obj", ("modules",), ccache_folder=ccache)
        lines += [f'{paste(argv)} M="$work/src/{added}/{folder.name}"']
    return lines


def _notes(plan: _Plan, cache: Path) -> list[str]:
    """What the lab does beyond the commands above, where the release has other options."""
    kept = Configured.load(_kept(plan, WorkTree(store.tree_folder(cache, plan.source.key))))
    notes = list(kept.notes) if kept else []
    if configure.changes_kconfig(plan.patches):
        notes.append("the series changes Kconfig: the lab configures the source without it first")
        notes.append(f"and takes that .config through make olddefconfig, not {REQUESTED}")
    return notes


def _plan(spec: KernelSpec, patches: Sequence[Path], checkout: Path, cache: Path) -> _Plan:
    shipped = config.fragments(
        checkout,
        spec.flavour,
        spec.architecture,
        spec.page_kib,
        spec.mode,
        additions=spec.additions,
    )
    fragments = config.with_options(shipped, spec.config)
    return _Plan(
        spec,
        identify_source(spec.source, checkout=checkout, cache=cache),
        tuple(read_patch(path) for path in patches),
        fragments,
        config.merge(fragments),
        identify_toolchain(spec.compiler, spec.architecture),
        config.module_folders(checkout, spec.additions),
        load_reasons(checkout),
    )


def _make_argvs(
    plan: _Plan, objects: str, cache: Path | None, *, listed_headers: bool = False
) -> list[list[str]]:
    """The two commands; without a cache the compiler's cache is neither read nor written."""
    ccache = store.ccache_folder(cache) if cache else None

    def make(*targets: str) -> list[str]:
        return make_argv(
            plan.toolchain, objects, targets, ccache_folder=ccache, listed_headers=listed_headers
        )

    return [
        make(*configure.targets_of(REQUESTED)),
        make(plan.spec.architecture.build.target, *(["modules"] if plan.has_modules else [])),
    ]


def _contained(
    plan: _Plan, cache: Path, progress: Callable[[MakeProgress], None] | None, *, boxed: bool
) -> Kernel:
    """Build; whatever stops that, and is not seen to be the host's, is the series' failure."""
    try:
        folder = store.tree_folder(cache, plan.source.key)
        tree = prepare(plan.source, folder)
        with _site(plan, tree, boxed=boxed) as site:
            return _build(plan, site, cache, progress)
    except TimedOutError as error:
        if not plan.patches or not _base_is_built(plan, cache):
            raise
        raise SeriesError(
            f"does not build in {BUILD_TIMEOUT_S / 3600:.0f} hours, and its base did",
            where=f"{plan.patches[-1].name} ({plan.patches[-1].subject})",
            next_step=error.next_step,
        ) from error
    except (
        folders.StrangeFolderError, products.ProductError, limited.LimitError, LogError
    ) as error:  # fmt: skip
        if not plan.patches:
            raise
        raise SeriesError(
            f"its build makes what no build makes: {error.what}",
            where=f"{plan.patches[-1].name} ({plan.patches[-1].subject})",
            next_step="see which of its makefiles or programs does",
        ) from error
    except LabError:
        raise
    except Exception as error:
        of_host = isinstance(error, OSError) and error.errno in HOST_ERRNOS
        if not plan.patches or of_host:
            raise
        raise SeriesError(
            f"cannot be built: {type(error).__name__}: {clean(str(error))}",
            where=f"{plan.patches[-1].name} ({plan.patches[-1].subject})",
            next_step="see what it changes beside text in files",
        ) from error


@dataclass(frozen=True)
class _Site:
    """Where a kernel is built: make sees ``objects`` at ``tree.objects(...)``, in a box or not."""

    tree: WorkTree
    objects: Path
    box: Box | None = None


@contextlib.contextmanager
def _site(plan: _Plan, tree: WorkTree, *, boxed: bool) -> Iterator[_Site]:
    """The objects of this configuration; for a stranger's patches a copy that nobody else uses.

    Raises:
        InfraError: the host can make no box, or the disk is full.
    """
    objects = tree.objects(plan.objects_key)
    if not boxed:
        yield _Site(tree, objects)
        return
    top = tree.folder / BOXED
    folders.remove(top)  # of a lab that was killed
    place = top / objects.name
    programs, links = rust()
    readable = (tree.src, *sandbox.programs(*TOOLS), *programs)
    box = replace(sandbox.box((place, objects), readable=readable), links=links)
    top.mkdir()
    try:
        site = _Site(tree, place, box)
        _lay_out(plan, site)
        yield site
    finally:
        folders.remove(top)
        with contextlib.suppress(OSError):
            objects.rmdir()  # where the copy was seen, if there are no objects of the source


def _lay_out(plan: _Plan, site: _Site) -> None:
    """The objects of a box as they are before anything ran in it: those of the source, if any."""
    objects = site.tree.objects(plan.objects_key)
    folders.remove(site.objects)
    if (objects / VMLINUX).exists():
        argv = ["cp", "-a", "--reflink=auto", str(objects), str(site.objects)]
        run(argv, timeout_s=COPY_TIMEOUT_S)
        killed = _unfinished(plan, site.tree)
        if killed.exists():  # of the source itself, with half an object
            wait_until_idle(site.tree.folder / BUSY)
            _distrust(site.objects, since_ns=killed.stat().st_mtime_ns)
    else:
        site.objects.mkdir()
        objects.mkdir(exist_ok=True)  # where the copy is seen
    (site.objects / REQUESTED).write_text(plan.requested)


def _build(
    plan: _Plan, site: _Site, cache: Path, progress: Callable[[MakeProgress], None] | None
) -> Kernel:
    tree, objects = site.tree, site.objects
    folder = tree.folder
    (folder / "used").touch()
    changed = switch(tree, plan.patches, boxed=site.box is not None)
    log.info("tree switched, files changed: %s", ", ".join(changed) or "none")
    kind: Kind = _kind_of_objects(objects)
    if not objects.exists() and (nearest := _nearest(plan, tree)):
        log.info("starting from the objects of %s", nearest.name)
        copy_objects(tree, nearest, objects, COPIED)
        kind = _kind_of_copy(plan, nearest)
    objects.mkdir(exist_ok=True)
    (objects / TOOLCHAIN).write_text(_tools(plan))
    build_log = folder / f"{plan.key}.log"
    build_log.write_text("")
    for path in sorted(folder.glob("*.log"), key=lambda each: each.stat().st_mtime)[:-MOST_LOGS]:
        path.unlink()
    goes_on = site.box is None and _unfinished(plan, tree).exists()
    if goes_on:
        log.info("an earlier build was killed; what it wrote is removed")
        wait_until_idle(tree.folder / BUSY)
        _distrust(objects, since_ns=_unfinished(plan, tree).stat().st_mtime_ns)
    (objects / REQUESTED).write_text(plan.requested)
    steps_expected = expected(cache, plan.spec.configuration, kind).steps
    started = time.monotonic()
    cached = site.box is None and plan.toolchain.ccache
    before = objects / ".config"
    old = config.parse(before.read_text()) if before.exists() else {}
    configured = _configure(plan, site, cache, build_log)
    final = configured.text
    if kind != "first" and (options := config.differing(old, config.parse(final))):
        steps_expected = max(steps_expected, compiled.dependent(objects, options))
    _, make = _make_argvs(
        plan,
        objects.name,
        None if site.box else cache,
        listed_headers=cached and safe_headers(tree.src),
    )
    status, steps = _run(plan, site, make, build_log, steps_expected, progress)
    if status:
        again = _make_argv(plan, site, ("olddefconfig",))
        raise _failure(plan, site, cache, build_log, again, make, text=final)
    if not goes_on:  # else it was the rest of a build
        remember(cache, plan.spec.configuration, kind, Expected(steps, time.monotonic() - started))
    if (objects / COPIED).exists():
        left = compiled.forget_left_out(tree.src, objects, final)
        log.info("objects of the other configuration that are not in this one: %d", len(left))
        (objects / COPIED).unlink()
    failed_modules = _make_modules(plan, site, build_log, cache)
    _run(plan, site, ["sh", "-c", btf.script(objects, objects.name)], build_log)
    kernel = _keep(plan, site, configured, build_log, failed_modules, cache)
    build_log.unlink()
    return kernel


def _configure(plan: _Plan, site: _Site, cache: Path, build_log: Path) -> Configured:
    """Configure the tree as it is; the source without its series first, where that tells.

    Raises:
        UsageError, SeriesError, InfraError: as ``configure.verify``, or Kconfig fails.
    """
    base: Configured | None = None
    kept = _kept(plan, site.tree)
    of_series = configure.changes_kconfig(plan.patches)
    try:
        if of_series:
            base = Configured.load(kept) or _configure_source(plan, site, build_log)
            configured = configure.from_base(
                base, plan.spec.config, site.objects, _maker(plan, site, build_log)
            )
        else:
            configured = _from_nothing(plan, site, build_log)
    except configure.MakeFailedError as error:
        argv = _make_argv(plan, site, error.targets)
        text = base.text if base else ""
        raise _failure(plan, site, cache, build_log, argv, text=text) from None
    try:
        configure.verify(plan.fragments, configured, site.tree.src, plan.reasons, base)
    except SeriesError as error:
        raise _lost_options(plan, site, build_log, base or configured, error) from None
    if not plan.patches:  # what a series' makefiles made of it is nobody else's
        configured.save(kept)
    return configured


def _configure_source(plan: _Plan, site: _Site, build_log: Path) -> Configured:
    """Configure the source without the series, in a folder of its own; no stranger's file is run.

    Raises:
        configure.MakeFailedError: Kconfig fails.
    """
    bare = replace(plan, patches=())
    place = _Site(site.tree, site.tree.src / SCRATCH)
    switch(site.tree, ())
    try:
        place.objects.mkdir(exist_ok=True)
        (place.objects / REQUESTED).write_text(plan.requested)
        configured = _from_nothing(bare, place, build_log)
    finally:
        folders.remove(place.objects)
        switch(site.tree, plan.patches, boxed=site.box is not None)
    configured.save(_kept(plan, site.tree))
    return configured


def _from_nothing(plan: _Plan, site: _Site, build_log: Path) -> Configured:
    make = _maker(plan, site, build_log)
    return configure.from_nothing(plan.fragments, plan.reasons, site.objects, REQUESTED, make)


def _maker(plan: _Plan, site: _Site, build_log: Path) -> configure.Make:
    return lambda targets: not _run(plan, site, _make_argv(plan, site, targets), build_log)[0]


def _make_argv(plan: _Plan, site: _Site, targets: Sequence[str]) -> list[str]:
    return make_argv(plan.toolchain, site.objects.name, targets, ccache_folder=None)


def _kept(plan: _Plan, tree: WorkTree) -> Path:
    """Where the configuration of the source without a series is kept."""
    return tree.folder / f"{plan.objects_key}.base.json"


def _make_modules(plan: _Plan, site: _Site, build_log: Path, cache: Path) -> str:
    """Build modules of the lab's own against the kernel that is built.

    Returns what keeps some from being built, empty where nothing does: that is no failure of the
    kernel, which other workloads can be measured on.

    Raises:
        InfraError: the host failed; of a series it is only said by words that it may print.
    """
    prebuilt.lay_out(plan.module_folders, site.objects)
    where = site.tree.objects(plan.objects_key)  # as make sees it, in a box or not
    ccache = None if site.box else store.ccache_folder(cache)
    failed = []
    for folder in plan.module_folders:
        # Named in full: releases differ in what a relative path is relative to.
        targets = (f"M={where / prebuilt.ADDED / folder.name}", "modules")
        argv = make_argv(plan.toolchain, where.name, targets, ccache_folder=ccache)
        if _run(plan, site, argv, build_log)[0]:
            trouble = limited.call(blame.host_trouble, _text(build_log))
            if trouble and not plan.patches:
                raise _host_failed(trouble, build_log)
            failed.append(f"{folder.name}: {'; '.join(map(str, _errors(build_log)))}")
    return "; ".join(failed)


def _nearest(plan: _Plan, tree: WorkTree) -> Path | None:
    """The finished objects whose configuration is nearest to the one asked for; None without.

    kbuild compiles again what depends on an option that differs, and all of what was
    compiled by another command; so only objects of the same compiler are worth a copy.
    """
    options = set(plan.requested.splitlines())
    candidates = [
        (len(options ^ set((folder / REQUESTED).read_text().splitlines())), folder.name, folder)
        for folder in tree.src.glob("obj-*")
        if (folder / VMLINUX).exists()
        and (folder / addresses.ARCHIVE).exists()
        and not (tree.folder / f"unfinished-{folder.name.removeprefix('obj-')}").exists()
        and (folder / TOOLCHAIN).exists()
        and (folder / TOOLCHAIN).read_text() == _tools(plan)
    ]
    return min(candidates)[2] if candidates else None


def _kind_of_objects(objects: Path) -> Kind:
    """What a build starts from that goes on in a folder of objects, which may not be there."""
    if (objects / COPIED).exists():  # the other configuration's kernel is among them
        return "copied"
    return "next" if (objects / VMLINUX).exists() else "first"


def _kind_of_copy(plan: _Plan, nearest: Path) -> Kind:
    """Whether options are only added to those of the objects that are copied."""
    added_to = set((nearest / REQUESTED).read_text().splitlines()) <= set(
        plan.requested.splitlines()
    )
    return "extended" if added_to else "copied"


def _tools(plan: _Plan) -> str:
    return f"{RECIPE} {plan.spec.arch} {plan.toolchain.identity}\n"


def _run(
    plan: _Plan,
    site: _Site,
    argv: Sequence[str],
    build_log: Path,
    steps_expected: int = 0,
    progress: Callable[[MakeProgress], None] | None = None,
) -> tuple[int, int]:
    """Run one make; return its status and number of steps.

    Raises:
        InfraError: the deadline passed.
    """
    tree, unfinished = site.tree, _unfinished(plan, site.tree)
    if site.box is None:
        unfinished.touch()
    with site.box.owned() if site.box else contextlib.nullcontext():
        status, steps = run_make(
            site.box.argv(argv, tree.src) if site.box else argv,
            cwd=tree.src,
            log=build_log,
            most_log_bytes=products.MOST_BYTES["log"],
            busy=tree.folder / BUSY,
            timeout_s=BUILD_TIMEOUT_S,
            expected=steps_expected,
            progress=progress,
        )
    if site.box is not None:
        _vet_made(site.objects, plan.patches[-1])
        return status, steps
    unfinished.unlink()  # a make that ends by itself removes its half-written targets
    return status, steps


def _vet_made(objects: Path, patch: Patch) -> None:
    """Refuse what no build makes, and what would lead whoever reads the objects out of them.

    Nothing of the box lives any more, and nobody else knows the folder.

    Raises:
        SeriesError: a link that leads out, a device, a pipe or a socket.
        StrangeFolderError: folders too deep, too many, or that may not be read.
    """
    (objects / "source").unlink(missing_ok=True)  # kbuild's own link to the tree
    for inside, entry in folders.entries(objects):
        if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
            continue
        if entry.is_symlink() and _stays(Path(inside).parent, str(Path(entry.path).readlink())):
            continue
        raise SeriesError(
            f"its build makes what no build makes: {clean(inside)}",
            where=f"{patch.name} ({patch.subject})",
            next_step="see which of its makefiles or programs does",
        )


def _stays(folder: Path, target: str) -> bool:
    """Whether a link in ``folder``, a real one, leads to what is below the same top.

    ``..`` only at its begin: behind a name, which may be another link, it says nothing.
    """
    parts = Path(target).parts
    up = len(list(itertools.takewhile(lambda part: part == "..", parts)))
    return not target.startswith("/") and ".." not in parts[up:] and up <= len(folder.parts)


def _failure(
    plan: _Plan, site: _Site, cache: Path, build_log: Path, *makes: list[str], text: str = ""
) -> SeriesError | InfraError:
    """Who is to blame for the build whose log this is, the last of ``makes``: a patch, or none.

    The first of them configures, from the .config ``text`` where one is given.
    """
    errors = _errors(build_log)
    # A series can have the compiler say that the disk is full: what counts is whether the
    # source builds without it, here and now.
    trouble = limited.call(blame.host_trouble, _text(build_log))
    if not plan.patches:
        return _host_failed(trouble, build_log) if trouble else _source_fails(plan, build_log)
    tree = site.tree
    trial_log = tree.folder / f"{plan.key}.trial.log"

    def make(argv: Sequence[str]) -> bool:
        trial_log.write_text("")
        if site.box is not None and argv == makes[0]:
            # What ran there may have left anything for the next one, to be blamed on the source.
            _lay_out(plan, site)
        if text and argv == makes[0]:
            (site.objects / ".config").write_text(text)
        return _run(plan, site, argv, trial_log)[0] == 0

    goals = [Goal("the kernel", makes)]
    target = limited.call(blame.failed_object, _text(build_log), errors[0])
    source = source_of(tree, target)
    if source:
        *configure, whole = makes
        goals.insert(0, Goal(target, (*configure, [*whole[:-1], target]), source))
    known = not trouble and _base_is_built(plan, cache)
    boxed = site.box is not None
    guilty = culprit(tree, plan.patches, goals, make, source_builds=known, boxed=boxed)
    if not guilty.number:
        return _host_failed(trouble, build_log) if trouble else _source_fails(plan, trial_log)
    trial_log.unlink(missing_ok=True)
    patch = plan.patches[guilty.number - 1]
    return SeriesError(
        f"does not build: {'; '.join(map(str, errors))} "
        f"({guilty.goal.title} builds {_before(guilty.number)})",
        where=f"{patch.name} ({patch.subject})",
        next_step=f"see {build_log}",
    )


def _lost_options(
    plan: _Plan, site: _Site, build_log: Path, base: Configured, lost: SeriesError
) -> SeriesError:
    """The same error with the patch that takes the options away."""
    again = _make_argv(plan, site, ("olddefconfig",))

    def keeps_options(argv: Sequence[str]) -> bool:
        if site.box is not None:
            _lay_out(plan, site)
        (site.objects / ".config").write_text(base.text)
        if _run(plan, site, argv, build_log)[0]:
            return False
        final = replace(base, text=products.text(site.objects, ".config", "configuration"))
        try:
            configure.verify(plan.fragments, final, site.tree.src, plan.reasons, base)
        except LabError:
            return False
        return True

    goals = [Goal("the configuration", (again,))]
    boxed = site.box is not None
    guilty = culprit(site.tree, plan.patches, goals, keeps_options, source_builds=True, boxed=boxed)
    patch = plan.patches[guilty.number - 1]
    where = f"{patch.name} ({patch.subject})"
    return SeriesError(clean(lost.what), where=where, next_step=lost.next_step)


def _base_is_built(plan: _Plan, cache: Path) -> bool:
    return store.load(cache, replace(plan, patches=()).key) is not None


def _host_failed(trouble: str, build_log: Path) -> InfraError:
    return InfraError(f"the host failed while make ran: {trouble}", next_step=f"see {build_log}")


def _source_fails(plan: _Plan, build_log: Path) -> InfraError:
    return InfraError(
        f"the source without patches does not build: {'; '.join(map(str, _errors(build_log)))}",
        where=plan.spec.source,
        next_step=f"see {build_log}",
    )


def _errors(build_log: Path) -> tuple[blame.Mistake, ...]:
    errors = limited.call(blame.mistakes, _text(build_log))
    return errors or (blame.Mistake("make ended with an error"),)


def _before(number: int) -> str:
    return f"with the {number - 1} before it" if number > 1 else "without the series"


def _text(path: Path) -> str:
    with path.open("rb") as stream:
        lines = stream.read(products.MOST_BYTES["log"]).decode(errors="replace").split("\n")
    return "\n".join(line[:LONGEST_LINE] for line in lines)


def _keep(
    plan: _Plan,
    site: _Site,
    configured: Configured,
    build_log: Path,
    failed_modules: str,
    cache: Path,
) -> Kernel:
    source, objects, final = site.tree.src, site.objects, configured.text
    order = products.text(objects, prebuilt.ORDER, "list") if plan.has_modules else ""
    own = prebuilt.built(order)
    parsed = parse_build(objects, source, plan.patches, final, own)
    identity = KernelIdentity(
        key=plan.key,
        arch=plan.spec.arch,
        page_kib=plan.spec.page_kib,
        release=products.release(objects),
        source=plan.source.identity,
        patches=tuple(patch.name for patch in plan.patches),
        flavour=plan.spec.configuration,
        compiler=plan.toolchain.identity,
        config_sha256=hashlib.sha256(final.encode()).hexdigest(),
        code_key=parsed.code_key,
        build_id=parsed.build_id,
        build_log="build.log",
        options=configured.notes,
    )
    built = plan.spec.architecture.build
    with store.staged(cache, plan.key) as folder:
        (folder / built.target).write_bytes(products.read(objects, built.image, "image"))
        (folder / "System.map").write_bytes(products.read(objects, "System.map", "map"))
        shutil.copyfile(build_log, folder / "build.log")
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
    kernel = store.load(cache, plan.key, used=True)
    if kernel is None:
        raise InfraError("the kernel just built is not in the cache", where=str(cache))
    return kernel


def _unfinished(plan: _Plan, tree: WorkTree) -> Path:
    """A file that is there while a make runs, and after one that was killed."""
    return tree.folder / f"unfinished-{plan.objects_key}"


def _distrust(objects: Path, since_ns: int) -> None:
    """Remove what a killed make wrote: half an object looks newer than its source."""
    for _, entry in folders.entries(objects):
        with contextlib.suppress(FileNotFoundError):
            if (
                not entry.is_dir(follow_symlinks=False)
                and entry.stat(follow_symlinks=False).st_mtime_ns >= since_ns
            ):
                Path(entry.path).unlink()
