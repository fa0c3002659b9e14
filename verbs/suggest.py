"""The verb that says which workloads execute what a series changes."""

from __future__ import annotations

from typing import Annotated

import typer

from runs.request import SUBJECT
from verbs.options import Json

app = typer.Typer(add_completion=False)


@app.command("suggest")
def suggest_verb(
    series: Annotated[
        list[str],
        typer.Argument(
            metavar="SERIES", help="FOLDER, FILE, MESSAGE-ID or A..B; see docs/series.md"
        ),
    ],
    source: Annotated[
        str,
        typer.Option(
            "--source",
            metavar="SOURCE",
            rich_help_panel=SUBJECT,
            help="what the series applies to; of A..B, the repository: git:PATH; here by default",
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Rank the workloads by how much they execute of what a series changes.

    Nothing is built or booted. The changed functions are those whose machine code differs where
    both kernels are in the cache, else those in whose lines the patches have changes; what
    workloads execute was counted once and comes with the lab (docs/coverage.md). The last line
    is the command that measures the best ones. Exits with 0 also where none executes it.
    """
    from verbs.actions import suggest

    suggest.show(tuple(series), source, as_json=as_json)
