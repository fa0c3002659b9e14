"""Where the history is, and the files it is judged by: options of three verbs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from errors import UsageError
from verbs.folders import CHECKOUT

HISTORY = CHECKOUT / "history-data"
KNOWN = CHECKOUT / "configs" / "known-changes.toml"
POLICY = CHECKOUT / "configs" / "gate.toml"
FILES = "Files"

Folder = Annotated[
    Path, typer.Option("--history", rich_help_panel=FILES, help="folder of the history")
]


def _existing_list(file: Path) -> Path:
    """A list of known changes that was named and is not there would silence nothing, silently."""
    if file != KNOWN and not file.exists():
        raise UsageError(
            "no such file", where=f"--known {file}",
            next_step=f"correct the name, or leave out --known ({KNOWN.name} is read by default)",
        )  # fmt: skip
    return file


KnownFile = Annotated[
    Path,
    typer.Option(
        "--known",
        rich_help_panel=FILES,
        help="list of known changes, as TOML",
        callback=_existing_list,
    ),
]
PolicyFile = Annotated[
    Path,
    typer.Option(
        "--policy", rich_help_panel=FILES, help="CI policy: what fails, and thresholds, as TOML"
    ),
]
