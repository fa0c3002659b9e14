"""The history on disk: one file an entry, so that any number of writers never meet.

    HISTORY/history.json                                       what this folder is
    HISTORY/nights/2026/2026-11-21.EXPERIMENT.GUEST.MODE.ID.json

A name comes from what the entry is of: git merges two branches without a conflict, and a session
that is added twice is one entry.  A file that cannot be read is named, left out, never removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pydantic import ValidationError

from experiment.frozen import first_of
from history.entry import SCHEMA_VERSION, Entry
from results import door
from results.door import StoreError
from text import clean

HEAD = "history.json"
NIGHTS = "nights"
FORMAT = "twinboot history"
SHOWN = 200
# What begins with a dot is another writer's on its way.
ENTRY = re.compile(r"[^.].*\.json", re.DOTALL)


@dataclass(frozen=True)
class UnreadFile:
    """A file that was left out, and why."""

    path: Path
    words: str

    def __str__(self) -> str:
        return f"{self.path}: {self.words}"


@dataclass(frozen=True)
class HistoryContents:
    """What is in a history: entries from the oldest night to the newest, and what is not."""

    entries: tuple[Entry, ...]
    problems: tuple[UnreadFile, ...] = ()


class HistoryStore:
    """One history folder; any number of processes may add to it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, entry: Entry) -> bool:
        """Keep an entry; False where it is there already with as many runs.

        Raises StoreError: the folder is no history, or the night is long after its session.
        """
        if late := _after_its_session(entry):
            raise StoreError(f"entry {entry.id}: {late}; name the night it was measured in")
        # What begins with a dot is another writer's on its way.
        if any(not each.startswith(".") for each in door.names(self.folder)):
            self._check()
        else:
            head = {"format": FORMAT, "schema_version": SCHEMA_VERSION}
            door.write(self.folder, HEAD, f"{json.dumps(head)}\n")
        name = self._name(entry)
        if door.exists(self.folder, name):
            stored = self._parsed(name)
            runs = [
                sum(arm.runs - arm.failed for case in each.cases for arm in case.arms)
                for each in (stored, entry)
                if isinstance(each, Entry)
            ]
            if len(runs) == 2 and runs[0] >= runs[1]:
                return False
        door.write(self.folder, name, f"{entry.model_dump_json()}\n")
        return True

    def read(self) -> HistoryContents:
        """Every entry that can be read.

        Raises StoreError: there is no such folder, or it holds something else than a history.
        """
        if not self.folder.exists():
            # A mistyped name must not look like a history in which nothing happened.
            raise StoreError(
                f"{self.folder}: no history here\n"
                "next: check the name, or begin one with ./lab.py history add SESSION"
            )
        self._check()
        entries: dict[str, Entry] = {}
        problems: list[UnreadFile] = []
        for name in self._night_files(problems):
            stored, path = self._parsed(name), self.folder / name
            if isinstance(stored, UnreadFile):
                problems.append(stored)
            elif stored.id in entries:
                words = f"a second file of entry {stored.id}; left out"
                problems.append(UnreadFile(path, words))
            else:
                entries[stored.id] = stored
        return HistoryContents(
            tuple(sorted(entries.values(), key=lambda e: e.order)), tuple(problems)
        )

    def path(self, entry: Entry) -> Path:
        """Where an entry is kept."""
        return self.folder / self._name(entry)

    def _name(self, entry: Entry) -> str:
        name = ".".join((entry.night, *entry.track, entry.id, "json"))
        return f"{NIGHTS}/{entry.night[:4]}/{name}"

    def _night_files(self, problems: list[UnreadFile]) -> Iterator[str]:
        """The names of what may be an entry; a link in place of a year is a problem."""
        for year in door.names(self.folder, NIGHTS):
            try:
                names = door.names(self.folder, f"{NIGHTS}/{year}")
            except (OSError, StoreError) as error:
                # Beside the years there may be a file of whoever keeps the history.
                if not (self.folder / NIGHTS / year).is_file():
                    problems.append(_unread(self.folder / NIGHTS / year, error))
                continue
            yield from (f"{NIGHTS}/{year}/{name}" for name in names if ENTRY.fullmatch(name))

    def _parsed(self, name: str) -> Entry | UnreadFile:
        path = self.folder / name
        try:
            entry = parse_entry(door.read(self.folder, name))
        except (OSError, StoreError) as error:
            return _unread(path, error)
        except ValueError as error:
            return UnreadFile(path, str(error))
        late = _after_its_session(entry)
        words = f"{late}; take the file out, add its session again"
        return UnreadFile(path, words) if late else entry

    def _check(self) -> None:
        path = self.folder / HEAD
        try:
            head = json.loads(door.read(self.folder, HEAD))
            version = head.get("schema_version")
            readable = head.get("format") == FORMAT and isinstance(version, int) and version > 0
        except FileNotFoundError:
            raise StoreError(
                f"{path}: no such file; this folder is no history (an empty or a new one is fine)"
            ) from None
        except (ValueError, AttributeError, RecursionError):
            readable = False
        if not readable:
            raise StoreError(f"{path}: not the head of a history; restore it or name another")
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"schema_version {version}; this lab reads {SCHEMA_VERSION}",
                where=str(path),
                next_step="use a newer lab",
            )


def parse_entry(data: bytes) -> Entry:
    """An entry from the bytes of its file; raises ValueError: why it is none, in one line."""
    try:
        return Entry.model_validate_json(data)
    except ValidationError as error:
        first = first_of(error)
    try:
        head = json.loads(data)
    except (ValueError, RecursionError):
        torn = f"torn: {len(data)} bytes that are not whole; add its session again"
        raise ValueError(torn) from None
    version = head.get("schema_version") if isinstance(head, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise ValueError(
            f"schema_version {version}; this lab reads {SCHEMA_VERSION}: use a newer lab"
        )
    raise ValueError(clean(f"not an entry: {first}", SHOWN))


def _unread(path: Path, error: OSError | StoreError) -> UnreadFile:
    words = error.what if isinstance(error, StoreError) else f"cannot be read: {error.strerror}"
    return UnreadFile(path, words)


def _after_its_session(entry: Entry) -> str:
    """Why a night cannot be that of its session (no later one would be the newest); else empty."""
    try:
        created = date.fromisoformat(entry.created[:10])
    except ValueError:
        return ""
    days = (date.fromisoformat(entry.night) - created).days
    return f"night {entry.night} is {days} days after its session of {created}" if days > 1 else ""
