"""What is generated below ``docs/``: schemas, the experiment file's reference, what is executed.

``python -m verbs.reference [FOLDER]`` writes them, as ``make schema`` does.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from experiment.load import CONFIGS
from experiment.machine import MachineSpec
from experiment.reference import markdown, schema_of, schema_text
from experiment.spec import Experiment, Guest
from history.policy import Policy
from reports import json_form
from results.coverage import by_folder, unreached_in
from runs.coverage import FOLDERS, GOALS, shipped

DOCS = Path(__file__).resolve().parent.parent / "docs"
TRIED = CONFIGS / "kernels-tried.csv"
EXPERIMENT_PAGE = """\
# The experiment file

<!-- Written by `make schema` from experiment/spec.py and its neighbours; edit those. -->

An experiment is a TOML file under `configs/experiments/`, or anywhere: `./lab.py run FILE`.
[`noop.toml`](../configs/experiments/noop.toml) is a short one,
[`filemap-v4.toml`](../configs/experiments/filemap-v4.toml) has correctness checks, diagnostic
runs and published figures,
[`reclaim-contention.toml`](../configs/experiments/reclaim-contention.toml) has arms.

    ./lab.py plan FILE                  # reads it, and names every mistake at once
    ./lab.py run FILE --set blocks=16   # any key; tables by dots: kernel.compiler=clang

What `docs/` says of some of these at length: [series](series.md), [kernels](kernels.md),
[correctness checks](correctness.md), [locks](locks.md) for diagnostic runs, and
[adding a workload](adding-a-workload.md).

**In an editor.** A first line `#:schema ../../docs/schema/experiment.schema.json` (a path from the
file, or the address of a copy) gives completion, explanations and errors in every editor that uses
Taplo, such as VS Code with "Even Better TOML". Guests (`configs/guests/`), machines
(`configs/machines/`) and `configs/gate.toml` have schemas of their own beside it.

A *name* has lower-case letters, digits, `-` and `_`, at most 64 of them.

"""

COVERAGE_PAGE = """\
# How much of the kernel the workloads execute

<!-- Written by `make schema` from configs/coverage/, which `coverage add` writes. -->

Functions of {release} that are built in, without init code, those that the workloads together
execute, and those of each one ([how they were counted](coverage.md)). *Without tracing* are shares
of the functions that are not made of a trace event, which run while somebody traces alone.
Functions of folders with a goal that nothing executes are in
[a file of their own](coverage-unreached.csv).

"""


def coverage_page() -> str:
    """The table of what workloads execute, beside the goals."""
    coverage = shipped()
    workloads = sorted({case.workload for case in coverage.cases})
    rows = [("", "built in", "executed", "", "without tracing", "goal", *workloads)]
    rows.append(("---",) * len(rows[0]))
    for row in by_folder(coverage, FOLDERS):
        goal = f"{GOALS[row.folder]} %" if row.folder in GOALS else ""
        counts = (str(row.by_workload.get(name, 0)) for name in workloads)
        shares = (f"{100 * share:.0f} %" for share in (row.share, row.untraced_share))
        rows.append(
            (f"`{row.folder}`", str(row.functions), str(row.executed), *shares, goal, *counts)
        )
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return COVERAGE_PAGE.format(release=coverage.release) + table


TRIED_PAGE = """\
# Releases that were tried

<!-- Written by `make schema` from configs/kernels-tried.csv (benchmarks/kernels.py). -->

Each kernel against itself, its base arm over the seeds: numbers of both arms that are equal,
whether a run that was made again gave the same bits, the spread of the first judged metric between
seeds in %, and the kernel's functions that were executed. What is not here was not run.

"""


def tried_page() -> str:
    """The table of releases and cases."""
    with TRIED.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    heads = ("release", "case", "vCPUs", "seeds", "A/A", "repeat", "spread, %", "functions", "on")
    lines = [heads, ("---",) * len(heads)]
    for row in rows:
        equal = f"{row['equal']} of {row['numbers']}"
        lines.append((
            row["release"], row["case"], row["vcpus"], row["seeds"], row["failed"] or equal,
            row["repeat"], row["spread"], row["functions"], row["date"],
        ))  # fmt: skip
    return TRIED_PAGE + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def unreached() -> str:
    """Every function of folders with a goal that no workload executes, as CSV."""
    rows = unreached_in(shipped(), tuple(GOALS))
    return "file,function\n" + "".join(f"{file},{name}\n" for file, name in rows)


def generated() -> dict[str, str]:
    """Text by file, relative to ``docs/``."""
    experiment = schema_of(Experiment, "Twinboot experiment")
    return {
        "schema/report.schema.json": json_form.schema_text(),
        "schema/experiment.schema.json": schema_text(experiment),
        "schema/guest.schema.json": schema_text(schema_of(Guest, "Twinboot guest")),
        "schema/machine.schema.json": schema_text(schema_of(MachineSpec, "Twinboot machine")),
        "schema/gate.schema.json": schema_text(schema_of(Policy, "Twinboot CI policy")),
        "experiment-file.md": EXPERIMENT_PAGE + markdown(experiment),
        "coverage-table.md": coverage_page(),
        "coverage-unreached.csv": unreached(),
        "kernels-table.md": tried_page(),
    }


def write(docs: Path) -> None:
    """Write every file below ``docs``."""
    for name, text in generated().items():
        place = docs / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
