"""A stable label for a lock class: pure.

The kernel prints a class by the expression that initialised it and tells classes of
one expression apart by ``#N``, which depends on the order of first use.  So a class is
joined over the runs of one kernel by the address of its key, and named by the
functions that waited for it, which kernels of two arms share.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from results.locks import LockClass
from results.profile import UNKNOWN, LockUse
from results.record import Record

FILE = Path(__file__).parent / "lock_names.toml"
MODES = {"-R": " (read)", "-W": " (write)"}
PRINTED = re.compile(r"^(?P<name>.*?)(?:#\d+)?(?:/\d+)?(?P<mode>-[RW])?$")
Instances = Literal["one", "many", "cpu", "none", "unknown"]
By = Literal["name", "sites", "use", "number"]
TakerBy = Literal["variable", "takers", "member", "taker"]
# How many times as often as every other class of its name a class is taken to be the known one.
FAR_MORE = 10


class KnownLock(Record):
    """One entry of the data file; ``taken_in`` are functions that take no other spin lock,
    or no other lock that is slept for.
    """

    label: str
    name: str
    sites: tuple[str, ...] = ()
    taken_in: tuple[str, ...] = ()
    sleeps: bool = False
    instances: Instances


class ClassId(NamedTuple):
    """What one class of one kernel is told apart by: its key, else its printed name."""

    key: str
    mode: str


class Identity(NamedTuple):
    """Label of a class; ``by`` says what it rests on.

    ``name``: no other class has this name.  ``sites``: the functions that waited or
    held.  ``use``: nobody waited for any class of this name, and this one is taken
    :data:`FAR_MORE` times as often as every other.  ``number``: nothing but the printed
    ``#N``, which may differ between kernels.  ``name`` is the printed name with its mode,
    without number and site.
    """

    label: str
    by: By
    instances: Instances
    name: str


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
            takers.append(taker._replace(label=taker.label + MODES["-R"] * site.shared))
        return tuple(takers)

    def _first(self, use: LockUse) -> str:
        functions = {_plain(site.function) for site in use.sites} - {UNKNOWN} or {UNKNOWN}
        return min(functions, key=lambda name: (-self.taken.get((name, use.sleeps), 0), name))


def split_name(name: str) -> tuple[str, str]:
    """A printed class name as (name without number and subclass, mode)."""
    match = PRINTED.match(name)
    return (match["name"], match["mode"] or "") if match else (name, "")


def class_id(lock: LockClass) -> ClassId:
    """The class of a row within one kernel."""
    return ClassId(lock.key or lock.name, split_name(lock.name)[1])


def _sites(classes: Iterable[LockClass]) -> list[str]:
    """Functions at which the classes were contended, the most frequent first."""
    counts: dict[str, int] = {}
    for lock in classes:
        for site in (*lock.waiters, *lock.holders):
            counts[site.function] = counts.get(site.function, 0) + site.count
    return sorted(counts, key=lambda function: (-counts[function], function))


def identify(classes: Iterable[LockClass]) -> dict[ClassId, Identity]:
    """Label every class of one kernel from its rows in all runs of that kernel.

    Rows of guests of several vCPUs know the sites, rows of one vCPU do not; their key
    joins them.  Classes with equal labels are one lock to a reader (all page-table
    locks, say).
    """
    by_id: dict[ClassId, list[LockClass]] = {}
    for lock in classes:
        by_id.setdefault(class_id(lock), []).append(lock)
    # Sites of both modes of a reader-writer lock name one class.
    by_key: dict[str, list[LockClass]] = {}
    for identity, rows in by_id.items():
        by_key.setdefault(identity.key, []).extend(rows)
    acquired: dict[str, int] = {}
    for identity, rows in by_id.items():
        acquisitions = sum(row.acquisitions for row in rows)
        acquired[identity.key] = acquired.get(identity.key, 0) + acquisitions
    sites = {key: _sites(rows) for key, rows in by_key.items()}
    names = {identity: min(row.name for row in rows) for identity, rows in by_id.items()}
    namesakes: dict[str, set[str]] = {}
    for identity, name in names.items():
        namesakes.setdefault(split_name(name)[0], set()).add(identity.key)

    def most_taken(key: str, same: set[str]) -> bool:
        others = [acquired[other] for other in same if other != key]
        unseen = not any(sites[other] for other in same)
        return unseen and acquired[key] >= FAR_MORE * max(others, default=0)

    identities = {}
    for identity, name in names.items():
        same = namesakes[split_name(name)[0]]
        identities[identity] = _identity(
            name,
            sites[identity.key],
            alone=len(same) == 1,
            most_taken=most_taken(identity.key, same),
        )
    return identities


def agreed(
    kernels: Mapping[str, Mapping[ClassId, Identity]],
) -> dict[str, Mapping[ClassId, Identity]]:
    """Identities by kernel, with a name's classes put together where kernels disagree.

    On one kernel somebody waited for a class and so named it, on another nobody did:
    two rows, each of one arm, would be a difference that is none.
    """
    labels: dict[str, dict[str, set[str]]] = {}
    for kernel, identities in kernels.items():
        for identity in identities.values():
            names = labels.setdefault(identity.name, {})
            names.setdefault(kernel, set()).add(identity.label)
    apart = {
        name
        for name, by_kernel in labels.items()
        if any(by_kernel.get(kernel) != next(iter(by_kernel.values())) for kernel in kernels)
    }
    return {
        kernel: {
            key: Identity(each.name, "name", "unknown", each.name)
            if each.name in apart and each.by in ("sites", "number") and each.instances == "unknown"
            else each
            for key, each in identities.items()
        }
        for kernel, identities in kernels.items()
    }


def _identity(full: str, sites: list[str], *, alone: bool, most_taken: bool) -> Identity:
    name, mode = split_name(full)
    suffix = MODES.get(mode, "")
    for entry in catalogue():
        if entry.name == name and (not entry.sites or set(sites) & set(entry.sites)):
            by: By = "sites" if entry.sites else "name"
            return Identity(entry.label + suffix, by, entry.instances, name + suffix)
        if entry.name == name and most_taken:
            return Identity(entry.label + suffix, "use", entry.instances, name + suffix)
    if alone:
        return Identity(name + suffix, "name", "unknown", name + suffix)
    if sites:
        label = f"{name} at {sites[0]}{suffix}"
        return Identity(label, "sites", "unknown", name + suffix)
    return Identity(full.removesuffix(mode) + suffix, "number", "unknown", name + suffix)
