"""How numbers and verdicts are said: the one place, so that forms use the same words."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from experiment.spec import Experiment, KernelSpec
from reports.model import Comparison, MetricComparison, Reference
from reports.verdict import CALLED, Verdict

if TYPE_CHECKING:
    from reports.many import SessionComparison

SIGNIFICANT = 6
NOTHING = "–"
# In the order a reader wants to hear of them.
PLURALS = {
    Verdict.REGRESSION: "regressions",
    Verdict.FAILED: "failed",
    Verdict.IMPROVEMENT: "improvements",
    Verdict.NO_CHANGE: "without change",
    Verdict.INCONCLUSIVE: "inconclusive",
}

# Tenfold: bounds beyond are not told apart.
WIDEST = 9.0
# Bounds that are closer than this factor say something, however large they are.
APART = 3.0
# From twice as much, or a fifth, on, a factor says more than a percentage.
MORE, FEWER = 1.0, 0.8


def clean(text: str, *, lines: bool = False) -> str:
    """Text without control, bidirectional or surrogate characters; ``lines`` keeps newlines.

    Guests and hosts are not trusted: what they say must not move a cursor, hide
    behind right-to-left marks or break the encoding.
    """
    return "".join(c if c.isprintable() or (lines and c == "\n") else " " for c in text)


def series_title(experiment: Experiment) -> str:
    """What is under test in few words: the series, or that there is none."""
    series = experiment.series
    return series.title or series.path if series else "no series"


def sources(experiment: Experiment) -> str:
    """Where the arms' kernels come from, each once, with the flavour of those built here."""
    kernels = [arm.kernel or experiment.kernel for arm in experiment.all_arms]
    said = [built_as(kernel) for kernel in kernels]
    return "; ".join(dict.fromkeys(said))


def built_as(kernel: KernelSpec) -> str:
    """Where a kernel comes from; its flavour, and what it is built for, where it was built here."""
    if kernel.is_prebuilt:
        return kernel.source
    built_for = [kernel.built_for] if kernel.built_for else []
    return ", ".join([kernel.source, f"flavour {kernel.flavour}", *built_for])


def subject(experiment: Experiment) -> str:
    """What is compared: a series on its source, or kernels with each other."""
    kernels = [(arm.kernel or experiment.kernel).source for arm in experiment.all_arms]
    if experiment.series is None and len(set(kernels)) > 1:
        return " against ".join(dict.fromkeys(kernels))
    return f"{series_title(experiment)} on {experiment.kernel.source}"


def typeset(text: str) -> str:
    """Numbers as a page prints them: true minus signs and arrows instead of ASCII."""
    return re.sub(r"(?<![\w-])-(?=\d)", "−", text.replace(" -> ", " → "))


def after(unit: str) -> str:
    """A unit as it follows a number, with its space; nothing for a plain ratio, whose unit is 1."""
    return "" if unit == "1" else f" {unit}"


def wrap_command(command: str, width: int) -> list[str]:
    """A command line broken at words with backslashes, each line within ``width`` if words are."""
    lines, line = [], ""
    for word in command.split(" "):
        longer = f"{line} {word}" if line else word
        if line and len(longer) > width - 2:
            lines.append(f"{line} \\")
            line = f"  {word}"
        else:
            line = longer
    return [*lines, line]


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
    said = percent(fraction)
    if fraction is None or -FEWER < fraction < MORE or fraction <= -1:
        return said
    factor = 1 + fraction if fraction > 0 else 1 / (1 + fraction)
    # Three digits, and all of them before the point: 1053 and not 1.05e+03.
    size = f"{factor:.3g}" if factor < 999.5 else f"{factor:.0f}"
    return f"{said} ({size}x)" if fraction > 0 else f"{said} (1/{size})"


def spread(fraction: float | None) -> str:
    """A relative standard deviation: ``±0.25 %``; a dash where there is none."""
    return NOTHING if fraction is None else f"±{100 * fraction:.2f} %"


def bounds(metric: MetricComparison) -> str:
    """``[+1.02, +1.60]`` in percent; empty where there is no interval."""
    change = metric.judgement.change
    if change is None or change.low is None or change.high is None:
        return ""
    return between(change.low, change.high)


