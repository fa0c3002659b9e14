"""The record of a session of native mode: what was booted, and what each boot found.

Its head is written once, and each boot is a line that is appended.  It is no session of exact or
wall mode: none of its numbers is in one verdict with theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from experiment.frozen import first_of
from results import door
from results.door import StoreError
from results.record import FileName, Record

NATIVE, BOOTS = "native.json", "native-boots.jsonl"
# Of ticks and what is counted beside them: a window has thousands, a second a few billions.
MOST = 10**12
Ticks = Annotated[int, Field(ge=1, le=MOST)]
# Ticks of a system call that does nothing, which every boot times.
CROSSING = "crossing"
# What whoever wants another session is told.
IS_NATIVE = "holds a session of native mode, which report and sessions alone read"


class NativeArm(Record):
    """An arm: its patches, by name and by what is in them, and the key of its kernel."""

    name: FileName
    label: str
    patches: tuple[str, ...]
    contents: tuple[str, ...]
    kernel: FileName


class NativeHead(Record):
    """What a session measures; ``phases`` are by case, ``left_out`` cases with why.

    ``orders`` counts the orders in which each kernel's objects are linked; ``rounds`` are the most,
    and ``first`` after how many it is judged first where rounds are added until all is decided.
    ``change`` and ``alpha`` are as in an experiment's thresholds.  With ``same_code`` nothing is
    booted.  ``program`` is the digest of what times the phases; sessions of before have none.
    """

    schema_version: Literal[1] = 1
    name: str
    title: str
    created: str
    source: str
    release: str
    arms: Annotated[tuple[NativeArm, ...], Field(min_length=2)]
    orders: Annotated[int, Field(ge=1, le=1000)]
    phases: Mapping[str, tuple[FileName, ...]]
    left_out: Mapping[str, str]
    rounds: Annotated[int, Field(ge=1, le=1000)]
    first: Annotated[int, Field(ge=1, le=1000)] | None = None
    seed: int
    change: Annotated[float, Field(gt=0, le=1)]
    alpha: Annotated[float, Field(gt=0, le=0.5)]
    equivalence_alpha: Annotated[float, Field(gt=0, lt=0.5)]
    same_code: bool
    program: str = ""
    host: Mapping[str, str]


class NativePhase(Record):
    """A phase of a boot: folios and system calls of a window, ticks of the window of each place."""

    folios: Annotated[int, Field(ge=1, le=MOST)]
    calls: Annotated[int, Field(ge=0, le=MOST)]
    ticks: Annotated[tuple[Ticks, ...], Field(min_length=1)]


class NativeBoot(Record):
    """One boot: its round and arm, the order of its objects, and whether it is the base once more.

    ``hertz`` is ticks in a second.  ``stolen`` and ``foreign`` are shares of the host's CPU time;
    the guest's own, whose processes nobody waits for, may be among the foreign.
    """

    round: int
    arm: str
    order: int
    again: bool = False
    hertz: Annotated[float, Field(ge=1, le=MOST)]
    phases: Mapping[str, NativePhase]
    seconds: float
    stolen: float
    foreign: float


def by_round(
    boots: Iterable[NativeBoot],
) -> dict[int, dict[tuple[str, bool], NativeBoot]]:
    """The boots of each round by arm, and whether it is the base once more.

    A round that was interrupted is made anew from its first boot, so that all are close in time:
    one that is there already begins its round again.
    """
    rounds: dict[int, dict[tuple[str, bool], NativeBoot]] = {}
    for boot in boots:
        of = rounds.setdefault(boot.round, {})
        if (boot.arm, boot.again) in of:
            of.clear()
        of[boot.arm, boot.again] = boot
    return rounds


def whole_rounds(head: NativeHead, boots: Iterable[NativeBoot]) -> list[int]:
    """The rounds in which every arm was booted, and the base twice."""
    made = by_round(boots)
    return [n for n in range(head.rounds) if len(made.get(n, ())) > len(head.arms)]


def is_native(folder: Path) -> bool:
    """Whether a session of native mode lies there."""
    return door.exists(folder, NATIVE)


def begin(folder: Path, head: NativeHead) -> None:
    """Write the head of a new session."""
    door.write(folder, NATIVE, head.model_dump_json(indent=2) + "\n")


def append(folder: Path, boot: NativeBoot) -> None:
    """Add a boot, durably."""
    door.append(folder, BOOTS, boot.model_dump_json().encode() + b"\n")


def head_of(folder: Path) -> NativeHead:
    """What a session measures; StoreError: it is none, or damaged."""
    try:
        return NativeHead.model_validate_json(door.read(folder, NATIVE))
    except (OSError, ValidationError) as error:
        what = first_of(error) if isinstance(error, ValidationError) else error
        raise StoreError(f"{folder / NATIVE}: no session of native mode: {what}") from None


def read(folder: Path) -> tuple[NativeHead, tuple[NativeBoot, ...]]:
    """A session; a line that a killed lab has not finished is passed over.

    Raises StoreError: it is none, or damaged.
    """
    head, place = head_of(folder), folder / BOOTS
    boots: list[NativeBoot] = []
    try:
        text = door.read(folder, BOOTS, door.LINES) if door.exists(folder, BOOTS) else b""
        lines = text.split(b"\n")[:-1]
        for line in lines:
            boots.append(NativeBoot.model_validate_json(line))
    except OSError as error:
        raise StoreError(f"{place}: {error}") from None
    except ValidationError as error:
        raise StoreError(f"{place}:{len(boots) + 1}: no boot: {first_of(error)}") from None
    planned = {CROSSING, *(phase for of in head.phases.values() for phase in of)}
    for boot in boots:
        if missing := planned - boot.phases.keys():
            what = f"round {boot.round} of {boot.arm} has no {', '.join(sorted(missing))}"
            raise StoreError(f"{place}: {what}")
    return head, tuple(boots)
