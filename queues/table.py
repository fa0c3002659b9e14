"""A table of series that wait: CSV, a line a series, the first line naming the columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

from errors import UsageError
from text import clean

# What `queue add` has options for; everything but the series may be left out.
COLUMNS = ("series", "priority", "source", "workloads", "auto", "reverse", "set", "mode")
YES_OR_NO = {"": False, "no": False, "yes": True}
LARGEST = 16 << 20

Row = dict[str, str]


def read_table(file: Path) -> list[Row]:
    """The rows of a table, each with every column; texts are as written, without margins.

    Raises:
        UsageError: no such file, an unknown column, or a row that cannot be meant; names
            the line.
    """
    try:
        if file.stat().st_size > LARGEST:
            raise _wrong(file, 1, f"has more than {LARGEST >> 20} MiB", "split it")
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise _wrong(file, 1, f"cannot be read: {why}", "name a CSV file") from None
    reader = csv.DictReader(text.splitlines(), restkey="", strict=True)
    try:
        heads = [head.strip() for head in reader.fieldnames or ()]
        reader.fieldnames = heads
        unknown = [head for head in heads if head not in COLUMNS]
        if unknown or "series" not in heads or len(set(heads)) < len(heads):
            columns = clean(", ".join(heads)) or "nothing"
            raise _wrong(
                file, 1, f"names these columns: {columns}",
                f"series, and of these what is wanted: {', '.join(COLUMNS[1:])}",
            )  # fmt: skip
        rows = [_row(file, reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise _wrong(file, reader.line_num, f"is no CSV: {error}", "quote it") from None
    return rows


def flag(row: Row, column: str) -> bool:
    """A column of ``yes`` or ``no``, which ``read_table`` has checked."""
    return YES_OR_NO[row[column]]


def _row(file: Path, line: int, fields: dict[str, str]) -> Row:
    row = {name: (fields.get(name) or "").strip() for name in COLUMNS}
    if "" in fields:
        raise _wrong(file, line, "has more fields than columns", "quote what has commas in it")
    checks: tuple[tuple[str, Callable[[str], bool], str], ...] = (
        ("series", bool, "name a series"),
        ("priority", _is_number, "write a whole number"),
        ("auto", YES_OR_NO.__contains__, "write yes or no"),
        ("reverse", YES_OR_NO.__contains__, "write yes or no"),
    )
    for name, fits, next_step in checks:
        if not fits(row[name]):
            raise _wrong(file, line, f"{name}: found {clean(row[name])!r}", next_step)
    return row


def _is_number(text: str) -> bool:
    return re.fullmatch(r"(-?[0-9]{1,9})?", text) is not None


def _wrong(file: Path, line: int, what: str, next_step: str) -> UsageError:
    return UsageError(what, where=f"{clean(str(file))}:{line}", next_step=next_step)
