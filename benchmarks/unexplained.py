r"""A change that the changed code cannot have made: how often it is called one, and what is lost.

Simulated: sessions of which a part executes changed code, and the rest is given a shift that all
seeds of a build share, as boot and layout give it.  Judged by the rules of analysis/verdict.py,
with and without the split of analysis/linked.py.

    .venv/bin/python benchmarks/unexplained.py             # minutes
    .venv/bin/python benchmarks/unexplained.py SESSION...

Measured: in sessions of arms that differ in nothing that is executed (benchmarks/nulls.py), each
pair is judged once for each function that a phase executes, as if that one had been changed: a
called change that stands is false.  Printed for each path: pairs that are called a change, with no
threshold of the workload's own, trials, and in how many the change stands.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from analysis.comparison import compare_views
from analysis.counts import Recorded, pair, phases
from analysis.explain.functions import counted
from analysis.linked import Split, network, split
from analysis.many import views
from analysis.verdict import CALLED, Evidence, judge_primary
from experiment.spec import Thresholds
from results.profile import PATH
from results.session import MeasuredSession, open_session

SEED = 20261126
TRIALS, QUICK_TRIALS = 2_000, 200
THRESHOLDS = Thresholds()
# In % of the phase: what all seeds of a build share, and what the change makes.
SHIFTS = (0.0, 0.05, 0.1, 0.15, 0.5, 3.5)
CHANGES = (0.0, 0.02, 0.25, 0.5, 1.0)


class Scatter(NamedTuple):
    """Standard deviations of a pair of runs, in %: of what is explained and of the rest."""

    explained: float
    rest: float


# All scatter in what nobody changed, and half of its variance in what is linked with a change.
SCATTERS = (Scatter(0.01, 0.1), Scatter(0.07, 0.07), Scatter(0.02, 0.25))


def simulated(
    random: np.random.Generator,
    trials: int,
    seeds: int,
    change: float,
    shift: float,
    scatter: Scatter,
) -> tuple[float, float]:
    """Shares of sessions that are called a change by the whole alone, and of those that stand.

    Each has so many seeds; ``change`` is made, ``shift`` the sd of a build's draw, in %.
    """
    called = stands = 0
    base = np.ones(seeds)
    for _ in range(trials):
        explained = (change + scatter.explained * random.standard_normal(seeds)) / 100
        drawn = shift * random.standard_normal() + scatter.rest * random.standard_normal(seeds)
        patched = base + explained + drawn / 100
        evidence = Evidence("lower", (1.0,) * seeds, tuple(patched.tolist()), seeds)
        if judge_primary([evidence], THRESHOLDS)[0].verdict in CALLED:
            called += 1
            stands += Split(
                total=pair(base, patched),
                changed=pair(base, base + explained),
                linked=pair(base, base),
                rest=pair(base, base + drawn / 100),
                functions=(),
            ).stands
    return called / trials, stands / trials


def table(trials: int, seeds: int) -> Iterator[str]:
    """Rows of Markdown: called by the whole alone, and standing, by change and shift."""
    yield "| scatter: explained, rest | shift | " + " | ".join(f"{c} %" for c in CHANGES) + " |"
    yield "|---" * (2 + len(CHANGES)) + "|"
    for number, (scatter, shift) in enumerate(itertools.product(SCATTERS, SHIFTS)):
        random = np.random.default_rng([SEED, seeds, number])
        rates = [simulated(random, trials, seeds, change, shift, scatter) for change in CHANGES]
        cells = (f"{100 * called:.1f} → {100 * stands:.1f}" for called, stands in rates)
        yield f"| {scatter.explained}, {scatter.rest} % | {shift} % | {' | '.join(cells)} |"


def measured(session: MeasuredSession) -> Iterator[str]:
    """A row of Markdown for each path of a session of arms that do the same.

    Raises:
        ReportError: it has no pair of arms.
    """
    assert session.calls is not None, "a session of arms whose kernels differ"
    plain = session.manifest.experiment.thresholds.model_copy(update={"metrics": {}})
    counts: dict[tuple[str, str], list[int]] = {}
    for view in views(session.manifest):
        head = view.model_copy(
            update={
                "experiment": view.experiment.model_copy(update={"thresholds": plain}),
                "triage": None,
            }
        )
        verdicts = {
            (each.case, each.name): each.judgement.verdict
            for each in compare_views([head], session)[0].primary
        }
        recorded = Recorded(head, session.records, session.profiles)
        for phase in phases(recorded, lambda _run: True):
            path = phase.case.name, f"{phase.phase.name}.{PATH}"
            if path not in verdicts:
                continue
            here = counted(phase)
            row = counts.setdefault(path, [0, 0, 0, 0])
            row[0] += 1
            if verdicts[path] in CALLED:
                known = network(here.names, session.calls)
                row[1] += 1
                row[2] += len(here.names)
                row[3] += sum(split(here, [name], known).stands for name in here.names)
    for (case_name, name), (pairs, called, trials, stands) in counts.items():
        yield f"| {case_name} | {name} | {called} of {pairs} | {stands} of {trials} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sessions", nargs="*", type=Path)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_TRIALS} sessions a cell")
    arguments = parser.parse_args()
    if arguments.sessions:
        print("| case | path | pairs called | stands if one function had changed |")
        print("|---|---|---|---|")
        for folder in arguments.sessions:
            print("\n".join(measured(open_session(folder, counted=False))))
        return
    trials = QUICK_TRIALS if arguments.quick else TRIALS
    for seeds in (8, 32):
        print(f"\n{seeds} seeds; in % of sessions: called by the whole → stands\n")
        print("\n".join(table(trials, seeds)))


if __name__ == "__main__":
    main()
