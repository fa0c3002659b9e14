"""Verbs that show a history outside: an exit code by a CI policy, and a site."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from errors import InfraError, UsageError
from text import clean_line
from verbs.history import HISTORY, KNOWN, POLICY, KnownFile, PolicyFile, policy_of
from verbs.invocation import emit, log, write_out
from verbs.options import Json, sessions_folder

if TYPE_CHECKING:
    from analysis.many import SessionComparison
    from history.gate import Gate
    from history.policy import Policy

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
    """Turn a session or the newest night of a history into an exit code by a CI policy.

    Examples:
    ./lab.py gate sessions/NAME  # an exit code for CI
    ./lab.py gate --history history-data --night 2026-01-02  # of the nightly job
    """
    if (session is None) == (history is None):
        raise UsageError(
            "give either SESSION or --history FOLDER", where="gate",
            next_step="./lab.py gate SESSION, or ./lab.py gate --history FOLDER",
        )  # fmt: skip
    raise typer.Exit(
        judge(session, history, policy_file, known_file, night, annotate=annotate, as_json=as_json)
    )


def judge(
    session: Path | None,
    history: Path | None,
    policy_file: Path,
    known_file: Path,
    night: str,
    *,
    annotate: bool | None,
    as_json: bool,
) -> int:
    """Print what the policy says of a session, or else of a history; return the exit code.

    Raises:
        InfraError: the session is not finished, or no session of ``night`` was added.
        UsageError: a history without entries.
    """
    from history.gate import of_session, workflow_commands

    policy = policy_of(policy_file)
    if session is not None:
        gate = of_session(_finished(session), policy)
    elif history is not None:
        gate = _of_history(history, policy, known_file, night)
    if as_json:
        emit({"exit_code": gate.exit_code, "messages": [m._asdict() for m in gate.messages]})
    else:
        for message in gate.messages:
            write_out(clean_line(f"{message.level}: {message.title}: {message.text}"))
        write_out(f"gate: exit {gate.exit_code}")
    annotated = os.environ.get("GITHUB_ACTIONS") == "true" if annotate is None else annotate
    if annotated:
        write_out(workflow_commands(gate.messages), end="")
    return gate.exit_code


def _finished(folder: Path) -> SessionComparison:
    from analysis.comparison import unfinished
    from analysis.many import compare_session
    from reports.headline import pending
    from results.session import open_session

    session = open_session(folder)
    open_runs = unfinished(session)
    if open_runs:
        raise InfraError(
            open_runs, where=str(folder), next_step=f"./lab.py run --resume {folder}"
        )  # fmt: skip
    compared = compare_session(session)
    if pending(compared):
        raise InfraError(
            "its checks are pending", where=str(folder),
            next_step=f"./lab.py run --resume {folder}",
        )  # fmt: skip
    return compared


def _of_history(folder: Path, policy: Policy, known_file: Path, night: str) -> Gate:
    from history.changes import changes_of
    from history.gate import of_history
    from history.known import load_known
    from history.store import HistoryStore

    store, known_changes = HistoryStore(folder), load_known(known_file)
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
    changes = changes_of(read.entries, store.functions, known_changes, policy)
    return of_history(
        read.entries, changes, policy, problems=read.problems, known_changes=known_changes
    )


@app.command("pages")
def pages_verb(
    history: Annotated[
        Path, typer.Argument(help="folder of the history", metavar="HISTORY")
    ] = HISTORY,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="folder of the site; a site in it is replaced")
    ] = Path("site"),
    sessions: Annotated[
        Path | None,
        typer.Option(help="a folder of sessions; their reports are made anew for the site"),
    ] = None,
    known_file: KnownFile = KNOWN,
    policy_file: PolicyFile = POLICY,
) -> None:
    """Write a static web site of the history: trends, nights, and comparisons of any two nights.

    Examples:
    ./lab.py pages  # a site of the history in ./site
    ./lab.py pages history-data -o /srv/www/perf --sessions sessions  # with reports
    """
    from history.known import load_known
    from history.pages import site
    from history.store import HistoryStore
    from history.wording import counted

    if sessions is not None:
        sessions_folder(sessions)
    counts = site.build(
        HistoryStore(history), output, known_changes=load_known(known_file),
        policy=policy_of(policy_file), sessions=sessions,
    )  # fmt: skip
    log(
        f"{counted(counts.tracks, 'track')}, {counted(counts.nights, 'night')}, "
        f"{counted(counts.reports, 'report')}"
    )
    for line in counts.left_out:
        log(f"left out: {line}")
    write_out(counts.folder / site.FRONT)
