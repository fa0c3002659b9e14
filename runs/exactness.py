"""The promise of exact mode: the same run gives the same bytes, or the session fails."""

from __future__ import annotations

from collections.abc import Mapping

MAX_FIELDS = 12
SHOWN = 80


def diverging(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> tuple[str, ...]:
    """Name what differs between two results of one plan entry: file, line, both values.

    At most :data:`MAX_FIELDS` entries, in order of file name; empty when equal.
    """
    differences: list[str] = []
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second:
            differences.append(f"{name}: only in the {'first' if name in first else 'second'} run")
        elif first[name] != second[name]:
            differences.append(f"{name}: {_first_difference(first[name], second[name])}")
    if len(differences) > MAX_FIELDS:
        return (*differences[:MAX_FIELDS], f"and {len(differences) - MAX_FIELDS} more files")
    return tuple(differences)


def _first_difference(first: bytes, other: bytes) -> str:
    lines, others = first.splitlines(keepends=True), other.splitlines(keepends=True)
    for number, (left, right) in enumerate(zip(lines, others, strict=False), start=1):
        if left != right:
            return f"line {number}{_values(left, right)}"
    return f"{len(lines)} against {len(others)} lines"


def _values(left: bytes, right: bytes) -> str:
    """Both values, cut to where they differ: lines of /proc/stat are long."""
    bare = left.rstrip(b"\r\n"), right.rstrip(b"\r\n")
    if bare[0] != bare[1]:
        left, right = bare
    shorter = min(len(left), len(right))
    at = next((n for n in range(shorter) if left[n] != right[n]), shorter)
    start, column = (0, "") if at < SHOWN else (at - SHOWN // 2, f", column {at + 1}")
    # Bytes, not text: replacement characters would look the same.
    first, other = (repr(line[start : start + SHOWN])[1:] for line in (left, right))
    return f"{column}: {first} against {other}"
