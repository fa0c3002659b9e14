"""Records to blocks: what stands side by side, what failed, and how often; pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from experiment.plan import AGAIN
from reports.findings import data_points
from reports.model import FailedRun, FailureCount, Pair
from results.record import Manifest, RunRecord


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
