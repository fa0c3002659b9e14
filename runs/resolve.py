"""A request, made an experiment that says everything, and all that it comes to.

What was taken in of its series is said before anything is built: a wrong patch, author or base is
seen at once here, and after an hour in a report.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from errors import LabError, SeriesError, UsageError
from experiment.ad_hoc import NoWorkloadError, from_kernels, from_series, load_auto
from experiment.load import EXPERIMENTS, Catalogue, load_experiment, load_machine, with_config
from experiment.machine import names_in
from experiment.series_name import from_here
from experiment.spec import (
    LINES,
    MEMORY,
    MODELLED,
    REAL_TIME,
    CheckSpec,
    Experiment,
    Guest,
    TwinSpec,
)
from experiment.steps import per_patch
from host import sandbox
from host.facts import require_usable
from kernels import worktree
from kernels.diff import of_kernel
from kernels.series import apply, read_patch
from kernels.settle import COMMON, Settled, series_records, settle
from kernels.source import release_of
from results.record import QUICK, SeriesRecord
from runs.coverage import automatic, texts_and_files
from runs.local import Options
from runs.native import in_native_form, without_phases
from runs.request import Request
from runs.requirements import all_x86, can_be_modelled, can_share_lines, require_all, uncounted
from runs.resolved import Resolved, guest_of, patches_of, resolve
from text import clean, counted

WIDTH = 80
MOST_FILES = 8
MOST_PATCHES = 9


@dataclass(frozen=True)
class SeriesIntake:
    """Records of an experiment's series, notes, and the ``problem`` why none can be measured."""

    records: tuple[SeriesRecord, ...]
    source: str
    notes: tuple[str, ...] = ()
    problem: SeriesError | None = None

    def lines(self, width: int = WIDTH, *, with_problem: bool = False) -> list[str]:
        """All of it for people, of at most ``width`` columns; the problem only if it is wanted."""
        lines: list[str] = []
        for record in self.records:
            version = f" v{record.version}" if record.version > 1 else ""
            author = f", by {record.author}" if record.author else ""
            lines += _wrapped(f'series: "{record.title}"{version}{author}', width, indent="")
            files = [*dict.fromkeys(file for patch in record.patches for file in patch.files)]
            more = f" and {len(files) - MOST_FILES} more" if len(files) > MOST_FILES else ""
            commit = record.base_commit[:12]
            base = f"base-commit {commit}" if commit else "no base is named"
            subjects = [f"{at}. {each.subject}" for at, each in enumerate(record.patches, 1)]
            texts = [
                f"{counted(len(subjects), 'patch')} from {record.origin}",
                *(subjects[:MOST_PATCHES] if len(subjects) > 1 else ()),
                *([f"... {subjects[-1]}"] if len(subjects) > MOST_PATCHES else ()),
                f"changes {', '.join(files[:MOST_FILES])}{more}",
                f"{base}; built on {clean(self.source)}",
                *(f"finding: {text}" for text in record.findings),
            ]
            if record.host_code:
                texts.append(f"runs on this host when it is built: {', '.join(record.host_code)}")
            lines += [line for text in texts for line in _wrapped(text, width)]
        problem = self.problem if with_problem else None
        for note in (*self.notes, *([problem.in_one_line] if problem else [])):
            lines += _wrapped(f"note: {note}", width)
        return lines


def taken_in(settled: Settled, options: Options) -> SeriesIntake:
    """The series of a settled experiment, tried on its source where that is at hand."""
    experiment, every = settled
    common = every[COMMON].records if COMMON in every else ()
    records = series_records(experiment, common, checkout=options.checkout)
    for name, series in every.items():
        records += series.records if name != COMMON else ()
    boxed = any(record.kind == "thread" for record in records)
    notes: list[str] = []
    problem = None
    # Each source with the longest lists of patches that are applied to it.
    pairs = [
        ((arm.kernel or experiment.kernel).source, patches_of(arm, every))
        for arm in experiment.all_arms
    ]
    tried: list[tuple[str, tuple[Path, ...]]] = []
    try:
        for source, patches in sorted(pairs, key=lambda pair: len(pair[1]), reverse=True):
            longer = (p for s, p in tried if s == source)
            if patches and not any(p[: len(patches)] == patches for p in longer):
                tried.append((source, patches))
                notes += _tried(source, patches, options, boxed=boxed)
    except SeriesError as error:
        problem = error
    return SeriesIntake(records, experiment.kernel.source, tuple(dict.fromkeys(notes)), problem)


