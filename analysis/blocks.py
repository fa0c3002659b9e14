"""Records to blocks: what stands side by side, what failed, and how finely time is known; pure.

Where the work is given and the time comes out of it, a rate is known only as finely as the time: a
run of 80 ms in steps of more than 1 %, and two different times can read as the same bandwidth.  A
phase of a given time divides by what was asked for, which is exact.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from analysis.findings import data_points
from analysis.model import FailedRun, FailureCount, Pair, TimelineComparison
from experiment.plan import AGAIN
from results.record import CaseRecord, Manifest, RunRecord, Timeline

# fio prints how long its jobs ran in whole milliseconds.
STEP_S = 0.001
# Of what is divided by, or is, the time that fio ran.
TIMED = ("bw", "iops", "read_bw", "read_iops", "write_bw", "write_iops", "runtime")
TIMELINE_POINTS = 240
KIB_PER_MIB = 1024.0


class Block(NamedTuple):
    """One block of one case; ``again`` is the A/A arm's run, None in exact mode."""

    base: RunRecord
    patched: RunRecord
    again: RunRecord | None = None


def complete_blocks(
    manifest: Manifest,
    records: Sequence[RunRecord],
    case: str,
    without: Collection[int] = (),
) -> list[Block]:
    """Blocks in which every arm has samples, in order; ``without`` names those left out.

    A block is dropped only whole.
    """
    points = {(r.arm, r.block): r for r in data_points(records) if r.case == case}
    arms = [arm.name for arm in manifest.arms]
    blocks = sorted({block for _, block in points} - set(without))
    rows = [[points.get((arm, block)) for arm in arms] for block in blocks]
    return [Block(*(run for run in runs if run)) for runs in rows if all(runs)]


def pairs_of(blocks: Sequence[Block], metric: str) -> tuple[Pair, ...]:
    """The metric's value on every arm, block by block; a block that lacks one is left out."""
    pairs = []
    for block in blocks:
        values = [(run.samples or {}).get(metric) for run in block if run is not None]
        if None in values:
            continue
        before, after, *again = [value for value in values if value is not None]
        pairs.append(
            Pair(
                block=block.base.block,
                seed=block.base.seed,
                base=before,
                patched=after,
                change=(after - before) / before if before else None,
                again=again[0] if again else None,
            )
        )
    return tuple(pairs)


def failed_runs(records: Sequence[RunRecord]) -> tuple[FailedRun, ...]:
    """Every run that is no data point, in the order recorded."""
    return tuple(
        FailedRun(
            run_id=r.run_id, case=r.case, arm=r.arm, block=r.block, seed=r.seed, repeat=r.repeat,
            failure=r.failure,
        )
        for r in records
        if r.failure is not None
    )  # fmt: skip


def failure_count(manifest: Manifest, records: Sequence[RunRecord], case: str) -> FailureCount:
    """How many runs of each arm of one case failed."""
    runs = {
        arm.name: [r for r in records if (r.case, r.arm, r.repeat) == (case, arm.name, False)]
        for arm in manifest.arms
    }
    failed = {arm: sum(r.failure is not None for r in of_arm) for arm, of_arm in runs.items()}
    base, patched = manifest.base, manifest.patched
    return FailureCount(
        case=case,
        base_failed=failed[base],
        base_runs=len(runs[base]),
        patched_failed=failed[patched],
        patched_runs=len(runs[patched]),
        again=(failed[AGAIN], len(runs[AGAIN])) if AGAIN in runs else None,
    )


def time_resolution(
    manifest: Manifest, case: CaseRecord, metric: str, records: Iterable[RunRecord]
) -> float:
    """The largest error that the step of fio's time leaves in the logarithm of a value; 0 for none.

    ``records`` are the case's; the shortest run has the largest error.
    """
    phase, _, short = metric.partition(".")
    if manifest.experiment.mode == "wall" or short not in TIMED:
        return 0.0
    times = next(
        (spec.times.get(manifest.guest.name, {}) for spec in manifest.experiment.cases
         if spec.name == case.name), {},
    )  # fmt: skip
    by_number = phase in times and times[phase].ios is not None
    if not by_number and f"{phase}.runtime" not in {spec.name for spec in case.metrics}:
        return 0.0
    seconds = [
        samples[f"{phase}.ios"] / samples[f"{phase}.iops"]
        for record in records
        if (samples := record.samples)
        and samples.get(f"{phase}.iops")
        and f"{phase}.ios" in samples
    ]
    return math.log1p(STEP_S / min(seconds)) if seconds and min(seconds) > 0 else 0.0


def _line(run: RunRecord, phase: str) -> Timeline | None:
    """The run's timeline of a phase, if it has more than one point."""
    lines = (line for line in run.timelines if line.phase == phase and len(line.t_ms) > 1)
    return next(lines, None)


def timelines(
    case: CaseRecord, blocks: Sequence[Block], unit: str
) -> tuple[TimelineComparison, ...]:
    """One comparison a phase for which some block has a timeline on every arm."""
    result = []
    for phase in case.phases:
        every = [[_line(run, phase.name) for run in block if run is not None] for block in blocks]
        whole = [[line for line in lines if line] for lines in every if all(lines)]
        lines = [line for block in whole for line in block]
        if not lines:
            continue
        start, end = max(line.t_ms[0] for line in lines), min(line.t_ms[-1] for line in lines)
        points = min(TIMELINE_POINTS, min(len(line.t_ms) for line in lines))
        if end <= start:
            continue
        grid = np.linspace(start, end, points)
        arms = [
            tuple(
                tuple(
                    float(value) / KIB_PER_MIB
                    for value in np.interp(grid, line.t_ms, line.bw_kib_s)
                )
                for line in arm
            )
            for arm in zip(*whole, strict=True)
        ]
        result.append(
            TimelineComparison(
                case=case.name,
                phase=phase.name,
                unit=unit,
                t_s=tuple(float(t) / 1000 for t in grid),
                base=arms[0],
                patched=arms[1],
                again=arms[2] if len(arms) > 2 else (),
            )
        )
    return tuple(result)
