"""What a shell offers for the values of options; reads names of files and imports no model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
EXPERIMENTS = CHECKOUT / "configs" / "experiments"
MACHINES = CHECKOUT / "configs" / "machines"
WORKLOADS = CHECKOUT / "workloads" / "catalogue"
SESSIONS = CHECKOUT / "sessions"
MANIFEST = "manifest.json"
MODES = ("exact", "wall")


def experiments(incomplete: str) -> list[str]:
    """Names of shipped experiments that begin so."""
    return _beginning(incomplete, (path.stem for path in sorted(EXPERIMENTS.glob("*.toml"))))


def modes(incomplete: str) -> list[str]:
    """The ways to measure that begin so."""
    return _beginning(incomplete, MODES)


def machines(incomplete: str) -> list[str]:
    """Names of machines whose caches are modelled, and ``none``, that begin so."""
    return _beginning(
        incomplete, ["none", *(path.stem for path in sorted(MACHINES.glob("*.toml")))]
    )


def workloads(incomplete: str) -> list[str]:
    """Names of workloads; with commas the last of them is completed."""
    before, comma, last = incomplete.rpartition(",")
    names = (path.stem for path in sorted(WORKLOADS.glob("*.toml")))
    return [f"{before}{comma}{name}" for name in _beginning(last, names)]


def sessions(incomplete: str) -> list[str]:
    """``latest``, and names of this lab's sessions, newest first."""
    heads = sorted(
        SESSIONS.glob(f"*/{MANIFEST}"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    return _beginning(incomplete, ["latest", *(path.parent.name for path in heads)])


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
