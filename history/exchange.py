"""The history out of its folder and back: JSON lines, Parquet, CSV.

JSON lines hold everything, an entry with its functions a line.  Parquet and CSV hold the
table (``history.table``) for other tools, with one column more: ``head``, in the first row
of each entry, has all of the entry that is in no other column.  So what was exported comes
back as it was; only functions are in JSON lines alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from history.entry import Entry, NightFunctions
from history.store import UnreadFile, parse_entry
from history.table import table
from results import door
from results.door import StoreError
from results.table import Row, parquet, rows_of

FORMS = (".jsonl", ".parquet", ".csv")
LISTS = ("seeds", "values")
HEAD = "head"
# What a value of another kind than ours has the code below raise.
BAD = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    StopIteration,
)
Pairs = list[tuple[Entry, NightFunctions | None]]
# What has a function of these arguments called, within limits.
Call = Callable[[Callable[[Path, Sequence[str]], list[Row]], Path, Sequence[str]], list[Row]]


def export(
    entries: Iterable[Entry], functions: Callable[[Entry], NightFunctions | None], file: Path
) -> int:
    """Write entries to a file in the form its name ends in; return how many.

    Raises:
        StoreError: an unknown form.
    """
    listed = list(entries)
    form = _form(file)
    if form == ".jsonl":
        lines = (_line(e, functions(e) if e.counted else None) for e in listed)
        door.write(file.parent, file.name, "".join(lines))
        return len(listed)
    frame = table(listed)
    heads = {entry.id: _head(entry) for entry in listed}
    first = ~frame["entry"].duplicated()
    frame[HEAD] = [
        heads[name] if is_first else ""
        for name, is_first in zip(frame["entry"], first, strict=True)
    ]  # fmt: skip
    if form == ".parquet":
        door.write(file.parent, file.name, parquet(frame))
    else:
        for name in LISTS:
            frame[name] = [json.dumps(value) for value in frame[name]]
        door.write(file.parent, file.name, frame.to_csv(index=False))
    return len(listed)


def read(file: Path, call: Call | None = None) -> tuple[Pairs, list[UnreadFile]]:
    """The entries of an exported file, and what in it is none.

    A table of a few KiB may unpack to more than a host has: ``call`` reads one
    within limits; without it that is done here.

    Raises:
        StoreError: an unknown form, or a file that is no table of ours at all.
    """
    form = _form(file)
    try:
        if form == ".jsonl":
            return _from_lines(file, door.read_named(file, door.LINES))
    except OSError as error:
        raise StoreError(f"{file}: cannot be read: {error.strerror}") from None
    columns = (HEAD, "entry", "case", "arm", "metric", *LISTS)
    rows = call(rows_of, file.absolute(), columns) if call else rows_of(file, columns)
    entries: dict[str, list[Row]] = {}
    for row in rows:
        entries.setdefault(str(row["entry"]), []).append(row)
    pairs: Pairs = []
    problems = []
    for name, of_entry in entries.items():
        try:
            pairs.append((_rebuilt(name, of_entry), None))
        except BAD as error:
            problems.append(UnreadFile(file, f"entry {name[:20]!r}: {str(error)[:200]!r}"))
    return pairs, problems


def _form(file: Path) -> str:
    if file.suffix not in FORMS:
        raise StoreError(f"{file}: a name that ends in {', '.join(FORMS)} is wanted")
    return file.suffix


def _line(entry: Entry, functions: NightFunctions | None) -> str:
    beside = functions.model_dump_json() if functions else "null"
    return f'{{"entry":{entry.model_dump_json()},"functions":{beside}}}\n'


def _from_lines(file: Path, content: bytes) -> tuple[Pairs, list[UnreadFile]]:
    pairs, problems = [], []
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            both = json.loads(line)
            entry = parse_entry(json.dumps(both["entry"]).encode())
            beside = both.get("functions")
            pairs.append(
                (entry, NightFunctions.model_validate_json(json.dumps(beside)) if beside else None)
            )
        except BAD as error:
            torn = number == len(lines)
            words = "torn last line" if torn else f"line {number}: {str(error)[:200]!r}"
            problems.append(UnreadFile(file, f"{words}; left out"))
    return pairs, problems


def _head(entry: Entry) -> str:
    data = entry.model_dump(mode="json")
    for case in data["cases"]:
        for arm in case["arms"]:
            for ensemble in arm["metrics"].values():
                ensemble["values"] = []
    return json.dumps(data)


def _rebuilt(name: str, rows: list[Row]) -> Entry:
    data: dict[str, Any] = json.loads(next(row[HEAD] for row in rows if row[HEAD]))
    values = {
        (row["case"], row["arm"], row["metric"]): list(_numbers(row["values"])) for row in rows
    }
    for case in data["cases"]:
        for arm in case["arms"]:
            for metric, ensemble in arm["metrics"].items():
                ensemble["values"] = values[case["name"], arm["arm"], metric]
    # The functions stay behind: a table has none.
    data["counted"] = False
    entry = parse_entry(json.dumps(data).encode())
    if entry.id != name:
        raise ValueError(f"its head is that of {entry.id}")
    return entry


def _numbers(values: object) -> Iterator[float | None]:
    listed: Iterable[Any] = json.loads(values) if isinstance(values, str) else values  # type: ignore[assignment]
    for value in listed:
        yield None if value is None or math.isnan(value) else float(value)
