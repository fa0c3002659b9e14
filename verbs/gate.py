"""The verb that turns a session or the history into an exit code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from errors import InfraError, UsageError
from history.annotations import workflow_commands
from history.changes import changes_of
from history.gate import Gate, of_history, of_session
from history.known import load_known
from history.policy import Policy, load_policy
from history.store import HistoryStore
from reports.comparison import unfinished
from reports.many import SessionComparison, compare_session
from reports.outcome import pending
from reports.wording import clean
from results.session import open_session
from verbs.asked import Json, emit
from verbs.history import KNOWN, POLICY, KnownFile, PolicyFile

app = typer.Typer()


@app.command("gate")
def gate_verb(
    session: Annotated[
        Path | None, typer.Argument(help="a session folder", metavar="[SESSION]")
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
    policy = load_policy(policy_file)
    if session is not None:
        gate = of_session(_finished(session), policy)
    elif history is not None:
        gate = _of_history(history, policy, known_file, night)
    if as_json:
        emit({"exit_code": gate.exit_code, "messages": [m._asdict() for m in gate.messages]})
    else:
        for message in gate.messages:
            print(clean(f"{message.level}: {message.title}: {message.text}"))
        print(f"gate: exit {gate.exit_code}")
    wanted = os.environ.get("GITHUB_ACTIONS") == "true" if annotate is None else annotate
    if wanted:
        print(workflow_commands(gate.messages), end="")
    raise typer.Exit(gate.exit_code)


def _finished(folder: Path) -> SessionComparison:
    session = open_session(folder)
    open_runs = unfinished(session)
    if open_runs:
        raise InfraError(
            open_runs, where=str(folder), next_step=f"./lab.py run --resume {folder}"
        )  # fmt: skip
    compared = compare_session(session)
    if pending(compared):
        raise InfraError(
            "its correctness checks are pending", where=str(folder),
            next_step=f"./lab.py run --resume {folder}",
        )  # fmt: skip
    return compared


def _of_history(folder: Path, policy: Policy, known_file: Path, night: str) -> Gate:
    store, known = HistoryStore(folder), load_known(known_file)
    read = store.read()
    if not read.entries:
        # A gate that judges nothing must not look like a gate that passed.
        raise UsageError(
            "a history without entries", where=str(folder),
            next_step="./lab.py history add SESSION",
        )  # fmt: skip
    if night and night not in {entry.night_key for entry in read.entries}:
        # The night before would be judged in its place, and pass once more.
        raise InfraError(
            f"no entry of night {night!r}: none of its sessions was added", where=str(folder),
            next_step=f"./lab.py history add SESSION --night {night}",
        )  # fmt: skip
    changes = changes_of(read.entries, store.functions, known, policy)
    return of_history(read.entries, changes, policy, problems=read.problems, known=known)
