"""The verb that turns a session or the history into an exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from errors import UsageError
from verbs.history_files import KNOWN, POLICY, KnownFile, PolicyFile
from verbs.options import Json

app = typer.Typer(add_completion=False)


@app.command("gate")
def gate_verb(
    session: Annotated[
        Path | None, typer.Argument(help="a session folder", metavar="SESSION")
    ] = None,
    history: Annotated[
        Path | None, typer.Option("--history", help="judge the newest night of this history")
    ] = None,
    policy_file: PolicyFile = POLICY,
    known_file: KnownFile = KNOWN,
    night: Annotated[
        str,
        typer.Option(metavar="ID", help="with --history: fail if this night is not in it"),
    ] = "",
    annotate: Annotated[
        bool | None,
        typer.Option(
            "--annotations/--no-annotations",
            help="print GitHub annotations; default: on in GitHub Actions",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Turn a session or the newest night of a history into an exit code by a CI policy."""
    if (session is None) == (history is None):
        raise UsageError(
            "give either SESSION or --history FOLDER", where="gate",
            next_step="./lab.py gate SESSION, or ./lab.py gate --history FOLDER",
        )  # fmt: skip
    from verbs.actions import gate

    raise typer.Exit(
        gate.judge(
            session, history, policy_file, known_file, night, annotate=annotate, as_json=as_json
        )
    )
