"""Coverage of a session's unpatched kernel, and what a series changes of it.

The functions that a kernel has are those of its System.map, without init code; where they are
from is in the cache beside it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from errors import InfraError, LabError, RecordError, UsageError
from experiment.load import CONFIGS
from experiment.spec import Experiment
from kernels import addresses, build, cache, symbols
from kernels.cache import Kernel
from kernels.diff import changed_functions
from results import coverage
from results.coverage import Coverage, CoveredCase, Function
from results.profile import WORK, PhaseProfile
from results.session import MeasuredSession, open_session
from runs.arms import planned_kernels
from runs.options import Options

FOLDER = CONFIGS / "coverage"
INIT = ("_sinittext", "_einittext")
# What the maintainers of these look at, and what docs/coverage.md has rows for.
FOLDERS = (
    "mm", "mm/filemap.c", "mm/vmscan.c", "mm/vmalloc.c", "mm/slub.c", "mm/memcontrol.c",
    "fs", "fs/iomap", "fs/xfs", "fs/ext4", "lib/xarray.c", "lib/maple_tree.c", "block",
    "io_uring", "kernel/sched", "kernel/locking", "kernel/futex",
)  # fmt: skip


# Of the functions of some of them, the least share in % that the workloads together are to execute.
GOALS = {
    "mm": 60, "fs/iomap": 50, "lib/xarray.c": 80, "lib/maple_tree.c": 80, "block": 30,
    "kernel/sched": 40,
}  # fmt: skip


def shipped(release: str = "", folder: Path = FOLDER) -> Coverage:
    """The coverage that comes with the lab: of the release nearest to ``release``, or the oldest.

    Raises:
        InfraError: there is none.
        CoverageError: it is damaged.
    """
    at = _place(release)
    tables = sorted(folder.glob("*.csv"), key=lambda path: (abs(_place(path.stem) - at), path.stem))
    if not tables:
        raise InfraError(
            "no coverage of any kernel",
            where=str(folder),
            next_step="measure some: ./lab.py coverage add SESSION",
        )
    return coverage.read(tables[0])


def _place(name: str) -> int:
    """Where a release is in the row of all of them: some twenty have the same first number."""
    match = re.search(r"(\d+)\.(\d+)", name)
    return 20 * int(match[1]) + int(match[2]) if match else 0


def of_session(folder: Path, kernels: Path) -> Coverage:
    """What the source as it is executed in a session: its arms without patches, over all seeds.

    ``kernels`` is the cache.

    Raises:
        RecordError: no session, or one without counts (wall mode, another architecture).
        UsageError: every arm is patched, or the kernel is not in the cache.
    """
    session = open_session(folder)
    arms = [arm for arm in session.manifest.arms if not arm.kernel.patches]
    kernel = cache.load(kernels, arms[0].kernel.key) if arms else None
    if kernel is None:
        raise UsageError(
            "its unpatched kernel is not in the cache" if arms else "all its arms are patched",
            where=str(folder),
            next_step=f"./lab.py build {session.manifest.experiment.name}"
            if arms
            else "name a session with an arm that is the source as it is",
        )
    identity, names = arms[0].kernel, {arm.name for arm in arms}
    calls: dict[Function, dict[str, float]] = {row: {} for row in functions_of(kernel)}
    cases = []
    costs = {cost.run_id: cost.guest_cpu_s for cost in session.costs}
    for case in session.manifest.experiment.cases:
        runs = _runs(session, case.name, names)
        profiles = [profile for profile in session.profiles if profile.run_id in runs]
        counted: dict[Function, int] = defaultdict(int)
        for profile in profiles:
            for phase in profile.phases:
                for function in phase.kernel:
                    counted[function.file, function.name] += function.calls
        ios = sum(_ios(phase) for each in profiles for phase in each.phases)
        if not ios:
            raise RecordError(
                f"{case.name} has no counts of I/Os and functions",
                where=str(folder),
                next_step="name a session of exact mode on x86-64",
            )
        for row, number in counted.items():
            # Code without a symbol is nobody's.
            if row in calls:
                calls[row][case.name] = number / ios
        cases.append(
            CoveredCase(
                case=case.name,
                workload=case.workload,
                experiment=session.manifest.experiment.name,
                guest=session.manifest.guest.name,
                ios=ios / len(profiles),
                run_cpu_s=round(sum(costs[run] for run in runs) / len(runs), 1),
            )
        )
    ordered = tuple(sorted(cases, key=lambda covered: covered.case))
    return Coverage(identity.source.partition("=")[0], identity.release, ordered, calls)


def _ios(phase: PhaseProfile) -> float:
    """I/Os of fio, or operations of a phase's program: what is counted first, work left out."""
    return next((number for name, number in phase.units.items() if name != WORK), 0.0)


