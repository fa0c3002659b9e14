"""Where this checkout is and where its sessions lie, and a session that is named there."""

from __future__ import annotations

from pathlib import Path

from errors import UsageError

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
    from results.sessions import named_session

    folder = named_session(name, SESSIONS)
    if folder is None:
        raise UsageError("there is no session yet", where=str(SESSIONS), next_step="./lab.py run")
    return folder
