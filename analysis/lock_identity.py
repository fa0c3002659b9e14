"""Names of locks by who takes them, the same in all runs: pure."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from results.profile import UNKNOWN, LockUse
from results.record import Record

FILE = Path(__file__).parent / "lock_names.toml"
READ = " (read)"
Instances = Literal["one", "many", "cpu", "unknown"]
TakerBy = Literal["variable", "takers", "member", "taker"]


class KnownLock(Record):
    """One entry of the data file; ``taken_in`` are functions that take no other spin lock,
    or no other lock that is slept for.
    """

    label: str
    taken_in: tuple[str, ...]
    sleeps: bool = False
    instances: Instances


@functools.cache
def catalogue() -> tuple[KnownLock, ...]:
    """The well-known locks in the order of the data file."""
    with FILE.open("rb") as source:
        rows = tomllib.load(source)["locks"]
    return tuple(KnownLock.model_validate(row) for row in rows)


class Taker(NamedTuple):
    """What a function took; ``by`` says what the label rests on.

    ``variable``: the lock is in a variable of the kernel.  ``takers``: a function that
    takes it is known to take this lock.  ``member``: the lock is in an object whose type is
    known.  ``taker``: nothing is known but who takes it most.
    """

    label: str
    by: TakerBy
    instances: Instances
    sleeps: bool


@functools.cache
def _known_takers() -> dict[tuple[str, bool], KnownLock]:
    return {(function, entry.sleeps): entry
            for entry in catalogue() for function in entry.taken_in}  # fmt: skip


def _plain(function: str) -> str:
    """A function without its file and what the compiler put behind its name."""
    return function.partition("@")[0].partition(".")[0]


class TakerNames:
    """Names of locks that are known by who takes them, the same in all runs they are made of.

    A type's members cannot be told from an address, so a known function names the lock that it
    takes, and with it whatever else took the same one.  Memory is used again: where two
    known functions disagree, each has its own, and the others are counted for the one
    that took it most.
    """

    def __init__(self, uses: Iterable[LockUse]) -> None:
        self.taken: dict[tuple[str, bool], int] = {}
        for use in uses:
            for site in use.sites:
                key = (_plain(site.function), use.sleeps)
                self.taken[key] = self.taken.get(key, 0) + site.taken

    def of(self, use: LockUse) -> tuple[Taker, ...]:
        """What each site of a lock took, in their order."""
        entries = [_known_takers().get((_plain(s.function), use.sleeps)) for s in use.sites]
        by_label: dict[str, int] = {}
        for site, entry in zip(use.sites, entries, strict=True):
            if entry:
                by_label[entry.label] = by_label.get(entry.label, 0) + site.taken
        most = max(by_label, key=lambda label: (by_label[label], label), default="")
        common = next((entry for entry in entries if entry and entry.label == most), None)
        takers = []
        for site, entry in zip(use.sites, entries, strict=True):
            named_by = entry or common
            if use.symbol:
                taker = Taker(use.symbol, "variable", "one", use.sleeps)
            elif named_by:
                taker = Taker(named_by.label, "takers", named_by.instances, use.sleeps)
            elif use.member:
                taker = Taker(use.member, "member", "unknown", use.sleeps)
            else:
                taker = Taker(f"taken in {self._first(use)}", "taker", "unknown", use.sleeps)
            takers.append(taker._replace(label=taker.label + READ * site.shared))
        return tuple(takers)

    def _first(self, use: LockUse) -> str:
        functions = {_plain(site.function) for site in use.sites} - {UNKNOWN} or {UNKNOWN}
        return min(functions, key=lambda name: (-self.taken.get((name, use.sleeps), 0), name))