def _tried(source: str, paths: Sequence[Path], options: Options, *, boxed: bool) -> list[str]:
    """What is to be said of patches on a source; SeriesError: no kernel's, or do not apply."""
    patches = [read_patch(path) for path in paths]
    files = tuple(dict.fromkeys(name for patch in patches for name in patch.files))
    shown = clean(source)
    with tempfile.TemporaryDirectory(prefix="twinboot-tried-") as name:
        folder = Path(name) / "tree"
        folder.mkdir()
        try:
            there = worktree.lay_out(
                source, files, folder, checkout=options.checkout, cache=options.cache
            )
        except LabError as error:
            return [f"not tried whether it applies: {error.in_one_line}"]
        if there is None:
            _require_kernels(files, of_kernel(files), shown)
            return [f"not tried whether it applies: {shown} is not unpacked yet"]
        _require_kernels(files, bool(there), shown)
        notes = []
        if there.isdisjoint(files):
            notes.append(f"adds files, and changes none of {shown}: is anything built of them?")
        if boxed and sandbox.available() is None:
            return [*notes, "not tried whether it applies: it came by mail, and there is no box"]
        apply(patches, folder, boxed=boxed)
    return notes


def _require_kernels(files: Sequence[str], is_kernels: bool, source: str) -> None:
    if not is_kernels:
        names = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
        what = f"no path or folder of it is in the kernel's source ({source})"
        step = "it is another project's patch; name the one for the kernel"
        raise SeriesError(what, where=clean(names), next_step=step)


def _wrapped(text: str, width: int, indent: str = "  ") -> list[str]:
    return wrap(
        clean(text, 1000),
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_on_hyphens=False,
    )


# What is given in place of an experiment, by fields of a request, and how its file is changed.
BESIDE = {
    "series": ("--series", "--set series.path=SERIES"),
    "source": ("--source", "--set kernel.source=SOURCE"),
    "reverse": ("--reverse", "--set series.reverse=true"),
    "workloads": ("--workloads", "its cases are in its file (--quick: the first alone)"),
    "arms": ("--arm", "its arms are in its file"),
    "automatic": ("--auto", "its cases are in its file"),
}
NO_MEMORY = "none"
# Workloads nearest to a benchmark, and those that are chosen.
MOST_BESIDE = 3
NO_USE = "leave it out"


