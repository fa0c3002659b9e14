"""The options that verbs share, each declared once, and the folders that they name.

Those of a request are its fields (``runs.request``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from errors import UsageError
from runs import request

CHECKOUT = Path(__file__).resolve().parent.parent
SESSIONS = CHECKOUT / "sessions"


def sessions_folder(folder: Path) -> Path:
    """A folder of sessions; this lab's own may not be there yet.

    Raises:
        UsageError: a folder was named and is not there.
    """
    if folder != SESSIONS and not folder.is_dir():
        raise UsageError("no such folder", where=str(folder), next_step="name a folder of sessions")
    return folder


def session_folder(name: Path) -> Path:
    """The folder of a session by path, by name among this lab's, or ``latest``.

    Raises:
        UsageError: there is no session that could be the newest.
    """
    # Imported here: --help would wait for what reads a manifest.
    from results.session import named_session

    folder = named_session(name, SESSIONS)
    if folder is None:
        raise UsageError("there is no session yet", where=str(SESSIONS), next_step="./lab.py run")
    return folder


WHERE = "Where it runs"
SESSION = "The session"
OUTPUT = "What is printed"

Json = Annotated[bool, typer.Option("--json", rich_help_panel=OUTPUT, help="print JSON")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", rich_help_panel=OUTPUT, help="print the shell commands instead of running them"
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", rich_help_panel=OUTPUT, help="exit 5 if a verdict is inconclusive"),
]
Folder = Annotated[
    Path | None,
    typer.Option("--session", rich_help_panel=SESSION, help="folder for the new session"),
]
Resume = Annotated[
    Path | None,
    typer.Option("--resume", rich_help_panel=SESSION, help="finish the session in this folder"),
]
Session = Annotated[
    Path,
    typer.Argument(
        help="a session's folder, its name, or latest",
        metavar="SESSION",
        callback=session_folder,
        autocompletion=request.sessions,
    ),
]


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """Where kernels are built and guests run; ``store`` is where other hosts find files."""

    executor: Annotated[
        str,
        typer.Option(
            "--executor",
            metavar="WHERE",
            envvar="TWINBOOT_EXECUTOR",
            rich_help_panel=WHERE,
            help="local, dask:// or tls://HOST:PORT, or dask-jobqueue:NAME; see docs/fleet.md",
        ),
    ] = "local"
    store: Annotated[
        str,
        typer.Option(
            "--store",
            metavar="URL",
            envvar="TWINBOOT_STORE",
            rich_help_panel=WHERE,
            help="with --executor: a folder that all hosts share, or an fsspec URL",
        ),
    ] = ""
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            rich_help_panel=WHERE,
            help="allow a dask scheduler without TLS that others can reach (docs/fleet.md)",
        ),
    ] = False
    trusted: Annotated[
        tuple[str, ...],
        typer.Option(
            "--trust-series",
            metavar="NAME",
            rich_help_panel=WHERE,
            help="build this series without a sandbox, though it changes what builds execute",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Booting(ExecutorOptions):
    """As :class:`ExecutorOptions`, for what builds and boots.

    None lets the lab choose how many guests, and have patches that came by mail built in a
    sandbox and no others.
    """

    guests: Annotated[
        int | None,
        typer.Option(
            "--guests",
            min=1,
            rich_help_panel=WHERE,
            help="number of guests that run at the same time",
        ),
    ] = None
    sandbox: Annotated[
        bool | None,
        typer.Option(
            "--sandbox/--no-sandbox",
            rich_help_panel=WHERE,
            help="build patches in a sandbox; default: those from mail only (SECURITY.md)",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Measuring(Booting):
    """As :class:`Booting`, for what begins a session."""

    snapshot: Annotated[
        bool,
        typer.Option(
            "--snapshot/--no-snapshot",
            rich_help_panel=WHERE,
            help="restore each run from a snapshot of the booted guest, or boot it",
        ),
    ] = True
    measure_anyway: Annotated[
        bool,
        typer.Option(
            "--measure-anyway",
            rich_help_panel=WHERE,
            help="measure even if the machine code of the arms is equal",
        ),
    ] = False
    probe: Annotated[
        bool,
        typer.Option(
            "--probe/--no-probe",
            rich_help_panel=WHERE,
            help="count instructions and calls by function",
        ),
    ] = True
