#!/usr/bin/env python3
"""Twinboot: what did this series change, by how much, and can I believe it?"""

from __future__ import annotations

import os
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent
VENV = CHECKOUT / ".venv"
INTERRUPTED = 130

# ./lab.py is started by whatever python3 comes first; its packages, and
# virtme-ng's programs, are in the environment that `make setup` made.
if __name__ == "__main__" and (VENV / "bin" / "python").exists():
    os.environ["PATH"] = f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    if Path(sys.prefix).resolve() != VENV.resolve():
        os.execv(VENV / "bin" / "python", [str(VENV / "bin" / "python"), *sys.argv])  # noqa: S606

try:
    import pydantic  # noqa: F401
    import typer
except ImportError:
    print("lab.py: its Python packages are not installed\nnext: make setup", file=sys.stderr)
    raise SystemExit(3) from None

import json
import logging
import signal
import traceback
from typing import Annotated, Any

import experiment.load as load
from experiment.plan import scaled
from experiment.spec import Experiment, SpecError
from host import doctor, facts, fitness
from host.errors import Exit, LabError, UsageError
from kernels import cache as kernel_cache
from kernels.make import Progress
from kernels.series import known_series
from reports import forms, write
from reports.model import ReportError
from reports.outcome import decided, outcome
from reports.text import verdict_lines
from results.store import SessionStore, StoreError
from runs import by_hand, prepare, session
from runs.measure import measure as measure_session
from runs.options import Options
from runs.progress import Reporter, duration
from runs.question import Question, experiment_of
from runs.wall import measure_wall
from workloads.spec import load_catalogue

app = typer.Typer(
    help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)

Named = Annotated[
    str, typer.Argument(help="an experiment file, or its name", metavar="[EXPERIMENT]")
]
Set = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="override a key of the experiment")
]
Json = Annotated[bool, typer.Option("--json", help="for scripts")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="print commands that can be pasted, run none")
]
Folder = Annotated[Path | None, typer.Option("--session", help="folder of a new session")]
Resume = Annotated[Path | None, typer.Option(help="finish the session in this folder")]
Snapshots = Annotated[
    bool, typer.Option("--snapshot/--no-snapshot", help="restore runs, or boot each from cold")
]
Anyway = Annotated[
    bool, typer.Option("--measure-anyway", help="boot even where both arms are the same code")
]
Guests = Annotated[int | None, typer.Option("--guests", min=1, help="guests at once")]
Probe = Annotated[
    bool, typer.Option("--probe/--no-probe", help="count instructions and calls by function")
]
Twins = Annotated[
    bool, typer.Option("--twins/--no-twins", help="also run the twins that explain, as for locks")
]
Mode = Annotated[str, typer.Option(help="exact, or wall: real time under virtme-ng and KVM")]
Series = Annotated[
    list[str], typer.Option(metavar="SERIES", help="FOLDER, FILE, MESSAGE-ID or A..B; see docs")
]
Source = Annotated[str, typer.Option(help="of --series: deb:, tarball:, dir: or git:PATH[@REF]")]
Workloads = Annotated[str, typer.Option(metavar="NAME,NAME", help="of --series: what to run")]
Auto = Annotated[bool, typer.Option("--auto", help="of --series: what its files call for")]
Reverse = Annotated[bool, typer.Option("--reverse", help="the source holds --series already")]
Strict = Annotated[bool, typer.Option("--strict", help="exit 5 where a verdict is inconclusive")]
Session = Annotated[Path, typer.Argument(help="a session folder", metavar="SESSION")]


