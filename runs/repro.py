"""One archive from which another machine repeats a session.

The archive holds what was asked (experiment, patches, guest, configuration, workload
files), what it was done with (versions, kernels, commands) and what came out (records).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from errors import UsageError
from experiment.architecture import ARCHITECTURES
from experiment.spec import Experiment
from files import digest, sha256_of
from guests import initramfs
from host import facts
from kernels import prebuilt
from kernels.cache import kernels_folder
from kernels.config import module_folders, of_architecture
from kernels.series import LARGEST
from kernels.settle import series_of
from kernels.source import identify
from results import door
from results.door import StoreError
from results.record import KernelIdentity, Manifest, Record
from results.store import ANNOTATION, CALLS, CHECKS, LOCKS, MANIFEST, PROFILES, RUNS, SessionStore
from runs.archive import MOST_BYTES, pack, unpack
from runs.local import Options
from runs.session import SERIES, folder_of, with_series_of
from text import clean, words

FORMAT = 1
# 32 arms of 32 seeds, or 9 cases of two arms and 56 seeds.
MOST_RUNS = 1024
# Kinds of sources that a manifest may name on whatever machine reads it.
PLACES = ("dir", "git", "tarball", "image")
HEAD = "repro.json"
SESSION = "session"
INPUTS = "inputs"
KERNELS = "kernels"
# The initramfs that was booted, where it had nothing of one kernel or workload on top.
ROOT = "root.cpio"
RECORDS = (MANIFEST, CALLS, ANNOTATION, RUNS, PROFILES, LOCKS, CHECKS)
# Those that have a say in a number of exact mode.
DECISIVE = ("qemu", "fio", "gcc", "ld", "busybox", "mkfs.xfs", "libc")
# Of these, those that are in the root.
IN_ROOT = ("fio", "busybox", "mkfs.xfs", "libc")
ALWAYS = words(
    "workloads/*.sh workloads/programs/*.[ch] guests/*.c guests/*.sh guests/probe/*.[ch]"
)


class ArchiveHead(Record):
    """``repro.json``: what else is in the archive, by the SHA-256 of each file."""

    format: int
    session: str
    files: dict[str, str]


@dataclass(frozen=True)
class Repro:
    """An archive, unpacked: the session's head, where its folder lies, and all files' SHA-256."""

    folder: Path
    manifest: Manifest
    files: Mapping[str, str]

    @property
    def session(self) -> Path:
        """The session's folder in it."""
        return self.folder / SESSION

    @property
    def root(self) -> Path | None:
        """The initramfs that was booted there, if it is in the archive."""
        return self.folder / ROOT if ROOT in self.files else None


def write_archive(folder: Path, archive: Path, options: Options) -> tuple[str, ...]:
    """Write the session's archive, the same bytes for the same; return the names in it.

    Raises StoreError: no session in ``folder``; LabError: it cannot be written.
    """
    manifest = SessionStore(folder).manifest()
    files = {}
    for name in filter(partial(door.exists, folder), RECORDS):
        content = door.read(folder, name, MOST_BYTES)
        # Without what a killed process left of its last record.
        whole = len(content) if name in (MANIFEST, CALLS, ANNOTATION) else content.rfind(b"\n") + 1
        files[f"{SESSION}/{name}"] = content[:whole]
    for of in door.names(folder, SERIES):
        for patch in door.names(folder, f"{SERIES}/{of}"):
            name = f"{SERIES}/{of}/{patch}"
            files[f"{SESSION}/{name}"] = door.read(folder, name, LARGEST)
    for name, content in inputs(manifest, options.checkout).items():
        files[f"{INPUTS}/{name}"] = content
    for kernel in kernels_of(manifest):
        files[f"{KERNELS}/{kernel.key}/identity.json"] = kernel.model_dump_json(indent=1).encode()
        config = f"{kernel.key}/config"
        if door.exists(kernels_folder(options.cache), config):
            files[f"{KERNELS}/{config}"] = door.read(kernels_folder(options.cache), config)
    booted = manifest.provenance.initramfs_sha256
    for kept in sorted((options.cache / initramfs.FOLDER).glob("*.sha256")):
        image = kept.with_suffix(".cpio")
        if kept.read_text() == booted and image.is_file() and sha256_of(image) == booted:
            files[ROOT] = image.read_bytes()
            break
    head = ArchiveHead(
        format=FORMAT,
        session=manifest.session,
        files={name: digest(content) for name, content in sorted(files.items())},
    )
    files[HEAD] = json.dumps(head.model_dump(), indent=1).encode()
    pack(files, archive)
    return tuple(sorted(files))


def inputs(manifest: Manifest, checkout: Path) -> dict[str, bytes]:
    """The files of the checkout that decide a number, by their names in it."""
    experiment = manifest.experiment
    built = [kernel.flavour.split("+") for kernel in kernels_of(manifest)]
    names = [f"configs/kconfig/{name}.config" for name in ("base", *(parts[0] for parts in built))]
    names += [f"configs/kconfig/additions/{name}.config" for parts in built for name in parts[1:]]
    names += [
        f"configs/kconfig/{name}.config"
        for kernel in kernels_of(manifest)
        for name in of_architecture(ARCHITECTURES[kernel.arch], kernel.page_kib)
    ]
    names += ["configs/kconfig/options.toml", f"configs/guests/{experiment.guest}.toml"]
    names += [f"workloads/catalogue/{case.workload}.toml" for case in experiment.cases]
    paths = [*(checkout / name for name in names)]
    additions = sorted({name for parts in built for name in parts[1:]})
    paths += [path for folder in module_folders(checkout, additions) for path in folder.iterdir()]
    paths += [path for pattern in ALWAYS for path in checkout.glob(pattern)]
    return {
        path.relative_to(checkout).as_posix(): path.read_bytes()
        for path in sorted(set(paths))
        if path.is_file()
    }


