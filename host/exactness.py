"""Whether a QEMU's guests are exact: releases that were run, and trials of binaries on this host.

The table that ships (``host/qemu.txt``) is by release; a trial (``runs.exactness``) is of one
binary under one ``guests/preload.c``, and counts for more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from filelock import FileLock
from pydantic import TypeAdapter, ValidationError

from errors import InfraError
from files import sha256_of, write_atomically
from host.facts import CHECKOUT, TOOLS, tool_version, version_numbers
from host.packages import locate, table

QEMU = "qemu-system-x86_64"
TABLE = Path(__file__).with_name("qemu.txt")
# What takes the host's clock and its scheduling out of a guest: another one, another answer.
PRELOAD = CHECKOUT / "guests" / "preload.c"
TRIALS = "exactness.json"
RELEASE_NUMBERS = 2
SHOWN = 12

Status = Literal["known", "exact", "inexact", "untried"]


@dataclass(frozen=True)
class KnownRelease:
    """A release that was run: its program, its number, the numbers of vCPUs, and what."""

    program: str
    release: str
    vcpus: str
    what: str


@dataclass(frozen=True)
class Trial:
    """What came out of boots under load: when (UTC), of which binary, what differed."""

    version: str
    binary_sha256: str
    preload_sha256: str
    date: str
    vcpus: tuple[int, ...]
    differences: tuple[str, ...] = ()


KEPT = TypeAdapter(dict[str, Trial])


@dataclass(frozen=True)
class QemuStanding:
    """How far a QEMU can be trusted: ``text`` is one line for people."""

    status: Status
    version: str
    binary_sha256: str
    text: str


def shipped(text: str = "") -> tuple[KnownRelease, ...]:
    """The table, ``program | release | vCPUs | what``; InfraError: it is malformed."""
    rows = table(text or TABLE.read_text(), where=TABLE.name, fields=4)
    return tuple(KnownRelease(*fields) for _, fields in rows)


def identity(program: str = QEMU) -> tuple[str, str, str]:
    """Version of a QEMU, SHA-256 of it and of what is loaded into it; InfraError: no program."""
    path = locate(program)
    if path is None:
        raise InfraError("program not found", where=program, next_step="./lab.py doctor")
    qemu = next(tool for tool in TOOLS if tool.name == "qemu")
    version = tool_version(replace(qemu, argv=(program, *qemu.argv[1:])))
    return version, sha256_of(path), sha256_of(PRELOAD)


def standing(cache: Path, program: str = QEMU) -> QemuStanding:
    """What is known of the QEMU at hand, by no boot; InfraError: no program, or a bad table."""
    version, binary, preload = identity(program)
    return judged(program, version, binary, shipped(), trials(cache).get(_key(binary, preload)))


def judged(
    program: str, version: str, binary: str, known: tuple[KnownRelease, ...], trial: Trial | None
) -> QemuStanding:
    """The standing of a binary by its trial, else by the release it is of."""
    name = f"QEMU {version}"
    own = f"{name}, binary {binary[:SHOWN]}"
    release = (program, version_numbers(version)[:RELEASE_NUMBERS])
    same = [each for each in known if release == (each.program, version_numbers(each.release))]
    status: Status
    if trial is not None and trial.differences:
        first, more = trial.differences[0], len(trial.differences) - 1
        also = f" (and {more} more)" if more else ""
        status, text = "inexact", f"{own}: boots differed on {trial.date}: {first}{also}"
    elif trial is not None:
        shapes = ", ".join(map(str, trial.vcpus))
        status, text = "exact", f"{own}: tried here on {trial.date}, exact with {shapes} vCPUs"
    elif same:
        status, text = "known", f"{name}: this release was run with {same[0].vcpus} vCPUs"
    else:
        status, text = "untried", f"{own}: this release was never tried, here or elsewhere"
    return QemuStanding(status, version, binary, text)


def trials(cache: Path) -> Mapping[str, Trial]:
    """Every trial that is remembered, by what it is of; none where the file cannot be read."""
    try:
        return KEPT.validate_json((cache / TRIALS).read_bytes())
    except (OSError, ValidationError):
        return {}


def remember(cache: Path, trial: Trial) -> None:
    """Keep a trial, in place of an older one of the same binary."""
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / TRIALS
    with FileLock(path.with_suffix(".lock")):
        every = {**trials(cache), _key(trial.binary_sha256, trial.preload_sha256): trial}
        write_atomically(path, KEPT.dump_json(every, indent=1).decode())


def require_exact(qemu: QemuStanding) -> None:
    """Refuse a QEMU whose boots differed here; InfraError: names the first difference."""
    if qemu.status == "inexact":
        raise InfraError(
            qemu.text,
            where="exact mode",
            next_step="use another QEMU (docs/systems.md), or try it again: "
            "./lab.py doctor --exact",
        )


def _key(binary: str, preload: str) -> str:
    return f"{binary}-{preload[:SHOWN]}"
