"""The verb that says in one line what the lab knows of one patch: for b4 prep --check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verbs.folders import SESSIONS
from verbs.options import OUTPUT
from verbs.output import write_out

app = typer.Typer(add_completion=False)


@app.command("patch")
def patch_verb(
    mail: Annotated[
        Path, typer.Argument(metavar="MAIL", help="a patch as a mail; - reads standard input")
    ] = Path("-"),
    sessions: Annotated[
        Path, typer.Option("--sessions", help="folder with the sessions to search")
    ] = SESSIONS,
    always: Annotated[
        bool,
        typer.Option(
            "--always", rich_help_panel=OUTPUT, help="print a line even if there is no regression"
        ),
    ] = False,
) -> None:
    """Print what past sessions say of one patch, in one line.

    Prints nothing if the patch was measured without a regression. Nothing is built or booted: the
    verdict is from the newest session that measured the patch, alone (--per-patch) or with its
    series. Without such a session the line names the workloads that execute the functions the
    patch changes. The line begins with ERROR: for a regression (exit 1) and for a patch that
    cannot be read (exit 4), as b4 prep --check expects; see docs/command-line.md.
    """
    from verbs.actions import patch

    answer = patch.answer(mail, sessions)
    if always or answer.is_shown:
        write_out(answer.line)
    raise typer.Exit(answer.code)
