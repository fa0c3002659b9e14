"""Coverage of a session's unpatched kernel, what a series changes of it, and workloads for that.

The functions that a kernel has are those of its System.map, without init code; where they are
from is in the cache beside it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from errors import InfraError, LabError, RecordError, SpecError, UsageError
from experiment.ad_hoc import NotYetKnownError, NoWorkloadError, alike, choose, load_auto
from experiment.load import CONFIGS
from kernels import addresses, build, cache, symbols
from kernels.cache import Kernel
from kernels.diff import changed_functions
from kernels.intake import Taken
from kernels.settle import COMMON
from kernels.source import release_of
from results import coverage
from results.coverage import Candidate, Coverage, CoveredCase, Function, Suggestion, suggest
from results.profile import WORK
from results.session import open_session
from runs.local import Options
from runs.resolved import Resolved
from text import words
from workloads.spec import load_catalogue

FOLDER = CONFIGS / "coverage"
# What the maintainers of these look at, and what docs/coverage.md has rows for.
FOLDERS = words(
    "mm mm/filemap.c mm/vmscan.c mm/vmalloc.c mm/slub.c mm/memcontrol.c fs fs/iomap fs/xfs "
    "fs/ext4 lib/xarray.c lib/maple_tree.c block io_uring kernel/sched kernel/locking "
    "kernel/futex"
)


# Of the functions of some of them, the least share in % that the workloads together are to execute.
GOALS = {
    "mm": 60,
    "fs/iomap": 50,
    "lib/xarray.c": 80,
    "lib/maple_tree.c": 80,
    "block": 30,
    "kernel/sched": 40,
}
# Of the best workload's score, what another one must have to be taken, and how many are at most:
# of two that show a change the one of large folios spends less of its time in adding them.
SHARE, MOST_CHOSEN = 0.2, 5
# Of the same, what the best that needs nothing built or installed must have to be the first.
USUAL_SHARE = 0.5
# Seeds and arms of a first session, and guests at once: for an estimate of its time.
RUNS, AT_ONCE = 16, 2


# A table as it was last written: after each save, and for each entry recalled, it is asked.
_read_once = lru_cache(2)(lambda table, written_ns: coverage.read(table))


def shipped(release: str = "", folder: Path = FOLDER) -> Coverage:
    """The coverage nearest to ``release``; InfraError: none; CoverageError: damaged."""
    at = _place(release)
    tables = sorted(folder.glob("*.csv"), key=lambda path: (abs(_place(path.stem) - at), path.stem))
    if not tables:
        step = "measure some: ./lab.py dev coverage add SESSION"
        raise InfraError("no coverage of any kernel", where=str(folder), next_step=step)
    return _read_once(tables[0], tables[0].lstat().st_mtime_ns)


def _place(name: str) -> int:
    """Where a release is in the row of all of them: some twenty have the same first number."""
    match = re.search(r"(\d+)\.(\d+)", name)
    return 20 * int(match[1]) + int(match[2]) if match else 0


def of_session(folder: Path, kernels: Path) -> Coverage:
    """What a session's arms without patches executed.  ``kernels`` is the cache.

    Raises RecordError: no session, or no counts; UsageError: all arms are patched, or the kernel is
    gone.
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
        runs = {
            run.run_id
            for run in session.records
            if run.case == case.name and run.arm in names and run.samples
            if not run.repeat and not run.twin
        }
        profiles = [profile for profile in session.profiles if profile.run_id in runs]
        counted: dict[Function, int] = defaultdict(int)
        for profile in profiles:
            for phase in profile.phases:
                for function in phase.kernel:
                    counted[function.file, function.name] += function.calls
        # Of fio, or operations of a phase's program: what is counted first, work left out.
        ios = sum(
            next((number for name, number in phase.units.items() if name != WORK), 0.0)
            for profile in profiles
            for phase in profile.phases
        )
        if not ios:
            what = f"{case.name} has no counts of I/Os and functions"
            step = "name a session of exact mode on x86-64"
            raise RecordError(what, where=str(folder), next_step=step)
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
                instructions=sum(p.instructions for each in profiles for p in each.phases)
                / len(profiles),
                run_cpu_s=round(sum(costs[run] for run in runs) / len(runs), 1),
            )
        )
    ordered = tuple(sorted(cases, key=lambda covered: covered.case))
    return Coverage(identity.source.partition("=")[0], identity.release, ordered, calls)


