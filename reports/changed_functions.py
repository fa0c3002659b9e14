"""Which kernel functions changed: a test of its own for what a whole run hides.  Pure.

A function is called changed where its instructions or its calls per unit of work moved in
one direction on every seed, by at least :data:`SMALLEST` of the phase or what the phase's
workload has instead, and the paired t test survives Holm's correction over all functions that
are large enough to move by as much (half of it, on average over both arms), of all phases of the
two arms, instructions and calls each.
How often that is wrong where nothing changed is measured (``benchmarks/nulls.py``;
docs/evidence.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from reports import paired
from reports.attribution_model import FunctionChange, Moved
from reports.paired import Floats
from reports.statistics import holm, pairs_needed

# Of all instructions of a phase.
SMALLEST = 2.5e-4
# Functions whose instructions say how memory was left by the boot, and not what a series does: by
# calls alone they can change.  __rmqueue_pcplist() takes 69 to 135 instructions a call by which
# memory is free, the same on all seeds of a build: up to 0.09 % of iomap-dirty, in 20 of 78 pairs
# of changes that change nothing (docs/evidence.md).
BY_BOOT = frozenset({"__rmqueue_pcplist"})


class PhaseCounts(NamedTuple):
    """Kernel functions of one phase per unit of work: each array is (seeds, functions)."""

    names: Sequence[str]
    files: Sequence[str]
    lines: Sequence[tuple[int, int]]
    instructions: tuple[Floats, Floats]
    calls: tuple[Floats, Floats]
    total: float
    smallest: float = SMALLEST


class Tested(NamedTuple):
    """One phase: how many functions were tested, and those that changed, the largest first."""

    functions: int
    changed: tuple[FunctionChange, ...]


class _Candidate(NamedTuple):
    """One test: of a function's instructions or of its calls.

    ``size`` is the difference in instructions per unit: that of calls at the function's mean
    length.
    """

    phase: int
    column: int
    moved: Moved
    size: float
    p_value: float
    one_direction: bool


def changed(phases: Sequence[PhaseCounts], alpha: float) -> list[Tested]:
    """The functions of each phase that changed; all phases are one family for Holm.

    Fewer seeds than a verdict at that level needs test nothing.
    """
    candidates = [
        candidate
        for at, counts in enumerate(phases)
        for candidate in _candidates(at, counts, alpha)
    ]
    adjusted = holm([candidate.p_value for candidate in candidates])
    significant: list[dict[int, list[tuple[_Candidate, float]]]] = [{} for _ in phases]
    for candidate, p_value in zip(candidates, adjusted, strict=True):
        phase = phases[candidate.phase]
        large = abs(candidate.size) >= phase.smallest * phase.total
        if candidate.one_direction and large and p_value <= alpha:
            significant[candidate.phase].setdefault(candidate.column, []).append(
                (candidate, p_value)
            )
    return [
        Tested(
            len({candidate.column for candidate in candidates if candidate.phase == at}),
            tuple(
                sorted(
                    (_change(counts, column, tests) for column, tests in significant[at].items()),
                    key=lambda change: (-abs(change.size), change.name),
                )
            ),
        )
        for at, counts in enumerate(phases)
    ]


def _candidates(at: int, counts: PhaseCounts, alpha: float) -> list[_Candidate]:
    (base, patched), calls = counts.instructions, counts.calls
    if base.shape[0] < pairs_needed(1 - alpha):
        return []
    # Chosen by the mean of both arms, which says nothing of the difference.
    means = (base.mean(axis=0) + patched.mean(axis=0)) / 2
    entered = (calls[0].mean(axis=0) + calls[1].mean(axis=0)) / 2
    length = np.divide(means, entered, out=np.zeros_like(means), where=entered > 0)
    large = np.flatnonzero(means >= counts.smallest / 2 * counts.total)
    tests: tuple[tuple[Moved, Floats, Floats], ...] = (
        ("instructions", patched - base, np.ones_like(length)),
        ("calls", calls[1] - calls[0], length),
    )
    candidates = []
    for moved, differences, scale in tests:
        apart = differences[:, large]
        sizes, p_values = apart.mean(axis=0) * scale[large], _t_p(apart)
        one_direction = np.abs(np.sign(apart).sum(axis=0)) == len(apart)
        candidates += [
            _Candidate(
                at, int(column), moved, float(sizes[n]), float(p_values[n]), bool(one_direction[n])
            )
            for n, column in enumerate(large)
            if moved == "calls" or counts.names[int(column)] not in BY_BOOT
        ]
    return candidates


def _t_p(differences: Floats) -> Floats:
    """Two-sided p values of paired t tests, one a column of (seeds, functions).

    Differences that are all equal have no scatter: 0, or 1 where all are zero.
    """
    from scipy import special  # as in statistics.py

    seeds = differences.shape[0]
    constant = (differences == differences[0]).all(axis=0)
    error = differences.std(axis=0, ddof=1) / math.sqrt(seeds)
    ratio = np.divide(
        np.abs(differences.mean(axis=0)), error, out=np.zeros_like(error), where=~constant
    )
    certain = np.where(differences[0] == 0, 1.0, 0.0)
    return np.asarray(np.where(constant, certain, 2 * special.stdtr(seeds - 1, -ratio)))


def _change(
    counts: PhaseCounts, column: int, tests: Sequence[tuple[_Candidate, float]]
) -> FunctionChange:
    moved: tuple[Moved, ...] = tuple(candidate.moved for candidate, _ in tests)
    of_one = slice(column, column + 1)
    instructions, calls = (
        paired.columns(both[0][:, of_one], both[1][:, of_one])[0]
        for both in (counts.instructions, counts.calls)
    )
    return FunctionChange(
        name=counts.names[column],
        file=counts.files[column],
        lines=counts.lines[column],
        instructions=instructions,
        calls=calls,
        moved=moved,
        size=max((candidate.size for candidate, _ in tests), key=abs),
        p_value=min(p_value for _, p_value in tests),
    )