def between(low: float, high: float) -> str:
    """``[+1.02, +1.60]`` in percent, of two fractions."""
    known = (1 + high) < APART * (1 + low)
    return f"[{_bound(low, known=known)}, {_bound(high, known=known)}]"


def interval(metric: MetricComparison) -> str:
    """``[+1.02, +1.60] at 99 %``; empty where there is no interval."""
    within, change = bounds(metric), metric.judgement.change
    return f"{within} at {100 * change.level:g} %" if within and change else ""


def _bound(fraction: float, *, known: bool = False) -> str:
    # An interval of two pairs may reach to any power of ten: it is none to a reader.
    if fraction > WIDEST and not known:
        return f"> {100 * WIDEST:+.0f}"
    rounded = round(100 * fraction, 2)
    return "0" if fraction == 0 else "0.00" if rounded == 0 else f"{rounded:+.2f}"


def change(metric: MetricComparison) -> str:
    """The change of a metric in percent; a dash where there is none."""
    return sized(metric.judgement.change.estimate if metric.judgement.change else None)


def seeds(count: int) -> str:
    """``1 seed``, ``8 seeds``."""
    return f"{count} seed" if count == 1 else f"{count} seeds"


def verdict(metric: MetricComparison) -> str:
    """The verdict's word; for a secondary metric what stands out, or nothing."""
    judgement = metric.judgement
    if judgement.verdict is not None:
        return str(judgement.verdict)
    if not judgement.differs or judgement.change is None:
        return ""
    better = (judgement.change.estimate > 0) == (metric.direction == "higher")
    return "better" if better else "worse"


def published(metric: MetricComparison) -> str:
    """``published +7.38 %`` for each published figure of the metric, joined by commas."""
    changes = ", ".join(sized(reference.change) for reference in metric.published)
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
    if metric.again is None:
        return seeds(count)
    return f"{count} block" if count == 1 else f"{count} blocks"


def reason(metric: MetricComparison) -> str:
    """Why, where the numbers do not say it themselves: not for improvement and regression."""
    judgement = metric.judgement
    if judgement.verdict in CALLED:
        return ""
    return judgement.reason


def head(metric: MetricComparison) -> str:
    """First half of the sentence: what changed by how much, and the verdict."""
    parts = (
        (metric.case, metric.name, "not measured", verdict(metric))
        if metric.judgement.change is None
        else (metric.case, metric.name, change(metric), interval(metric), verdict(metric))
    )
    return "  ".join(part for part in parts if part)


def tail(metric: MetricComparison) -> str:
    """Second half: reason, values, number of seeds, the published change."""
    shown = "; ".join(part for part in (reason(metric), values(metric)) if part)
    reference = published(metric)
    return f"{shown} ({reference})" if shown and reference else shown or reference


def sentence(metric: MetricComparison) -> str:
    """The metric in one line a tired maintainer understands."""
    rest = tail(metric)
    return f"{head(metric)}   {rest}" if rest else head(metric)


def bottom_line(comparison: Comparison | SessionComparison) -> str:
    """The whole comparison, or all of a session's, in one short sentence."""
    total = len(comparison.primary)
    if comparison.exactness.status == "inexact":
        return "The session failed: a repeated run gave other bits"
    if not total:
        return "No primary metric: nothing is judged"
    said = [(verdict, comparison.count(verdict)) for verdict in PLURALS]
    words = [
        f"{'all' if count == total and total > 1 else count} "
        f"{PLURALS[verdict] if count > 1 or verdict is Verdict.NO_CHANGE else verdict}"
        for verdict, count in said
        if count
    ]
    if total == 1:
        words = [str(next(verdict for verdict, count in said if count))]
    line = ", ".join(words)
    return f"{line[0].upper()}{line[1:]}"


def reference_values(reference: Reference) -> str:
    """``2445.02 -> 2625.56 MiB/s``."""
    return f"{reference.base:.2f} -> {reference.patched:.2f} {reference.unit}"
