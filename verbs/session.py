"""Verbs that plan, make and judge sessions: build, cache-key, measure, plan, report, run.

What is slow to import is imported where it is called, in all verbs: ``--help`` and completion
read these files, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from errors import InfraError, RecordError, SeriesError, UsageError
from experiment.series_name import split_range
from host import facts
from host.facts import guests_at_once
from reports import FORM_NAMES
from runs.request import SUBJECT, Request, arguments
from text import clean, counted, duration
from verbs.cli import Without, flattened
from verbs.invocation import (
    emit,
    log,
    options,
    placed,
    require_trusted,
    resolved_of,
    resumable,
    terminal_width,
    write_out,
)
from verbs.options import (
    CHECKOUT,
    SESSIONS,
    ExecutorOptions,
    Folder,
    Full,
    Json,
    Measuring,
    Resume,
    Strict,
    opt,
    session_argument,
)

if TYPE_CHECKING:
    from analysis.many import SessionComparison
    from results.store import SessionStore
    from runs.boots import Reporter
    from runs.building import KernelForecast
    from runs.local import Options
    from runs.prepare import Prepared
    from runs.resolved import Resolved

app = typer.Typer(add_completion=False)
# The first step of a session, on record with those of ``runs.stages``.
PREPARED = "series and kernels"
ANNOTATED_FORMS = ("text", "markdown", "mail")


@dataclass(frozen=True, kw_only=True)
class OfTree:
    """Commits of a kernel tree as what is measured: a range, or a branch on top of ``base``."""

    base: Annotated[str, opt("--base REF", "measure a branch, from where it left REF", SUBJECT)] = (
        ""
    )
    uncommitted: Annotated[bool, opt("--dirty", "with uncommitted changes", SUBJECT)] = False
    tree: Annotated[
        Path | None, opt("--tree FOLDER", "a kernel tree, if not the current folder", SUBJECT)
    ] = None

    def of(self, request: Request) -> Request:
        """The request with the commits as its series, where it is of a tree.

        Raises UsageError: it names a series or a kernel besides, or no commits of the tree.
        """
        from kernels.git_range import series_of, tree_at

        parts = split_range(request.name)
        if not (self.base or self.uncommitted or self.tree or (parts and not parts[0])):
            return request
        if request.of_series or request.arms:
            what = "commits of a tree are the series, and what they start from is its source"
            step = "leave out --series, --source, --arm, --auto and --reverse"
            given = {"--base": self.base, "--dirty": self.uncommitted, "--tree": self.tree}
            options = ", ".join(option for option, value in given.items() if value)
            raise UsageError(what, where=request.name or options, next_step=step)
        tree, cache = tree_at(self.tree or Path()), facts.cache_folder()
        series = series_of(
            tree, request.name, base=self.base, uncommitted=self.uncommitted, cache=cache
        )
        for note in series.notes:
            log(note)
        return replace(request, name="", series=series.series, source=series.source)


@app.command("build")
@flattened
def build_verb(
    request: Request,
    commits: OfTree,
    where: Annotated[ExecutorOptions, Without("executor", "store", "insecure")],
    as_json: Json = False,
) -> None:
    """Build the kernels of an experiment that are not in the cache.

    Examples:
    ./lab.py build filemap-v4 --quick  # only the kernels of a first verdict
    ./lab.py build --series v3.mbox  # those of a posting
    """
    from runs.boots import Reporter
    from runs.building import build_arms

    request = commits.of(request)
    reporter = Reporter()
    failures: dict[str, dict[str, SeriesError]] = {}
    on = options(where)
    with resumable():
        resolved = resolved_of(request, on, reporter.building)
        require_trusted(resolved.series_parts(), on.trusted)
        built = {
            flavour: build_arms(
                resolved, on, reporter.building, flavour, failures.setdefault(flavour, {})
            )
            for flavour in resolved.flavours
        }
    rows = [
        {"arm": name, "flavour": flavour, "key": kernel.identity.key, "folder": str(kernel.folder)}
        for flavour, kernels in built.items()
        for name, kernel in kernels.items()
        if name not in failures[flavour]
    ]
    if as_json:
        emit(rows)
    else:
        for row in rows:
            write_out(f"{row['arm']:<10} {row['flavour']:<10} {row['key']}  {row['folder']}")
    lines = [
        f"{arm} ({flavour}): {error.in_one_line}"
        for flavour, by_arm in failures.items()
        for arm, error in by_arm.items()
    ]
    if lines:
        raise SeriesError("; ".join(lines), where="not built")


@app.command("cache-key")
@flattened
def cache_key_verb(request: Request, commits: OfTree, as_json: Json = False) -> None:
    """Print one key for all kernels that an experiment needs, for a CI cache; builds none.

    The key changes with the source, series, configuration or compiler of any of them.

    Examples:
    ./lab.py cache-key filemap-v4 --no-diagnostics --no-check  # a key for a CI cache
    ./lab.py cache-key nightly --json  # the key of each kernel, too
    """
    from runs.resolved import cache_key, kernel_keys

    where = options()
    keys = kernel_keys(resolved_of(commits.of(request)), checkout=where.checkout, cache=where.cache)
    key = f"kernels-{cache_key(keys)}"
    if as_json:
        rows = [{"arm": arm, "flavour": flavour, "key": k} for (flavour, arm), k in keys.items()]
        emit({"key": key, "kernels": rows})
    else:
        write_out(key)


@app.command("measure")
@flattened
def measure_verb(
    request: Request,
    commits: OfTree,
    measuring: Measuring,
    folder: Folder = None,
    resume: Resume = None,
) -> None:
    """Boot and measure every run of the plan; print the session's folder.

    Examples:
    ./lab.py measure noop --session /tmp/s  # records without a report
    ./lab.py measure --resume sessions/NAME  # finish an interrupted session
    """
    on, request = options(measuring), commits.of(request)
    write_out(measure(request, on, measuring, folder=folder, resume=resume, verb="measure"))


@app.command("report")
def report_verb(
    folder: Annotated[Path, session_argument("SESSION")],
    form: Annotated[str, opt("--form FORM", ", ".join(FORM_NAMES))] = "text",
    as_json: Json = False,
    write: Annotated[bool, opt("--write", "write the reports into the session's folder")] = False,
    strict: Strict = False,
    judge: Annotated[
        bool, opt("--judge/--no-judge", "exit with the code of the verdict, or always with 0")
    ] = True,
    beside: Annotated[
        list[str] | None,
        opt("--beside ARM=FILE", "results of your hardware: fio JSON, perf stat -x, or mmtests"),
    ] = None,
    machine: Annotated[str, opt("--machine NAME", "what --beside was measured on")] = "",
) -> None:
    """Print the report of a session in one form; the exit code is the verdict's.

    With --json that is verdicts, intervals and exit code (docs/schema/verdicts.schema.json);
    --json=full is --form json, everything that was counted.

    Examples:
    ./lab.py report latest  # the newest session, as text
    ./lab.py report latest --form letter  # a mail for the list
    ./lab.py report latest --machine EPYC --beside base=a.json --beside patched=b.json  # and yours
    """
    if as_json and (write or beside or machine or form not in ("text", "json")):
        what, step = "writes no reports, and is a form", "leave out --json, or the other options"
        raise UsageError(what, where="--json", next_step=step)
    if as_json:
        verdict = print_verdicts(folder, strict=strict)
    else:
        shown, compared = "", None
        if beside or machine:
            named = "" if write else form, beside or (), clean(machine)
            shown, compared = beside_it(folder, *named)
        verdict = report(folder, form, strict=strict, write=write, compared=compared)
        write_out(f"\n{shown}" if shown else "", end="")
    raise typer.Exit(verdict if judge else 0)


def beside_it(
    folder: Path, form: str, named: Sequence[str], machine: str
) -> tuple[str, SessionComparison | None]:
    """A session's results and those of these files in one table; and what the session shows.

    None of native mode.

    Raises UsageError: the form has no such table, or a file or its machine is not as it has to be.
    """
    from reports import beside, forms
    from reports.render import markdown, text
    from results import native, outside

    if form not in ("text", "markdown") or not (named and machine):
        what = "goes with --machine NAME, below the forms text and markdown, without --write"
        step = '--machine "AMD EPYC 7763, 5.10" --beside base=FILE --beside patched=FILE'
        raise UsageError(what, where="--beside", next_step=step)
    compared = None
    if native.is_native(folder):
        from analysis.native import judge

        head, boots = native.read(folder)
        arms = [arm.name for arm in head.arms]
        rows = beside.of_native(head, judge(head, boots))
        of_lab = f"native mode, {head.host.get('cpu', 'this host')}"
    else:
        compared = forms.read_comparison(folder)
        session = forms.of_operations(compared)
        arms, rows = [arm.name for arm in session.arms], beside.of_session(session)
        of_lab = f"{session.manifest.experiment.mode} mode"
    blocks = beside.blocks((of_lab, rows), outside.read(named, arms), arms, machine)
    if form == "markdown":
        return markdown.text(blocks), compared
    return text.text(blocks, terminal_width()), compared


@app.command("annotate")
def annotate_verb(
    folder: Annotated[Path, session_argument("SESSION")],
    form: Annotated[str, opt("--form FORM", ", ".join(ANNOTATED_FORMS))] = "text",
) -> None:
    """Print the series as a diff with how often each line ran, without it and with it.

    A margin has executions per read or operation: on base to the left, on patched to the right,
    `#####` for code that never ran. Nothing is booted; where lines are not on record yet, the
    changed files are compiled once more.

    Examples:
    ./lab.py annotate latest  # the newest session
    ./lab.py annotate latest --form mail  # the diff quoted, for an answer to the series
    """
    from reports import forms
    from results.store import SessionStore
    from runs import session as sessions
    from runs.annotate import annotate, is_stale
    from runs.boots import Reporter

    if form not in ANNOTATED_FORMS:
        from experiment.frozen import likely

        what = f"no form of annotate: {form}"
        raise UsageError(what, where="--form", next_step=f"one of: {likely(form, ANNOTATED_FORMS)}")
    known = SessionStore(folder)
    annotation = known.annotation()
    if annotation is None or is_stale(annotation, known):
        reporter = Reporter()
        with sessions.locked(folder, must_exist=True):
            opened, store, on = sessions.reopen(folder, options(), reporter.building)
            annotate(opened, on, store)
    write_out(forms.as_annotated(forms.read_comparison(folder), form), end="")


@app.command("run")
@flattened
def run_verb(
    request: Request,
    commits: OfTree,
    measuring: Measuring,
    folder: Folder = None,
    resume: Resume = None,
    strict: Strict = False,
    full: Full = False,
) -> None:
    """Build, boot, measure and print the answer; the exit code is the verdict's.

    Examples:
    ./lab.py run filemap-v4 --guest smoke  # small guests, in minutes
    ./lab.py run HEAD~3.. --quick  # your last three commits
    ./lab.py run --series v3.mbox  # a posting, by what it changes
    """
    on = {"strict": strict, "full": full}
    raise typer.Exit(run(commits.of(request), measuring, folder=folder, resume=resume, **on))


def run(
    request: Request,
    measuring: Measuring,
    *,
    folder: Path | None = None,
    resume: Path | None = None,
    strict: bool = False,
    full: bool = False,
) -> int:
    """Build, measure and report; return the verdict's exit code."""
    run_options = options(measuring, fit_only=strict)
    measured = measure(request, run_options, measuring, folder=folder, resume=resume, verb="run")
    return report(measured, "text" if full else "", strict=strict)


