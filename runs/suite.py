"""A suite for every night: which cases, by what they execute, and the experiment that has them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from errors import UsageError
from experiment.ad_hoc import Auto, alike, load_auto
from results.coverage import Addition, Coverage, suite_of
from workloads.spec import load_catalogue

NAME = "nightly-suite"
ARMS, SEEDS, REPEATS = 2, 8, 1
# On the two cores where coverage was counted, in seconds of CPU time: two kernels of which nothing
# is cached, and a guest's boot to its snapshot.
KERNELS_S, BOOT_S = 900.0, 10.0
# Until the first kernel is built, and from the last run to the report.
AROUND_S = 300.0
# A core of a hosted runner is slower than those, and a run is not counted to the last second.
SLOWER = 1.5


def run_budget_s(minutes: float, cores: int, cases: int) -> float:
    """What one run of each case may take, in seconds of CPU time, for a night of that length."""
    cpu_s = (60 * minutes - AROUND_S) * cores / SLOWER
    return (cpu_s - KERNELS_S - ARMS * BOOT_S * cases) / (ARMS * SEEDS + REPEATS)


def minutes_of(suite: Sequence[Addition], cores: int) -> float:
    """About how long a night of the suite takes."""
    run_s = sum(each.case.run_cpu_s for each in suite)
    cpu_s = KERNELS_S + ARMS * BOOT_S * len(suite) + (ARMS * SEEDS + REPEATS) * run_s
    return (AROUND_S + SLOWER * cpu_s / cores) / 60


def choose(
    coverage: Coverage, minutes: float, cores: int, auto: Auto | None = None
) -> list[Addition]:
    """The cases that together execute most, of those that are measured in one session.

    Raises:
        UsageError: not even one fits.
    """
    auto = auto or load_auto()
    workloads = alike([*auto.usual, *auto.workloads], auto)
    cases = sum(case.workload in workloads for case in coverage.cases)
    suite = suite_of(coverage, workloads, run_budget_s(minutes, cores, cases))
    if not suite:
        raise UsageError(
            f"{minutes:g} minutes on {cores} cores: no case fits beside two kernels that are built",
            where="--minutes",
            next_step="give more of one of them: --minutes 60 --cores 4",
        )
    return suite


def experiment_text(
    coverage: Coverage,
    suite: Sequence[Addition],
    minutes: float,
    cores: int,
    auto: Auto | None = None,
) -> str:
    """The experiment file of a suite; equal suites are equal texts."""
    auto = auto or load_auto()
    catalogue = load_catalogue()
    additions = sorted({name for each in suite for name in catalogue[each.case.workload].additions})
    programs = sorted(
        {name for each in suite for name in catalogue[each.case.workload].host_programs}
    )
    lines = [
        "#:schema ../../docs/schema/experiment.schema.json",
        "# Written by `./lab.py coverage suite --experiment`: what executes most functions of",
        f"# {coverage.release} in {minutes:g} minutes on {cores} cores (docs/nightly.md), with a",
        "# slow-down of known size in all of it: that it is seen is a night's check of the lab.",
        f"# Programs of the host: {', '.join(programs) or 'none'}.",
        f"name = {_value(NAME)}",
        'title = "what executes most of the kernel, with 200 instructions at each slab object"',
        'question = "What did any part of the kernel gain or lose since last night?"',
        'guest = "smoke"',
        f"blocks = {SEEDS}",
        "seed = 1",
        "",
        "[kernel]",
        *(f"{key} = {_value(value)}" for key, value in auto.experiment["kernel"].items()),
        *([f"additions = {_value(additions)}"] if additions else []),
        "",
        "[series]",
        'path = "configs/series/slow-slab-200"',
        "",
        "[dataset]",
        *(f"{key} = {_value(value)}" for key, value in auto.experiment["dataset"].items()),
    ]
    for each in suite:
        cost = f"{each.case.run_cpu_s:g} s a run"
        workload, _, variant = each.case.case.partition(":")
        case = auto.case[auto.workloads.index(workload)]
        lines += [
            "",
            f"# {each.added} functions more, {each.together} in all; {cost}",
            "[[cases]]",
            f"workload = {_value(workload)}",
            *([f"variant = {_value(variant)}"] if variant else []),
            *_rest(case),
        ]
    return "\n".join(lines) + "\n"


def _rest(case: dict[str, object]) -> Iterable[str]:
    """What a case says beside its workload, a key a line."""
    for key, value in case.items():
        if key != "workload":
            yield f"{key} = {_value(value)}"


def _value(value: object) -> str:
    """As TOML writes it; long lists have a line for each value."""
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)} = {_value(each)}" for key, each in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(each) for each in value)}]"
    return json.dumps(value)
