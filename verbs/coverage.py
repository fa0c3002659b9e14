"""Verbs for what workloads execute: shown by folder, and recorded from sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from errors import UsageError
from verbs.invocation import emit, log, write_out
from verbs.options import Json, session_folder

app = typer.Typer(add_completion=False)


@app.command("show")
def show_verb(
    folders: Annotated[
        list[str] | None,
        typer.Argument(metavar="FOLDER", help="folders or files of the kernel source, as mm"),
    ] = None,
    unreached: Annotated[
        bool, typer.Option("--unreached", help="list the functions that no workload executes")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show how many of a folder's functions each workload executes.

    Examples:
    ./lab.py coverage show  # the folders of docs/coverage.md
    ./lab.py coverage show mm/vmscan.c --unreached  # what no workload executes
    """
    from dataclasses import asdict

    from experiment.frozen import closest
    from results.coverage import by_folder, places, unreached_in
    from runs.coverage import FOLDERS, GOALS, shipped

    coverage = shipped()
    paths = tuple(folder.rstrip("/") for folder in folders or ()) or FOLDERS
    rows = by_folder(coverage, paths)
    empty = next((row.folder for row in rows if folders and not row.functions), None)
    if empty is not None:
        nearest = closest(empty, places(coverage))
        raise UsageError(
            f"{coverage.release} has no function built in from here", where=empty,
            next_step=f"{f'did you mean {nearest}? ' if nearest else ''}"
            "name a folder or file of the kernel's source, as mm or mm/filemap.c",
        )  # fmt: skip
    if as_json:
        table = [{**asdict(row), "goal_percent": GOALS.get(row.folder)} for row in rows]
        emit({"release": coverage.release, "folders": table})
        return
    log(
        f"functions of {coverage.release} that are built in (without init code), and executed by "
        "a workload"
    )
    workloads = sorted({case.workload for case in coverage.cases})
    width = max(len(row.folder) for row in rows)
    head = f"{'':{width}}  {'built in':>8}  {'executed':>12}  {'goal':>4}  "
    write_out(head + "  ".join(workloads))
    for row in rows:
        share = f"{100 * row.share:.0f} %" if row.functions else "-"
        counts = "  ".join(f"{row.by_workload.get(name, 0):>{len(name)}}" for name in workloads)
        goal = f"{GOALS[row.folder]} %" if row.folder in GOALS else ""
        numbers = f"{row.functions:>8}  {row.executed:>5} {share:>6}  {goal:>4}"
        write_out(f"{row.folder:{width}}  {numbers}  {counts}")
    if unreached:
        for file, function in unreached_in(coverage, paths):
            write_out(f"{file}: {function}")


@app.command("add")
def add_verb(
    sessions: Annotated[
        list[Path], typer.Argument(metavar="SESSION", help="finished sessions of exact mode")
    ],
) -> None:
    """Record what the unpatched kernel of these sessions executed, for `suggest` and `--series`.

    Examples:
    ./lab.py coverage add latest  # the newest session
    ./lab.py coverage add sessions/a sessions/b  # of several experiments
    """
    from host import facts
    from runs import coverage

    table, added = coverage.add([session_folder(name) for name in sessions], facts.cache_folder())
    cases = ", ".join(case.case for case in added.cases)
    log(f"{len(added.calls)} functions of {added.release}; executed by {cases}")
    write_out(table)
