"""Numbers, changes and verdicts as text: the one place, so that forms and charts agree."""

from __future__ import annotations

import math
from collections.abc import Iterable
from urllib.parse import quote

from experiment.spec import FUNCTIONS, Experiment, KernelSpec, Thresholds
from reports import wall_power
from reports.by_arm import ArmCell, MetricRow
from reports.many import SessionComparison
from reports.model import Comparison, MetricComparison, Reference, is_share
from reports.paired import Paired
from reports.verdict import CALLED, MISSING, PENDING, Judgement, Verdict
from reports.wall_statistics import FEWEST_AGAIN
from results.record import Manifest

SIGNIFICANT = 6
LORE = "https://lore.kernel.org/r/"
NOTHING = "–"
# Tenfold: bounds beyond are not told apart.
WIDEST = 9.0
# Bounds that are closer than this factor say something, however large they are.
APART = 3.0
# From twice as much, or a fifth, on, a factor says more than a percentage.
MORE, FEWER = 1.0, 0.8
# Beside every verdict, for the eye; the word stands beside it.
MARKS = {
    "improvement": "▲",
    "regression": "▼",
    "no change": "=",
    "inconclusive": "?",
    "not judged": "?",
    "not finished": "…",
    "failed": "✕",
    "not tested": "⊘",
    "unexplained": "!",
}
# In the order a reader wants to hear of them.
PLURALS = {
    Verdict.REGRESSION: "regressions",
    Verdict.FAILED: "failed",
    Verdict.NOT_FINISHED: "not finished",
    Verdict.NOT_TESTED: "not tested",
    Verdict.IMPROVEMENT: "improvements",
    Verdict.NO_CHANGE: "unchanged",
    Verdict.UNEXPLAINED: "unexplained",
    Verdict.INCONCLUSIVE: "inconclusive",
    Verdict.NOT_JUDGED: "not judged",
}


def series_title(experiment: Experiment) -> str:
    """What is under test in few words: the series, or that there is none."""
    series = experiment.series
    return series.title or series.path if series else "no series"


def titles(manifest: Manifest) -> str:
    """The titles of the series under test as they were posted; empty where none is known."""
    series = manifest.experiment.series
    posted = ", ".join(record.title for record in manifest.series if record.title)
    return (series.title if series else "") or posted


def title(manifest: Manifest) -> str:
    """What a report is called: a session of a series alone, which has no title, by the series'."""
    experiment = manifest.experiment
    unnamed = experiment.series and experiment.title == f"series {experiment.series.path}"
    return titles(manifest) or experiment.title if unnamed else experiment.title


def posting(message_id: str) -> str:
    """The address of a mail at lore.kernel.org by its message-id; empty for none."""
    plain = message_id.strip().strip("<>")
    return f"{LORE}{quote(plain, safe='@+=')}/" if "@" in plain else ""


def sources(experiment: Experiment) -> str:
    """Where the arms' kernels come from, each once, with the flavour of those built here."""
    kernels = [arm.kernel or experiment.kernel for arm in experiment.all_arms]
    names = [built_as(kernel) for kernel in kernels]
    return "; ".join(dict.fromkeys(names))


def built_as(kernel: KernelSpec) -> str:
    """Where a kernel comes from; its flavour, and what it is built for, where it was built here."""
    if kernel.is_prebuilt:
        return kernel.source
    built_for = [kernel.built_for] if kernel.built_for else []
    return ", ".join([kernel.source, f"flavour {kernel.configuration}", *built_for])


def subject(experiment: Experiment) -> str:
    """What is compared: a series on its source, or kernels with each other."""
    kernels = [(arm.kernel or experiment.kernel).source for arm in experiment.all_arms]
    if experiment.series is None and len(set(kernels)) > 1:
        return " against ".join(dict.fromkeys(kernels))
    return f"{series_title(experiment)} on {experiment.kernel.source}"


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


def percent(fraction: float | None, *, decimals: int = 2) -> str:
    """A signed change: ``+1.31 %``; exactly zero has no sign."""
    if fraction is None:
        return NOTHING
    if fraction == 0:
        return "0 %"
    if abs(fraction) >= 10:
        decimals = 0
    rounded = round(100 * fraction, decimals)
    # A change that rounds to nothing must not look like the exact zero of an A/A.
    sign = "±" if rounded == 0 else ""
    return f"{sign}{abs(rounded):.{decimals}f} %" if sign else f"{rounded:+.{decimals}f} %"


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


