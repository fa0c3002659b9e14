"""Instructions by call path, per unit of work and paired by seed: pure.

They are counted in diagnostic runs of the judged guests; nothing here reaches a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reports import paired
from reports.attribution import SeedProfiles, path_unit, profiled_phases
from reports.paired import Floats
from reports.stacks_model import StackComparison, StackRow
from results.profile import SMALLER, PhaseProfile, Profile, StackFrame
from results.record import CaseRecord, Manifest, PhaseRecord, RunRecord

Path = tuple[str, ...]
MOST_LISTED = 40
# A path's change that is less than this share of all that the kernel executed is not worth a row.
LEAST_SHARE = 0.0001
# Where this share of all that changed is on or below one path, that path is where it changed.
FOCUS = 0.8


def _paths(frames: Sequence[StackFrame]) -> dict[Path, StackFrame]:
    """Each frame by its path."""
    by_path: dict[Path, StackFrame] = {}
    above: list[str] = []
    for frame in frames:
        above = [*above[: frame.depth], frame.function]
        by_path[tuple(above)] = frame
    return by_path


def _ordered(runs: Sequence[dict[Path, StackFrame]]) -> list[Path]:
    """The paths of all runs, each behind its callers, in the order of names."""
    return sorted({path for run in runs for path in run})


def _totals(paths: Sequence[Path], own: Floats) -> Floats:
    """What is executed on each path and below it: ``own`` is (seeds, paths)."""
    totals = own.copy()
    at = {path: number for number, path in enumerate(paths)}
    # What is below a path is behind it.
    for number in range(len(paths) - 1, -1, -1):
        if len(paths[number]) > 1:
            totals[:, at[paths[number][:-1]]] += totals[:, number]
    return totals


def _focus(rows: Sequence[StackRow]) -> tuple[Path, float]:
    """The longest path that most of what changed is on or below, and how much of it is."""
    moved: dict[Path, float] = {}
    for row in rows:
        if not row.instructions.is_significant:
            continue
        for depth in range(len(row.path) + 1):
            above = row.path[:depth]
            moved[above] = moved.get(above, 0.0) + abs(row.instructions.difference)
    everything = moved.get((), 0.0)
    most = [path for path, here in moved.items() if path and here >= FOCUS * everything]
    if not everything or not most:
        return (), 0.0
    longest = max(most, key=len)
    return longest, moved[longest] / everything


def _phase(
    twin: str, case: CaseRecord, phase: PhaseRecord, blocks: Sequence[SeedProfiles]
) -> StackComparison | None:
    arms = [block.base for block in blocks], [block.patched for block in blocks]
    both = [*arms[0], *arms[1]]
    unit = path_unit(phase, both)
    if unit is None or any(profile.stacks is None for profile in both):
        return None
    runs = [[_paths(profile.stacks or ()) for profile in arm] for arm in arms]
    paths = _ordered([run for arm in runs for run in arm])
    if not paths:
        return None

    def per_unit(of: str, arm: int) -> Floats:
        return np.array([
            [getattr(run[path], of) if path in run else 0.0 for path in paths]
            for run in runs[arm]
        ]) / _units(arms[arm], unit[0])  # fmt: skip

    own = per_unit("instructions", 0), per_unit("instructions", 1)
    totals = [_totals(paths, each) for each in own]
    columns = zip(
        paths,
        paired.columns(*own),
        paired.columns(totals[0], totals[1]),
        paired.columns(per_unit("calls", 0), per_unit("calls", 1)),
        strict=True,
    )
    rows = tuple(
        StackRow(callers=path[:-1], function=path[-1], instructions=mine, total=total, calls=calls)
        for path, mine, total, calls in columns
    )
    total = paired.columns(*(each.sum(axis=1, keepdims=True) for each in own))[0]
    least = LEAST_SHARE * max(total.base, total.patched)
    changed = [
        number for number, row in enumerate(rows)
        if row.function != SMALLER
        and not row.instructions.within_scatter
        and abs(row.instructions.difference) > least
    ]  # fmt: skip
    changed.sort(key=lambda number: (-abs(rows[number].instructions.difference), number))
    focus, share = _focus(rows)
    return StackComparison(
        twin=twin,
        case=case.name,
        phase=phase.name,
        unit_title=unit[1],
        seeds=tuple(block.seed for block in blocks),
        total=total,
        rows=rows,
        listed=tuple(changed[:MOST_LISTED]),
        focus=focus,
        focus_share=share,
    )


def _units(profiles: Sequence[PhaseProfile], unit: str) -> Floats:
    return np.array([[profile.units[unit]] for profile in profiles])


def compare_stacks(
    manifest: Manifest, records: Sequence[RunRecord], profiles: Sequence[Profile]
) -> tuple[StackComparison, ...]:
    """One comparison a twin that followed call stacks, case and phase, where both arms have."""
    compared = []
    for twin in manifest.twins:
        for case, phase, blocks in profiled_phases(manifest, records, profiles, twin.name):
            comparison = _phase(twin.name, case, phase, blocks)
            compared += [comparison] if comparison else []
    return tuple(compared)
