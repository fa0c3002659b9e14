"""The verb that begins a workload, from files of ``workloads/skeleton/``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from errors import UsageError
from verbs.invocation import log, write_out
from verbs.options import CHECKOUT

app = typer.Typer(add_completion=False)


@app.command("new")
def new_verb(
    name: Annotated[str, typer.Argument(metavar="NAME", help="of the workload, and of its files")],
) -> None:
    """Write a workload that runs: its catalogue file, a program of one operation, and a test.

    Nothing that exists is overwritten. Add operations to the program and a phase for each to the
    catalogue file; what comes then is printed (docs/adding-a-workload.md).

    Examples:
    ./lab.py dev workload new sockets  # workloads/catalogue/sockets.toml and more
    ./lab.py list  # the workloads that are there
    """
    new(name)


SKELETON = "workloads/skeleton"
NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
# Where each file of the skeleton goes.
PLACES = {
    "catalogue.toml": "workloads/catalogue/{name}.toml",
    "program.c": "workloads/programs/{program}.c",
    "test.py.in": "tests/workloads/test_{program}.py",
}


def new(name: str, checkout: Path = CHECKOUT) -> None:
    """Write the files of a workload below ``checkout``, and print them.

    Raises UsageError: no name of a workload, or a file is there already; nothing is written then.
    """
    if not NAME.fullmatch(name):
        step = "use small letters, digits and dashes, at most 40, a letter first"
        raise UsageError(f"no name of a workload: {name}", where="dev workload new", next_step=step)
    program = name.replace("-", "_")
    places = {
        source: checkout / place.format(name=name, program=program)
        for source, place in PLACES.items()
    }
    for place in places.values():
        if place.exists():
            step = "choose another name, or edit that workload"
            raise UsageError("is there already", where=str(place), next_step=step)
    for source, place in places.items():
        text = (checkout / SKELETON / source).read_text(encoding="utf-8")
        place.write_text(text.replace("NAME", name).replace("PROGRAM", program), encoding="utf-8")
        write_out(place.relative_to(checkout))
    log(
        f"next: give configs/auto.toml a [[case]] of it, then ./lab.py run --series "
        f"configs/series/noop --workloads {name} --measure-anyway (docs/adding-a-workload.md)"
    )
