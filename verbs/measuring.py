"""Verbs that make and judge sessions: build, measure, report, run."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from errors import UsageError
from kernels.make import Progress
from reports import forms, write
from reports.headline import headline
from reports.outcome import decided, outcome
from reports.text import headline_lines, verdict_lines
from results.session import open_session
from results.store import MANIFEST, SessionStore
from runs import by_hand, prepare, session, stages
from runs.arms import build_arms, cache_key, expect_arms, flavours, kernel_keys
from runs.measure import measure as measure_session
from runs.options import Options
from runs.progress import Reporter, duration
from runs.question import Question, arguments
from runs.wall import measure_wall
from verbs.asked import (
    CHECKOUT,
    SESSIONS,
    Anyway,
    Arm,
    Auto,
    CheckFirst,
    DryRun,
    Executor,
    Folder,
    Guests,
    Json,
    Mode,
    Named,
    PerPatch,
    Probe,
    Quick,
    Resume,
    Reverse,
    Series,
    Session,
    Set,
    Snapshots,
    Source,
    Store,
    Strict,
    Twins,
    Workloads,
    emit,
    log,
    options,
    placed,
    read,
    resumable,
    terminal_width,
)

app = typer.Typer()


@app.command("build")
def build_verb(
    name: Named = "",
    overrides: Set = [],  # noqa: B006
    series: Series = [],  # noqa: B006
    source: Source = "",
    workloads: Workloads = "",
    auto: Auto = False,
    reverse: Reverse = False,
    arm: Arm = [],  # noqa: B006
    twins: Twins = None,
    per_patch: PerPatch = False,
    check: CheckFirst = None,
    executor: Executor = "local",
    store: Store = "",
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Build the kernels of an experiment, as far as the cache lacks them."""
    series_asked = (tuple(series), source, workloads, auto, reverse)
    question = Question(
        name, tuple(overrides), "", twins, *series_asked, per_patch, check, tuple(arm)
    )
    asked = read(question)
    if dry_run:
        print("\n".join(by_hand.build_commands(asked, options())))
        return
    reporter = Reporter()
    with resumable(), placed(options(), executor, store, reporter) as on:
        expect_arms(asked, on, flavours(asked))
        built = {
            flavour: build_arms(asked, on, building(reporter), flavour)
            for flavour in flavours(asked)
        }
    rows = [
        {"arm": name, "flavour": flavour, "key": kernel.identity.key, "folder": str(kernel.folder)}
        for flavour, kernels in built.items()
        for name, kernel in kernels.items()
    ]
    if as_json:
        emit(rows)
        return
    for row in rows:
        print(f"{row['arm']:<10} {row['flavour']:<10} {row['key']}  {row['folder']}")


@app.command("cache-key")
def cache_key_verb(
    name: Named = "",
    overrides: Set = [],  # noqa: B006
    series: Series = [],  # noqa: B006
    source: Source = "",
    workloads: Workloads = "",
    auto: Auto = False,
    reverse: Reverse = False,
    twins: Twins = True,
    check: CheckFirst = None,
    as_json: Json = False,
    arm: Arm = [],  # noqa: B006
    mode: Mode = "",
) -> None:
    """Name the kernels that an experiment needs in one key, without building any.

    The key is another where any kernel would be: of another source, series,
    configuration or compiler.
    """
    series_asked = (tuple(series), source, workloads, auto, reverse)
    question = Question(
        name, tuple(overrides), mode, twins, *series_asked, check=check, arms=tuple(arm)
    )
    asked = read(question)
    keys = kernel_keys(asked, options())
    key = f"kernels-{cache_key(keys)}"
    if as_json:
        emit({"key": key, "kernels": [{"arm": a, "flavour": f, "key": k}
                                      for (f, a), k in keys.items()]})  # fmt: skip
        return
    print(key)


@app.command("measure")
def measure_verb(
    name: Named = "",
    overrides: Set = [],  # noqa: B006
    series: Series = [],  # noqa: B006
    source: Source = "",
    workloads: Workloads = "",
    auto: Auto = False,
    reverse: Reverse = False,
    arm: Arm = [],  # noqa: B006
    folder: Folder = None,
    resume: Resume = None,
    snapshot: Snapshots = True,
    anyway: Anyway = False,
    probe: Probe = True,
    twins: Twins = None,
    per_patch: PerPatch = False,
    check: CheckFirst = None,
    quick: Quick = False,
    mode: Mode = "",
    guests: Guests = None,
    dry_run: DryRun = False,
    executor: Executor = "local",
    store: Store = "",
) -> None:
    """Boot and measure every run of the plan; print the session's folder."""
    asked = options(snapshot=snapshot, measure_anyway=anyway, probe=probe, guests_at_once=guests)
    series_asked = (tuple(series), source, workloads, auto, reverse)
    question = Question(
        name, tuple(overrides), mode, twins, *series_asked, per_patch, check, tuple(arm),
        quick,
    )  # fmt: skip
    if dry_run:
        print("\n".join(by_hand.measure_commands(read(question), asked)))
        return
    print(do_measure(question, folder, resume, asked, executor, store, "measure"))


@app.command("report")
def report_verb(
    folder: Session,
    form: Annotated[str, typer.Option(help=", ".join(forms.FORMS))] = "text",
    strict: Strict = False,
    judge: Annotated[
        bool, typer.Option("--judge/--no-judge", help="exit with the verdict, or 0 whatever it is")
    ] = True,
) -> None:
    """Write a session's reports, and print it in one form; the exit code is the verdict's."""
    verdict = do_report(folder, form, strict)
    raise typer.Exit(verdict if judge else 0)