@app.command("doctor")
def doctor_verb(
    wall: Annotated[
        bool, typer.Option("--wall", help="also whether real time can be measured here")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="exit 3 where anything could be better")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what this host can do, and the command that mends what it cannot."""
    checks = doctor.run_checks()
    if wall:
        guest = load.load_guest(Path("laptop"))
        checks = (
            *checks,
            *fitness.wall_checks(
                facts.cache_folder(), guest_mib=guest.memory_mib, vcpus=guest.vcpus
            ),
        )
    emit([vars(check) for check in checks]) if as_json else print(doctor.as_text(checks))
    if strict:
        fitness.require_fit(checks)
    if doctor.worst(checks) == "fail":
        raise typer.Exit(Exit.INFRASTRUCTURE)


@app.command("list")
def list_verb(as_json: Json = False) -> None:
    """List experiments, workloads, guests, series, and kernels in the cache."""
    known: dict[str, list[str]] = {
        "experiments": list(load.known_experiments()),
        "workloads": [f"{w.name}: {w.title}" for w in load_catalogue().values()],
        "guests": list(load.known_guests()),
        "series": list(known_series(CHECKOUT)),
        "kernels": [
            f"{kernel.identity.key}  {kernel.identity.release} {kernel.identity.flavour}, "
            f"{len(kernel.identity.patches)} patches on {kernel.identity.source}"
            for kernel in kernel_cache.cached_kernels(facts.cache_folder())
        ],
    }
    if as_json:
        emit(known)
        return
    for title, entries in known.items():
        print(f"{title}:")
        print("\n".join(f"  {entry}" for entry in entries) or "  none")


@app.command("plan")
def plan_verb(
    name: Named = "",
    overrides: Set = [],  # noqa: B006
    series: Series = [],  # noqa: B006
    source: Source = "",
    workloads: Workloads = "",
    auto: Auto = False,
    reverse: Reverse = False,
    mode: Mode = "",
    as_json: Json = False,
) -> None:
    """Show every run that would be made, in order."""
    series_asked = (tuple(series), source, workloads, auto, reverse)
    question = Question(name, tuple(overrides), mode, True, *series_asked)
    asked = read(question)
    plan = prepare.plan_of(asked)
    if as_json:
        emit(plan.model_dump(mode="json"))
        return
    for run in plan.runs:
        print(f"{run.run_id:<40} seed {run.seed}{'  checks exactness' if run.repeat else ''}")
    size = scaled(asked.dataset, prepare.guest_of(asked))
    log(
        f"{len(plan.runs)} runs; cgroup limit {size.cgroup_limit_mib} MiB, "
        f"file {size.file_mib} MiB, brd {size.brd_mib} MiB, {size.jobs} jobs"
    )


@app.command("build")
def build_verb(
    name: Named = "",
    overrides: Set = [],  # noqa: B006
    series: Series = [],  # noqa: B006
    source: Source = "",
    workloads: Workloads = "",
    auto: Auto = False,
    reverse: Reverse = False,
    twins: Twins = True,
    dry_run: DryRun = False,
) -> None:
    """Build the kernels of an experiment, as far as the cache lacks them."""
    series_asked = (tuple(series), source, workloads, auto, reverse)
    question = Question(name, tuple(overrides), "", twins, *series_asked)
    asked = read(question)
    if dry_run:
        print("\n".join(by_hand.build_commands(asked, options())))
        return
    reporter = Reporter()
    for flavour in prepare.flavours(asked):
        built = prepare.build_arms(asked, options(), building(reporter), flavour)
        for arm, kernel in built.items():
            print(f"{arm:<10} {flavour:<10} {kernel.identity.key}  {kernel.folder}")


@app.command("measure")
def measure_verb(
    name: Named = "",
    overrides: Set = [],  # noqa: B006
    series: Series = [],  # noqa: B006
    source: Source = "",
    workloads: Workloads = "",
    auto: Auto = False,
    reverse: Reverse = False,
    folder: Folder = None,
    resume: Resume = None,
    snapshot: Snapshots = True,
    anyway: Anyway = False,
    probe: Probe = True,
    twins: Twins = True,
    mode: Mode = "",
    guests: Guests = None,
    dry_run: DryRun = False,
) -> None:
    """Boot and measure every run of the plan; print the session's folder."""
    asked = options(snapshot=snapshot, measure_anyway=anyway, probe=probe, guests_at_once=guests)
    series_asked = (tuple(series), source, workloads, auto, reverse)
    question = Question(name, tuple(overrides), mode, twins, *series_asked)
    if dry_run:
        print("\n".join(by_hand.measure_commands(read(question), asked)))
        return
    print(do_measure(question, folder, resume, asked))


@app.command("report")
def report_verb(
    folder: Session,
    form: Annotated[str, typer.Option(help=", ".join(forms.FORMS))] = "text",
    strict: Strict = False,
) -> None:
    """Write a session's reports, and print it in one form; the exit code is the verdict's."""
    raise typer.Exit(do_report(folder, form, strict))


@app.command("run")
def run_verb(
    name: Named = "",
    overrides: Set = [],  # noqa: B006
    series: Series = [],  # noqa: B006
    source: Source = "",
    workloads: Workloads = "",
    auto: Auto = False,
    reverse: Reverse = False,
    folder: Folder = None,
    resume: Resume = None,
    snapshot: Snapshots = True,
    anyway: Anyway = False,
    probe: Probe = True,
    twins: Twins = True,
    mode: Mode = "",
    guests: Guests = None,
    strict: Strict = False,
    dry_run: DryRun = False,
) -> None:
    """Build, measure and report; the exit code is the verdict's."""
    asked = options(
        snapshot=snapshot, measure_anyway=anyway, probe=probe, guests_at_once=guests,
        fit_only=strict,
    )  # fmt: skip
    series_asked = (tuple(series), source, workloads, auto, reverse)
    question = Question(name, tuple(overrides), mode, twins, *series_asked)
    if dry_run:
        experiment = read(question)
        lines = by_hand.build_commands(experiment, asked)
        print("\n".join(lines + by_hand.measure_commands(experiment, asked)))
        return
    measured = do_measure(question, folder, resume, asked)
    raise typer.Exit(do_report(measured, "text", strict))


@app.command("clean")
def clean_verb(
    max_gib: Annotated[float, typer.Option(min=0, help="bound of the cache in GiB")] = 20.0,
) -> None:
    """Bound the cache: the least recently used kernels, objects and trees go first."""
    cleaned = kernel_cache.clean(facts.cache_folder(), max_gib)
    for entry in cleaned.removed:
        print(entry)
    log(f"{cleaned.freed >> 20} MiB freed, {cleaned.left >> 20} MiB left")


def read(question: Question) -> Experiment:
    """The experiment that the command line asks for, checked, its series taken in."""
    known = prepare.catalogue(CHECKOUT)
    return experiment_of(
        question, checkout=CHECKOUT, cache=facts.cache_folder(), here=Path.cwd(), catalogue=known
    )


def options(**asked: Any) -> Options:
    """The options of this invocation."""
    return Options(checkout=CHECKOUT, cache=facts.cache_folder(), **asked)


def do_measure(
    question: Question, folder: Path | None, resume: Path | None, asked: Options
) -> Path:
    """Measure a new session or finish an old one; return its folder."""
    reporter = Reporter()
    if resume is not None and (folder or not question.is_empty):
        raise UsageError(
            "a session is resumed as it was begun", where="--resume",
            next_step="leave out EXPERIMENT, --series, --set and --session",
        )  # fmt: skip
    if resume is not None:
        with session.SessionLock(resume, must_exist=True):
            opened, store, asked = session.reopen(resume, asked, building(reporter))
            take(opened, asked, store, reporter)
        return resume
    experiment = read(question)
    target = folder or session.new_folder(CHECKOUT / "sessions", experiment)
    with session.SessionLock(target):
        opened, store = session.start(
            experiment, asked, target, question.all_overrides, building(reporter)
        )
        reporter.say(f"session {target}")
        take(opened, asked, store, reporter)
    return target


def take(opened: prepare.Session, asked: Options, store: SessionStore, reporter: Reporter) -> None:
    """Make the runs of a prepared session, in its mode."""
    if opened.experiment.mode == "wall":
        measure_wall(opened, asked, store, reporter, lambda: decided(store))
    else:
        measure_session(opened, asked, store, reporter)


def do_report(folder: Path, form: str, strict: bool) -> int:
    """Write every report of a session and print one form; return the exit code."""
    if form not in forms.FORMS:
        raise UsageError(
            f"unknown form {form!r}", where="--form", next_step=f"one of: {', '.join(forms.FORMS)}"
        )
    comparison = write.write_all(folder)
    print(forms.render(comparison, form))
    costs = SessionStore(folder).costs()
    if costs:
        spent = sum(cost.guest_cpu_s for cost in costs)
        log(f"{len(costs)} guests used {duration(spent)} of CPU time")
    for line in verdict_lines(comparison):
        log(line)
    log(f"report: {folder / 'report.html'}")
    return outcome(comparison, strict=strict)


def building(reporter: Reporter) -> session.BuildProgress:
    """Progress of kernel builds, for people."""

    def show(arm: str, progress: Progress) -> None:
        reporter.building(arm, progress.done, progress.total, progress.seconds)

    return show


def emit(value: object) -> None:
    """JSON on standard output."""
    print(json.dumps(value, indent=2, default=str))


def log(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        status = app(args=arguments, standalone_mode=False)
        sys.stdout.flush()
    except SpecError as error:
        log("\n".join(f"error: {problem}" for problem in error.problems))
        return Exit.USAGE
    except (StoreError, ReportError) as error:
        log(f"error: {error}")
        return Exit.USAGE
    except LabError as error:
        log(f"error: {error}")
        return error.exit_code
    except typer.TyperException as error:
        log(f"error: {error.format_message() or 'no verb named'}\nnext: ./lab.py --help")
        return Exit.USAGE
    except (SystemExit, BrokenPipeError):
        # The reader of standard output has left; typer would say 1, a regression.
        # What is still buffered needs somewhere to go when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + signal.SIGPIPE
    except OSError as error:
        log(f"error: {error}\nnext: ./lab.py doctor")
        return Exit.INFRASTRUCTURE
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except Exception:
        # A status of 1 would be read as a regression.
        log(f"{traceback.format_exc()}error: a bug in the lab; what was measured is on record")
        return Exit.INFRASTRUCTURE
    if status == INTERRUPTED:
        # typer turns the signal into this status without a word.
        log("interrupted; every finished run is on record: ./lab.py run --resume SESSION")
    return int(status or 0)


if __name__ == "__main__":
    sys.exit(main())