def resolve_request(
    request: Request,
    *,
    checkout: Path,
    cache: Path,
    here: Path,
    catalogue: Catalogue,
    on_intake: Callable[[Settled], None] = lambda settled: None,
    code: Callable[[Resolved], tuple[str, ...] | None] = lambda resolved: None,
    nearest: tuple[str, ...] = (),
) -> Resolved:
    """What a request comes to, checked; ``here`` is where the user is.

    ``on_intake`` gets the series before anything is made of them; ``code`` says which functions are
    compiled otherwise where patches do not tell, None where nothing is built; ``nearest`` are
    workloads to be measured beside those that are chosen.  Raises UsageError,
    SpecError: what is asked is wrong; SeriesError, InfraError: as ``kernels.intake.take_in``.
    """
    require_usable(cache, checkout)
    _require_one_subject(request)
    named = request.named_workloads
    left_out: dict[str, str] = {}
    experiment = _experiment(request, named, checkout, here, catalogue)
    settled = settle(experiment, checkout=checkout, cache=cache)
    on_intake(settled)
    if not (request.name or request.arms or named):

        def built() -> tuple[str, ...] | None:
            if request.mode in REAL_TIME:
                # What the choice builds is not what these modes measure.
                return None
            usual = with_config(settled.experiment, request.config)
            return code(resolve(usual, checkout=checkout, cache=cache, series=settled.series))

        release = release_of(settled.experiment.kernel.source, checkout)
        chosen = _chosen(settled, release, built, nearest)
        if request.mode == "native":
            # Of what is chosen for the user, what can be measured.
            left_out = without_phases(chosen)
            chosen = tuple(name for name in chosen if name not in left_out) or chosen
        if request.mode == "wall":
            cases = _experiment(request, chosen, checkout, here, catalogue).cases
            chosen = tuple(c.name for c in cases if not uncounted(c.judged("wall"))) or chosen
        experiment = _experiment(request, chosen, checkout, here, catalogue)
        settled = settle(experiment, checkout=checkout, cache=cache, known=settled.series)
    experiment = settled.experiment
    if request.check and experiment.prebuilt:
        raise UsageError(
            f"the kernel of {experiment.prebuilt[0]} is prebuilt; checks need kernels of their own",
            where="--check",
            next_step="leave it out",
        )
    if request.per_patch:
        common = settled.series[COMMON].records if COMMON in settled.series else ()
        subjects = [patch.subject for record in common for patch in record.patches]
        experiment = per_patch(experiment, subjects)
    experiment = with_config(experiment, request.config)
    _require_wanted(request, experiment)
    guest = guest_of(experiment)
    changes: dict[str, object] = {"twins": _twins(request, experiment, guest)}
    if request.check is not None:
        changes["check"] = (experiment.check or CheckSpec()) if request.check else None
    if request.quick:
        changes |= {"cases": experiment.cases[:1], "check": None}
    experiment = experiment.model_copy(update=changes)
    if experiment.mode == "native":
        left_out |= without_phases([case.name for case in experiment.cases])
        experiment = in_native_form(experiment, guest, named)
    resolved = resolve(
        experiment, checkout=checkout, cache=cache, series=settled.series, guest=guest
    )
    resolved = dataclasses.replace(resolved, left_out=left_out)
    require_all(resolved, checkout, cache)
    return resolved


def _require_wanted(request: Request, experiment: Experiment) -> None:
    """Raise UsageError for checks and diagnostic runs that the session cannot have."""
    if request.check and experiment.mode == "native":
        raise UsageError("native mode has no correctness checks", where="--check", next_step=NO_USE)
    if request.quick and request.check:
        raise UsageError(
            "has no correctness checks", where=QUICK, next_step="leave out --quick or --check"
        )
    if request.twins and (request.quick or experiment.mode == "native"):
        where = QUICK if request.quick else "--mode native"
        step = f"leave out {where} or --diagnostics"
        raise UsageError("has no diagnostic runs", where=where, next_step=step)


def _chosen(
    settled: Settled,
    release: str,
    built: Callable[[], tuple[str, ...] | None],
    nearest: tuple[str, ...],
) -> tuple[str, ...]:
    """The workloads that execute what a series changes, behind those that are ``nearest``."""
    try:
        chosen = automatic(*texts_and_files(settled.series[COMMON]), release, built)
    except NoWorkloadError:
        if not nearest:
            raise
        chosen = ()
    return tuple(dict.fromkeys((*nearest, *chosen)))[: MOST_BESIDE if nearest else None]


def _require_one_subject(request: Request) -> None:
    if not request.name and not request.series and not request.arms:
        raise UsageError(
            "no experiment named",
            where="lab.py",
            next_step=f"name a file, or one of: {', '.join(names_in(EXPERIMENTS))}; "
            "or --series FILE|MESSAGE-ID|A..B, or --arm KERNEL --arm KERNEL",
        )
    if request.workloads and not request.named_workloads:
        what, step = "names none", "name one, or leave it out: they are chosen by what they execute"
        raise UsageError(what, where=f"--workloads {request.workloads}", next_step=step)
    if request.automatic and request.workloads:
        what, step = "chooses workloads, and these are named", "leave out --auto or --workloads"
        raise UsageError(what, where="--auto", next_step=step)
    if request.arms and (request.of_series or request.per_patch or len(request.arms) == 1):
        what = "at least two kernels are needed, and no option about a series"
        step = "name two kernels; leave out --series, --source, --reverse, --per-patch"
        raise UsageError(what, where="--arm", next_step=step)
    if request.name and request.by_series:
        given = [BESIDE[field] for field in BESIDE if getattr(request, field)]
        options = ", ".join(option for option, _ in given)
        what = f"an experiment cannot be combined with {options}"
        step = f"leave out {options} or {request.name}; to change the experiment: "
        step += "; ".join(dict.fromkeys(instead for _, instead in given))
        raise UsageError(what, where=request.name, next_step=step)


