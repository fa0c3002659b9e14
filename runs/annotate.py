"""How often each line that a series changes ran: from the blocks of the judged runs.

Nothing is booted.  The changed files of each arm are compiled once more for their line tables, in
the objects that its kernel was built in.
"""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from errors import UsageError
from kernels import build, linetable
from kernels.addresses import KERNEL_HALF, table_of
from kernels.build import Sources
from kernels.cache import Kernel
from kernels.compiled import load
from kernels.diff import HUNK
from kernels.series import read_patch
from results.profile import Annotation, FileCounts, FileDiff, Profile
from results.record import RunRecord
from results.store import SessionStore
from runs.building import needs_box
from runs.local import Options
from runs.prepare import Prepared

CONTEXT = 3


def runs_of(store: SessionStore) -> list[tuple[RunRecord, Profile]]:
    """The judged runs of a session whose blocks are on record."""
    counted = {
        profile.run_id: profile
        for profile in store.profiles()
        if any(phase.blocks for phase in profile.phases)
    }
    return [
        (record, counted[record.run_id])
        for record in store.records()
        if record.run_id in counted and not record.failure and not record.repeat
    ]


def is_stale(annotation: Annotation, store: SessionStore) -> bool:
    """Whether a session went on since its lines were counted."""
    counted = {run_id for each in annotation.counts for run_id in each.runs}
    return not counted >= {record.run_id for record, _ in runs_of(store)}


def annotate(session: Prepared, options: Options, store: SessionStore) -> None:
    """Put the lines in which arms differ on record, and how often each ran."""
    resolved, files = session.resolved, session.sources
    runs = runs_of(store)
    if refused := obstacle(session, any_blocks=bool(runs)):
        raise UsageError(refused[0], where=str(store.folder), next_step=refused[1])
    boxed = needs_box(resolved, options)
    sources: dict[str, Sources] = {}
    for arm in resolved.arms:
        kernel = session.measured[arm.spec.name]
        request = options.kernel(arm.kernels[resolved.flavours[0]], arm.patches, boxed=boxed)
        sources[arm.spec.name] = build.sources_of(request, kernel, files)
    patches = {path for arm in resolved.arms for path in arm.patches}
    changed = sorted({file for path in patches for file in read_patch(path).files})
    diffs = []
    for base, patched in session.experiment.compared:
        for file in changed:
            old, new = (sources[arm].texts.get(file, "").splitlines() for arm in (base, patched))
            lines = [*difflib.unified_diff(old, new, lineterm="", n=CONTEXT)][2:]
            if lines:
                diffs.append(
                    FileDiff(base=base, patched=patched, file=file, hunks="\n".join(lines))
                )
    shown: dict[tuple[str, str], set[int]] = defaultdict(set)
    for diff in diffs:
        for match in HUNK.finditer(diff.hunks):
            for side, first, many in (
                (diff.base, *match.group(1, 2)),
                (diff.patched, *match.group(3, 4)),
            ):
                shown[side, diff.file] |= {*range(int(first), int(first) + int(many or 1))}
    counts = [
        each
        for arm, of_arm in sources.items()
        for each in counts_of(
            arm,
            session.measured[arm],
            of_arm,
            [each for each in runs if each[0].arm == arm],
            {file: lines for (name, file), lines in shown.items() if name == arm},
        )
    ]
    without = reasons(changed, sources, session.measured)
    if not counts:
        each = "; ".join(f"{file}: {why}" for file, why in without.items())
        what = (
            f"no changed line is counted: {each or 'none has code, as of a macro, a type or data'}"
        )
        step = "./lab.py report has the functions that differ"
        raise UsageError(what, where=str(store.folder), next_step=step)
    store.keep(Annotation(diffs=tuple(diffs), counts=tuple(counts), without=without))