def bounds(metric: MetricComparison) -> str:
    """``[+1.02, +1.60]`` in the unit of :func:`change`; empty where there is no interval."""
    change = metric.judgement.change
    if change is None or change.low is None or change.high is None:
        return ""
    return within(metric, change.low, change.high)


def within(metric: MetricComparison, low: float, high: float) -> str:
    """:func:`between` of two changes of a metric, of a share in points."""
    base = metric.base.mean if metric.base else None
    return points_between(base, low, high) if is_share(metric.unit) else between(low, high)


def points_between(base: float | None, low: float, high: float) -> str:
    """``[+1.02, +1.60]`` in points, of two changes of a share whose mean is ``base`` percent.

    That of two pairs may reach beyond the whole; no share does.
    """
    if base is None:
        return ""
    return f"[{base * low:+.2f}, {min(base * high, 100 - base):+.2f}]"


def between(low: float, high: float) -> str:
    """``[+1.02, +1.60]`` in percent, of two fractions."""
    exact = (1 + high) < APART * (1 + low)
    return f"[{_bound(low, exact=exact)}, {_bound(high, exact=exact)}]"


def interval(metric: MetricComparison) -> str:
    """``[+1.02, +1.60] at 99 %``; empty where there is no interval."""
    text, change = bounds(metric), metric.judgement.change
    return f"{text} at {100 * change.level:g} %" if text and change else ""


def _bound(fraction: float, *, exact: bool = False) -> str:
    # An interval of two pairs may reach to any power of ten: it is none to a reader.
    if fraction > WIDEST and not exact:
        return f"> {100 * WIDEST:+.0f}"
    rounded = round(100 * fraction, 2)
    return "0" if fraction == 0 else "0.00" if rounded == 0 else f"{rounded:+.2f}"


