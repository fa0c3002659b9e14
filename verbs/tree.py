"""The verb for whoever stands in a kernel tree: the range is the series, the tree its source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from host import facts
from runs.request import SUBJECT, Request
from verbs.cli import Without, flattened
from verbs.invocation import log
from verbs.options import DryRun, Folder, Measuring, Strict

app = typer.Typer(add_completion=False)

# The range names these, or the tree is them.
OF_TREE = Without("name", "series", "source", "automatic", "reverse", "arms")


@app.command("tree")
@flattened
def tree_verb(
    request: Annotated[Request, OF_TREE],
    measuring: Measuring,
    commits: Annotated[
        str, typer.Argument(metavar="A..B|BRANCH", help="a range of commits, or a branch")
    ] = "",
    base: Annotated[
        str,
        typer.Option(
            "--base",
            metavar="REF",
            rich_help_panel=SUBJECT,
            help="the branch or commit that BRANCH (or HEAD) started from",
        ),
    ] = "",
    uncommitted: Annotated[
        bool,
        typer.Option("--dirty", rich_help_panel=SUBJECT, help="include uncommitted changes"),
    ] = False,
    tree: Annotated[
        Path,
        typer.Option(
            "--tree",
            rich_help_panel=SUBJECT,
            help="the kernel tree, or a folder in it; default: the current folder",
        ),
    ] = Path(),
    folder: Folder = None,
    strict: Strict = False,
    dry_run: DryRun = False,
) -> None:
    """Measure commits of the kernel tree in the current folder against the commit before them.

    `twinboot HEAD~3..` is short for `twinboot tree HEAD~3..`, `twinboot --dirty` for `twinboot
    tree --dirty`, and `twinboot run topic --base mainline` for `twinboot tree topic --base
    mainline`. The base arm is the commit that the range starts from. The tree is not
    changed. Without --workloads, those are measured that execute what the range changes (see
    `suggest`). The exit code is the verdict's.

    Examples:
    ./lab.py tree HEAD~3.. --quick  # your last three commits
    ./lab.py tree topic --base mainline --per-patch  # each patch of a branch
    """
    from kernels.git_range import series_of, tree_at
    from verbs import session

    series = series_of(
        tree_at(tree), commits, base=base, uncommitted=uncommitted, cache=facts.cache_folder()
    )
    for note in series.notes:
        log(note)
    request = replace(request, series=series.series, source=series.source)
    raise typer.Exit(session.run(request, measuring, folder=folder, strict=strict, dry_run=dry_run))
