"""The verb that lists sessions with their verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verbs.folders import SESSIONS, sessions_folder
from verbs.options import Json
from verbs.output import emit, log, write_out

app = typer.Typer(add_completion=False)


@app.command("sessions")
def sessions_verb(
    folder: Annotated[Path, typer.Argument(help="folder of sessions", metavar="FOLDER")] = SESSIONS,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="list the newest N")] = 10,
    everything: Annotated[bool, typer.Option("--all", help="every session")] = False,
    page: Annotated[
        Path | None,
        typer.Option(metavar="SITE", help="write a page of them, with their reports, here"),
    ] = None,
    as_json: Json = False,
) -> None:
    """List sessions with their verdicts, newest first.

    `report latest` and `report NAME` show one of them; the exit code in each line is that
    of its report. With --page an older page in that folder is replaced.
    """
    from reports.session_list import listed, text_lines
    from results.record import as_json as as_json_values
    from results.sessions import heads_in

    heads = heads_in(sessions_folder(folder))
    limited = heads if everything else heads[:limit]
    if page is not None:
        from pages import gallery

        log(f"{gallery.build(limited, page)} reports: {page / 'index.html'}")
        return
    listed_sessions = [listed(head) for head in limited]
    if as_json:
        emit([as_json_values(each) for each in listed_sessions])
        return
    write_out("\n".join(text_lines(listed_sessions)), end="\n" if listed_sessions else "")
    if not heads:
        log(f"no session in {folder}")
    elif len(listed_sessions) < len(heads):
        log(f"{len(heads) - len(listed_sessions)} older sessions not shown; --all lists them")
