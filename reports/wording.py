"""Numbers and changes as text: the one place, so that forms and charts agree.

No word of a verdict: those are in :mod:`reports.sentences`, which no chart imports.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from analysis.counts import Paired
from analysis.many import ArmCell, MetricRow
from analysis.model import Again, MetricComparison, Reference, Summary, is_share
from analysis.verdict import MISSING, Change
from experiment.spec import Thresholds
from text import counted

SIGNIFICANT = 6
# Digits of a value that is read beside another.
SIDES = 5
NOTHING = "–"
# Tenfold: bounds beyond are not told apart, unless they are closer than the factor APART.
WIDEST, APART = 9.0, 3.0
# From twice as much, or a fifth, on, a factor says more than a percentage.
MORE, FEWER = 1.0, 0.8


def after(unit: str) -> str:
    """A unit as it follows a number, with its space; nothing for a plain ratio, whose unit is 1."""
    return "" if unit == "1" else f" {unit}"


def figure(value: float | None, digits: int = SIGNIFICANT) -> str:
    """A value with ``digits`` significant digits and no exponent; a dash for None.

    Six digits keep a change recomputed from printed figures within 0.001 %.
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(decimals, 9)}f}"


def sides(base: float, patched: float) -> tuple[str, str]:
    """Two values with equal decimals: five digits of the larger, and all before its point.

    ``13,696`` and ``13,585``; ``183.56`` and ``183.56``.
    """
    largest = max(abs(base), abs(patched))
    digits = math.floor(math.log10(largest)) + 1 if largest else 1
    decimals = min(max(0, SIDES - max(digits, 1)), 4)
    return f"{base:,.{decimals}f}", f"{patched:,.{decimals}f}"


def percent(fraction: float | None, *, decimals: int = 2) -> str:
    """A signed change: ``+1.31 %``; exactly zero has no sign."""
    if fraction is None:
        return NOTHING
    # A change that rounds to nothing must not look like the exact zero of an A/A.
    return f"{signed(100 * fraction, 0 if abs(fraction) >= 10 else decimals)} %"


def sized(fraction: float | None) -> str:
    """A change as :func:`percent` says it, and as a factor where nobody thinks in percent.

    ``+919 % (10.2x)``; ``-93.73 % (1/16.0)``; ``+81.59 %``.
    """
    text = percent(fraction)
    if fraction is None or -FEWER < fraction < MORE or fraction <= -1:
        return text
    factor = 1 + fraction if fraction > 0 else 1 / (1 + fraction)
    # Three digits, and all of them before the point: 1053 and not 1.05e+03.
    size = f"{factor:.3g}" if factor < 999.5 else f"{factor:.0f}"
    return f"{text} ({size}x)" if fraction > 0 else f"{text} (1/{size})"


def spread(fraction: float | None) -> str:
    """A relative standard deviation: ``±0.25 %``; a dash where there is none."""
    return NOTHING if fraction is None else f"±{100 * fraction:.2f} %"


def ends(of: Change | Again | None) -> tuple[float, float] | None:
    """Both bounds; None where there is no interval."""
    if of is None or of.low is None or of.high is None:
        return None
    return of.low, of.high


def bounds(metric: MetricComparison) -> str:
    """``[+1.02, +1.60]`` in the unit of :func:`change`; empty where there is no interval."""
    both = ends(metric.judgement.change)
    return within(metric.unit, metric.base, *both) if both else ""


def within(unit: str, base: Summary | None, low: float, high: float) -> str:
    """:func:`between` of two changes of a metric, of a share in points.

    That of two pairs may reach beyond the whole; no share does.
    """
    if not is_share(unit):
        return between(low, high)
    return (
        f"[{base.mean * low:+.2f}, {min(base.mean * high, 100 - base.mean):+.2f}]" if base else ""
    )


def between(low: float, high: float) -> str:
    """``[+1.02, +1.60]`` in percent, of two fractions.

    An interval of two pairs may reach to any power of ten: it is none to a reader.
    """
    exact = (1 + high) < APART * (1 + low)
    ends = (
        f"> {100 * WIDEST:+.0f}" if end > WIDEST and not exact else signed(100 * end, 2).lstrip("±")
        for end in (low, high)
    )
    return f"[{', '.join(ends)}]"


def interval(metric: MetricComparison) -> str:
    """``[+1.02, +1.60] at 99 %``; empty where there is no interval."""
    text, change = bounds(metric), metric.judgement.change
    return f"{text} at {100 * change.level:g} %" if text and change else ""


def threshold(thresholds: Thresholds, judged: Collection[str]) -> str:
    """The smallest change that matters, as a band around zero: ``±0.25 % (thp.work: ±5 %)``.

    Of metrics that are ``judged``, by their names and those of their cases: others are not shown.
    """
    own = [
        f"{name}: ±{100 * change:g} %"
        for name, change in sorted(thresholds.metrics.items())
        if name in judged
    ]
    return f"±{100 * thresholds.change:g} %" + (f" ({', '.join(own)})" if own else "")