def measure(
    request: Request,
    run_options: Options,
    where: ExecutorOptions,
    *,
    folder: Path | None = None,
    resume: Path | None = None,
    verb: str = "",
    nearest: tuple[str, ...] = (),
) -> Path:
    """Measure a new session or finish an old one, wherever is asked; return its folder.

    ``verb`` is what goes on with a session that the user ends; empty where the caller says it.
    ``nearest`` are workloads beside those that are chosen by what a series changes.
    """
    from results import native
    from results.store import MANIFEST
    from runs import session as sessions
    from runs.boots import Reporter
    from runs.native import measure_native, resume_native

    reporter, began = Reporter(), time.monotonic()

    def ended(target: Path, head: str = MANIFEST) -> AbstractContextManager[None]:
        again = (verb, "--resume", str(target))
        return resumable(again, target / head) if verb else nullcontext()

    with placed(run_options, where, reporter) as on:
        if resume is not None and (folder or not replace(request, max_seeds=None).is_empty):
            what = "a session is resumed as it was begun, but for --max-seeds"
            step = "leave out EXPERIMENT, --series, --set, --seeds and --session"
            raise UsageError(what, where="--resume", next_step=step)
        if resume is not None and native.is_native(resume):
            with (
                sessions.locked(resume, must_exist=True, head=native.NATIVE),
                ended(resume, native.NATIVE),
            ):
                resume_native(resume, on, reporter, partial(undecided, resume), request.max_seeds)
            return resume
        if resume is not None:
            with sessions.locked(resume, must_exist=True), ended(resume):
                opened, store, on = sessions.reopen(
                    resume, on, reporter.building, request.max_seeds
                )
                store.append_step(PREPARED, time.monotonic() - began)
                make(opened, on, store, reporter)
            return resume
        if folder is not None:
            sessions.require_new(folder)
        resolved = resolved_of(request, on, reporter.building, nearest=nearest)
        if verb:
            # A queue's series are many, and the name is of one of them.
            require_trusted(resolved.series_parts(), on.trusted)
        target = folder or sessions.new_folder(SESSIONS, resolved.experiment)
        if resolved.experiment.mode == "native":
            with sessions.locked(target), ended(target, native.NATIVE):
                open_ = partial(undecided, target)
                measure_native(resolved, on, target, reporter, open_, created=sessions.now())
            return target
        with sessions.locked(target), ended(target):
            opened, store = sessions.start(
                resolved,
                on,
                target,
                request.recorded,
                reporter.building,
                arguments(request, here=Path.cwd(), checkout=CHECKOUT),
            )
            reporter.log(f"session {target}")
            store.append_step(PREPARED, time.monotonic() - began)
            make(opened, on, store, reporter)
    return target


