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
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from experiment.design import (
    AGAIN,
    Conditions,
    dropped_blocks,
    wall_arms,
    wall_plan,
)
from experiment.load import load_experiment
from experiment.plan import PlannedRun
from experiment.spec import WALL_CHANGE, Thresholds
from guests import virtme
from guests.virtme import WallMachine
from host import accelerator
from host.facts import cache_folder
from host.fitness import meanwhile, read_counters
from host.topology import host_cpus, place
from reports import statistics, wall_statistics
from reports.verdict import Evidence
from reports.wall_verdict import WallEvidence, judge_wall
from runs.options import Options
from runs.prepare import Session, catalogue, prepare
from workloads import metrics, parse, validity

Values = dict[tuple[str, str], dict[tuple[int, str], float]]


def machine_of(session: Session, run: PlannedRun, found: accelerator.Finding) -> WallMachine:
    """The wall machine of a run, from what an exact one would be."""
    base = session.experiment.both_arms[0].name
    exact = session.machine(run.model_copy(update={"arm": base if run.arm == AGAIN else run.arm}))
    return WallMachine(
        kernel=exact.kernel,
        initramfs=exact.initramfs,
        guest=exact.guest,
        size=exact.size,
        prepare_text=exact.prepare_text,
        accelerator=found.accelerator,
        placement=place(host_cpus(), vcpus=exact.guest.vcpus, nodes=exact.guest.wall.numa_nodes),
    )


def measured(
    session: Session, run: PlannedRun, found: accelerator.Finding, place_: Path
) -> tuple[dict[str, float], Conditions | None]:
    """Samples and conditions of one run; no conditions, and the reason printed, if it failed."""
    before = read_counters()
    outcome = virtme.run(
        machine_of(session, run, found), session.job(run), place_ / "run", place_, lambda word: None
    )
    seen = meanwhile(before, read_counters(), own_cpu_s=outcome.cpu_s)
    phases = session.phases(session.case(run.case))
    if outcome.files is None or outcome.ending.kind != "done":
        print(f"{run.run_id}: {outcome.ending.kind}: {outcome.ending.message}", flush=True)
        return {}, None
    result = parse.guest_result(outcome.files, tuple(phase.name for phase in phases))
    arm = session.experiment.both_arms[0].name if run.arm == AGAIN else run.arm
    claim = validity.Claim(
        phases,
        session.measured.limit_bytes,
        run.seed,
        session.measured.kernels[arm].identity.build_id,
        validity.LEFT_PAGES_WALL,
    )
    problems = validity.problems(result, claim)
    if problems:
        print(f"{run.run_id}: {'; '.join(problems)}", flush=True)
        return {}, None
    conditions = Conditions(seen.stolen, seen.foreign, seen.swapped_pages, seen.throttled)
    return metrics.samples(result.phases, real_time=True), conditions


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
    asked = parser.parse_args()

    overrides = [f"guest={asked.guest}", f"blocks={asked.blocks}"]
    experiment = load_experiment(
        Path(asked.experiment), overrides=overrides, catalogue=catalogue(CHECKOUT)
    )
    wanted = [case for case in experiment.cases if asked.case in ("", case.name)]
    experiment = experiment.model_copy(update={"cases": tuple(wanted), "twins": ()})
    session = prepare(experiment, Options(CHECKOUT, cache_folder()), lambda arm, progress: None)
    arms = tuple(arm.name for arm in experiment.both_arms)
    found = accelerator.provide(cache_folder(), session.measured.kernels[arms[0]].bzimage)
    print(f"{found.text()}; arms {', '.join(arm.name for arm in wall_arms(experiment))}")

    values: Values = defaultdict(dict)
    conditions: dict[int, list[Conditions | None]] = defaultdict(list)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        for run in wall_plan(experiment).runs:
            began = time.monotonic()
            samples, seen = measured(session, run, found, Path(folder) / run.run_id)
            conditions[run.block].append(seen)
            for name in session.case(run.case).primary:
                if name in samples:
                    values[run.case, name][run.block, run.arm] = samples[name]
                    took = time.monotonic() - began
                    print(f"{run.run_id}: {name} {samples[name]:.1f}, {took:.0f} s", flush=True)

    print("\nblocks that the rules would drop:", dropped_blocks(conditions) or "none")
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