def points(value: float | None) -> str:
    """``+1.30 points``; a dash for None."""
    if value is None:
        return NOTHING
    return "0 points" if value == 0 else f"{value:+.2f} points"


def change(metric: MetricComparison) -> str:
    """The change of a metric in percent, of a share in points; a dash where there is none."""
    if is_share(metric.unit):
        withheld = metric.judgement.verdict in MISSING and metric.judgement.change is None
        if metric.base is None or metric.patched is None or withheld:
            return NOTHING
        return points(metric.patched.mean - metric.base.mean)
    return sized(estimate(metric.judgement.change))


def estimate(change: Change | None) -> float | None:
    """The size of a change, a fraction; None where there is none."""
    return change.estimate if change else None


def reference_change(reference: Reference) -> str:
    """The change of a published figure, as :func:`change` says it."""
    if is_share(reference.unit):
        return points(reference.patched - reference.base)
    return sized(reference.change)


def cell_difference(row: MetricRow, cell: ArmCell) -> float | None:
    """Of a metric that is a percentage: the arm's mean less that of base, in points."""
    if cell.summary is None or row.base.summary is None:
        return None
    return cell.summary.mean - row.base.summary.mean


def cell_change(row: MetricRow, cell: ArmCell) -> str:
    """The arm's change from base in percent; in points where the metric is a percentage."""
    return points(cell_difference(row, cell)) if row.is_share else percent(estimate(cell.change))


def cell_bounds(row: MetricRow, cell: ArmCell) -> str:
    """The interval of the change, in its unit; empty where there is none."""
    both = ends(cell.change)
    return within(row.unit, row.base.summary, *both) if both else ""


def row_samples(row: MetricRow) -> str:
    """``8 seeds``, in wall mode ``24 blocks``; where arms have not as many, ``6 to 8 seeds``."""
    counts = sorted({len(cell.values) for cell in row.cells})
    if not counts or counts == [0]:
        return "nothing measured"
    in_wall = any(cell.against and cell.against.again for cell in row.others)
    most = counted(counts[-1], "block" if in_wall else "seed")
    return most if len(counts) == 1 else f"{counts[0]} to {most}"


def again_size(metric: MetricComparison) -> str:
    """What base differs by from itself, as changes are given; a dash where it is not known."""
    size = metric.again.estimate if metric.again else None
    if is_share(metric.unit) and metric.base and size is not None:
        return points(metric.base.mean * size)
    return percent(size)


def amount(value: float | None, decimals: int = 1) -> str:
    """A count per unit with fixed decimals; exactly zero is ``0``, a dash for None."""
    if value is None:
        return NOTHING
    return "0" if value == 0 else f"{value:.{decimals}f}"


def decimals_of(*values: float, digits: int = 3) -> int:
    """As many as the largest value takes to have so many significant digits; two at least."""
    largest = max(map(abs, values), default=0.0)
    return max(2, digits - 1 - math.floor(math.log10(largest))) if largest else 2


def apart(pair: Paired) -> str:
    """``-0.0002 [-0.0012, +0.0009]`` of 0.0996: the difference, where values have three digits."""
    decimals = decimals_of(pair.base, pair.patched)
    return f"{signed(pair.difference, decimals)} {paired_bounds(pair, decimals)}".rstrip()


def signed(value: float, decimals: int = 1) -> str:
    """A difference: ``-85.3``; what rounds to nothing and is not zero shows as ``±0.0``."""
    if value == 0:
        return "0"
    rounded = round(value, decimals)
    return f"±{abs(rounded):.{decimals}f}" if rounded == 0 else f"{rounded:+.{decimals}f}"


def paired_bounds(pair: Paired, decimals: int = 1) -> str:
    """``[-88.0, -82.5]``, the 95 % interval of the difference; empty for one seed."""
    if pair.low is None or pair.high is None:
        return ""
    return f"[{signed(pair.low, decimals)}, {signed(pair.high, decimals)}]"


def both(pair: Paired, decimals: int = 1) -> str:
    """``9.09 -> 7.34``."""
    return f"{amount(pair.base, decimals)} -> {amount(pair.patched, decimals)}"


def short(value: float | None) -> str:
    """A value with four significant digits."""
    return figure(value, 4)


def few(pair: Paired) -> str:
    """Both values with four significant digits."""
    return f"{short(pair.base)} -> {short(pair.patched)}"


def paired_change(pair: Paired | None) -> str:
    """The change in percent; where base is zero, that there was nothing."""
    if pair is None or (pair.change is None and not pair.patched):
        return NOTHING
    return "from 0" if pair.change is None else percent(pair.change)


def moved(pair: Paired | None) -> str:
    """:func:`paired_change`, in parentheses where it is not significant."""
    change = paired_change(pair)
    return f"({change})" if pair is not None and pair.is_uncertain else change


def moved_if_at_all(pair: Paired) -> str:
    """:func:`moved`, and ``unchanged`` where both arms are equal on every seed."""
    return "unchanged" if pair.equal else moved(pair)
