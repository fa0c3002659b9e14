"""Verbs for the programs of guests: which they are, and those of another host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from errors import UsageError
from verbs.options import Json
from verbs.output import emit, log, write_out

app = typer.Typer(add_completion=False)


@app.command("show")
def show_verb(as_json: Json = False) -> None:
    """Show the programs that guests run, with versions and checksums."""
    from guests import userland
    from host import facts
    from results.record import as_json as as_json_values

    cache = facts.cache_folder()
    record = userland.current(cache)
    imported = userland.in_use(cache) is not None
    if as_json:
        emit({"key": record.key, "imported": imported, **as_json_values(record)})
        return
    write_out(f"{'imported' if imported else 'this host'}: {userland.words(record)}")


@app.command("export")
def export_verb(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the archive to write")],
) -> None:
    """Write the programs that guests run into one archive, and print its key."""
    from guests import userland
    from host import facts
    from runs.userland import export

    record = export(facts.cache_folder(), file)
    log(userland.words(record))
    write_out(record.key)


@app.command("import")
def import_verb(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="the archive that export wrote on the other host")
    ],
    key: Annotated[
        str, typer.Option(help="accept only the archive with this key, as export printed it")
    ] = "",
) -> None:
    """Use the guest programs of another host, from an exported archive."""
    from guests import userland
    from host import facts
    from runs.userland import import_

    if not file.is_file():
        raise UsageError("no such file", where=str(file), next_step="name an exported userland")
    log(userland.words(import_(file, facts.cache_folder(), key=key)))
    log("guests get these from now on; ./lab.py userland forget gives them this host's again")


@app.command("forget")
def forget_verb() -> None:
    """Stop using imported guest programs, and use this host's own again."""
    from guests import userland
    from host import facts

    userland.use(facts.cache_folder(), "")
