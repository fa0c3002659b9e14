"""The verb that packs a session to be repeated elsewhere, and repeats one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from errors import UsageError
from verbs.fields import flattened
from verbs.options import SESSION, Booting, Folder, Json

app = typer.Typer(add_completion=False)


@app.command("repro")
@flattened
def repro_verb(
    where: Booting,
    given: Annotated[
        Path | None, typer.Argument(help="a session folder", metavar="SESSION")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="ARCHIVE",
            rich_help_panel=SESSION,
            help="archive to write; default: SESSION.tar.gz",
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check",
            metavar="ARCHIVE",
            rich_help_panel=SESSION,
            help="repeat the session of this archive",
        ),
    ] = None,
    source: Annotated[
        str,
        typer.Option(
            "--source",
            metavar="SOURCE",
            rich_help_panel=SESSION,
            help="with --check: the kernel source on this host, if elsewhere than in the archive",
        ),
    ] = "",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Pack a session into an archive, or repeat an archived session and compare every number.

    Exit codes of --check: 0 every number is equal, 1 some are not.
    """
    if (given is None) == (check is None):
        raise UsageError(
            "give either SESSION to pack or --check ARCHIVE", where="repro",
            next_step="./lab.py repro SESSION, or ./lab.py repro --check ARCHIVE",
        )  # fmt: skip
    from verbs.actions import repro

    if check is not None:
        raise typer.Exit(repro.check(check, source, folder, where, as_json=as_json))
    if source or folder or as_json:
        raise UsageError(
            "--source, --session and --json are options of --check", where="repro",
            next_step="leave them out, or add --check ARCHIVE",
        )  # fmt: skip
    assert given is not None
    repro.pack(given, output)
