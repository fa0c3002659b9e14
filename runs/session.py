"""Open a session folder: a new one, or one that was left unfinished."""

from __future__ import annotations

import dataclasses
import datetime
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from filelock import FileLock, Timeout

from errors import InfraError, UsageError
from experiment.load import unknown_names
from experiment.plan import Plan, make_plan
from experiment.spec import Experiment, budgets
from host import accelerator
from kernels.compare import of_kernels
from kernels.intake import Taken, adopt, copy_out
from kernels.settle import COMMON, series_of
from results import door, native
from results.record import Manifest
from results.store import MANIFEST, SessionStore
from runs.building import Building
from runs.local import Options
from runs.manifest import manifest_of
from runs.prepare import Prepared, prepare
from runs.resolved import Resolved, catalogue, resolve
from text import clean, in_words

# Patches of a session, in its own folder: what it can be finished and repeated from.  Those of the
# experiment are in ``series/common``, those of one arm in ``series/arm-NAME``: no arm can be
# mistaken for what is common to all.
SERIES = "series"
# Of a search, in place of a manifest.
SEARCH, LOCK, NAMED = "bisect.json", ".lock", 3


def now() -> str:
    """The time in UTC to the second; ``SOURCE_DATE_EPOCH`` when that is set."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def new_folder(sessions: Path, experiment: Experiment) -> Path:
    """A folder name not taken yet: ``sessions/filemap-v4-20260101-120000``."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    for attempt in range(1, 1000):
        folder = sessions / f"{experiment.name}-{stamp}{f'-{attempt}' if attempt > 1 else ''}"
        if not folder.exists():
            return folder
    raise InfraError("no free session name", where=str(sessions))


def require_new(folder: Path) -> None:
    """Raise UsageError for the folder of a session or search, or of anything else.

    What is begun anew is what was ended before its manifest was written.
    """
    if folder.parts[:1] and folder.parts[0].endswith(":"):
        raise UsageError("is a link", where=str(folder), next_step="name a folder of this host")
    files = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if files & {MANIFEST, SEARCH, native.NATIVE}:
        step = f"--resume {folder}, or name another folder"
        raise UsageError("holds a session already", where=str(folder), next_step=step)
    if others := sorted(files - {LOCK, SERIES}):
        what = f"holds other files: {in_words(others[:NAMED])}"
        raise UsageError(clean(what), where=str(folder), next_step="name a folder that is new")


def start(
    resolved: Resolved,
    options: Options,
    folder: Path,
    overrides: tuple[str, ...],
    progress: Building,
    arguments: tuple[str, ...] = (),
) -> tuple[Prepared, SessionStore]:
    """Prepare a new session and write its manifest; ``arguments`` begin the same again.

    Raises UsageError: the folder holds a session already; LabError: whatever building says.
    """
    store = SessionStore(folder)
    require_new(folder)
    if resolved.experiment.mode == "native":
        what = "a session of native mode is made by this host alone"
        raise UsageError(what, where="mode = native", next_step="./lab.py run or ./lab.py measure")
    session = prepare(resolved, options, progress)
    copy_series(resolved.series, folder, options)
    manifest = manifest_of(session, options, name=folder.name, created=now(), overrides=overrides)
    store.create(manifest.model_copy(update={"arguments": arguments}))
    keep_calls(session, store)
    return session, store


def folder_of(series: str) -> str:
    """The folder in ``series/`` of a series by its arm, as in ``kernels.settle.series_of``."""
    return f"arm-{series}" if series != COMMON else "common"


def copy_series(series: Mapping[str, Taken], folder: Path, options: Options) -> None:
    """Copy every patch of an experiment's series into its session's ``folder``."""
    for name, taken in series.items():
        copy_out(taken, folder / SERIES / folder_of(name), cache=options.cache)


def with_series_of(experiment: Experiment, folder: Path, options: Options) -> Experiment:
    """The experiment with the patches of a session's folder; SeriesError: other ones."""
    adopted = {
        name: adopt(series, place, cache=options.cache)
        for name, series in series_of(experiment)
        if (place := folder / SERIES / folder_of(name)).is_dir()
    }
    arms = tuple(
        arm.model_copy(update={"series": adopted.get(arm.name, arm.series)})
        for arm in experiment.arms
    )
    series = adopted.get(COMMON, experiment.series)
    return experiment.model_copy(update={"series": series, "arms": arms})


def require_known(experiment: Experiment, folder: Path, options: Options) -> None:
    """Raise UsageError where an experiment on record names what this lab does not have."""
    named = experiment.model_dump(mode="json", exclude={"series"})
    if problem := next(unknown_names(named, catalogue(options.checkout)), None):
        what = f"this lab cannot go on with it: {problem.line('experiment')}"
        step = "use the version of the lab that its manifest names"
        raise UsageError(what, where=clean(str(folder)), next_step=step)


def keep_calls(session: Prepared, store: SessionStore) -> None:
    """Put who calls whom in the arms' kernels on record, where they differ and are counted."""
    kernels = session.measured.values()
    if session.probe is None or len({kernel.identity.code_key for kernel in kernels}) < 2:
        return
    calls = of_kernels(kernels)
    if calls is not None:
        store.keep(calls)


