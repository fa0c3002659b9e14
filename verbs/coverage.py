"""Verbs for what workloads execute: recorded from sessions, and of a series."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from experiment.series_name import from_here, kind_of
from runs.request import SUBJECT
from text import counted, duration, enumerated
from verbs.invocation import WIDTH, emit, log, options, show_intake, write_out
from verbs.options import CHECKOUT, Json, opt, session_argument

if TYPE_CHECKING:
    from runs.coverage import Advice

app = typer.Typer(add_completion=False)


@app.command("add")
def add_verb(sessions: Annotated[list[Path], session_argument("SESSION")]) -> None:
    """Record what the unpatched kernel of these sessions executed, for `suggest` and `--series`.

    The sessions are finished ones of exact mode.

    Examples:
    ./lab.py dev coverage add latest  # the newest session
    ./lab.py dev coverage add sessions/a sessions/b  # of several experiments
    """
    from host import facts
    from runs import coverage

    table, added = coverage.add(sessions, facts.cache_folder())
    cases = ", ".join(case.case for case in added.cases)
    log(f"{len(added.calls)} functions of {added.release}; executed by {cases}")
    write_out(table)


MOST_NAMES = 12


@app.command("suggest")
def suggest_verb(
    series: Annotated[
        list[str],
        typer.Argument(
            metavar="SERIES", help="FOLDER, FILE, MESSAGE-ID or A..B; see docs/series.md"
        ),
    ],
    source: Annotated[
        str,
        opt(
            "--source SOURCE",
            "what the series applies to; of A..B, the repository: git:PATH; here by default",
            SUBJECT,
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Rank workloads by how much they execute of what a series changes.

    Nothing is built or booted. The changed functions are those whose machine code differs where
    both kernels are in the cache, else those in whose lines the patches have changes; what
    workloads execute was counted once and ships with Twinboot (docs/coverage.md). The last line
    is the command that measures the best ones. Exits with 0 also where none executes it.

    Examples:
    ./lab.py suggest configs/series/filemap-walks  # what shows a shipped series
    ./lab.py suggest v3.mbox --json  # of a posting, for a script
    ./lab.py suggest HEAD~3.. --source git:~/linux  # commits of a tree
    """
    from experiment.ad_hoc import from_series
    from kernels.settle import settle
    from runs.coverage import answer
    from runs.resolved import catalogue, resolve

    here = Path.cwd()
    if not source and any(kind_of(name) == "range" for name in series):
        source = f"git:{here}"
    run_options = options()
    experiment = from_series(
        [from_here(name, here=here, checkout=CHECKOUT) for name in series],
        source=from_here(source, here=here, checkout=CHECKOUT),
        catalogue=catalogue(CHECKOUT),
    )
    settled = settle(experiment, checkout=run_options.checkout, cache=run_options.cache)
    show_intake(settled, must_apply=False)
    resolved = resolve(
        settled.experiment,
        checkout=run_options.checkout,
        cache=run_options.cache,
        series=settled.series,
    )
    advice = answer(resolved, run_options)
    command = _command(advice, series, source)
    if as_json:
        emit(
            {
                **vars(advice.suggestion),
                "files": advice.files,
                "by_kernels": advice.by_kernels,
                "counted_in": advice.coverage.release,
                "chosen": advice.chosen,
                "command": command,
            }
        )
        return
    for line in lines(advice):
        write_out(line)
    if command:
        write_out(f"\n{command}")


def lines(advice: Advice) -> list[str]:
    """The answer for people, without the command."""
    suggestion, release = advice.suggestion, advice.coverage.release
    total, files = len(suggestion.functions), enumerated(advice.files, most=MOST_NAMES)
    how = "their machine code differs" if advice.by_kernels else "by the lines of the patches"
    text = _wrapped(
        f"Changes {counted(total, 'function')} ({how}) in {files}. Calls are those of {release}."
        if total
        else f"Changes no function{'' if advice.by_kernels else ' by its lines'}, in {files}."
    )
    if suggestion.by_files and suggestion.candidates:
        text += _wrapped(
            "None of them is a function of its own in the kernel that was counted "
            f"({release}): the counts below are of other functions of the same files."
        )
    if suggestion.candidates:
        text += ["", *_table(advice)]
    else:
        text += _wrapped(
            "No workload of the lab executes it."
            if advice.by_kernels or not suggestion.by_files
            else "The functions that are compiled otherwise are known once both kernels are "
            "built: ./lab.py build --series SERIES, then this again; ./lab.py run does it itself."
        )
    if suggestion.never:
        text += [
            "",
            *_wrapped(f"Executed by no workload: {enumerated(suggestion.never, most=MOST_NAMES)}."),
        ]
    if suggestion.absent and not suggestion.by_files:
        text += _wrapped(
            f"Not a function of its own in {release} (inlined, not built, or new): "
            f"{enumerated(suggestion.absent, most=MOST_NAMES)}."
        )
    return text


def _table(advice: Advice) -> list[str]:
    suggestion = advice.suggestion
    total = len(suggestion.functions) - len(suggestion.absent)
    rows = [("workload", "executes", "score", "calls per I/O", "8 seeds, about")]
    for candidate in suggestion.candidates:
        case, executed = candidate.case, len(candidate.functions)
        variant = case.case.removeprefix(case.workload).removeprefix(":")
        rows.append(
            (
                f"{case.workload} ({variant})" if variant else case.workload,
                f"{executed} functions" if suggestion.by_files else f"{executed} of {total}",
                f"{candidate.score:.2f}",
                f"{candidate.calls_per_io:.3g}",
                f"{duration(advice.seconds(candidate))} (guest {case.guest})",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _command(advice: Advice, series: Sequence[str], source: str) -> str:
    """The command that measures the best workloads; empty where there are none."""
    from experiment.ad_hoc import load_auto
    from host.process import paste

    if advice.chosen:
        argv = ["./lab.py", "run"]
        for name in series:
            argv += ["--series", name]
        argv += ["--source", source] if source else []
        return paste([*argv, "--workloads", ",".join(advice.chosen)])
    workloads = load_auto().workloads
    others = [
        candidate
        for candidate in advice.suggestion.candidates
        if candidate.case.workload not in workloads
    ]
    if not others:
        return ""
    log(f"{others[0].case.workload} is measured in its experiment, with arms of its own")
    return f"./lab.py run {others[0].case.experiment}"


def _wrapped(text: str) -> list[str]:
    return wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
