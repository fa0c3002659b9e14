"""Change a queue of series, and measure what waits in it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from errors import InfraError, UsageError
from fleet.configured import executor_of
from host import sandbox
from host.packages import install_line
from queues import adding, page
from queues.adding import entry_of, of_row, put
from queues.entry import QueueEntry
from queues.store import QueueStore
from queues.work import Job, Rules, refused, work
from runs.request import Request
from runs.resolved import catalogue as known_names
from verbs import session
from verbs.folders import CHECKOUT
from verbs.invocation import options, resolved_of
from verbs.options import Booting
from verbs.output import log, write_out


def add(
    request: Request,
    series: Sequence[str],
    tables: Sequence[Path],
    folder: Path,
    priority: int,
) -> None:
    """Queue each series, and each row of the tables, with the request's options.

    Raises:
        UsageError, SpecError: one of them cannot be measured; then none is queued.
    """
    catalogue = known_names(CHECKOUT)

    def made(request: Request, here: Path, origin: str, own_priority: int) -> QueueEntry:
        return entry_of(
            request, here=here, checkout=CHECKOUT, catalogue=catalogue, priority=own_priority,
            origin=origin,
        )  # fmt: skip

    entries = [made(replace(request, series=(name,)), Path.cwd(), "", priority) for name in series]
    for file in tables:
        for row in adding.read_table(file):
            of_entry, own = of_row(row, request)
            own_priority = priority if own is None else own
            entries.append(
                made(of_entry, file.absolute().parent, str(file.absolute()), own_priority)
            )
    for entry in entries:
        _take_in(entry)
    # All of them are sound, or none is queued.
    store = QueueStore(folder)
    for entry in entries:
        write_out(f"{entry.id}  {put(store, entry)}")
    page.write(store)


def _take_in(entry: QueueEntry) -> None:
    """Say what is in a series, as it will be measured; a thread may have to wait for a network."""
    try:
        resolved_of(entry.question)
    except InfraError as error:
        log(f"{entry.id}: not taken in now, but when it is measured: {error.in_one_line}")


def work_all(
    where: Booting,
    folder: Path,
    *,
    limit: int | None,
    tries: int,
    wait: float | None,
    trust_authors: bool,
) -> None:
    """Measure what waits until nothing is left, or for ever with ``wait`` (seconds).

    Raises:
        UsageError: something waits that nobody trusted who mailed it.
        InfraError: two entries in a row were ended by the host or the lab.
    """
    waiting, run_options = QueueStore(folder), options(where)
    waiting.read()
    # A word that is wrong ends this, and not every entry; nothing is connected yet.
    executor_of(
        where.executor,
        where.store,
        checkout=CHECKOUT,
        cache=run_options.cache,
        log=log,
        insecure=where.insecure,
    )

    boxed = run_options.sandbox is not False and sandbox.available() is not None

    def measure(job: Job) -> None:
        options_here = replace(run_options, sandbox=boxed) if job.is_from_mail else run_options
        # Connected anew each time: a scheduler may have been lost, and be back.
        if job.resume:
            session.measure(Request(), options_here, where, resume=job.folder)
        else:
            session.measure(job.request, options_here, where, folder=job.folder)

    names: set[str] = set()
    while True:
        rules = Rules(tries, limit, trust_authors, boxed)
        try:
            finished = work(waiting, measure, log, rules)
        except KeyboardInterrupt:
            log(f"./lab.py queue run --queue {folder} goes on where this one was")
            raise
        left = refused(waiting, rules)
        for entry in left:
            if entry.id not in names:
                log(
                    f"not built  {entry.id}  {entry.name}: by {entry.author or 'an unknown author'}"
                )
        names |= {entry.id for entry in left}
        limit = None if limit is None else limit - finished
        if wait is None or limit == 0:
            break
        time.sleep(wait)
    write_out(waiting.folder / page.INDEX)
    if left:
        raise UsageError(
            f"{len(left)} entries came by mail and were not built: this host has no sandbox, and a "
            "patch may change makefiles and scripts, which run with all your rights",
            where=str(waiting.folder),
            next_step=f"{install_line(['bubblewrap'])}; or read the patches, and add "
            "--trust-authors",
        )


def remove(names: Sequence[str], folder: Path) -> None:
    """Take entries out of the queue.

    Raises:
        UsageError: no such entry, or somebody changes it.
    """
    store = QueueStore(folder)
    for name in names:
        with store.change(store.find(name).id) as entry:
            store.save(entry.model_copy(update={"state": "removed"}))
        write_out(f"{entry.id}  removed")
    page.write(store)


def retry(names: Sequence[str], folder: Path, *, anew: bool) -> None:
    """Have entries measured again, in a new session if ``anew``.

    Raises:
        UsageError: no such entry, or somebody changes it.
    """
    store = QueueStore(folder)
    for name in names:
        with store.change(store.find(name).id) as entry:
            if entry.is_open:
                write_out(f"{entry.id}  is queued already")
                continue
            again = store.save(entry.requeued(anew=anew))
        write_out(f"{entry.id}  requeued, session {again.session}")
    page.write(store)
