"""The promise of exact mode: the same run gives the same bytes, or the session fails."""

from __future__ import annotations

from collections.abc import Mapping

MAX_FIELDS = 12


def diverging(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> tuple[str, ...]:
    """Name what differs between two results of one plan entry: file, line, both values.

    At most :data:`MAX_FIELDS` entries, in order of file name; empty when equal.
    """
    found: list[str] = []
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second:
            found.append(f"{name}: only in the {'first' if name in first else 'second'} run")
        elif first[name] != second[name]:
            found.append(f"{name}: {_first_difference(first[name], second[name])}")
    if len(found) > MAX_FIELDS:
        return (*found[:MAX_FIELDS], f"and {len(found) - MAX_FIELDS} more files")
    return tuple(found)


def _first_difference(one: bytes, other: bytes) -> str:
    lines, others = one.splitlines(), other.splitlines()
    for number, (left, right) in enumerate(zip(lines, others, strict=False), start=1):
        if left != right:
            return f"line {number}: {_shown(left)} against {_shown(right)}"
    return f"{len(lines)} against {len(others)} lines"


def _shown(line: bytes) -> str:
    return repr(line.decode(errors="replace").strip()[:80])
