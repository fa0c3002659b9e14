"""Verbs that show sessions: listed with their verdicts, or two side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from errors import UsageError
from verbs.invocation import emit, log, write_out
from verbs.options import SESSIONS, Json, Strict, opt, session_argument, sessions_folder

app = typer.Typer(add_completion=False)


@app.command("sessions")
def sessions_verb(
    folder: Annotated[Path, typer.Argument(help="folder of sessions", metavar="FOLDER")] = SESSIONS,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="list the newest N")] = 10,
    everything: Annotated[bool, opt("--all", "every session")] = False,
    as_json: Json = False,
) -> None:
    """List sessions with their verdicts, newest first.

    `report latest` and `report NAME` show one of them; the exit code in each line is that
    of its report.

    Examples:
    ./lab.py sessions  # the newest ten, with verdicts
    ./lab.py sessions --all --json  # all of them, for a script
    """
    from reports.sessions import listed, text_lines
    from results.record import as_json as as_json_values
    from results.session import heads_in

    heads = heads_in(sessions_folder(folder))
    limited = heads if everything else heads[:limit]
    listed_sessions = [listed(head) for head in limited]
    if as_json:
        emit([as_json_values(each) for each in listed_sessions])
        return
    write_out("\n".join(text_lines(listed_sessions)), end="\n" if listed_sessions else "")
    if not heads:
        log(f"no session in {folder}")
    elif len(listed_sessions) < len(heads):
        log(f"{len(heads) - len(listed_sessions)} older sessions not shown; --all lists them")


@app.command("compare")
def compare_verb(
    first: Annotated[Path, session_argument("FIRST")],
    second: Annotated[Path, session_argument("SECOND")],
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Compare two sessions of the same cases, the second to the first.

    Arms of one name are paired seed by seed. All that differs is named: kernels, guest,
    userland, lab. Where more than kernels and their settings differs nothing is judged, and
    the exit code is 2; else it is the verdict's, as that of report.

    Examples:
    ./lab.py compare filemap-v4-20260101-120000 latest  # two runs of one case
    ./lab.py compare A B --strict  # exit 5 if inconclusive
    """
    from analysis.comparison import unfinished
    from analysis.two_sessions import compare_two
    from reports.headline import exit_code
    from reports.sessions import side_by_side
    from results.record import as_json as as_json_values
    from results.session import open_session

    sessions = [open_session(folder) for folder in (first, second)]
    for folder, session in zip((first, second), sessions, strict=True):
        if open_runs := unfinished(session):
            raise UsageError(
                open_runs, where=str(folder), next_step=f"./lab.py run --resume {folder}"
            )
    pair = compare_two(*sessions)
    if as_json:
        emit(as_json_values(pair))
    else:
        write_out(side_by_side(pair), end="")
    if pair.obstacles:
        raise UsageError(
            "the two sessions are not comparable",
            where=f"{first}, {second}",
            next_step="measure both with the same guest, userland and lab (./lab.py repro carries "
            "the root of a session to another host); or use history, which keeps a baseline "
            "across such changes",
        )
    raise typer.Exit(exit_code(pair.primary, (), strict=strict))
