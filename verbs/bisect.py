"""The verb that finds the patch, or the commit, that moved a metric."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from runs.request import SUBJECT, Request
from verbs.fields import Without, flattened
from verbs.options import SESSION, Booting, Folder

app = typer.Typer(add_completion=False)

SEARCH = "The search"
# A search is of one series in exact mode, and decides itself what it boots of it.
OF_SEARCH = Without("mode", "twins", "per_patch", "check", "arms", "quick", "seeds", "max_seeds")


@app.command("bisect")
@flattened
def bisect_verb(
    request: Annotated[Request, OF_SEARCH],
    booting: Booting,
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            metavar="PHASE.METRIC",
            rich_help_panel=SEARCH,
            help="the metric that changed, for example 4k.bw",
        ),
    ] = "",
    threshold: Annotated[
        str,
        typer.Option(
            "--threshold",
            metavar="PERCENT",
            rich_help_panel=SEARCH,
            help="smallest change to look for",
        ),
    ] = "0.5%",
    between: Annotated[
        str,
        typer.Option(
            "--range", metavar="A..B", rich_help_panel=SUBJECT, help="commits in --source git:PATH"
        ),
    ] = "",
    case: Annotated[
        str,
        typer.Option(
            "--case",
            metavar="CASE",
            rich_help_panel=SEARCH,
            help="the case, if several have the metric",
        ),
    ] = "",
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            max=1000,
            rich_help_panel=SEARCH,
            help="seeds per step; by default as many as the threshold needs",
        ),
    ] = None,
    folder: Folder = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume", rich_help_panel=SESSION, help="continue the search in this folder"
        ),
    ] = None,
) -> None:
    """Find the patch of a series, or the commit of a range, that changed a metric.

    Exit codes: 0 found, 1 no change to find, 3 nothing that changed ran, 5 narrowed down to
    patches that cannot be built or measured.
    """
    from verbs.actions import bisect

    code = bisect.search(
        # What explains is of no use to a search.
        replace(request, twins=False), booting, metric=metric, threshold=threshold, between=between,
        case=case, seeds=seeds, folder=folder, resume=resume,
    )  # fmt: skip
    raise typer.Exit(code)