def undecided(folder: Path) -> tuple[str, ...]:
    """The phases of a session of native mode that more rounds may decide."""
    from analysis import native as judged
    from results import native

    return judged.undecided(*native.read(folder))


def make(
    opened: Prepared,
    run_options: Options,
    store: SessionStore,
    reporter: Reporter,
    judged: Callable[[SessionComparison], None] = lambda comparison: None,
) -> None:
    """Make all that a prepared session plans, with a verdict as soon as there is one.

    ``judged`` is called after each look, where seeds are added until all is decided.
    """
    from reports import forms
    from reports.headline import standing_verdicts
    from runs import stages
    from runs.measure import measure as measure_runs
    from runs.wall import measure_wall

    def measure(part: Prepared, on: Options) -> None:
        make_runs = measure_wall if part.experiment.mode == "wall" else measure_runs
        make_runs(part, on, store, reporter)

    def verdicts() -> stages.ByCase:
        comparison = forms.read_comparison(store.folder)
        judged(comparison)
        return standing_verdicts(comparison)

    shown: list[str] = []

    def verdict(pending: tuple[stages.Pending, ...]) -> None:
        def show(comparison: SessionComparison) -> None:
            lines = forms.answer_lines(comparison, folder=str(store.folder))
            for line in [*(["verdict unchanged"] if lines == shown else lines), *map(str, pending)]:
                reporter.log(line)
            shown[:] = lines

        with store.timed("reports"):
            forms.write_all(store.folder, show)
        reporter.log(f"report so far: {store.folder / 'report.html'}")

    stages.make(
        opened,
        run_options,
        store,
        reporter,
        building=reporter.building,
        measure=measure,
        verdict=verdict,
        verdicts=verdicts,
    )


