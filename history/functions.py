"""Which functions moved between two nights: per unit of work, the largest first; pure."""

from __future__ import annotations

import math

from history.change import Moved
from history.entry import SMALLEST, FunctionCost, PhaseCost

# Shown functions make up this share of all that moved, and are at most this many.
SHARE = 0.8
MOST = 12
# Counts explain and gate nothing: two standard errors, without correction for their number.
ERRORS = 2.0


def moved(before: PhaseCost, after: PhaseCost, *, most: int = MOST) -> tuple[Moved, ...]:
    """The functions that the difference of two nights is in, the largest first.

    A function that one night was too small to keep counts as nothing there, which is less
    than 0.01 % of all instructions off; the difference of what was kept only as a sum is
    ``[others]`` where it is among the largest.
    """
    first = {cost.name: cost for cost in before.functions}
    second = {cost.name: cost for cost in after.functions}
    rows = [
        _row(first.get(name), second.get(name), before.seeds, after.seeds)
        for name in first.keys() | second.keys()
    ]
    rows.append(
        Moved(
            name="[others]", file="", before=before.others, after=after.others,
            difference=after.others - before.others, calls_before=None, calls_after=None,
        )
    )  # fmt: skip
    least = SMALLEST * max(before.total, after.total)
    rows = [row for row in rows if abs(row.difference) >= least and not row.within_scatter]
    rows.sort(key=lambda row: (-abs(row.difference), row.name))
    everything = sum(abs(row.difference) for row in rows)
    lines, total = [], 0.0
    for row in rows[:most]:
        if total >= SHARE * everything:
            break
        lines.append(row)
        total += abs(row.difference)
    return tuple(lines)


def _row(
    first: FunctionCost | None, second: FunctionCost | None, n_first: int, n_second: int
) -> Moved:
    either = first or second
    assert either is not None
    before, after = first.instructions if first else None, second.instructions if second else None
    difference = (after or 0.0) - (before or 0.0)
    error = math.sqrt(
        (first.scatter**2 / n_first if first else 0.0)
        + (second.scatter**2 / n_second if second else 0.0)
    )
    return Moved(
        name=either.name,
        file=either.file,
        before=before,
        after=after,
        difference=difference,
        calls_before=first.calls if first else None,
        calls_after=second.calls if second else None,
        within_scatter=abs(difference) <= ERRORS * error,
    )