@app.command("run")
def run_verb(
    name: Named = "",
    overrides: Set = [],  # noqa: B006
    series: Series = [],  # noqa: B006
    source: Source = "",
    workloads: Workloads = "",
    auto: Auto = False,
    reverse: Reverse = False,
    arm: Arm = [],  # noqa: B006
    folder: Folder = None,
    resume: Resume = None,
    snapshot: Snapshots = True,
    anyway: Anyway = False,
    probe: Probe = True,
    twins: Twins = None,
    per_patch: PerPatch = False,
    check: CheckFirst = None,
    quick: Quick = False,
    mode: Mode = "",
    guests: Guests = None,
    strict: Strict = False,
    dry_run: DryRun = False,
    executor: Executor = "local",
    store: Store = "",
) -> None:
    """Build, measure and report; the exit code is the verdict's."""
    asked = options(
        snapshot=snapshot, measure_anyway=anyway, probe=probe, guests_at_once=guests,
        fit_only=strict,
    )  # fmt: skip
    series_asked = (tuple(series), source, workloads, auto, reverse)
    question = Question(
        name, tuple(overrides), mode, twins, *series_asked, per_patch, check, tuple(arm),
        quick,
    )  # fmt: skip
    if dry_run:
        experiment = read(question)
        lines = by_hand.build_commands(experiment, asked)
        print("\n".join(lines + by_hand.measure_commands(experiment, asked)))
        return
    measured = do_measure(question, folder, resume, asked, executor, store, "run")
    raise typer.Exit(do_report(measured, "text", strict))


def do_measure(
    question: Question,
    folder: Path | None,
    resume: Path | None,
    asked: Options,
    executor: str = "local",
    store: str = "",
    verb: str = "",
) -> Path:
    """Measure a new session or finish an old one, wherever is asked; return its folder.

    ``verb`` is what goes on with a session that the user ends; empty where the caller says it.
    """
    reporter = Reporter()
    with placed(asked, executor, store, reporter) as on:
        return measure_on(question, folder, resume, on, reporter, verb)


def measure_on(
    question: Question,
    folder: Path | None,
    resume: Path | None,
    asked: Options,
    reporter: Reporter,
    verb: str,
) -> Path:
    """As :func:`do_measure`, with the executor among the options."""

    def ended(target: Path) -> AbstractContextManager[None]:
        again = (verb, "--resume", str(target))
        return resumable(again, target / MANIFEST) if verb else nullcontext()

    if resume is not None and (folder or not question.is_empty):
        raise UsageError(
            "a session is resumed as it was begun", where="--resume",
            next_step="leave out EXPERIMENT, --series, --set and --session",
        )  # fmt: skip
    if resume is not None:
        with session.SessionLock(resume, must_exist=True), ended(resume):
            opened, store, asked = session.reopen(resume, asked, building(reporter))
            make(opened, asked, store, reporter)
        return resume
    experiment = read(question)
    target = folder or session.new_folder(SESSIONS, experiment)
    with session.SessionLock(target), ended(target):
        opened, store = session.start(
            experiment,
            asked,
            target,
            question.recorded,
            building(reporter),
            arguments(question, here=Path.cwd(), checkout=CHECKOUT),
        )
        reporter.say(f"session {target}")
        make(opened, asked, store, reporter)
    return target


def make(opened: prepare.Session, asked: Options, store: SessionStore, reporter: Reporter) -> None:
    """Make all that a prepared session plans, with a verdict as soon as there is one."""

    def measure(part: prepare.Session) -> None:
        if part.experiment.mode == "wall":
            measure_wall(
                part, asked, store, reporter,
                lambda: decided(write.read_comparison(store.folder)),
            )  # fmt: skip
        else:
            measure_session(part, asked, store, reporter)

    def verdict(pending: tuple[stages.Pending, ...]) -> None:
        comparison = write.write_all(store.folder)
        for line in [*verdict_lines(comparison), *map(str, pending)]:
            reporter.say(line)
        reporter.say(f"report so far: {store.folder / 'report.html'}")

    stages.make(
        opened, asked, store, reporter,
        building=building(reporter), measure=measure, verdict=verdict,
    )  # fmt: skip


def do_report(folder: Path, form: str, strict: bool) -> int:
    """Write every report of a session and print one form; return the exit code."""
    if form not in forms.FORMS:
        raise UsageError(
            f"unknown form {form!r}", where="--form", next_step=f"one of: {', '.join(forms.FORMS)}"
        )
    comparison = write.write_all(folder)
    print(forms.render(comparison, form, terminal_width(), str(folder)))
    costs = open_session(folder).costs
    if costs:
        spent = sum(cost.guest_cpu_s for cost in costs)
        log(f"{len(costs)} guests used {duration(spent)} of CPU time")
    happened = headline(comparison, str(folder))
    for line in headline_lines(happened, terminal_width()):
        log(line)
    for line in verdict_lines(comparison) if happened.has_verdicts else ():
        log(line)
    log(f"report: {folder / 'report.html'}")
    return outcome(comparison, strict=strict)


def building(reporter: Reporter) -> session.BuildProgress:
    """Progress of kernel builds, for people."""

    def show(arm: str, progress: Progress) -> None:
        reporter.building(arm, progress.done, progress.total, progress.seconds)

    return show
