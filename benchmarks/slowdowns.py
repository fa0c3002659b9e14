r"""The smallest slow-down that is called: no-ops in three files, judged like any other change.

Series of :data:`FILES` execute a known number of no-ops in each folio added (mm/filemap.c), taken
out of the page cache (mm/vmscan.c) or read (fs/iomap/buffered-io.c).  All run the same seeds in
one session, and each is judged against the base as a session of its own would be that adds seeds
from 8 on.  Printed for each metric that is judged: the change with the standard error of its mean,
what is called after how many seeds, and the functions that are called changed.

A session that is there already is printed as it is, or finished.

    .venv/bin/python benchmarks/slowdowns.py sessions/slow --case filemap-4k --seeds 16
    .venv/bin/python benchmarks/slowdowns.py sessions/slow-thp --case filemap-thp \
        --series slow-add-768,slow-add-1536
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from analysis import power as rates
from analysis.verdict import OPEN, Evidence, judge_primary
from benchmarks.nulls import BASE, apart, arguments_of, measured, pairs_of, values_of, with_arms
from experiment.spec import ArmSpec, Experiment, SeriesSpec, looks_of
from results.record import CaseRecord
from results.session import MeasuredSession

FILES = {
    "mm/filemap.c": ("slow-add-24", "slow-add-38", "slow-add-64", "slow-add-128"),
    "mm/vmscan.c": ("slow-reclaim-34", "slow-reclaim-52", "slow-reclaim-88", "slow-reclaim-176"),
    "fs/iomap/buffered-io.c": ("slow-iomap-24", "slow-iomap-38", "slow-iomap-64", "slow-iomap-128"),
}
FIRST, MOST = 8, 32


def slowed(experiment: Experiment, series: tuple[str, ...], case: str, seeds: int) -> Experiment:
    """The experiment with the kernel as it is and with each of the series, on so many seeds."""
    arms = (
        ArmSpec(name=BASE),
        *(ArmSpec(name=name, series=SeriesSpec(path=f"configs/series/{name}")) for name in series),
    )
    return with_arms(experiment, arms, case, "base", "slow-downs of known size").model_copy(
        update={"blocks": seeds, "max_seeds": None}
    )


def judged(session: MeasuredSession, case: CaseRecord, arm: str) -> dict[str, str]:
    """What is said of each primary metric of a case at the look that decides all of them.

    Looks after seeds that were not measured are not had: ``undecided`` then.
    """
    values = {metric: values_of(session, case.name, metric) for metric in case.primary}
    direction = {metric.name: metric.direction for metric in case.metrics}
    # Those that all arms have, where the session is still on its way.
    seeds = min(len(of[BASE]) for of in values.values())
    answers: dict[str, str] = {}
    for so_far in rates.so_far(looks_of(FIRST, MOST, seeds)):
        n = so_far.seeds[-1]
        family = [
            Evidence(
                direction=direction[metric],
                base=tuple(of[BASE][:n]),
                patched=tuple(of[arm][:n]),
                blocks_planned=n,
                case=case.name,
                metric=metric,
                looks=so_far,
            )
            for metric, of in values.items()
        ]
        verdicts = judge_primary(family, session.manifest.experiment.thresholds)
        words = ["undecided" if each.cause in OPEN else str(each.verdict) for each in verdicts]
        answers = {metric: f"{word} after {n}" for metric, word in zip(values, words, strict=True)}
        if "undecided" not in words:
            break
    return answers


def main() -> None:
    """Measure what is not measured yet, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    every = ",".join(name for names in FILES.values() for name in names)
    parser.add_argument("--series", default=every, help="folders of configs/series, with commas")
    parser.add_argument("--seeds", type=int, default=FIRST)
    arguments = arguments_of(parser)
    series = tuple(arguments.series.split(","))
    session = measured(
        arguments, lambda all_: slowed(all_, series, arguments.case, arguments.seeds)
    )
    functions = {pair.arms[1]: pair.changed for pair in pairs_of(session)}
    print("| series | metric | change | verdict | functions that changed |\n|---|---|---|---|---|")
    for case in session.manifest.cases:
        for arm in series:
            verdicts = judged(session, case, arm)
            named = [name for at, _, name in functions[arm] if at == case.name]
            for metric in case.primary:
                values = values_of(session, case.name, metric)
                print(
                    f"| {arm} | {metric} | {apart(values, arm)} % "
                    f"| {verdicts[metric]} | {', '.join(named)} |"
                )


if __name__ == "__main__":
    main()
