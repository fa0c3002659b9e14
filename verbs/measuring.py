"""Verbs that make and judge sessions: build, cache-key, measure, report, run."""

from __future__ import annotations

from typing import Annotated

import typer

from reports.form_names import FORM_NAMES
from runs.request import Request
from verbs.fields import flattened
from verbs.invocation import options
from verbs.options import (
    OUTPUT,
    DryRun,
    ExecutorOptions,
    Folder,
    Json,
    Measuring,
    Resume,
    Session,
    Strict,
)
from verbs.output import write_out

app = typer.Typer(add_completion=False)


@app.command("build")
@flattened
def build_verb(
    request: Request, where: ExecutorOptions, dry_run: DryRun = False, as_json: Json = False
) -> None:
    """Build the kernels of an experiment that are not in the cache."""
    from verbs.actions import kernels

    kernels.build(request, where, dry_run=dry_run, as_json=as_json)


@app.command("cache-key")
@flattened
def cache_key_verb(request: Request, as_json: Json = False) -> None:
    """Print one key for all kernels that an experiment needs, for a CI cache; builds none.

    The key changes with the source, series, configuration or compiler of any of them.
    """
    from verbs.actions import kernels

    kernels.show_key(request, as_json=as_json)


@app.command("measure")
@flattened
def measure_verb(
    request: Request,
    measuring: Measuring,
    folder: Folder = None,
    resume: Resume = None,
    dry_run: DryRun = False,
) -> None:
    """Boot and measure every run of the plan; print the session's folder."""
    from verbs.actions import session

    if dry_run:
        session.show_commands(request, options(measuring), build=False)
        return
    write_out(
        session.measure(
            request, options(measuring), measuring, folder=folder, resume=resume, verb="measure"
        )
    )


@app.command("report")
def report_verb(
    folder: Session,
    form: Annotated[
        str,
        typer.Option(
            "--form",
            metavar="FORM",
            rich_help_panel=OUTPUT,
            help=", ".join(FORM_NAMES),
        ),
    ] = "text",
    strict: Strict = False,
    judge: Annotated[
        bool,
        typer.Option(
            "--judge/--no-judge",
            rich_help_panel=OUTPUT,
            help="exit with the code of the verdict, or always with 0",
        ),
    ] = True,
) -> None:
    """Write the reports of a session and print one of them; the exit code is the verdict's."""
    from verbs.actions import session

    verdict = session.report(folder, form, strict=strict)
    raise typer.Exit(verdict if judge else 0)


@app.command("run")
@flattened
def run_verb(
    request: Request,
    measuring: Measuring,
    folder: Folder = None,
    resume: Resume = None,
    strict: Strict = False,
    dry_run: DryRun = False,
) -> None:
    """Build kernels, measure, and print the report; the exit code is the verdict's."""
    from verbs.actions import session

    raise typer.Exit(
        session.run(
            request, measuring, folder=folder, resume=resume, strict=strict, dry_run=dry_run
        )
    )
