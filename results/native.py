"""The record of a session of native mode: what was booted, and what each boot found.

Its head is written once, and each boot is a line that is appended.  It is no session of exact or
wall mode: none of its numbers is in one verdict with theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from results import door
from results.door import StoreError
from results.record import Record

NATIVE, BOOTS = "native.json", "native-boots.jsonl"
# What whoever wants another session is told.
IS_NATIVE = "holds a session of native mode, which report and sessions alone read"


class NativeArm(Record):
    """An arm: its patches, by name and by what is in them, and the key of its kernel."""

    name: str
    label: str
    patches: tuple[str, ...]
    contents: tuple[str, ...]
    kernel: str


class NativeHead(Record):
    """What a session measures; ``phases`` are by case, ``left_out`` cases with why.

    ``orders`` counts the orders in which each kernel's objects are linked; ``change`` and ``alpha``
    are as in an experiment's thresholds.  With ``same_code`` nothing is booted.
    """

    schema_version: Literal[1] = 1
    name: str
    title: str
    created: str
    source: str
    release: str
    arms: tuple[NativeArm, ...]
    orders: int
    phases: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, str]
    rounds: int
    seed: int
    change: float
    alpha: float
    equivalence_alpha: float
    same_code: bool
    host: Mapping[str, str]


class NativePhase(Record):
    """A phase of a boot: folios and system calls of a window, ticks of the window of each place."""

    folios: int
    calls: int
    ticks: tuple[int, ...]


class NativeBoot(Record):
    """One boot: its round and arm, the order of its objects, and whether it is the base once more.

    ``hertz`` is ticks in a second.  ``stolen`` and ``foreign`` are shares of the host's CPU time;
    the guest's own, whose processes nobody waits for, may be among the foreign.
    """

    round: int
    arm: str
    order: int
    again: bool = False
    hertz: float
    phases: Mapping[str, NativePhase]
    seconds: float
    stolen: float
    foreign: float


def is_native(folder: Path) -> bool:
    """Whether a session of native mode lies there."""
    return door.exists(folder, NATIVE)


def begin(folder: Path, head: NativeHead) -> None:
    """Write the head of a new session."""
    door.write(folder, NATIVE, head.model_dump_json(indent=2) + "\n")


def append(folder: Path, boot: NativeBoot) -> None:
    """Add a boot, durably."""
    door.append(folder, BOOTS, boot.model_dump_json().encode() + b"\n")


def read(folder: Path) -> tuple[NativeHead, tuple[NativeBoot, ...]]:
    """A session; a line that a killed lab has not finished is passed over.

    Raises StoreError: it is none, or damaged.
    """
    try:
        head = NativeHead.model_validate_json(door.read(folder, NATIVE))
        text = door.read(folder, BOOTS, door.LINES) if door.exists(folder, BOOTS) else b""
        lines = text.split(b"\n")[:-1]
        return head, tuple(NativeBoot.model_validate_json(line) for line in lines)
    except (OSError, ValidationError) as error:
        raise StoreError(f"{folder / NATIVE}: no session of native mode: {error}") from None