def reopen(
    folder: Path, options: Options, progress: Building, max_seeds: int | None = None
) -> tuple[Prepared, SessionStore, Options]:
    """Prepare a session again from its own manifest, to finish it.

    ``max_seeds`` is another budget of a session that adds seeds.  Raises StoreError: no session in
    ``folder``; UsageError: no such budget can be had; InfraError: kernels, initramfs or accelerator
    would not be those of the first runs.
    """
    store = SessionStore(folder)
    manifest = store.manifest()
    options = options_of(manifest, options)
    require_known(manifest.experiment, folder, options)
    recorded = manifest.experiment
    if max_seeds is not None:
        first = None if recorded.max_seeds is None else recorded.blocks
        require_budget(first, len(manifest.seeds), max_seeds, recorded.repeated)
        recorded = recorded.model_copy(update={"max_seeds": max_seeds})
    experiment = with_series_of(recorded, folder, options)
    accelerator.require_device(manifest.provenance.accelerator)
    session = prepare(
        resolve(experiment, checkout=options.checkout, cache=options.cache), options, progress
    )
    require_same(manifest, session, folder)
    if max_seeds is not None:
        store.create(manifest.model_copy(update={"experiment": recorded}))
    session = with_seeds(session, len(manifest.seeds), manifest.case_seeds)
    return session, store, options


def require_budget(first: int | None, measured: int, most: int, repeated: str) -> None:
    """Whether a session that is judged after ``first`` of what it repeats may have another budget.

    Its rule knows no budget, so that a larger one may be asked for at any time
    (``analysis.power``).  A fixed number (``first`` is None) has had the whole error rate.  Raises
    UsageError: the number is fixed, or there is no look after that many.
    """
    if first is None:
        raise UsageError(
            f"the session was begun with a fixed number of {measured} {repeated}, whose verdict "
            "has had the whole error rate: more would be another look at the same data",
            where=f"--max-seeds {most}",
            next_step="begin a session with --max-seeds, and take its verdict instead",
        )
    allowed = [each for each in budgets(first) if each >= measured]
    if most not in allowed:
        after = ", ".join(map(str, allowed))
        raise UsageError(
            f"the session has {measured} {repeated}, and is judged after {after}",
            where=f"--max-seeds {most}",
            next_step="name one of these",
        )


def with_seeds(
    session: Prepared, seeds: int, case_seeds: Mapping[str, int] = MappingProxyType({})
) -> Prepared:
    """The session with the runs of so many seeds, or fewer of a case, of the arms it has."""
    if len(session.plan.seeds) == seeds and not case_seeds:
        return session
    plan = make_plan(session.experiment, seeds, case_seeds)
    arms = {run.arm for run in session.plan.runs}
    runs = tuple(run for run in plan.runs if run.arm in arms)
    return dataclasses.replace(session, plan=Plan(runs=runs, seeds=plan.seeds))


def options_of(manifest: Manifest, options: Options) -> Options:
    """These options, with those that a session was begun with."""
    return dataclasses.replace(
        options,
        snapshot=manifest.provenance.snapshot,
        measure_anyway=options.measure_anyway or manifest.runs_planned > 0,
        probe=bool(manifest.provenance.probe),
        fit_only=False,
    )


def require_same(manifest: Manifest, session: Prepared, folder: Path) -> None:
    """Refuse to go on with other kernels, programs or guests; InfraError: names the first."""
    benches = {bench.name: bench for bench in session.benches}
    guest = session.resolved.measured.guest
    pairs = [("initramfs", manifest.provenance.initramfs_sha256, session.roots_sha256)]
    pairs += [
        (f"kernel of arm {arm.name}", arm.kernel.key, session.measured[arm.name].identity.key)
        for arm in manifest.arms
    ]
    if session.qemu is not None:
        pairs.append(("QEMU", manifest.provenance.qemu_sha256, session.qemu.binary_sha256))
    pairs += [
        (
            f"machine of twin {twin.name}",
            twin.machine.model_dump_json(),
            bench.machine.model_dump_json() if bench.machine else "none",
        )
        for twin in manifest.twins
        if (bench := benches.get(twin.name)) and twin.machine
    ]
    if manifest.provenance.accelerator and session.wall is not None:
        # What a block of one and a block of the other say is not of one host.
        then, today = manifest.provenance.accelerator, session.wall.accelerator.name
        pairs.append(("what runs guests", then, today))
    pairs.append(("guest", manifest.guest.model_dump_json(), guest.model_dump_json()))
    for what, then, today in pairs:
        if then != today:
            raise InfraError(
                f"{what} differs from the one this session started with: now {today}, then {then}",
                where=str(folder),
                next_step="begin a new session; the runs on record stay readable",
            )


@contextmanager
def locked(folder: Path, *, must_exist: bool = False, head: str = MANIFEST) -> Iterator[None]:
    """One lab process a session folder.

    Raises UsageError: no session, or another process has it; StoreError: a link, pipe or device.
    """
    if must_exist and not (folder / head).exists():
        step = f"name a folder with a {head}"
        raise UsageError("no session here", where=str(folder), next_step=step)
    folder.mkdir(parents=True, exist_ok=True)
    # It may be a stranger's that is to be finished, and QEMU opens files in it, too.
    door.require_plain(folder)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        what = "another lab process measures this session"
        raise UsageError(what, where=str(folder)) from None
    try:
        yield
    finally:
        lock.release()
