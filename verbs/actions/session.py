"""Make a session and report it: what `measure`, `report`, `run`, `tree` and a queue do."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from errors import UsageError
from kernels.make import MakeProgress
from reports import forms, write
from reports.headline import headline
from reports.many import SessionComparison
from reports.outcome import decided, outcome, standing_verdicts
from results.session import open_session
from results.store import MANIFEST, SessionStore
from runs import dry_run, stages
from runs import session as sessions
from runs.building import Building
from runs.measure import measure as measure_runs
from runs.options import Options
from runs.prepare import Prepared
from runs.progress import Reporter, duration
from runs.request import Request, arguments
from runs.wall import measure_wall
from verbs.folders import CHECKOUT, SESSIONS
from verbs.invocation import options, placed, resolved_of, resumable
from verbs.options import ExecutorOptions, Measuring
from verbs.output import log, terminal_width, write_out


def run(
    request: Request,
    measuring: Measuring,
    *,
    folder: Path | None = None,
    resume: Path | None = None,
    strict: bool = False,
    dry_run: bool = False,
) -> int:
    """Build, measure and report; return the verdict's exit code."""
    run_options = options(measuring, fit_only=strict)
    if dry_run:
        show_commands(request, run_options, build=True)
        return 0
    measured = measure(request, run_options, measuring, folder=folder, resume=resume, verb="run")
    return report(measured, "text", strict=strict)


def show_commands(request: Request, run_options: Options, *, build: bool) -> None:
    """Print the lines for a shell that do what a session does; with or without its builds."""
    lines = dry_run.session_lines(resolved_of(request), run_options)
    write_out("\n".join(lines.all if build else lines.boots))


def measure(
    request: Request,
    run_options: Options,
    where: ExecutorOptions,
    *,
    folder: Path | None = None,
    resume: Path | None = None,
    verb: str = "",
) -> Path:
    """Measure a new session or finish an old one, wherever is asked; return its folder.

    ``verb`` is what goes on with a session that the user ends; empty where the caller says it.
    """
    reporter = Reporter()

    def ended(target: Path) -> AbstractContextManager[None]:
        again = (verb, "--resume", str(target))
        return resumable(again, target / MANIFEST) if verb else nullcontext()

    with placed(run_options, where, reporter) as on:
        if resume is not None and (folder or not replace(request, max_seeds=None).is_empty):
            raise UsageError(
                "a session is resumed as it was begun, but for --max-seeds", where="--resume",
                next_step="leave out EXPERIMENT, --series, --set, --seeds and --session",
            )  # fmt: skip
        if resume is not None:
            with sessions.SessionLock(resume, must_exist=True), ended(resume):
                opened, store, on = sessions.reopen(
                    resume, on, building(reporter), request.max_seeds
                )
                make(opened, on, store, reporter)
            return resume
        resolved = resolved_of(request)
        target = folder or sessions.new_folder(SESSIONS, resolved.experiment)
        with sessions.SessionLock(target), ended(target):
            opened, store = sessions.start(
                resolved,
                on,
                target,
                request.recorded,
                building(reporter),
                arguments(request, here=Path.cwd(), checkout=CHECKOUT),
            )
            reporter.log(f"session {target}")
            make(opened, on, store, reporter)
    return target


def make(opened: Prepared, run_options: Options, store: SessionStore, reporter: Reporter) -> None:
    """Make all that a prepared session plans, with a verdict as soon as there is one."""

    def measure(part: Prepared, on: Options) -> None:
        if part.experiment.mode == "wall":
            measure_wall(
                part, on, store, reporter,
                lambda: decided(write.read_comparison(store.folder)),
            )  # fmt: skip
        else:
            measure_runs(part, on, store, reporter)

    shown: list[str] = []

    def verdict(pending: tuple[stages.Pending, ...]) -> None:
        def show(comparison: SessionComparison) -> None:
            lines = list(forms.verdict_lines(comparison))
            for line in [*(["verdict unchanged"] if lines == shown else lines), *map(str, pending)]:
                reporter.log(line)
            shown[:] = lines

        write.write_all(store.folder, show)
        reporter.log(f"report so far: {store.folder / 'report.html'}")

    stages.make(
        opened, run_options, store, reporter,
        building=building(reporter), measure=measure, verdict=verdict,
        verdicts=lambda: standing_verdicts(write.read_comparison(store.folder)),
    )  # fmt: skip


def report(folder: Path, form: str, *, strict: bool) -> int:
    """Write every report of a session and print one form; return the exit code."""
    if form not in forms.FORMS:
        raise UsageError(
            f"unknown form {form!r}", where="--form", next_step=f"one of: {', '.join(forms.FORMS)}"
        )

    def show(comparison: SessionComparison) -> None:
        write_out(forms.render(comparison, form, terminal_width(), str(folder)), flush=True)

    comparison = write.write_all(folder, show)
    costs = open_session(folder, counted=False).costs
    if costs:
        spent = sum(cost.guest_cpu_s for cost in costs)
        log(f"{len(costs)} guests used {duration(spent)} of CPU time")
    happened = headline(comparison, str(folder))
    for line in forms.happened_lines(comparison, terminal_width(), str(folder)):
        log(line)
    for line in forms.verdict_lines(comparison) if happened.has_verdicts else ():
        log(line)
    log(f"report: {folder / 'report.html'}")
    return outcome(comparison, strict=strict)


def building(reporter: Reporter) -> Building:
    """Progress of kernel builds, for people."""

    def show(arm: str, progress: MakeProgress) -> None:
        reporter.building(arm, progress.done, progress.total, progress.seconds)

    return show