def functions_of(kernel: Kernel) -> set[Function]:
    """File and name of every function that stays in memory; LabError: maps cannot be read."""
    functions = addresses.functions_of(kernel)
    table = functions.table
    return {
        (functions.named[owner][1], functions.named[owner][0])
        for start, owner in zip(table.starts.tolist(), functions.owner.tolist(), strict=True)
        if start not in table.init
    }


def add(sessions: Sequence[Path], kernels: Path, folder: Path = FOLDER) -> tuple[Path, Coverage]:
    """Put what sessions executed into the shipped tables; return the last of these."""
    if not sessions:
        raise UsageError("no session named", where="dev coverage add", next_step="name sessions")
    for session in sessions:
        added = of_session(session, kernels)
        table = folder / f"{added.source.rpartition(':')[2].replace('/', '-')}.csv"
        if table.exists():
            try:
                added = coverage.read(table).with_session(added)
            except ValueError as error:
                what = f"another kernel than the table's: {error}"
                step = f"remove {table} to begin anew, and add all sessions"
                raise UsageError(what, where=str(session), next_step=step) from None
        coverage.write(added, table)
    return table, added


def changed_by(
    resolved: Resolved, patches: Mapping[str, str], options: Options
) -> tuple[tuple[str, ...], bool]:
    """Functions that a series changes, and whether by kernels in the cache, else by ``patches``.

    Raises UsageError: there is no such source.
    """
    judged, kernels = resolved.flavours[0], []
    try:
        for arm in (resolved.built[0], resolved.built[-1]):
            key = build.key_of(options.kernel(arm.kernels[judged], arm.patches))
            kernels.append(cache.load(options.cache, key))
    except UsageError:
        raise
    except LabError:
        # What is missing to build a kernel is no reason not to read patches.
        kernels = []
    if len(kernels) == 2 and kernels[0] and kernels[1]:
        tables = [symbols.load(kernel.symbols)[0] for kernel in kernels if kernel]
        changes = symbols.differing(*tables)
        # Where functions got another name and none changed, the patches' lines are looked at.
        if changes or not (patches and symbols.renamed(*tables)):
            return tuple(change.name for change in changes), True
    changed: dict[str, None] = {}
    for name, text in patches.items():
        changed |= dict.fromkeys(changed_functions(text, name))
    return tuple(changed), False


@dataclass(frozen=True)
class Advice:
    """A suggestion with its ground, and the workloads ``chosen`` where nobody names any."""

    coverage: Coverage
    suggestion: Suggestion
    files: tuple[str, ...]
    by_kernels: bool
    chosen: tuple[str, ...]

    def seconds(self, candidate: Candidate) -> float:
        """About how long a session of the workload takes on two cores, kernels cached."""
        return candidate.case.run_cpu_s * RUNS / AT_ONCE


def answer(resolved: Resolved, options: Options) -> Advice:
    """What to measure the series of an experiment with; LabError: it cannot be read."""
    texts, files = texts_and_files(resolved.series[COMMON])
    functions, by_kernels = changed_by(resolved, texts, options)
    table = shipped(release_of(resolved.experiment.kernel.source, options.checkout))
    suggestion = suggest(table, functions, files)
    try:
        chosen = workloads_for(suggestion, files)
    except SpecError:
        chosen = ()
    return Advice(table, suggestion, files, by_kernels, chosen)


def texts_and_files(series: Taken) -> tuple[dict[str, str], tuple[str, ...]]:
    """The patches of a series by the names of their files, and the files that they change."""
    files = dict.fromkeys(
        file for record in series.records for patch in record.patches for file in patch.files
    )
    texts = {
        path.name: path.read_text(encoding="utf-8", errors="replace") for path in series.patches
    }
    return texts, tuple(files)


