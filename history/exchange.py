"""The history out of its folder and back: JSON lines, Parquet, CSV.

JSON lines hold everything, an entry with its functions a line.  Parquet and CSV hold the
table (``history.table``) for other tools, with one column more: ``head``, in the first row
of each entry, has all of the entry that is in no other column.  So what was exported comes
back as it was; only functions are in JSON lines alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pydantic import ValidationError

from history.entry import Entry, NightFunctions
from history.store import UnreadFile, parse_entry
from history.table import table
from results.store import StoreError, write_atomically

FORMS = (".jsonl", ".parquet", ".csv")
LISTS = ("seeds", "values")
HEAD = "head"


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
        write_atomically(
            file, "".join(_line(e, functions(e) if e.counted else None) for e in listed)
        )
        return len(listed)
    frame = table(listed)
    heads = {entry.id: _head(entry) for entry in listed}
    first = ~frame["entry"].duplicated()
    frame[HEAD] = [
        heads[name] if is_first else ""
        for name, is_first in zip(frame["entry"], first, strict=True)
    ]  # fmt: skip
    if form == ".parquet":
        frame.to_parquet(file, index=False)
    else:
        for name in LISTS:
            frame[name] = [json.dumps(value) for value in frame[name]]
        write_atomically(file, frame.to_csv(index=False))
    return len(listed)


def read(file: Path) -> tuple[list[tuple[Entry, NightFunctions | None]], list[UnreadFile]]:
    """The entries of an exported file, and what in it is none.

    Raises:
        StoreError: an unknown form, or a file that is no table of ours at all.
    """
    form = _form(file)
    if form == ".jsonl":
        return _from_lines(file)
    try:
        frame = (
            pd.read_parquet(file)
            if form == ".parquet"
            else pd.read_csv(file, dtype=str, keep_default_na=False)
        )
    except (OSError, ValueError, pa.ArrowException, pd.errors.ParserError) as error:
        raise StoreError(f"{file}: cannot be read as {form[1:]}: {str(error)[:200]}") from None
    columns = {HEAD, "entry", "case", "arm", "metric", *LISTS}
    if missing := sorted(columns - set(frame.columns)):
        raise StoreError(f"{file}: no column {missing[0]!r}: not a table exported by the lab")
    return _from_table(file, frame)


def _form(file: Path) -> str:
    if file.suffix not in FORMS:
        raise StoreError(f"{file}: a name that ends in {', '.join(FORMS)} is wanted")
    return file.suffix


def _line(entry: Entry, functions: NightFunctions | None) -> str:
    beside = functions.model_dump_json() if functions else "null"
    return f'{{"entry":{entry.model_dump_json()},"functions":{beside}}}\n'


def _from_lines(file: Path) -> tuple[list[tuple[Entry, NightFunctions | None]], list[UnreadFile]]:
    pairs, problems = [], []
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise StoreError(f"{file}: cannot be read: {error.strerror}") from None
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
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
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


def _from_table(
    file: Path, frame: pd.DataFrame
) -> tuple[list[tuple[Entry, NightFunctions | None]], list[UnreadFile]]:
    pairs: list[tuple[Entry, NightFunctions | None]] = []
    problems: list[UnreadFile] = []
    for name, rows in frame.groupby("entry", sort=False):
        try:
            pairs.append((_rebuilt(str(name), rows), None))
        except (ValueError, KeyError, TypeError, ValidationError, StopIteration) as error:
            problems.append(UnreadFile(file, f"entry {str(name)[:20]!r}: {str(error)[:200]!r}"))
    return pairs, problems


def _rebuilt(name: str, rows: pd.DataFrame) -> Entry:
    data: dict[str, Any] = json.loads(next(head for head in rows[HEAD] if head))
    values = {
        (case, arm, metric): list(_numbers(numbers))
        for case, arm, metric, numbers in zip(
            rows["case"], rows["arm"], rows["metric"], rows["values"], strict=True
        )
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
