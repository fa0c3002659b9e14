"""Put series into a queue that a user names, or a table does: CSV, a line a series.

Each is checked as far as can be said now.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from errors import UsageError
from experiment.ad_hoc import from_series
from experiment.load import Catalogue
from experiment.series_name import from_here, kind_of, split_mail
from queues.entry import QueueEntry, id_of
from queues.store import QueueStore, stamp
from runs.request import Request
from text import clean

# What `queue add` has options for; everything but the series may be left out.
COLUMNS = ("series", "priority", "source", "workloads", "auto", "reverse", "set", "mode")
YES_OR_NO = {"": False, "no": False, "yes": True}
LARGEST = 16 << 20
CHECKS: dict[str, tuple[Callable[[str], object], str]] = {
    "series": (bool, "name a series"),
    "priority": (re.compile(r"(-?[0-9]{1,9})?").fullmatch, "write a whole number"),
    "auto": (YES_OR_NO.__contains__, "write yes or no"),
    "reverse": (YES_OR_NO.__contains__, "write yes or no"),
}

Row = dict[str, str]


def read_table(file: Path) -> list[Row]:
    """The rows of a table, each with every column; texts are as written, without margins.

    Raises:
        UsageError: no such file, an unknown column, or a row that cannot be meant; names
            the line.
    """

    def wrong(line: int, what: str, next_step: str) -> UsageError:
        return UsageError(what, where=f"{clean(str(file))}:{line}", next_step=next_step)

    try:
        if file.stat().st_size > LARGEST:
            raise wrong(1, f"has more than {LARGEST >> 20} MiB", "split it")
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise wrong(1, f"cannot be read: {why}", "name a CSV file") from None
    reader = csv.DictReader(text.splitlines(), restkey="", strict=True)
    rows = []
    try:
        heads = [head.strip() for head in reader.fieldnames or ()]
        reader.fieldnames = heads
        if set(heads) - set(COLUMNS) or "series" not in heads or len(set(heads)) < len(heads):
            columns = clean(", ".join(heads)) or "nothing"
            needed = f"series, and of these what is wanted: {', '.join(COLUMNS[1:])}"
            raise wrong(1, f"names these columns: {columns}", needed)
        for fields in reader:
            if "" in fields:
                raise wrong(
                    reader.line_num, "has more fields than columns", "quote what has commas in it"
                )
            row = {name: (fields.get(name) or "").strip() for name in COLUMNS}
            for name, (fits, next_step) in CHECKS.items():
                if not fits(row[name]):
                    raise wrong(reader.line_num, f"{name}: found {clean(row[name])!r}", next_step)
            rows.append(row)
    except csv.Error as error:
        raise wrong(reader.line_num, f"is no CSV: {error}", "quote it") from None
    return rows


def entry_of(
    request: Request,
    *,
    here: Path,
    checkout: Path,
    catalogue: Catalogue,
    priority: int = 0,
    origin: str = "",
) -> QueueEntry:
    """A new entry for a request of one series, whose relative paths start ``here``.

    Raises:
        UsageError: there is no such file or folder.
        SpecError: a workload, an override or the source is wrong.
    """
    (name,) = request.series
    place = from_here(name, here=here, checkout=checkout)
    kind = kind_of(place)
    file, mail = split_mail(place)
    path = (checkout / file).expanduser()
    if kind in ("file", "folder"):
        if not path.exists():
            raise UsageError(
                "no such file or folder", where=clean(name), next_step="name a series; see docs"
            )
        # Whoever works the queue may be anywhere.
        place = str(path.absolute()) + (f"#{mail}" if mail else "")
    source = from_here(request.source, here=here, checkout=checkout) if request.source else ""
    request = replace(request, series=(place,), source=source)
    from_series(
        request.series,
        source=source,
        workloads=request.named_workloads,
        reverse=request.reverse,
        overrides=request.all_overrides,
        catalogue=catalogue,
    )
    return QueueEntry(
        id=id_of(request), question=request, added=stamp(), priority=priority, origin=origin
    )


def of_row(row: Row, request: Request) -> tuple[Request, int | None]:
    """What a row of a table asks, and its priority if it says one; the rest is as ``request``."""
    merged = replace(
        request,
        series=(row["series"],),
        source=row["source"] or request.source,
        workloads=row["workloads"] or request.workloads,
        automatic=YES_OR_NO[row["auto"]] or request.automatic,
        reverse=YES_OR_NO[row["reverse"]] or request.reverse,
        overrides=(*request.overrides, *row["set"].split()),
        mode=row["mode"] or request.mode,
    )
    return merged, int(row["priority"]) if row["priority"] else None


def put(store: QueueStore, entry: QueueEntry) -> str:
    """Add an entry, or say what is there; a removed one waits again, a waiting one may move up.

    Raises:
        UsageError: it is being changed by somebody else.
    """
    if store.add(entry):
        return "queued"
    known = store.find(entry.id)
    if known.state == "running":
        return "is being measured"
    with store.change(entry.id) as known:
        if known.state in ("removed", "replaced"):
            update = {"added": entry.added, "priority": entry.priority}
            store.save(known.requeued().model_copy(update=update))
            return "requeued"
        if known.state == "waiting" and known.priority != entry.priority:
            store.save(known.model_copy(update={"priority": entry.priority}))
            return f"is queued already, now with priority {entry.priority}"
    return "is queued already" if known.state == "waiting" else f"{known.state} already; see retry"
