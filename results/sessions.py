"""The sessions in a folder, newest first: which are there, and which is the last one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from results import door
from results.door import StoreError
from results.record import Manifest
from results.store import MANIFEST, SessionStore

LATEST = "latest"


class SessionHead(NamedTuple):
    """A session's folder with its manifest, or why that cannot be read."""

    folder: Path
    manifest: Manifest | None
    problem: str = ""

    @property
    def created(self) -> str:
        """When it was begun, in UTC; empty where that cannot be read."""
        return self.manifest.created if self.manifest else ""


def heads_in(folder: Path) -> tuple[SessionHead, ...]:
    """Every session below ``folder``, newest first; those that cannot be read come last.

    A link to a session is none of the folder's, and is shown as what cannot be read.
    """
    heads = [_head(folder, name) for name in door.names(folder)]
    read = [head for head in heads if head is not None]
    return tuple(sorted(read, key=lambda head: (head.created, head.folder.name), reverse=True))


def named_session(name: Path, sessions: Path) -> Path | None:
    """The folder of a session: a path, a name in ``sessions``, or ``latest``, the newest there.

    None where ``latest`` is asked for and there is none.  A path that is there comes first.
    """
    if name.exists() or len(name.parts) != 1:
        return name
    if str(name) == LATEST:
        return next((head.folder for head in heads_in(sessions) if head.manifest), None)
    return sessions / name if (sessions / name).is_dir() else name


def _head(sessions: Path, name: str) -> SessionHead | None:
    folder = sessions / name
    try:
        if not door.exists(sessions, f"{name}/{MANIFEST}"):
            return None
        return SessionHead(folder, SessionStore(folder).manifest())
    except (StoreError, OSError) as error:
        # Beside sessions there may be files of any kind.
        is_one = folder.is_dir()
        return SessionHead(folder, None, str(error).splitlines()[0]) if is_one else None
