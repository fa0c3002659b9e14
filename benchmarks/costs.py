"""What a unit of work costs: fits the ``costs`` of the catalogue to sessions that were measured.

Instructions of a run are fio's start plus, for each unit, its number times its cost.  Least
squares over all runs of all sessions, with a factor of its own for each arm of each session,
so that no change of a kernel gets into the costs.  Sessions of different lengths are wanted:
with one length fio's start and the I/Os are one thing.  Printed besides: by how much paired
differences scatter (standard deviation, in %) in bandwidth, in what an I/O takes, and in path
and work with the catalogue's costs and with those fitted.

    .venv/bin/python benchmarks/costs.py sessions/costs-long sessions/costs-short
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from analysis.statistics import Floats
from results.store import SessionStore
from workloads.metrics import work_ns
from workloads.spec import Phase, load_catalogue

# Fitting costs and arms in turns: it moves by less than the last printed digit after three.
TURNS = 20


class CostRun(NamedTuple):
    """One run of one phase: ``counts`` has one number for each of the phase's costs."""

    arm: tuple[str, str]
    block: int
    instructions: float
    counts: tuple[float, ...]
    samples: dict[str, float]


def runs_of(folder: Path) -> dict[tuple[str, str, str], list[CostRun]]:
    """Judged runs by workload, variant and phase.

    Raises:
        StoreError: no session is there.
    """
    store = SessionStore(folder)
    catalogue, manifest = load_catalogue(), store.manifest()
    cases = {case.name: case for case in manifest.experiment.cases}
    profiles = {profile.run_id: profile for profile in store.profiles()}
    runs = defaultdict(list)
    for record in store.records():
        if record.repeat or record.twin or record.run_id not in profiles or not record.samples:
            continue
        case = cases[record.case]
        phases = catalogue[case.workload].phases_of(case.variant)
        for spec, phase in zip(phases, profiles[record.run_id].phases, strict=True):
            if work_ns(spec, phase.work) is not None:
                runs[case.workload, case.variant, spec.name].append(
                    CostRun(
                        (str(folder), record.arm),
                        record.block,
                        phase.busy,
                        tuple(phase.work[cost.name] for cost in spec.costs),
                        dict(record.samples),
                    )
                )
    return runs


def fitted(runs: list[CostRun]) -> Floats:
    """Start and the cost of each unit, shape (1 + units,), relative to the arms' mean."""
    arms = sorted({run.arm for run in runs})
    which = np.array([arms.index(run.arm) for run in runs])
    counts = np.array([(1.0, *run.counts) for run in runs])
    spent = np.array([run.instructions for run in runs])
    factor = np.ones(len(arms))
    costs = np.zeros(counts.shape[1])
    for _ in range(TURNS):
        costs = np.linalg.lstsq(counts, spent / factor[which], rcond=None)[0]
        ratios = np.log(spent / (counts @ costs))
        factor = np.exp([ratios[which == arm].mean() for arm in range(len(arms))])
        factor /= np.exp(np.log(factor).mean())
    return np.asarray(costs)


def scatter(
    runs: list[CostRun], value: dict[tuple[tuple[str, str], int], float]
) -> dict[str, float]:
    """Standard deviation of paired log ratios in %, by session; of its first two arms."""
    deviations = {}
    for session in dict.fromkeys(run.arm[0] for run in runs):
        base, other = list(dict.fromkeys(run.arm for run in runs if run.arm[0] == session))[:2]
        blocks = {block for arm, block in value if arm == base} & {
            block for arm, block in value if arm == other
        }
        ratios = [np.log(value[other, block] / value[base, block]) for block in sorted(blocks)]
        if len(ratios) > 1:
            deviations[session] = float(100 * np.std(ratios, ddof=1))
    return deviations


def report(name: tuple[str, str, str], spec: Phase, runs: list[CostRun]) -> None:
    """Print one phase."""
    costs = fitted(runs)
    given = np.array([spec.start_ns, *(cost.ns for cost in spec.costs)])
    print(f"{' '.join(name)}: {len(runs)} runs")
    for title, has, fit in zip(["start", *(c.name for c in spec.costs)], given, costs, strict=True):
        print(f"  {title:<8} {has:>14,.0f} in the catalogue, {fit:>14,.0f} fitted")
    rows: list[tuple[str, dict[tuple[tuple[str, str], int], float]]] = [
        (short, {(r.arm, r.block): r.samples[f"{spec.name}.{short}"] for r in runs})
        for short in ("bw", "guest_ns_per_io")
        if all(f"{spec.name}.{short}" in r.samples for r in runs)
    ]
    io = next(at for at, cost in enumerate(spec.costs) if cost.ios)
    for words, by in (("catalogue", given), ("fitted", costs)):
        work = {(r.arm, r.block): float(np.dot((1.0, *r.counts), by)) for r in runs}
        path = {(r.arm, r.block): r.instructions / work[r.arm, r.block] for r in runs}
        rows.append((f"path, {words}", path))
        rows.append(
            (
                f"work, {words}",
                {(r.arm, r.block): work[r.arm, r.block] / r.counts[io] for r in runs},
            )
        )
    for title, value in rows:
        cells = "  ".join(f"{Path(k).name} {sd:.3f}" for k, sd in scatter(runs, value).items())
        print(f"  paired sd, %: {title:<16} {cells}")


def main() -> None:
    """Read the sessions and print every phase that they share."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sessions", nargs="+", type=Path)
    arguments = parser.parse_args()
    by_phase: dict[tuple[str, str, str], list[CostRun]] = defaultdict(list)
    for folder in arguments.sessions:
        for name, runs in runs_of(folder).items():
            by_phase[name] += runs
    catalogue = load_catalogue()
    for name, runs in by_phase.items():
        phases = {spec.name: spec for spec in catalogue[name[0]].phases_of(name[1])}
        report(name, phases[name[2]], runs)


if __name__ == "__main__":
    main()
