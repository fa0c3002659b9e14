"""What would show a change: workloads by what they execute of a series, shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap

from experiment.ad_hoc import from_series, load_auto
from experiment.places import from_here
from experiment.series_name import kind_of
from host.process import paste
from kernels.settle import settle
from reports.sentences import listed
from results.coverage import Candidate
from runs import prepare
from runs.progress import duration
from runs.suggestion import Answer, answer
from verbs.folders import CHECKOUT
from verbs.invocation import options
from verbs.output import WIDTH, emit, log

MOST_NAMES = 12


def show(series: tuple[str, ...], source: str, *, as_json: bool) -> None:
    """Print the workloads, best first, and the command that measures them.

    Raises:
        LabError: the series cannot be read.
    """
    here = Path.cwd()
    if not source and any(kind_of(name) == "range" for name in series):
        source = f"git:{here}"
    given = options()
    experiment = from_series(
        [from_here(name, here=here, checkout=CHECKOUT) for name in series],
        source=from_here(source, here=here, checkout=CHECKOUT) if source else "",
        catalogue=prepare.catalogue(CHECKOUT),
    )
    found = answer(settle(experiment, checkout=given.checkout, cache=given.cache), given)
    command = _command(found, series, source)
    if as_json:
        emit({
            **asdict(found.suggestion),
            "files": found.files,
            "by_kernels": found.by_kernels,
            "counted_in": found.coverage.release,
            "chosen": found.chosen,
            "command": command,
        })  # fmt: skip
        return
    for line in lines(found):
        print(line)
    if command:
        print(f"\n{command}")


def lines(found: Answer) -> list[str]:
    """The answer for people, without the command."""
    suggestion, release = found.suggestion, found.coverage.release
    total, files = len(suggestion.functions), listed(found.files, most=MOST_NAMES)
    how = "their machine code differs" if found.by_kernels else "by the lines of the patches"
    text = _wrapped(
        f"Changes {total} function{'s' * (total != 1)} ({how}) in {files}."
        if total
        else f"Changes no function, in {files}."
    )
    if suggestion.by_files and suggestion.candidates:
        text += _wrapped(
            "None of them is a function of its own in the kernel that was counted "
            f"({release}): the counts below are of other functions of the same files."
        )
    if suggestion.candidates:
        text += ["", *_table(found)]
    else:
        text += _wrapped("No workload of the lab executes it.")
    if suggestion.never:
        text += [
            "",
            *_wrapped(f"Executed by no workload: {listed(suggestion.never, most=MOST_NAMES)}."),
        ]
    if suggestion.absent and not suggestion.by_files:
        text += _wrapped(
            f"Not a function of its own in {release} (inlined, not built, or new): "
            f"{listed(suggestion.absent, most=MOST_NAMES)}."
        )
    return text


def _table(found: Answer) -> list[str]:
    suggestion = found.suggestion
    total = len(suggestion.functions) - len(suggestion.absent)
    rows = [("workload", "executes", "calls per I/O", "8 seeds, about")]
    rows += [
        (
            _name(one),
            f"{len(one.functions)} functions" if suggestion.by_files
            else f"{len(one.functions)} of {total}",
            f"{one.calls_per_io:.3g}",
            f"{duration(found.seconds(one))} (guest {one.case.guest})",
        )
        for one in suggestion.candidates
    ]  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _name(candidate: Candidate) -> str:
    case = candidate.case
    variant = case.case.removeprefix(case.workload).removeprefix(":")
    return f"{case.workload} ({variant})" if variant else case.workload


def _command(found: Answer, series: Sequence[str], source: str) -> str:
    """The command that measures the best workloads; empty where there are none."""
    if found.chosen:
        argv = ["./lab.py", "run"]
        for name in series:
            argv += ["--series", name]
        argv += ["--source", source] if source else []
        return paste([*argv, "--workloads", ",".join(found.chosen)])
    known = load_auto().workloads
    others = [one for one in found.suggestion.candidates if one.case.workload not in known]
    if not others:
        return ""
    log(f"{others[0].case.workload} is measured in its experiment, with arms of its own")
    return f"./lab.py run {others[0].case.experiment}"


def _wrapped(text: str) -> list[str]:
    return wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
