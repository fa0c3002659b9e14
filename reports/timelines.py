"""Bandwidth within a run, all runs of a phase on one time grid; pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reports.blocks import Block
from reports.model import TimelineComparison
from results.record import CaseRecord, RunRecord, Timeline

TIMELINE_POINTS = 240
KIB_PER_MIB = 1024.0


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