def print_verdicts(folder: Path, *, strict: bool) -> int:
    """Print the verdicts of a session as JSON; return the exit code.

    Raises RecordError: there is no report of it.
    """
    from reports.sessions import listed
    from results.session import head_of

    head = head_of(folder.parent, folder.name)
    shown = listed(head, strict=strict) if head else None
    if shown is None or shown.exit_code is None:
        problem = shown.problem if shown else "no session"
        raise RecordError(problem, where=str(folder), next_step="./lab.py sessions")
    emit(shown)
    return shown.exit_code


def report(
    folder: Path,
    form: str,
    *,
    strict: bool,
    write: bool = True,
    compared: SessionComparison | None = None,
) -> int:
    """Print one form of a session's report, or with none the answer alone; return the exit code.

    With ``write`` every form is written into the session's folder; else ``compared`` is what the
    session shows, where that is known.
    """
    from reports import forms
    from reports import native as of_native
    from reports.headline import exit_code, outcome
    from results import native
    from results.store import SessionStore

    if native.is_native(folder):
        written, judged = of_native.write_all(folder, form or "text", write=write)
        write_out(written, flush=True)
        if write:
            log(f"report: {folder / 'report.html'}")
        return exit_code((each.judgement for each in judged), (), strict=strict)
    if form and form not in forms.FORMS:
        from experiment.frozen import likely

        step = f"one of: {likely(form, forms.FORMS)}"
        raise UsageError(f"unknown form {form!r}", where="--form", next_step=step)

    def show(comparison: SessionComparison) -> None:
        width = terminal_width()
        if form:
            shown = forms.render(comparison, form, width, str(folder))
        else:
            shown = "\n".join(forms.answer_lines(comparison, width, str(folder)))
        write_out(shown, flush=True, verdicts=form in ("", "text"))

    store = SessionStore(folder)
    if write:
        comparison = forms.write_all(folder, show)
    else:
        show(comparison := compared or forms.read_comparison(folder))
    if costs := store.costs():
        made = [cost.guest_cpu_s for cost in costs if not cost.kept_at]
        log(f"{len(made)} guests used {duration(sum(made))} of CPU time")
    if steps := store.steps():
        each = ", ".join(f"{step} {duration(seconds)}" for step, seconds in steps.items())
        log(f"{duration(sum(steps.values()))} until this report: {each}")
    if not form:
        log(f"all of it here: ./lab.py report {folder}")
    if write:
        log(f"report: {folder / 'report.html'}")
    return outcome(comparison, strict=strict)