def functions_of(kernel: Kernel) -> set[Function]:
    """File and name of every function that stays in memory: without init code.

    Raises:
        LabError: System.map or the origins cannot be read.
    """
    text = addresses.text_of(kernel.system_map)
    table = addresses.parse(text)
    bounds = [
        int(line.split()[0], 16)
        for name in INIT
        for line in text.splitlines()
        if line.endswith(f" {name}")
    ]
    functions = addresses.functions(table, addresses.load(kernel.origins))
    init = range(*bounds) if len(bounds) == len(INIT) else range(0)
    return {
        (functions.named[owner][1], functions.named[owner][0])
        for start, owner in zip(table.starts.tolist(), functions.owner.tolist(), strict=True)
        if start not in init
    }


def add(sessions: Sequence[Path], kernels: Path, folder: Path = FOLDER) -> tuple[Path, Coverage]:
    """Put what these sessions executed into the shipped tables; return the table written last.

    Raises:
        UsageError: no session is named; else as :func:`of_session` and :func:`shipped`.
    """
    if not sessions:
        raise UsageError("no session named", where="coverage add", next_step="name sessions")
    for session in sessions:
        added = of_session(session, kernels)
        table = folder / f"{added.source.rpartition(':')[2].replace('/', '-')}.csv"
        if table.exists():
            try:
                added = coverage.read(table).with_session(added)
            except ValueError as error:
                raise UsageError(
                    f"another kernel than the table's: {error}",
                    where=str(session),
                    next_step=f"remove {table} to begin anew, and add all sessions",
                ) from None
        coverage.write(added, table)
    return table, added


def changed_by(
    experiment: Experiment, patches: Mapping[str, str], options: Options
) -> tuple[tuple[str, ...], bool]:
    """The functions that a series changes, and whether they are those of built kernels.

    Where both kernels are in the cache, the functions whose machine code differs; else those in
    whose lines ``patches`` (text by name) have changes.

    Raises:
        SeriesError: a patch has impossible numbers.
    """
    where = {"checkout": options.checkout, "cache": options.cache}
    names = [experiment.all_arms[0].name, experiment.all_arms[-1].name]
    kernels: dict[str, Kernel] = {}
    try:
        for each in planned_kernels(experiment, options):
            if each.arm in names and each.spec.flavour == experiment.kernel.flavour:
                kernel = cache.load(options.cache, build.key_of(each.spec, each.patches, **where))
                kernels |= {each.arm: kernel} if kernel else {}
    except LabError:
        # What is missing to build a kernel is no reason not to read patches.
        kernels = {}
    if len(kernels) == len(names):
        base, patched = (kernels[name] for name in names)
        changes = symbols.changed_functions(base.symbols, patched.symbols)
        return tuple(change.name for change in changes), True
    changed: dict[str, None] = {}
    for name, text in patches.items():
        changed |= dict.fromkeys(changed_functions(text, name))
    return tuple(changed), False


def _runs(session: MeasuredSession, case: str, arms: Collection[str]) -> set[str]:
    return {
        record.run_id
        for record in session.records
        if record.case == case and record.arm in arms and record.samples
        and not record.repeat and not record.twin
    }  # fmt: skip
