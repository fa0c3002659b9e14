"""The verb that begins a workload: its files, which work as they are."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.callback()
def of_workloads() -> None:
    """Workloads of the catalogue."""


@app.command("new")
def new_verb(
    name: Annotated[str, typer.Argument(metavar="NAME", help="of the workload, and of its files")],
) -> None:
    """Write a workload that runs: its catalogue file, a program of one operation, and a test.

    Nothing that exists is overwritten. Add operations to the program and a phase for each to the
    catalogue file; what comes then is printed (docs/adding-a-workload.md).
    """
    from verbs.actions import workload

    workload.new(name)
