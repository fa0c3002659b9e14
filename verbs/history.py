"""Verbs of the history: add, show, export, import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verbs.history_files import (
    FILES,
    HISTORY,
    KNOWN,
    POLICY,
    Folder,
    KnownFile,
    PolicyFile,
)
from verbs.options import OUTPUT, Json

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.command("add")
def add_verb(
    sessions: Annotated[list[Path], typer.Argument(metavar="SESSION...")],
    folder: Folder = HISTORY,
    night: Annotated[
        str,
        typer.Option(
            "--night",
            metavar="ID",
            rich_help_panel=FILES,
            help="the night of these sessions: an id that all its jobs share, or a date "
            "YYYY-MM-DD if not the session's own",
        ),
    ] = "",
    link: Annotated[
        str,
        typer.Option(
            "--link", metavar="URL", rich_help_panel=FILES, help="URL of the session's reports"
        ),
    ] = "",
) -> None:
    """Add the results of sessions to the history, one entry each; exit 2 if one cannot be added."""
    from verbs.actions import history

    history.add(sessions, folder, night, link)


@app.command("show")
def show_verb(
    entry: Annotated[str, typer.Argument(help="an entry's id or session", metavar="ENTRY")] = "",
    folder: Folder = HISTORY,
    known_file: KnownFile = KNOWN,
    policy_file: PolicyFile = POLICY,
    experiment: Annotated[
        str,
        typer.Option(
            "--experiment",
            metavar="NAME",
            rich_help_panel=OUTPUT,
            help="also list the nights of this experiment",
        ),
    ] = "",
    nights: Annotated[
        int, typer.Option("--nights", min=1, rich_help_panel=OUTPUT, help="how many nights to list")
    ] = 10,
    as_json: Json = False,
) -> None:
    """Show every benchmark of the history and what changed, or one entry."""
    from verbs.actions import history

    history.show(
        entry,
        folder,
        known_file,
        policy_file,
        experiment=experiment,
        nights=nights,
        as_json=as_json,
    )


@app.command("export")
def export_verb(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines")],
    folder: Folder = HISTORY,
) -> None:
    """Write the whole history to one file, a line of JSON for each entry."""
    from verbs.actions import history

    history.export(file, folder)


@app.command("import")
def import_verb(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...")],
    folder: Folder = HISTORY,
) -> None:
    """Add the entries of exported files; exit 2 if any cannot be read."""
    from verbs.actions import history

    history.read_in(files, folder)
