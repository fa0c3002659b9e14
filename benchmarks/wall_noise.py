"""How noisy wall mode is on this host, and what it could see: a session without records.

Boots the arms of an experiment in randomised blocks with the A/A arm, through the same
parts that wall mode uses, and judges the primary metrics.  Under TCG the judgement is
withheld, and the noise is that of a translator on a shared host.

    .venv/bin/python benchmarks/wall_noise.py --guest smoke --blocks 8
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from experiment.design import (
    AGAIN,
    WALL_CHANGE,
    Conditions,
    dropped_blocks,
    wall_arms,
    wall_plan,
)
from experiment.load import load_experiment
from experiment.spec import PhaseTimes, Thresholds
from host import accelerator
from host.facts import cache_folder
from host.topology import host_cpus, place
from reports import statistics, wall_statistics
from reports.verdict import Evidence
from reports.wall_verdict import WallEvidence, judge_wall
from runs.options import Options
from runs.prepare import catalogue, prepare
from runs.wall import Wall, lab_kept_off, observe_run
from workloads import metrics

Values = dict[tuple[str, str], dict[tuple[int, str], float]]


def evidence(
    values: dict[tuple[int, str], float], arms: tuple[str, str], blocks: int, real_time: bool
) -> WallEvidence:
    """Complete blocks in order, of one metric."""
    complete = [
        block for block in range(blocks) if all((block, arm) in values for arm in (*arms, AGAIN))
    ]
    base, patched, again = (
        tuple(values[block, arm] for block in complete) for arm in (*arms, AGAIN)
    )
    return WallEvidence(Evidence("higher", base, patched, blocks), again, real_time)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--experiment", default="filemap-v4")
    parser.add_argument("--guest", default="smoke")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--case", default="")
    parser.add_argument("--runtime", type=float, default=3.0, help="seconds of each phase")
    asked = parser.parse_args()

    overrides = [f"guest={asked.guest}", f"blocks={asked.blocks}"]
    experiment = load_experiment(
        Path(asked.experiment), overrides=overrides, catalogue=catalogue(CHECKOUT)
    )
    # The profiles' times are virtual seconds; a translator does a tenth of the work in one.
    times = PhaseTimes(ramp_s=asked.runtime / 4, runtime_s=asked.runtime)
    wanted = [
        case.model_copy(
            update={"times": {asked.guest: dict.fromkeys(case.times[asked.guest], times)}}
        )
        for case in experiment.cases
        if asked.case in ("", case.name)
    ]
    experiment = experiment.model_copy(update={"cases": tuple(wanted), "twins": ()})
    session = prepare(experiment, Options(CHECKOUT, cache_folder()), lambda arm, progress: None)
    arms = tuple(arm.name for arm in experiment.both_arms)
    found = accelerator.provide(cache_folder(), session.measured.kernels[arms[0]].bzimage)
    print(f"{found.text()}; arms {', '.join(arm.name for arm in wall_arms(experiment))}")

    guest = session.guest
    placement = place(host_cpus(), vcpus=guest.vcpus, nodes=guest.wall.numa_nodes)
    wall = Wall(found.accelerator, placement)

    values: Values = defaultdict(dict)
    conditions: dict[int, list[Conditions | None]] = defaultdict(list)
    top = tempfile.TemporaryDirectory(dir=cache_folder())
    # What was measured until somebody interrupts is judged all the same.
    with top as folder, lab_kept_off(placement), suppress(KeyboardInterrupt):
        for run in wall_plan(experiment).runs:
            began = time.monotonic()
            logs = Path(folder) / run.run_id
            seen = observe_run(session, run, wall, logs / "run", logs, lambda word: None)
            conditions[run.block].append(seen.conditions if seen.result else None)
            if seen.result is None:
                print(f"{run.run_id}: {seen.ending.kind}: {seen.ending.message}", flush=True)
                continue
            samples = metrics.samples(seen.result.phases, real_time=True)
            took = time.monotonic() - began
            for name in session.case(run.case).primary:
                values[run.case, name][run.block, run.arm] = samples[name]
                print(f"{run.run_id}: {name} {samples[name]:.1f}, {took:.0f} s", flush=True)

    print("\nblocks that the rules would drop:")
    for block, reason in dropped_blocks(conditions).items():
        print(f"  {block}: {reason}")
    thresholds = Thresholds(change=WALL_CHANGE)
    shown = [
        (key, evidence(found_values, (arms[0], arms[1]), experiment.blocks, found.real_time))
        for key, found_values in values.items()
    ]
    for (key, one), said in zip(shown, judge_wall([e for _, e in shown], thresholds), strict=True):
        judgement = said.judgement
        print(f"\n{' '.join(key)}: {judgement.verdict}: {judgement.reason}")
        if judgement.change is not None:
            print(f"  change {judgement.change.estimate:+.2%} over {judgement.pairs} blocks")
        if said.noise is not None and said.noise.sd is not None:
            floor = "unknown" if said.noise.floor is None else f"{said.noise.floor:.2%}"
            print(f"  A/A {said.noise.estimate:+.2%}, sd {said.noise.sd:.2%}, noise floor {floor}")
            ahead = wall_statistics.forecast(
                statistics.log_ratios(one.arms.base, one.again),
                change=WALL_CHANGE, alpha=thresholds.alpha, blocks=asked.blocks,
            )  # fmt: skip
            if ahead is not None:
                needed = ahead.needed or "more than 1000"
                print(f"  to see {WALL_CHANGE:.0%} on this host takes {needed} blocks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
