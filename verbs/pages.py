"""The verb that makes a site of the history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verbs.folders import sessions_folder
from verbs.history_files import HISTORY, KNOWN, POLICY, KnownFile, PolicyFile
from verbs.output import log, write_out

app = typer.Typer(add_completion=False)


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
    """Write a static web site of the history: trends, nights, and comparisons of any two nights."""
    from history.known import load_known
    from history.store import HistoryStore
    from history.wording import counted
    from pages import site
    from verbs.actions.policy import policy_of

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
