"""The verb that says in one line what the lab knows of one patch: for b4 prep --check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verbs.folders import SESSIONS
from verbs.options import OUTPUT

app = typer.Typer(add_completion=False)


@app.command("patch")
def patch_verb(
    mail: Annotated[
        Path, typer.Argument(metavar="MAIL", help="a patch as a mail; - is standard input")
    ] = Path("-"),
    sessions: Annotated[
        Path, typer.Option("--sessions", help="folder of the sessions that are searched")
    ] = SESSIONS,
    always: Annotated[
        bool,
        typer.Option("--always", rich_help_panel=OUTPUT, help="a line also where all is well"),
    ] = False,
) -> None:
    """Say in one line what is known of one patch; nothing where it was measured and all is well.

    Nothing is built or booted: the verdict is that of the newest session that has the patch,
    alone (--per-patch) or with its series. Where there is none, the line says so, and which
    workloads execute the functions that the patch changes. The line has ERROR: in it for a
    regression (exit 1) and for a patch that cannot be read (exit 4), as b4 prep --check wants
    it; see docs/command-line.md.
    """
    from verbs.actions import patch

    answer = patch.answer(mail, sessions)
    if always or answer.is_shown:
        print(answer.line)
    raise typer.Exit(answer.code)