def _experiment(
    request: Request, workloads: tuple[str, ...], checkout: Path, here: Path, catalogue: Catalogue
) -> Experiment:
    """The experiment of a file, or that of kernels or a series with these workloads."""
    if request.name:
        # Cases may be overridden, and what explains those that are not there is then no mistake.
        without = ("twins=[]",) if request.twins is False and not request.memory else ()
        overrides = (*request.all_overrides, *without)
        return load_experiment(Path(request.name), overrides=overrides, catalogue=catalogue)
    places = [
        from_here(name, here=here, checkout=checkout) for name in request.arms or request.series
    ]
    if request.arms:
        return from_kernels(
            places, workloads=workloads, overrides=request.all_overrides, catalogue=catalogue
        )
    return from_series(
        places,
        source=from_here(request.source, here=here, checkout=checkout),
        workloads=workloads,
        reverse=request.reverse,
        overrides=request.all_overrides,
        catalogue=catalogue,
    )


def _twins(request: Request, experiment: Experiment, guest: Guest) -> tuple[TwinSpec, ...]:
    """The diagnostic runs; the one that models memory may be asked for by itself.

    Raises UsageError: it cannot be made; SpecError: there is no such machine.
    """
    twins = experiment.twins or (_usual_twins(experiment, guest) if request.twins else ())
    modelled = [twin for twin in twins if twin.observe == MEMORY]
    others = [twin for twin in twins if twin.observe != MEMORY]
    diagnostic = not request.quick and request.with_twins
    if not request.memory:
        return twins if diagnostic else ()
    if request.memory == NO_MEMORY:
        unmodelled = tuple(twin for twin in others if twin.machine is None)
        return unmodelled if diagnostic else ()
    if request.quick:
        raise UsageError(
            "has no diagnostic runs", where=QUICK, next_step="leave out --quick or --memory"
        )
    machine = load_machine(Path(request.memory)).name
    guests = [arm.guest.of(guest) for arm in experiment.all_arms]
    if experiment.mode in REAL_TIME or not can_be_modelled(guests):
        what = "caches are modelled in exact mode, of guests of x86-64 with one vCPU and one node"
        raise UsageError(what, where="--memory", next_step="leave it out")
    modelled = [twin.model_copy(update={"machine": machine}) for twin in modelled]
    if not modelled:
        cases = tuple(case.name for case in experiment.cases)
        modelled = [TwinSpec(name=MEMORY, observe=MEMORY, machine=machine, cases=cases)]
    others = [
        twin.model_copy(update={"machine": machine}) if twin.observe == LINES else twin
        for twin in others
    ]
    return (*(others if diagnostic else ()), *modelled)


def _usual_twins(experiment: Experiment, guest: Guest) -> tuple[TwinSpec, ...]:
    """Diagnostic runs of an experiment that names none; UsageError: its guests can have none."""
    twins = []
    for twin in load_auto().diagnostics_of(experiment):
        guests = [twin.guest.of(arm.guest.of(guest)) for arm in experiment.all_arms]
        fits = {MEMORY: can_be_modelled, LINES: can_share_lines}.get(twin.observe, all_x86)
        if fits(guests) and (experiment.mode == "exact" or twin.observe not in MODELLED):
            twins.append(twin)
    if not twins:
        what = f"no diagnostic run can be made of guests of {guest.arch}"
        raise UsageError(what, where="--diagnostics", next_step=NO_USE)
    return tuple(twins)
