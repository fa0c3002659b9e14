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
        Path | None, typer.Option("--history", help="judge the newest nights of this history")
    ] = None,
    policy_file: PolicyFile = POLICY,
    known_file: KnownFile = KNOWN,
    night: Annotated[
        str,
        typer.Option(metavar="ID", help="of --history: the night that has to be in it, by its id"),
    ] = "",
    annotate: Annotated[
        bool | None,
        typer.Option(
            "--annotations/--no-annotations", help="for GitHub; where it runs us, by itself"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Exit 0, 1, 2, 3, 4 or 5 by a policy, and say why."""
    if (session is None) == (history is None):
        raise UsageError(
            "one thing is judged at a time", where="gate",
            next_step="./lab.py gate SESSION, or ./lab.py gate --history FOLDER",
        )  # fmt: skip
    from verbs.actions import gate

    raise typer.Exit(
        gate.judge(
            session, history, policy_file, known_file, night, annotate=annotate, as_json=as_json
        )
    )
