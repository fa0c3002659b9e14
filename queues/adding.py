"""Put series into a queue that a user names, or a table does: checked as far as can be said now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from errors import UsageError
from experiment.ad_hoc import from_series
from experiment.load import Catalogue
from experiment.series_name import from_here, kind_of, split_mail
from queues.entry import QueueEntry, id_of
from queues.store import QueueStore, stamp
from queues.table import Row, flag
from runs.request import Request
from text import clean


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
    if kind in ("file", "folder") and not path.exists():
        raise UsageError(
            "no such file or folder", where=clean(name), next_step="name a series; see docs"
        )
    if kind in ("file", "folder"):
        # Whoever works the queue may be anywhere.
        place = str(path.absolute()) + (f"#{mail}" if mail else "")
    source = from_here(request.source, here=here, checkout=checkout) if request.source else ""
    request = replace(request, series=(place,), source=source)
    from_series(
        request.series, source=source, workloads=request.named_workloads,
        reverse=request.reverse, overrides=request.all_overrides, catalogue=catalogue,
    )  # fmt: skip
    return QueueEntry(
        id=id_of(request), question=request, added=stamp(), priority=priority,
        origin=origin,
    )  # fmt: skip


def of_row(row: Row, request: Request) -> tuple[Request, int | None]:
    """What a row of a table asks, and its priority if it says one; the rest is as ``request``."""
    merged = replace(
        request,
        series=(row["series"],),
        source=row["source"] or request.source,
        workloads=row["workloads"] or request.workloads,
        automatic=flag(row, "auto") or request.automatic,
        reverse=flag(row, "reverse") or request.reverse,
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
            store.save(known.again().model_copy(update=update))
            return "queued again"
        if known.state == "waiting" and known.priority != entry.priority:
            store.save(known.model_copy(update={"priority": entry.priority}))
            return f"is queued already, now with priority {entry.priority}"
    return "is queued already" if known.state == "waiting" else f"{known.state} already; see retry"