@app.command("plan")
@flattened
def plan_verb(request: Request, commits: OfTree, as_json: Json = False) -> None:
    """Show what a session would build and run, and about how long it takes.

    Examples:
    ./lab.py plan filemap-v4  # what a session would build and boot, and how long
    ./lab.py plan --series v3.mbox --no-check  # the same for a posting
    """
    from runs.building import forecast_kernels

    resolved = resolved_of(commits.of(request))
    if resolved.experiment.mode == "native":
        what = "the plan of a session of native mode cannot be shown"
        step = "./lab.py run makes it: a build of each arm, then the rounds"
        raise UsageError(what, where="mode = native", next_step=step)
    problem: InfraError | None = None
    try:
        kernels = forecast_kernels(resolved, options())
    except InfraError as error:
        # What this host lacks to know them is said last.
        kernels, problem = (), error
    if as_json:
        emit(
            {
                **dict(resolved.plan),
                "checks": [
                    {
                        "run_id": check.run_id,
                        "arm": check.arm.name,
                        "flavour": check.flavour,
                        "vcpus": check.vcpus,
                        "cases": [case.name for case in check.cases],
                        "selftests": check.selftests,
                    }
                    for check in resolved.checks
                ],
                "kernels": kernels,
            }
        )
    else:
        _print(resolved, kernels)
    if problem:
        raise problem


def _print(resolved: Resolved, kernels: Sequence[KernelForecast]) -> None:
    from runs.building import forecast_run

    experiment, plan, checks = resolved.experiment, resolved.plan, resolved.checks
    if kernels:
        missing = [kernel for kernel in kernels if not kernel.cached]
        line = f"{counted(len(kernels), 'kernel')}: {len(kernels) - len(missing)} in the cache"
        if missing:
            seconds = duration(sum(kernel.seconds for kernel in missing))
            names = ", ".join(f"{kernel.arm} ({kernel.flavour})" for kernel in missing)
            line += f", {len(missing)} to be built, about {seconds} (an estimate): {names}"
        write_out(line)
    if checks:
        write_out(
            f"{counted(len(checks), 'guest')} for correctness checks, after the measured runs"
        )
    run = forecast_run(experiment, SESSIONS)
    slots = 1 if experiment.mode == "wall" else guests_at_once(resolved.measured.guest.memory_mib)
    where = f"in {run.session}" if run.session else "on the host that coverage was counted on"
    write_out(
        f"{counted(len(plan.runs), 'run')}, {slots} at once: about "
        f"{duration(run.seconds * len(plan.runs) / slots)} (an estimate from "
        f"{duration(run.seconds)} a run, as {where})"
    )
    size = resolved.measured.sizes[resolved.arms[0].spec.name]
    limit, brd = (f"{mib} MiB" if mib else "none" for mib in (size.cgroup_limit_mib, size.brd_mib))
    write_out(f"cgroup limit {limit}, file {size.file_mib} MiB, brd {brd}, {size.jobs} jobs")
    write_out("exit: 0 no regression, 1 regression, 3 not tested, 4 the series fails, 5 --strict\n")
    judged = [each for each in plan.runs if not each.twin]
    for each in judged:
        repeats = "  checks exactness" if each.repeat else ""
        write_out(f"{each.run_id:<40} seed {each.seed}{repeats}")
    for check in checks:
        write_out(f"{check.run_id:<40} {check.does}")
    for each in plan.runs[len(judged) :]:
        write_out(f"{each.run_id:<40} seed {each.seed}")
