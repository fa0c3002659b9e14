"""The verb that measures known changes, and shows which of them the lab finds."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from errors import InfraError, LabError
from runs.request import Request
from verbs.cli import flattened
from verbs.invocation import (
    emit,
    log,
    options,
    placed,
    resolved_of,
    resumable,
    terminal_width,
    write_out,
)
from verbs.options import SESSIONS, Json, Measuring, opt, sessions_folder

if TYPE_CHECKING:
    from history.recall import RecallEntry

app = typer.Typer(add_completion=False)
WHICH = "Which entries"
GUEST, SEEDS, WORKLOADS = "smoke", 8, 2
# Of kernels that are built to learn which workloads execute what differs.
ANY = "syscalls"


@app.command("recall")
@flattened
def recall_verb(
    measuring: Measuring,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="ENTRY", help="names or ids of entries; all of them by default"),
    ] = None,
    published: Annotated[bool, opt("--published", "published results only", WHICH)] = False,
    neutral: Annotated[bool, opt("--neutral", "no-op changes only", WHICH)] = False,
    third: Annotated[
        int | None, opt("--third N", "every third entry from the Nth", WHICH, min=1, max=3)
    ] = None,
    folder: Annotated[
        Path, opt("--sessions FOLDER", "the folder of the entries' sessions")
    ] = SESSIONS / "recall",
    measures: Annotated[
        bool, opt("--measure/--no-measure", "measure what has no finished session yet")
    ] = True,
    native: Annotated[
        bool, opt("--native", "time of published results on this CPU, too, in native mode")
    ] = False,
    as_markdown: Annotated[bool, opt("--markdown", "print Markdown")] = False,
    as_json: Json = False,
) -> None:
    """Measure published results and neutral changes as any series, and tell which are found.

    Each entry is a folder of configs/series/published or neutral and has a session of its name;
    one that is finished is read, and one that is not is finished. The table is made of the
    sessions alone. A published result that instructions do not catch is measured once more with
    --diagnostics. With --native those whose code runs in phases of native mode are timed, which
    wants a host with nothing else to do. Exit code 3 where an entry could not be measured: the
    others are kept.

    Examples:
    ./lab.py recall p10 p19  # two published results
    ./lab.py recall --neutral --third 1  # a third of the no-op changes
    ./lab.py recall --no-measure --markdown > docs/recall.md  # the page, from what is there
    """
    from history import recall
    from reports.render import markdown, text

    if not measures and folder != SESSIONS / "recall":
        sessions_folder(folder)
    kinds = "" if published == neutral else "published" if published else "neutral"
    every = recall.chosen(recall.entries(recall.FOLDERS), names or (), kinds, third)
    broken = []
    with resumable():
        for number, entry in enumerate(every if measures else (), 1):
            log(f"{number} of {len(every)}: {entry.name}")
            if not made(entry, folder, measuring) or (
                native and not made_native(entry, folder, measuring)
            ):
                broken.append(entry.name)
    shown = sorted(every, key=lambda each: (each.kind == "neutral", each.name))
    rows = [recall.row(entry, folder) for entry in shown]
    if as_json:
        emit({"scores": recall.scores(rows), "rows": rows})
    elif as_markdown:
        write_out(markdown.text(recall.blocks(rows)), end="")
    else:
        write_out(text.text(recall.blocks(rows), terminal_width()), end="")
    broken += [
        each.name
        for each in rows
        if each.recalled is recall.Recalled.NOT_MEASURED and each.name not in broken
    ]
    if broken:
        what = "not measured; the others are in the table"
        step = "./lab.py recall tries them again"
        raise InfraError(what, where=", ".join(broken), next_step=step)


def made(entry: RecallEntry, sessions: Path, measuring: Measuring) -> bool:
    """Measure an entry as far as it is not measured; False where that failed, which is kept."""
    from experiment.ad_hoc import NoWorkloadError
    from history import recall

    folder, diagnosed = sessions / entry.name, recall.diagnosed(entry, sessions)
    try:
        finish(entry, folder, measuring)
        # A neutral change never does: its session need not be compared for it.
        if entry.result and (
            recall.begun(diagnosed) or recall.row(entry, sessions).wants_diagnostics
        ):
            finish(entry, diagnosed, measuring)
    except NoWorkloadError as error:
        # What could be named all the same is no part of the answer.
        why = error.in_one_line.removeprefix("--series: ").partition("; name some")[0]
        problem = recall.Unmeasured(recalled=recall.Recalled.NOT_EXECUTED, why=why)
        log(f"not executed: {why}")
    except LabError as error:
        problem = recall.Unmeasured(recalled=recall.Recalled.NOT_MEASURED, why=error.in_one_line)
        log(error.for_terminal)
    else:
        recall.keep_problem(entry, sessions, None)
        return True
    recall.keep_problem(entry, sessions, problem)
    return problem.recalled is recall.Recalled.NOT_EXECUTED


def made_native(entry: RecallEntry, sessions: Path, measuring: Measuring) -> bool:
    """Time a published result in native mode, where a phase of that executes what differs.

    False where that failed: nothing of it is kept, and the entry's other sessions stand.
    """
    from history import recall
    from verbs.session import measure

    folder = recall.timed(entry, sessions)
    workloads = ",".join(entry.result.native) if entry.result else ""
    try:
        if workloads and recall.timed_boots(entry, sessions) is None:
            shutil.rmtree(folder, ignore_errors=True)
            request = replace(plain_request(entry, workloads, seeds=None), mode="native")
            measure(request, options(measuring), measuring, folder=folder)
    except LabError as error:
        log(error.for_terminal)
        return False
    return True


def finish(entry: RecallEntry, folder: Path, measuring: Measuring) -> None:
    """Make the session of this folder, or what is left of it; raises as measuring does."""
    from history import recall
    from verbs.session import measure

    if recall.finished(entry, folder):
        log(f"finished: {folder}")
    elif recall.begun(folder):
        measure(Request(), options(measuring), measuring, resume=folder)
    else:
        request = request_of(entry, measuring)
        if folder.name.endswith(recall.DIAGNOSED):
            request = replace(request, twins=True)
        measure(request, options(measuring), measuring, folder=folder)


def plain_request(entry: RecallEntry, workloads: str, seeds: int | None) -> Request:
    """How an entry is measured by these workloads."""
    # The patches take a published change out: without them is the base of --reverse, which would
    # have them turned around.
    reverse = entry.result is not None and entry.result.reverse
    return Request(
        series=(str(entry.folder),),
        source=entry.source,
        overrides=("series.reverse=true",) if reverse else (),
        workloads=workloads,
        seeds=seeds,
        guest=GUEST,
    )


def request_of(entry: RecallEntry, measuring: Measuring) -> Request:
    """How an entry is measured, which is the same for all: the kernels are built first.

    The workloads are the two that execute most of the functions whose machine code differs, so that
    constants and inlined code of headers have some, too.  Eight seeds are the fewest with which a
    change is called; there is no second look.  Raises NoWorkloadError: none executes what differs;
    LabError: whatever building says.
    """
    from runs import coverage
    from runs.boots import Reporter
    from runs.building import build_arms, same_code

    request = plain_request(entry, ANY, SEEDS)
    resolved, reporter = resolved_of(request), Reporter()
    with placed(options(measuring), measuring, reporter) as on:
        kernels = build_arms(resolved, on, reporter.building, resolved.flavours[0])
        if same_code(resolved, kernels):
            return request
        advice = coverage.answer(resolved, on)
    names = coverage.workloads_for(advice.suggestion, advice.files, most=WORKLOADS)
    return replace(request, workloads=",".join(names))
