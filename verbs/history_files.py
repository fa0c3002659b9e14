"""Where the history is, and the files it is judged by: options of three verbs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verbs.folders import CHECKOUT

HISTORY = CHECKOUT / "history-data"
KNOWN = CHECKOUT / "configs" / "known-changes.toml"
POLICY = CHECKOUT / "configs" / "gate.toml"
FILES = "Files"

Folder = Annotated[
    Path, typer.Option("--history", rich_help_panel=FILES, help="folder of the history")
]
KnownFile = Annotated[
    Path, typer.Option("--known", rich_help_panel=FILES, help="list of known changes, as TOML")
]
PolicyFile = Annotated[
    Path,
    typer.Option(
        "--policy", rich_help_panel=FILES, help="CI policy: what fails, and thresholds, as TOML"
    ),
]