def obstacle(session: Prepared, *, any_blocks: bool) -> tuple[str, str] | None:
    """Why no line of a session can be counted, and what to do instead; None where some can."""
    experiment = session.experiment
    clang = [arm for arm, kernel in session.measured.items() if "clang" in kernel.identity.compiler]
    if experiment.mode != "exact":
        what = f"{experiment.mode} mode counts no lines"
        return what, "measure the series in exact mode, which does"
    if prebuilt := experiment.prebuilt:
        what = f"the kernel of {prebuilt[0]} was built elsewhere: there are no objects to compile"
        return what, "./lab.py run builds both kernels from a source: docs/kernels.md"
    if clang:
        what = f"the kernel of {clang[0]} is of clang, whose line tables do not mark statements"
        return what, "measure it with gcc: --set kernel.compiler=gcc"
    if not any(arm.patches for arm in session.resolved.arms):
        return "no arm has patches", "./lab.py run --series measures a series by its lines"
    if session.same_code:
        what = "its kernels have the same code, and nothing was booted"
        return what, "./lab.py report has what differs"
    if not any_blocks:
        what = "no blocks of its changed files are on record: older, or of modules, or not counted"
        return what, "./lab.py run measures it anew: runs that are kept take seconds"
    return None


def reasons(
    changed: Iterable[str], sources: Mapping[str, Sources], kernels: Mapping[str, Kernel]
) -> dict[str, str]:
    """Why nothing is known of the lines of files that a series changes."""
    without = {file: why for of_arm in sources.values() for file, why in of_arm.without.items()}
    counted = {file for of_arm in sources.values() for file in of_arm.objects}
    touched = {each.file: each for kernel in kernels.values() for each in load(kernel.touched)}
    for file in changed:
        if file in touched and file.endswith((".c", ".S")) and file not in {*counted, *without}:
            off = f": {', '.join(touched[file].options)}" * bool(touched[file].options)
            is_module = "it is part of a module"
            without[file] = is_module if touched[file].built else f"it is not compiled{off}"
    for arm, of_arm in sources.items():
        table = table_of(kernels[arm])
        for file, lines in of_arm.objects.items():
            # What the kernel has thrown away, as code for unloading, is nowhere.
            kept = {name for name, own in lines.functions.items() if table.at.keys() & own}
            if kept - linetable.placed(lines, table).keys():
                without[file] = "its functions do not lie as in its object"
    return without


def counts_of(
    arm: str,
    kernel: Kernel,
    sources: Sources,
    runs: list[tuple[RunRecord, Profile]],
    shown: Mapping[str, set[int]],
) -> list[FileCounts]:
    """How often the ``shown`` lines of an arm's files ran, phase by phase, over all of its runs."""
    table = table_of(kernel)
    places = {file: linetable.placed(lines, table) for file, lines in sources.objects.items()}
    phases: dict[tuple[str, str], list[tuple[str, tuple[tuple[int, int, int], ...]]]] = {}
    for record, profile in runs:
        for phase in profile.phases:
            phases.setdefault((record.case, phase.phase), []).append((record.run_id, phase.blocks))
    counts = []
    for (case, name), blocks in phases.items():
        entered: Counter[tuple[int, int]] = Counter()
        for _, of_run in blocks:
            for address, instructions, entries in of_run:
                entered[address, instructions] += entries
        every = [(KERNEL_HALF + at, n, entries) for (at, n), entries in entered.items()]
        lines: dict[str, dict[int, tuple[int, int, bool]]] = {file: {} for file in shown}
        for file, of_object in sources.objects.items():
            executed = linetable.executions(of_object, places[file], every)
            for (of, line), (ran, spent, exact) in executed.items():
                if line in shown.get(of, ()):
                    # A header has lines in several objects.
                    before = lines[of].get(line, (0, 0, True))
                    lines[of][line] = (before[0] + ran, before[1] + spent, before[2] and exact)
        run_ids = tuple(run_id for run_id, _ in blocks)
        counts += [
            FileCounts(arm=arm, case=case, phase=name, file=file, runs=run_ids, lines=of_file)
            for file, of_file in lines.items()
            if of_file
        ]
    return counts
