"""``/proc/lock_stat`` and ``/proc/lockdep``: pure, from their text to lock classes.

The formats are those of kernel/locking/lockdep_proc.c.  A class has a row, or one
for writers and one for readers; a contended class then has its contention sites:
who waited, and, behind a second rule, who held the lock meanwhile.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from results.locks import CallSite, LockClass
from workloads.parse import ParseError

HEADER = re.compile(r"lock_stat version \d+\.\d+")
# One column a quantity; which ones there are depends on the version.
NEEDED = (
    "contentions", "waittime-max", "waittime-total",
    "acquisitions", "holdtime-max", "holdtime-total",
)  # fmt: skip
SITE = re.compile(r"\s*(\S.*?) +(\d{1,20}) +\[<[0-9a-fA-Fx]+>\] (\S+)(?: \[\S+\])?\s*")
SYMBOL = re.compile(r"([^+]+)\+0x([0-9a-f]{1,16})/0x[0-9a-f]+")
RULE = re.compile(r"\s*(-+|\.+)\s*")
KEY = re.compile(r"([0-9a-f]{16})(?: OPS: *\d+)?(?: FD: *\d+ BD: *\d+ \S*)?: (.+)")
NAMED = re.compile(r"(.*?)(?:#(\d+))?(?:/(\d+))?")
NAME_ROOM = 38


@dataclass
class _Open:
    """A class whose sites are still being read: its rows, waiters and holders."""

    name: str = ""
    rows: list[dict[str, str]] = field(default_factory=list)
    sites: tuple[list[CallSite], list[CallSite]] = field(default_factory=lambda: ([], []))
    rules: int = 0


def classes(lock_stat: str, lockdep: str) -> tuple[LockClass, ...]:
    """The lock classes of one observation, most contended first, then by name.

    Readers and writers of a class are two rows (``-R``, ``-W``), each with all the
    sites, since the kernel does not tell them apart.  A key is empty where several
    classes are printed under one name (the kernel cuts names and numbers short).

    Raises:
        ParseError: not the kernel's format, cut short, or lockdep had switched itself off.
    """
    keys = _keys(lockdep)
    locks = [
        _lock_class(row, group, keys) for group in _groups(lock_stat.splitlines())
        for row in group.rows
    ]  # fmt: skip
    return tuple(
        sorted(locks, key=lambda lock: (-lock.contentions, lock.name, lock.key, -lock.acquisitions))
    )


def _groups(lines: list[str]) -> list[_Open]:
    if not lines or not HEADER.fullmatch(lines[0].strip()):
        raise ParseError(f"no lock_stat header: {lines[0][:80]!r}" if lines else "empty")
    columns: list[str] = []
    groups: list[_Open] = []
    for line in lines[1:]:
        if line.startswith("*WARNING*"):
            raise ParseError("lockdep switched itself off before the end; the console says why")
        if line.lstrip().startswith("class name "):
            columns = line.split()[2:]
            missing = [name for name in NEEDED if name not in columns]
            if missing:
                raise ParseError(f"no column {', '.join(missing)}")
        elif RULE.fullmatch(line):
            if groups and line.strip()[0] == "-":
                groups[-1].rules += 1
        elif line.strip():
            _line(line, columns, groups)
    if not columns:
        raise ParseError("no line with the columns' names")
    return groups


def _line(line: str, columns: list[str], groups: list[_Open]) -> None:
    values = line.split()[-len(columns) :] if columns else []
    head = line.rsplit(maxsplit=len(columns))[0] if len(values) == len(columns) else ""
    if columns and head.endswith(":") and all(map(_is_number, values)):
        printed = head.strip().removesuffix(":")
        name = re.sub("-[RW]$", "", printed)
        if not groups or groups[-1].name != name or groups[-1].rules or not _pair(groups[-1]):
            groups.append(_Open(name))
        groups[-1].rows.append(dict(zip(columns, values, strict=True)) | {"": printed})
        return
    site = SITE.fullmatch(line)
    if site is None or not groups or groups[-1].rules not in (1, 2):
        raise ParseError(f"neither a class nor a site: {line.strip()[:80]!r}")
    symbol = SYMBOL.fullmatch(site[3])
    function, offset = (symbol[1], int(symbol[2], 16)) if symbol else (site[3], 0)
    groups[-1].sites[groups[-1].rules - 1].append(
        CallSite(function=function, offset=offset, count=int(site[2]))
    )


def _pair(group: _Open) -> bool:
    """Whether the group still waits for the readers' row of its writers."""
    return len(group.rows) == 1 and group.rows[0][""].endswith("-W")


def _lock_class(row: dict[str, str], group: _Open, keys: dict[str, str]) -> LockClass:
    return LockClass(
        name=row[""],
        key=keys.get(group.name, ""),
        contentions=int(row["contentions"]),
        wait_total_ns=_ns(row["waittime-total"]),
        wait_max_ns=_ns(row["waittime-max"]),
        acquisitions=int(row["acquisitions"]),
        hold_total_ns=_ns(row["holdtime-total"]),
        hold_max_ns=_ns(row["holdtime-max"]),
        waiters=tuple(group.sites[0]),
        holders=tuple(group.sites[1]),
    )


def _keys(lockdep: str) -> dict[str, str]:
    """Key by name as lock_stat prints it; names that several classes share are left out."""
    lines = [line for line in lockdep.splitlines() if line.strip()]
    if not lines or lines[0] != "all lock classes:":
        raise ParseError("lockdep: no list of lock classes")
    by_name: dict[str, set[str]] = defaultdict(set)
    # Lines with an arrow are the dependencies that PROVE_LOCKING adds.
    for line in (line for line in lines[1:] if not line.startswith(" ->")):
        match = KEY.fullmatch(line)
        if match is None:
            raise ParseError(f"lockdep: no lock class: {line[:80]!r}")
        by_name[_printed(match[2])].add(match[1])
    return {name: next(iter(keys)) for name, keys in by_name.items() if len(keys) == 1}


def _printed(name: str) -> str:
    """A class name as ``/proc/lock_stat`` cuts it: 37 characters, one digit a number."""
    base, version, subclass = NAMED.fullmatch(name).groups()  # type: ignore[union-attr]
    room = NAME_ROOM - 2 * (version is not None) - 2 * (subclass is not None)
    version_printed = f"#{version[0]}" if version else ""
    subclass_printed = f"/{subclass[0]}" if subclass else ""
    return f"{base[: room - 1]}{version_printed}{subclass_printed}"


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d{1,20}(\.\d\d)?", text, re.ASCII) is not None


def _ns(microseconds: str) -> float:
    """Nanoseconds of a time printed in microseconds with two decimals."""
    whole, _, fraction = microseconds.partition(".")
    return float(int(whole + (fraction or "00")) * 10)