def kernels_of(manifest: Manifest) -> tuple[KernelIdentity, ...]:
    """Every kernel of a session, once."""
    kernels = [arm.kernel for arm in manifest.arms]
    return tuple({kernel.key: kernel for kernel in kernels}.values())


def read_archive(archive: Path, into: Path) -> Repro:
    """Unpack an archive and check that it is whole; UsageError: none of ours, or damaged."""
    where = clean(str(archive))
    names = unpack(archive, into)
    problem, next_step = "", ""
    try:
        head = ArchiveHead.model_validate_json(door.read(into, HEAD))
    except (OSError, StoreError, ValueError):
        what = f"has no {HEAD} that this lab reads"
        step = "name a file made by ./lab.py repro"
        raise UsageError(what, where=where, next_step=step) from None
    digests = {name: sha256_of(into / name) for name in names if name != HEAD}
    known = digests.keys() | head.files.keys()
    wrong = sorted(name for name in known if digests.get(name) != head.files.get(name))
    if head.format != FORMAT:
        problem = f"is of format {head.format}; this lab reads {FORMAT}"
        next_step = "use the lab that made it"
    elif wrong:
        problem = f"was damaged or changed: {clean(', '.join(wrong[:5]))}"
        next_step = "copy it again"
    if problem:
        raise UsageError(problem, where=where, next_step=next_step)
    try:
        manifest = SessionStore(into / SESSION).manifest()
    except StoreError as error:
        raise UsageError(
            f"holds no session: {clean(str(error).removeprefix(str(into)), 400)}", where=where
        ) from None
    if manifest.experiment.mode == "wall":
        raise UsageError(
            "was measured in real time, which no machine repeats to the digit",
            where=where,
            next_step="measure anew and compare the intervals: ./lab.py run --mode wall "
            f"{manifest.experiment.name}",
        )
    return Repro(into, manifest, head.files)


def experiment_again(repro: Repro, options: Options, source: str = "") -> Experiment:
    """The archive's experiment with its patches; ``source`` is where the kernel lies here.

    Raises SeriesError: other patches; UsageError: more than a session asks for, or files of this
    host.
    """
    experiment, session = repro.manifest.experiment, clean(repro.manifest.session)
    # Nobody's archive has this machine work for days, or read patches of its own.
    seeds = max(experiment.blocks, experiment.max_seeds or 0, len(repro.manifest.seeds))
    arms, cases = len(experiment.all_arms), len(experiment.cases)
    runs = arms * cases * (seeds + sum(twin.blocks for twin in experiment.twins))
    if runs > MOST_RUNS:
        raise UsageError(
            f"plans {runs} runs ({arms} arms, {cases} cases, {seeds} seeds and those of diagnostic "
            f"runs), more than the {MOST_RUNS} that are repeated for somebody else",
            where=session,
            next_step="measure such a session yourself: ./lab.py run",
        )
    for name, series in series_of(experiment):
        if not door.names(repro.session, f"{SERIES}/{folder_of(name)}"):
            what = f"names patches that are not in it: {clean(series.path)}"
            step = "ask for an archive made by ./lab.py repro"
            raise UsageError(what, where=session, next_step=step)
    experiment = with_series_of(experiment, repro.session, options)
    # The gate says nothing of a number, and takes kernels of its own.
    experiment = experiment.model_copy(update={"check": None})
    if source:
        kernel = experiment.kernel.model_copy(update={"source": source})
        experiment = experiment.model_copy(update={"kernel": kernel})
    _require_sources(repro.manifest, experiment, options)
    return experiment


def _require_sources(manifest: Manifest, experiment: Experiment, options: Options) -> None:
    """Refuse a source that is a place on this machine; a package is the archive's to name."""
    measured = {name for kernel in kernels_of(manifest) for name in (kernel.source, kernel.key)}
    here = {"checkout": options.checkout, "cache": options.cache}
    for spec in (experiment.kernel, *(arm.kernel for arm in experiment.arms if arm.kernel)):
        name = spec.source
        if name.partition(":")[0] not in PLACES:
            continue
        is_image = spec.is_prebuilt
        identity = prebuilt.key_of(spec, **here) if is_image else identify(name, **here).identity
        if identity not in measured:
            raise UsageError(
                f"kernel.source: {clean(name)}: is not the source that was measured, which is "
                f"{clean(manifest.arms[0].kernel.source)}",
                where=clean(manifest.session),
                next_step="name the place of that source on this machine: --source",
            )


def differs_here(repro: Repro, options: Options, tools: Mapping[str, str]) -> tuple[str, ...]:
    """What is not as it was where the archive was made, before anything is built."""
    then = repro.manifest.provenance
    lines = [
        _line(name, then.tools.get(name, ""), tools.get(name, facts.NOT_FOUND))
        for name in DECISIVE
        if then.tools.get(name) != tools.get(name) and not (repro.root and name in IN_ROOT)
    ]
    here = inputs(repro.manifest, options.checkout)
    then_inputs = {
        name.removeprefix(f"{INPUTS}/"): digest[:12]
        for name, digest in repro.files.items()
        if name.startswith(f"{INPUTS}/")
    }
    today = {name: digest(content)[:12] for name, content in here.items()}
    lines += [
        _line(name, then_inputs.get(name, "none"), today.get(name, "none"))
        for name in sorted(today.keys() | then_inputs.keys())
        if today.get(name) != then_inputs.get(name)
    ]
    return tuple(lines)


def _line(name: str, then: str, now: str) -> str:
    return f"{clean(name)}: then {clean(then) or 'none'}, now {clean(now) or 'none'}"