def threshold(thresholds: Thresholds) -> str:
    """The smallest change that matters, as a band around zero: ``±0.25 % (thp.work: ±5 %)``.

    That of functions is none.
    """
    own = [
        f"{name}: ±{100 * change:g} %"
        for name, change in sorted(thresholds.metrics.items())
        if not name.endswith(f".{FUNCTIONS}")
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
    return sized(metric.judgement.change.estimate if metric.judgement.change else None)


def pair_change(metric: MetricComparison, base: float, other: float | None) -> str:
    """How one value of a metric differs from that of base, as :func:`change` says it."""
    if other is None or not (base or is_share(metric.unit)):
        return NOTHING
    return points(other - base) if is_share(metric.unit) else percent(other / base - 1)


def seeds(count: int) -> str:
    """``1 seed``, ``8 seeds``."""
    return f"{count} seed" if count == 1 else f"{count} seeds"


def blocks(count: int) -> str:
    """``1 block``, ``24 blocks``: what wall sessions repeat."""
    return f"{count} block" if count == 1 else f"{count} blocks"


def verdict(metric: MetricComparison) -> str:
    """The verdict's word; for a secondary metric what stands out, or nothing."""
    judgement = metric.judgement
    if judgement.verdict is not None:
        return str(judgement.verdict)
    if not judgement.differs or judgement.change is None:
        return ""
    better = (judgement.change.estimate > 0) == (metric.direction == "higher")
    return "better" if better else "worse"


def judged(metric: MetricComparison) -> str:
    """:func:`verdict`, of no change with what it is within: ``no change (< 0.5 %)``."""
    limit = metric.judgement.limit
    return f"{verdict(metric)}{f' (< {100 * limit:g} %)' if limit is not None else ''}"


def published(metric: MetricComparison) -> str:
    """``published +7.38 %`` for each published figure of the metric, joined by commas."""
    changes = ", ".join(map(reference_change, metric.published))
    return f"published {changes}" if changes else ""


def values(metric: MetricComparison) -> str:
    """``259.019 -> 262.032 virtual MiB/s, 8 seeds``; empty where nothing was measured."""
    if metric.base is None or metric.patched is None:
        return ""
    both = f"{figure(metric.base.mean)} -> {figure(metric.patched.mean)}"
    return f"{both}{after(metric.unit)}, {samples(metric)}"


def samples(metric: MetricComparison) -> str:
    """``8 seeds``; in wall mode, where a seed is not what runs differ by, ``24 blocks``."""
    count = metric.base.n if metric.base else 0
    return seeds(count) if metric.again is None else blocks(count)


def reason(metric: MetricComparison) -> str:
    """Why, where the numbers do not say it themselves: not for improvement and regression.

    Of these only that correctness may take them back.
    """
    judgement = metric.judgement
    if judgement.verdict in CALLED:
        return PENDING if judgement.reason.endswith(PENDING) else ""
    return judgement.reason


def head(metric: MetricComparison) -> str:
    """First half of the sentence: what changed by how much, and the verdict."""
    parts = (
        (metric.case, metric.name, "not measured", verdict(metric))
        if metric.judgement.change is None
        else (metric.case, metric.name, change(metric), interval(metric), judged(metric))
    )
    return "  ".join(part for part in parts if part)


def tail(metric: MetricComparison) -> str:
    """Second half: reason, values, number of seeds, the published change."""
    text = "; ".join(part for part in (reason(metric), values(metric)) if part)
    reference = published(metric)
    return f"{text} ({reference})" if text and reference else text or reference


def sentence(metric: MetricComparison) -> str:
    """The metric in one line a tired maintainer understands."""
    rest = tail(metric)
    return f"{head(metric)}   {rest}" if rest else head(metric)


def reference_change(reference: Reference) -> str:
    """The change of a published figure, as :func:`change` says it."""
    if is_share(reference.unit):
        return points(reference.patched - reference.base)
    return sized(reference.change)


def reference_values(reference: Reference) -> str:
    """``2445.02 -> 2625.56 MiB/s``."""
    return f"{reference.base:.2f} -> {reference.patched:.2f} {reference.unit}"


def verdict_counts(judgements: Iterable[Judgement]) -> str:
    """``1 regression, 2 unchanged (within 0.25 and 5 %)``; empty for no verdict."""
    by_verdict: dict[Verdict | None, list[Judgement]] = {}
    for judgement in judgements:
        by_verdict.setdefault(judgement.verdict, []).append(judgement)
    return ", ".join(
        f"{len(alike)} {plural if len(alike) > 1 or verdict is Verdict.NO_CHANGE else verdict}"
        f"{limits(alike)}"
        for verdict, plural in PLURALS.items()
        if (alike := by_verdict.get(verdict))
    )


def limits(judgements: Iterable[Judgement]) -> str:
    """What unchanged metrics are within, each limit once: `` (within 0.25, 0.5 and 5 %)``."""
    numbers = sorted({each.limit for each in judgements if each.limit is not None})
    *others, last = [f"{100 * number:g}" for number in numbers] or [""]
    return f" (within {' and '.join(filter(None, (', '.join(others), last)))} %)" if last else ""


# Arms beside each other: what is compared, and one cell of a row.


def against(session: SessionComparison) -> str:
    """What is compared with what."""
    compare, base = session.manifest.experiment.compare, session.manifest.base
    many = len(session.comparisons)
    if many == 1:
        return f"{session.arms[1].name} against {base}"
    if compare == "pairs":
        return f"all {many} pairs of {len(session.arms)} arms"
    if compare == "steps":
        return f"each of {len(session.arms)} arms against the one before, and the last against base"
    return f"{len(session.arms) - 1} arms against {base}"


def family(session: Comparison | SessionComparison) -> str:
    """How many comparisons the p values are corrected for: all of the session are one family."""
    many = len(session.primary)
    if many == 1:
        return "1 comparison, so p values need no correction"
    return f"{many} comparisons; their p values are Holm-corrected"


def pair(comparison: Comparison) -> str:
    """``base -> sorted``."""
    return f"{comparison.manifest.base} -> {comparison.manifest.patched}"


def pair_counts(comparison: Comparison) -> str:
    """``1 regression, 2 unchanged``: one pair's verdicts in few words."""
    if not comparison.measured and comparison.count(Verdict.FAILED) == len(comparison.primary):
        return "not measured"
    return verdict_counts(metric.judgement for metric in comparison.primary) or "nothing judged"


def cell_figure(cell: ArmCell) -> str:
    """The arm's mean; a dash where nothing was measured."""
    return figure(cell.summary.mean if cell.summary else None)


def cell_difference(row: MetricRow, cell: ArmCell) -> float | None:
    """Of a metric that is a percentage: the arm's mean less that of base, in points."""
    if cell.summary is None or row.base.summary is None:
        return None
    return cell.summary.mean - row.base.summary.mean


def cell_change(row: MetricRow, cell: ArmCell) -> str:
    """The arm's change from base in percent; in points where the metric is a percentage."""
    if row.is_share:
        return points(cell_difference(row, cell))
    return percent(cell.change.estimate if cell.change else None)


def cell_bounds(row: MetricRow, cell: ArmCell) -> str:
    """The interval of the change, in its unit; empty where there is none."""
    change = cell.change
    if change is None or change.low is None or change.high is None:
        return ""
    if row.is_share:
        base = row.base.summary.mean if row.base.summary else None
        return points_between(base, change.low, change.high)
    return between(change.low, change.high)


def cell_verdict(cell: ArmCell) -> str:
    """The verdict's word, or what stands out; empty for the base and where none was asked."""
    return verdict(cell.against) if cell.against else ""


def row_samples(row: MetricRow) -> str:
    """``8 seeds``, in wall mode ``24 blocks``; where arms have not as many, ``6 to 8 seeds``."""
    counts = sorted({len(cell.values) for cell in row.cells})
    if not counts or counts == [0]:
        return "nothing measured"
    in_wall = any(cell.against and cell.against.again for cell in row.others)
    most = blocks(counts[-1]) if in_wall else seeds(counts[-1])
    return most if len(counts) == 1 else f"{counts[0]} to {most}"


def references(session: SessionComparison) -> tuple[tuple[str, Reference], ...]:
    """Every published figure with the arm it is of, once."""
    lines = [
        (comparison.manifest.patched, reference)
        for comparison in session.comparisons
        if comparison.manifest.base == session.manifest.base
        for reference in comparison.published
    ]
    return tuple(dict.fromkeys(lines))


# A/A: what base differs by from itself, in wall mode.


def again_size(metric: MetricComparison) -> str:
    """What base differs by from itself, as changes are given; a dash where it is not known."""
    estimate = metric.again.estimate if metric.again else None
    if is_share(metric.unit) and metric.base and estimate is not None:
        return points(metric.base.mean * estimate)
    return percent(estimate)


def noise(metric: MetricComparison) -> str:
    """``base against itself differs by +0.12 % [-0.30, +0.41] at 99 % (24 blocks), so ...``."""
    again = metric.again
    if again is None or not again.pairs:
        return "no block has results of every arm"
    if again.estimate is None:
        return "no ratio: a value is zero or not a number"
    text = f"base against itself differs by {again_size(metric)}"
    many = blocks(again.pairs)
    if again.low is None or again.high is None:
        text = f"{text} in {many}, too few for an interval"
    else:
        bounds = within(metric, again.low, again.high)
        text = f"{text} {bounds} at {100 * again.level:.4g} % ({many})"
    smallest = f"{100 * again.change:g} %"
    if again.differs:
        # How many blocks a steady host would need is no advice for one that is not.
        return f"{text}. That is significant: the host is too unstable for a verdict"
    if again.beyond:
        return f"{text}; more than {wall_power.MOST_BLOCKS} blocks needed to detect {smallest}"
    if again.needed is not None:
        return f"{text}; {again.needed} blocks needed to detect {smallest}"
    if again.pairs < FEWEST_AGAIN:
        return f"{text}; too few blocks to estimate how many would detect {smallest}"
    return text


def noise_lines(comparison: Comparison) -> list[str]:
    """One line a primary metric; none in exact mode."""
    return [
        f"A/A on this host, {metric.case} {metric.name}: {noise(metric)}"
        for metric in comparison.primary
        if metric.again is not None
    ]


# Means of counts on both arms of a pair, per unit of work.


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


def few(pair: Paired | None) -> str:
    """Both values with four significant digits; empty for None."""
    return "" if pair is None else f"{short(pair.base)} -> {short(pair.patched)}"


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
