"""The options that verbs share, each declared once, and the folders that they name.

Those of a request are its fields (``runs.request``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from errors import UsageError
from runs import request
from runs.request import CHECKOUT as CHECKOUT
from runs.request import METHOD, RARELY
from runs.request import SESSIONS as SESSIONS
from runs.request import opt as opt


def sessions_folder(folder: Path) -> Path:
    """A folder of sessions; this lab's own may not be there yet.

    Raises UsageError: a folder was named and is not there.
    """
    if folder != SESSIONS and not folder.is_dir():
        raise UsageError("no such folder", where=str(folder), next_step="name a folder of sessions")
    return folder


def session_folder(name: Path) -> Path:
    """The folder of a session by path, by name among this lab's, or ``latest``.

    Raises UsageError: there is none, or none that could be the newest.
    """
    # Imported here: --help would wait for what reads a manifest.
    from experiment.frozen import likely
    from results.session import named_session

    folder = named_session(name, SESSIONS)
    if folder is None:
        raise UsageError("there is no session yet", where=str(SESSIONS), next_step="./lab.py run")
    if not folder.exists():
        beside = sorted(path.parent.name for path in name.parent.glob(f"*/{request.MANIFEST}"))
        known = beside if len(name.parts) > 1 else request.sessions("")
        raise UsageError(
            "no such session",
            where=str(name),
            next_step=f"the nearest: {likely(name.name, known)}" if known else "./lab.py sessions",
        )
    return folder


def _folders(given: Path | list[Path] | None) -> Path | list[Path] | None:
    return (
        [*map(session_folder, given)]
        if isinstance(given, list)
        else given and session_folder(given)
    )


def session_argument(metavar: str | None = None) -> Any:
    """A session that is there already, or several, as an argument."""
    return typer.Argument(
        help="a session's folder, its name, or latest",
        metavar=metavar,
        callback=_folders,
        autocompletion=request.sessions,
    )


WHERE = "Where it runs"

Json = Annotated[bool, opt("--json", "print JSON")]
Strict = Annotated[bool, opt("--strict", "exit 5 if a verdict is inconclusive")]
Full = Annotated[bool, opt("--full", "print the whole report", RARELY)]
Folder = Annotated[Path | None, opt("--session", "its folder, where it is new")]
Resume = Annotated[
    Path | None,
    opt(
        "--resume SESSION",
        "finish the session that is there",
        callback=_folders,
        autocompletion=request.sessions,
    ),
]


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """Where kernels are built and guests run; ``store`` is where other hosts find files."""

    executor: Annotated[
        str,
        opt(
            "--executor WHERE",
            "local, dask://HOST:PORT or tls://HOST:PORT; see docs/fleet.md",
            WHERE,
            envvar="TWINBOOT_EXECUTOR",
        ),
    ] = "local"
    store: Annotated[
        str,
        opt(
            "--store URL",
            "with --executor: a folder that all hosts share, or an fsspec URL",
            WHERE,
            envvar="TWINBOOT_STORE",
        ),
    ] = ""
    insecure: Annotated[
        bool,
        opt(
            "--insecure",
            "allow a dask scheduler without TLS that others can reach (docs/fleet.md)",
            WHERE,
        ),
    ] = False
    trusted: Annotated[
        tuple[str, ...],
        opt(
            "--trust-series NAME",
            "build this series without a sandbox, though it changes what builds execute",
            WHERE,
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Booting(ExecutorOptions):
    """As :class:`ExecutorOptions`, for what builds and boots.
    None lets the lab choose how many guests, and have patches that came by mail built in a
    sandbox and no others.
    """

    guests: Annotated[
        int | None, opt("--parallel --guests N", "guests that run at the same time", METHOD, min=1)
    ] = None
    sandbox: Annotated[
        bool | None,
        opt(
            "--sandbox/--no-sandbox",
            "build patches in a sandbox; default: those from mail only (SECURITY.md)",
            WHERE,
        ),
    ] = None
    measure_again: Annotated[
        bool,
        opt(
            "--measure-again",
            "boot every run, and compare it with the one kept from an earlier session",
            WHERE,
            envvar="TWINBOOT_MEASURE_AGAIN",
        ),
    ] = False
    kept_at: Annotated[
        str,
        opt(
            "--kept-at FOLDER",
            "a second place of kept runs, which other hosts share and which is trusted: a folder, "
            "or an fsspec URL",
            WHERE,
            envvar="TWINBOOT_KEPT",
        ),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class Measuring(Booting):
    """As :class:`Booting`, for what begins a session."""

    snapshot: Annotated[
        bool,
        opt(
            "--snapshot/--no-snapshot",
            "restore each run from a snapshot of the booted guest, or boot it",
            WHERE,
        ),
    ] = True
    measure_anyway: Annotated[
        bool,
        opt("--measure-anyway", "measure even if the machine code of the arms is equal", WHERE),
    ] = False
    probe: Annotated[
        bool, opt("--probe/--no-probe", "count instructions and calls by function", WHERE)
    ] = True