def workloads_for(
    suggestion: Suggestion, files: Sequence[str], most: int = MOST_CHOSEN
) -> tuple[str, ...]:
    """The workloads that a series is measured with where nobody names any, in the file's order.

    Of those that can be measured in one session, and that together execute its functions most: the
    best ``most``, as far as they have a fifth of the score of the best one (``Candidate.score``): a
    workload of many operations executes a little of everything.  Those that need a kernel with
    additions, which has to be built, or programs that set-up does not install, are left out where
    another one has half the score of the best.  Where no function of the series is known, those
    that the names of its files stand for, as far as they execute any of the files' functions.
    Raises SpecError: there are none; names the shipped experiment that would do, if any; a
    NoWorkloadError where nothing executes it.
    """
    auto, catalogue = load_auto(), load_catalogue()
    able = [
        candidate
        for candidate in suggestion.candidates
        if candidate.case.workload in auto.workloads and candidate.case.workload in catalogue
    ]
    usual = [
        each
        for each in able
        for workload in [catalogue[each.case.workload]]
        if not (workload.additions or workload.host_programs)
    ]
    if usual and usual[0].score >= USUAL_SHARE * able[0].score:
        able = usual
    if able:
        groups = [alike([first, *auto.workloads], auto) for first in auto.workloads]
        if suggestion.by_files:
            # That a file's other functions are executed says little: many workloads do that.
            with suppress(SpecError):
                known = choose(files, auto)
                able = [each for each in able if each.case.workload in known] or able
            together = next(names for names in groups if _weight(able, names) > 0)
        else:
            # Not without the one that shows it most, whatever others show together.
            with_best = [names for names in groups if able[0].case.workload in names]
            together = max(with_best, key=lambda names: _weight(able, names))
        able = [candidate for candidate in able if candidate.case.workload in together]
        least = SHARE * max(candidate.score for candidate in able)
        # They are in the order of their scores.  A variant is named with its workload.
        chosen = {
            candidate.case.workload: candidate.case.case
            for candidate in able[:most]
            if candidate.score >= least
        }
        return tuple(chosen[name] for name in auto.workloads if name in chosen)
    if suggestion.candidates:
        best = suggestion.candidates[0].case
        raise SpecError(
            [
                f"--series: only {best.workload} executes what the series changes; measure it in "
                f"its experiment: ./lab.py run {best.experiment} --set series.path=SERIES"
            ]
        )
    if suggestion.never:
        raise NoWorkloadError(
            [
                f"--series: no workload executes {', '.join(suggestion.never[:5])}; "
                f"name some all the same: --workloads {','.join(auto.workloads)}"
            ]
        )
    return choose(files, auto)[:most]


def _weight(candidates: Sequence[Candidate], workloads: Sequence[str]) -> float:
    """The score of these workloads together: of each function the largest share."""
    chosen = [candidate for candidate in candidates if candidate.case.workload in workloads]
    functions = {function for candidate in chosen for function in candidate.shares}
    return sum(
        max(candidate.shares.get(function, 0.0) for candidate in chosen) for function in functions
    )


def automatic(
    patches: Mapping[str, str],
    files: Sequence[str],
    release: str = "",
    code: Callable[[], tuple[str, ...] | None] = lambda: None,
) -> tuple[str, ...]:
    """As :func:`workloads_for`, from the texts of ``patches``, on a source's ``release``.

    Where these name no function of the kernel (a header, an option, data), ``code`` is asked for
    the functions whose machine code differs; it answers None where kernels are not built.  No
    workload is chosen where both are, no code differs, and files' names say nothing.  Raises
    NotYetKnownError: kernels are not built, and files' names say nothing.
    """
    functions = [name for text in patches.items() for name in changed_functions(text[1], text[0])]
    table = shipped(release)
    suggestion = suggest(table, functions, files)
    # A C file of which no workload runs anything, or that is in no measured kernel: code of its
    # own says no more.  What a header, an option or data reaches, only built kernels say.
    plain = all(file.endswith(".c") for file in files)
    alone = plain and suggestion.by_files and not suggestion.candidates
    if alone and (functions or not any(row[0] in files for row in table.calls)):
        return choose(files)
    built = code() if suggestion.by_files else None
    if built:
        suggestion = suggest(table, built, files)
    try:
        return workloads_for(suggestion, files)
    except NoWorkloadError as error:
        if not suggestion.by_files:
            raise
        if built is not None:
            return ()
        first, _, rest = error.in_one_line.partition("; ")
        raise NotYetKnownError(
            [
                f"{first}: the functions that are compiled otherwise are known once both kernels "
                f"are built: ./lab.py build, or run, with the same words; or {rest}"
            ]
        ) from None
