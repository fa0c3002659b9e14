"""The verb that measures this host, and writes it as a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runs import completion
from verbs.output import write_out

app = typer.Typer(add_completion=False)


@app.command("calibrate")
def calibrate_verb(
    machine: Annotated[
        str, typer.Option("--name", help="what the machine is called: for --memory NAME")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="write NAME.toml here, not to configs/machines"),
    ] = None,
    like: Annotated[
        str,
        typer.Option(
            "--like",
            metavar="MACHINE",
            help="whose numbers stand where this host gives none; by the CPU's maker if not given",
            autocompletion=completion.machines,
        ),
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="replace the file of that name")] = False,
) -> None:
    """Measure this host's caches, page walks and lines between CPUs, and write it as a machine."""
    from host import facts
    from verbs.actions.calibrate import calibrate, file_of

    file = file_of(machine, out, force=force)
    calibrate(machine, file, like=like, cache=facts.cache_folder())
    write_out(file)
